"""The zipapp with everything imported, forked for each command: a start costs 10 ms, not 200.

A command still is a process of its own that runs the zip's ``__main__`` on descriptors of its own.
Run as a program this is the process that forks; it reads requests from the socket on descriptor 0,
each with three descriptors (standard input, output and error), and answers with wait statuses.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import runpy
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

__all__ = ["run_forked"]

# what a running interpreter has read already: another value asks for a start of its own
_AT_START = ("PYTHON", "LD_", "OMP_", "OPENBLAS_", "MKL_")
_servers: dict[tuple[str, str], _Server] = {}


def run_forked(
    python: str, argv: Sequence[str], stdin: bytes, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Runs a loader's command; what ``subprocess.run`` with ``capture_output`` answers.

    Args:
        python: The interpreter.
        argv: The loader and its arguments.
        stdin: All of its input.
        environment: All of its environment.
        seconds: Fail after this time.
    """
    started = {name: value for name, value in environment.items() if name.startswith(_AT_START)}
    # a loader that was written anew is another one
    key = (
        f"{python} {argv[0]} {os.stat(argv[0]).st_mtime_ns}",
        json.dumps(sorted(started.items())),
    )
    if key not in _servers:
        _servers[key] = _Server(python, argv[0], environment)
    server = _servers[key]
    if not server.free.acquire(blocking=False):
        # two at once: it would run them one after the other, and mix up who waits for which
        return subprocess.run(
            [python, *argv],
            input=stdin,
            capture_output=True,
            env=dict(environment),
            timeout=seconds,
            check=False,
        )
    try:
        return server.run(argv, stdin, environment, seconds)
    finally:
        server.free.release()


class _Server:
    def __init__(self, python: str, loader: str, environment: Mapping[str, str]) -> None:
        self.free = threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [python, __file__, loader], stdin=theirs, env=dict(environment)
            )
        atexit.register(self._end)

    def run(
        self, argv: Sequence[str], stdin: bytes, environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[bytes]:
        with ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            files[0].write(stdin)
            for file in files:
                file.flush()
                file.seek(0)
            request = json.dumps([list(argv), dict(environment), str(Path.cwd())]).encode()
            self._socket.settimeout(seconds)
            head = struct.pack("<I", len(request))
            socket.send_fds(self._socket, [head], [file.fileno() for file in files])
            self._socket.sendall(request)
            (status,) = struct.unpack("<i", _exactly(self._socket, 4))
            for file in files:
                file.seek(0)
            code = os.waitstatus_to_exitcode(status)
            return subprocess.CompletedProcess(list(argv), code, files[1].read(), files[2].read())

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


def _exactly(channel: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = channel.recv(count - len(data))
        if not part:
            raise EOFError("the process that forks has ended")
        data += part
    return data


def _import_all(loader: str) -> None:
    import zipfile

    sys.path.insert(0, loader)
    import numpy  # noqa: F401

    with suppress(ImportError):
        import onnxruntime  # noqa: F401
    for name in zipfile.ZipFile(loader).namelist():
        # the program itself is run, and what opens GPUs asks for its libraries at import
        if name.startswith("edgekit_device/") and "__" not in name:
            __import__(name[: -len(".py")].replace("/", "."))


def _command(argv: list[str], environment: dict[str, str], folder: str, files: list[int]) -> int:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False))
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), line_buffering=False)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), write_through=True)
    sys.argv[:] = argv
    sys.path.remove(argv[0])  # the zip puts itself there
    status = 0
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    sys.stdout.flush()
    return status


def _serve(loader: str) -> None:
    # a command must not find this socket where its own standard input belongs
    channel = socket.socket(fileno=os.dup(0))
    _import_all(loader)
    gc.freeze()  # or each fork's collections copy the pages of all that was imported
    added: dict[str, str] | None = None
    while True:
        head, files, _, _ = socket.recv_fds(channel, 4, 3)
        if not head:
            return
        (length,) = struct.unpack("<I", head)
        argv, environment, folder = json.loads(_exactly(channel, length))
        if added is None:  # an interpreter may be a script that sets variables of its own
            added = {n: v for n, v in os.environ.items() if environment.get(n) != v}
        environment.update(added)
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                channel.close()
                status = _command(argv, environment, folder, files)
            except BaseException:
                sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            finally:
                os._exit(status)
        for file in files:
            os.close(file)
        channel.sendall(struct.pack("<i", os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, which has folders called "tensorrt" and "cuda"
    _serve(sys.argv[1])
