"""The job "plugin": compiles a plugin's sources with CMake on this board, which has the library's
target machine, TensorRT and CUDA. The job's log has the output of CMake and the compiler.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Mapping, Sequence

from edgekit_device.errors import DeviceError, counted, listed, map_os_errors
from edgekit_device.jobs.job import JobContext
from edgekit_device.processes import end_with_parent
from edgekit_device.protocol.codec import (
    choice,
    digest,
    document,
    integer,
    mapping,
    member,
    read,
    text,
)

SCHEMA = "edgekit.plugin.request/1"
RESULT_SCHEMA = "edgekit.plugin.result/1"
#: Largest size of the sources in bytes.
MAX_SOURCE = 16 << 20
#: Limit for CMake and the compiler together, in seconds.
LIMIT_S = 1800.0

# relative, and without parts that lead out of the folder
_PATH = text(
    r"(?!/)(?!(?:.*/)?\.\.?(?:/|$))[^\x00-\x1f\x7f]{1,512}", "a path inside of the plugin's folder"
)
_LIBRARY = re.compile(r"[^/]+\.so(\.\d+)*\Z")
_PERCENT = re.compile(r"\[ *(\d{1,3})%\]|\[(\d{1,6})/(\d{1,6})\]")
_FAILED = re.compile(r"error|undefined reference|No such file|CMake Error|Could (not|NOT) find")
_SHOWN, _LONGEST = 3, 300
_MAX_LOG = 32 << 20
# JetPack's folder of nvcc, which is not on the PATH of a command over SSH
_CUDA = "/usr/local/cuda/bin"


@document(frozen=True)
class CompileRequest:
    """A plugin's sources.

    Attributes:
        name: The job's subject, for people: the operator.
        files: Digests of blobs in the board's store, by path in the folder.
    """

    name: str = member(text())
    files: Mapping[str, str] = member(mapping(digest, _PATH))
    schema: str = member(choice(SCHEMA), default=SCHEMA)


@document(frozen=True)
class CompiledPlugin:
    """The compiled library.

    Attributes:
        library: Digest of the library's blob.
        file: The library's file name.
    """

    library: str = member(digest)
    file: str = member(text(r"[^/\x00-\x1f\x7f]{1,255}", "a file name"))
    bytes: int = member(integer(0, 1 << 40))
    schema: str = member(choice(RESULT_SCHEMA), default=RESULT_SCHEMA)


def run(context: JobContext) -> CompiledPlugin:
    """Runs the job.

    Raises:
        DeviceError: "plugin.request"; "blob.*"; "plugin.cmake": there is no CMake;
            "plugin.compile": it failed, took too long, or did not make exactly one library.
        JobCancelled: It was cancelled.
    """
    request = read(CompileRequest, dict(context.request), "request", code="plugin.request")
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), _CUDA])
    cmake = shutil.which("cmake", path=path)
    if cmake is None:
        raise DeviceError(
            "the board has no CMake to compile the plugin with",
            code="plugin.cmake",
            where=request.name,
            hint="apt-get install cmake g++ on the board, or give a compiled library",
        )
    source, build = context.work / "source", context.work / "build"
    _unpack(context, request, source)
    steps = _Steps(request.name, context, {**os.environ, "PATH": path})
    steps.run(
        "configuring", [cmake, "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"]
    )
    # the cores that this process may use, fewer than the board's in a container
    jobs = str(len(os.sched_getaffinity(0)))
    steps.run("compiling", [cmake, "--build", str(build), "--parallel", jobs])
    # a CMakeLists.txt may write its library into the source folder
    library = _only_library(request.name, [source, build])
    with map_os_errors(str(library)):
        data = library.read_bytes()
    return CompiledPlugin(context.store(data), library.name, len(data))


def _unpack(context: JobContext, request: CompileRequest, folder: Path) -> None:
    remaining_bytes = MAX_SOURCE
    for name, blob in request.files.items():
        data = context.blob(blob)
        # the real sizes, which the request does not contain
        remaining_bytes -= len(data)
        if remaining_bytes < 0:
            raise DeviceError(
                "the plugin's sources are larger than {} MiB".format(MAX_SOURCE >> 20),
                code="plugin.request",
                where=request.name,
            )
        path = folder / name
        with map_os_errors(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


class _Steps:
    """Runs programs one after the other, within a common time limit."""

    def __init__(self, name: str, context: JobContext, environment: Dict[str, str]) -> None:
        self._name, self._context, self._environment = name, context, environment
        self._deadline = time.monotonic() + LIMIT_S
        self._logged = 0

    def run(self, what: str, command: Sequence[str]) -> None:
        """Runs a program; its lines go to the job's log, percentages in them to its events."""
        self._context.log("+ " + " ".join(command))
        self._context.progress(what, 0, 0)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._environment,
                # a group of its own, so that the compilers that CMake starts can be ended, too
                start_new_session=True,
                preexec_fn=end_with_parent(),  # noqa: PLW1509
            )
        except OSError as error:
            raise self._step_error("cannot start {}: {}".format(command[0], error)) from error
        failed: List[str] = []
        try:
            self._follow(process, what, failed)
            status = process.wait()
        finally:
            # in every case: a compiler may outlive CMake
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        if status != 0:
            said = "; ".join(failed[:_SHOWN]) or "exit status {}".format(status)
            raise self._step_error("{} failed: {}".format(what, said))

    def _follow(self, process: "subprocess.Popen[bytes]", what: str, failed: List[str]) -> None:
        assert process.stdout is not None
        handle, rest = process.stdout.fileno(), b""
        while True:
            self._context.check_cancelled()
            if time.monotonic() > self._deadline:
                raise self._step_error("{} took longer than {:.0f} s".format(what, LIMIT_S))
            # a short wait, so that a cancellation is noticed
            if not select.select([handle], [], [], 0.2)[0]:
                continue
            data = os.read(handle, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            # the end of the output, without a last line break
            if not data and rest:
                lines, rest = [rest], b""
            for line in lines:
                self._take(line.decode("utf-8", "backslashreplace"), what, failed)
            if not data:
                return

    def _take(self, line: str, what: str, failed: List[str]) -> None:
        self._logged += len(line)
        # errors and percentages are read to the end, also if the log is full
        if self._logged <= _MAX_LOG:
            self._context.log(line)
        if _FAILED.search(line) and len(failed) < _SHOWN:
            failed.append(" ".join(line.split())[:_LONGEST])
        match = _PERCENT.search(line)
        if match is not None:
            done, total = match.group(1) or match.group(2), match.group(3) or "100"
            self._context.progress(what, int(done), int(total))

    def _step_error(self, message: str) -> DeviceError:
        return DeviceError(
            "the plugin was not compiled: {}".format(message),
            code="plugin.compile",
            where=self._name,
            hint="`edgekit jobs log` shows the output of CMake and the compiler",
        )


def _only_library(name: str, folders: Sequence[Path]) -> Path:
    found: Dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.so*")):
            real = path.resolve()  # names with versions are links to the same file
            if _LIBRARY.match(path.name) and real.is_file():
                found.setdefault(str(real), path)
    if len(found) != 1:
        names = listed(sorted(path.name for path in found.values()))
        raise DeviceError(
            "CMake made {} ({}), but a plugin is one shared library".format(
                counted(len(found), "file"), names
            )
            if found
            else "CMake made no shared library",
            code="plugin.compile",
            where=name,
            hint="one add_library(NAME SHARED ...) in CMakeLists.txt",
        )
    return next(iter(found.values()))
