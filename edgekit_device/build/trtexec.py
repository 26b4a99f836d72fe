"""One attempt at one engine through trtexec, for boards without TensorRT's Python bindings."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from edgekit_device.build.attempt import CRASHED, BuilderLog, check_plugins, code_of, last_errors
from edgekit_device.build.config import for_release
from edgekit_device.build.request import Attempt, BuiltEngine, EngineSpec
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import write_durably
from edgekit_device.jobs.job import JobCancelled
from edgekit_device.processes import ending_with_parent

_POLL_S = 0.2
_GRACE_S = 5.0
_BANNER = re.compile(r"&&&& RUNNING TensorRT\.trtexec \[TensorRT v(\d+)\]")
_BANNER_LINES = 20

# it puts these into the plan (modelToNetwork in samples/common/sampleEngines.cpp)
_VC_PLUGIN = re.compile(r"Using VC plugin library (\S+)")


def banner_version(line: str) -> str:
    """The release that a banner names: "v8502" is 8.5.2, "v100300" is 10.3.0; else ""."""
    match = _BANNER.search(line)
    if not match:
        return ""
    number = int(match.group(1))
    # two digits for each part since version 10 (NvInferVersion.h)
    step = 100 if number >= 100000 else 10
    if step == 10:
        return "{}.{}.{}".format(number // 1000, number // 100 % 10, number % 100)
    return "{}.{}.{}".format(number // 10000, number // 100 % 100, number % 100)


def build_attempt(
    program: Path,
    log: BuilderLog,
    spec: EngineSpec,
    attempt: Attempt,
    command: Sequence[str],
    *,
    folder: Path,
    model: Path,
    cache: Optional[bytes],
    version: str,
    timing: Optional[Path],
    on_progress: Callable[[int, int, str], None],
    cancelled: Callable[[], bool],
) -> BuiltEngine:
    """Runs trtexec once.

    Args:
        program: trtexec.
        log: Takes its output.
        spec: The engine.
        attempt: The flags that the command stands for.
        command: Arguments with placeholders ({model}, {engine}, {calibration}, {timing_cache},
            {layer_info}).
        folder: For its temporary files.
        model: The ONNX file.
        cache: The calibration cache.
        version: The board's TensorRT, for the cache's header; "" leaves it.
        timing: The shared timing cache; trtexec works on a copy of it.
        on_progress: Called with (0, 0, stage).
        cancelled: Whether to stop: trtexec is ended.

    Raises:
        DeviceError: "build.attempt", "build.crashed", "build.no-memory" or "build.plugins"; or
            "build.trtexec" when it cannot be started.
        JobCancelled: ``cancelled`` said so.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "model": model,
        "engine": folder / "engine",
        "calibration": folder / "calibration.cache",
        "timing_cache": folder / "timing.cache",
        "layer_info": folder / "layers.json",
    }
    if cache is not None:
        files["calibration"].write_bytes(for_release(cache, version) if version else cache)
    before = timing.read_bytes() if timing is not None and timing.exists() else b""
    if before:
        files["timing_cache"].write_bytes(before)
    arguments = [_filled(text, files) for text in command]
    mark = log.mark()
    stages: List[str] = []

    def stage(name: str) -> None:
        if name not in stages:
            stages.append(name)
            on_progress(0, 0, name)

    log.stage = stage
    try:
        status = _run([str(program), *arguments], folder, log, cancelled)
    finally:
        log.stage = None
    engine = files["engine"]
    if status != 0 or not engine.is_file() or not engine.stat().st_size:
        raise _failed(spec, log, mark, status)
    check_plugins(spec, attempt.flags, _VC_PLUGIN.findall(log.text()))
    built = BuiltEngine(engine.read_bytes(), flags=attempt.flags)
    if files["layer_info"].is_file():
        built.inspector = files["layer_info"].read_text(encoding="utf-8", errors="replace")
    said = (banner_version(line) for line in log.text().splitlines()[:_BANNER_LINES])
    built.version = next(filter(None, said), "")
    built.timing_cache = _keep(timing, files["timing_cache"], before)
    return built


def _filled(text: str, files: Mapping[str, Path]) -> str:
    for name, path in files.items():
        text = text.replace("{" + name + "}", str(path))
    return text


def _run(
    command: Sequence[str], folder: Path, log: BuilderLog, cancelled: Callable[[], bool]
) -> int:
    log.raw("$ " + " ".join(command))
    end_with_parent = ending_with_parent()

    def apart() -> None:
        # its own group, so that all of it can be ended
        os.setpgid(0, 0)
        end_with_parent()

    try:
        process = subprocess.Popen(
            list(command),
            cwd=str(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=apart,  # noqa: PLW1509  (two system calls, nothing else)
        )
    except OSError as error:
        raise DeviceError(
            "cannot start trtexec: {}".format(error.strerror or error),
            code="build.trtexec",
            where=command[0],
            hint="install libnvinfer-bin (/usr/src/tensorrt/bin)",
        ) from error
    try:
        _read(process, log, cancelled)
        return process.wait()
    finally:
        _end(process)
        if process.stdout is not None:
            process.stdout.close()


def _read(process: Any, log: BuilderLog, cancelled: Callable[[], bool]) -> None:
    handle, rest = process.stdout.fileno(), b""
    while True:
        if cancelled():
            raise JobCancelled
        if not select.select([handle], [], [], _POLL_S)[0]:
            continue
        data = os.read(handle, 1 << 16)
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        for line in lines:
            log.raw(line.decode("utf-8", "replace").rstrip("\r"))
        if not data:
            if rest:
                log.raw(rest.decode("utf-8", "replace"))
            return


def _end(process: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + _GRACE_S
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S / 10)
    # what it started itself
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _failed(spec: EngineSpec, log: BuilderLog, mark: int, status: int) -> DeviceError:
    if status < 0:
        how = "was stopped by {}".format(signal.Signals(-status).name)
    elif status:
        how = "failed with exit status {}".format(status)
    else:
        how = "wrote no engine"
    said = last_errors(log.since(mark, "EF")) or last_errors(log.since(mark, "W")[-3:])
    return DeviceError(
        "trtexec {}: {}".format(how, said or "it gives no reason"),
        code=CRASHED if status < 0 else code_of(said),
        where=spec.key,
        hint="`edgekit jobs log` shows its full output",
    )


def _keep(timing: Optional[Path], own: Path, before: bytes) -> Dict[str, Any]:
    if timing is None:
        return {}
    after = own.read_bytes() if own.is_file() else b""
    # one build runs on a board at a time: no other process wrote meanwhile
    if after and after != before:
        with map_os_errors(str(timing)):
            timing.parent.mkdir(parents=True, exist_ok=True)
            write_durably(timing, after)
    return {
        "entries_bytes_before": len(before), "after": len(after or before), "reused": bool(before)
    }  # fmt: skip
