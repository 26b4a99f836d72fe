"""Gives a real lean runtime of TensorRT plans that it must refuse.

    pip install tensorrt-lean-cu12-libs==V tensorrt-lean-cu12-bindings==V   # with --no-deps
    python scripts/lean_check.py [--json FILE]

Needs no TensorRT but these two wheels, and a GPU; without one every case must end in a clear error
and none in a crash. Each case runs in a process of its own. Exit 1 when one was not refused with
the code that edgekit gives it, or ended its process.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edgekit_device.cuda.driver import CtypesDriverApi, Cuda, load_driver, open_cuda
from edgekit_device.errors import DeviceError
from edgekit_device.tensorrt.bindings import find_fault, find_module, make_logger, module_version
from edgekit_device.tensorrt.plan import read_header
from edgekit_device.tensorrt.runtimes import (
    RuntimeChoice,
    deserialize,
    runtime_choices,
    start_runtime,
)
from edgekit_device.versions import show

_NO_GPU = "board.no-gpu"
_BODY = bytes(4096)


def _forge_plan(
    version: tuple[int, ...],
    body: bytes = _BODY,
    *,
    serialization: int = 0,
    platform: int = 0,
    more: int = 0,
) -> bytes:
    """A forged plan: a true header before nonsense.

    ``more`` bytes are the excess of its recorded size, ``platform`` is the tag of another platform.
    """
    four = (*version, 0, 0, 0)[:4]
    size = 32 + len(body) + more
    head = b"ftrt" + struct.pack("<IQQ", serialization, 0, size) + bytes(four)
    return head + struct.pack("<I", platform) + body


def _module() -> Any:
    found = find_module("lean")
    if found is None:
        raise SystemExit("no lean runtime here: {}".format(find_fault("lean")))
    return found


def _read_header(data: bytes) -> Callable[[], str]:
    return lambda: f"a plan of {show(read_header(data))}"


def _load(data: bytes, library: str | None = None, **more: Any) -> Callable[[], str]:
    def call() -> str:
        module = _module()
        start_runtime(module)
        choice = RuntimeChoice("lean", None if library is None else Path(library), host_code=True)
        deserialize(module, data, choice, **more)
        return "loaded"

    return call


def _choose_runtime(version: tuple[int, ...], compatible: bool) -> Callable[[], str]:
    def call() -> str:
        found = runtime_choices(
            version,
            {"lean": module_version(_module())},
            version_compatible=compatible,
            lean_embedded=False,
            trusted=True,
            find_lean=lambda _: None,
        )
        return str(found)

    return call


def _round_trip(cuda: Cuda) -> str:
    """Copies, streams and events; a kernel's name that is not there."""
    import numpy as np

    source, found = np.arange(1 << 16, dtype=np.uint8), np.zeros(1 << 16, np.uint8)
    first, second, pinned = cuda.malloc(1 << 16), cuda.malloc(1 << 16), cuda.host_alloc(1 << 16)
    stream, other, begin, end = cuda.stream(), cuda.stream(), cuda.event(), cuda.event()
    cuda.record(begin, stream)
    cuda.copy(first, source.ctypes.data, 1 << 16, "h2d", stream)
    cuda.copy(second, first, 1 << 16, "d2d", stream)
    cuda.record(end, stream)
    cuda.wait(other, end)
    cuda.copy(pinned, second, 1 << 16, "d2h", other)
    cuda.copy(found.ctypes.data, second, 1 << 16, "d2h", other)
    cuda.synchronize(other)
    spent = cuda.elapsed_ms(begin, end)
    assert np.array_equal(source, found)
    assert spent >= 0
    for event in (begin, end):
        cuda.destroy_event(event)
    for each in (stream, other):
        cuda.destroy_stream(each)
    cuda.free(first)
    cuda.free(second)
    cuda.host_free(pinned)
    try:
        cuda.load_module(b"no image\0")
    except DeviceError as error:
        return f"{json.dumps(cuda.facts())}; a bad image: {error.message}"
    raise AssertionError("a bad image was loaded")


def _ctypes_way() -> str:
    library = load_driver()
    if library is None:
        return _round_trip(open_cuda())
    return _round_trip(Cuda(CtypesDriverApi(library)))


def _check_attributes() -> str:
    """Every attribute that the loader sets on a runtime is there and takes its value."""
    module = _module()
    start_runtime(module)
    said: list[tuple[str, str]] = []
    retained = make_logger(module, lambda *line: said.append(line))
    runtime = module.Runtime(retained)
    runtime.engine_host_code_allowed = True
    runtime.max_threads = 2
    with tempfile.TemporaryDirectory() as folder:
        runtime.temporary_directory = folder
        assert str(runtime.temporary_directory) == folder
    return f"DLA cores {runtime.num_DLA_cores}, said {said[-2:]}"


def _own_library() -> str:
    import importlib

    folder = Path(str(importlib.import_module("tensorrt_lean_libs").__file__)).parent
    return _load(b"ftrt", library=str(sorted(folder.glob("libnvinfer_lean.so*"))[0]))()


def cases(version: tuple[int, ...]) -> dict[str, tuple[Callable[[], str], tuple[str, ...]]]:
    """By name: the action, and the codes that are right where there is a GPU ("" for success)."""
    older, newer = (version[0], 0, 1, 6), (version[0], 99, 0, 0)
    onnx, loadable = b"\x08\x08\x12\x06pytest" + _BODY, b"\x10\0\0\0NVDA" + _BODY
    nowhere = "/nowhere/libnvinfer_lean.so"
    no_plan, cut = ("engine.not-a-plan",), ("engine.truncated",)
    invalid = ("engine.invalid", "engine.version", "engine.not-version-compatible")
    return {
        "cuda by cuda-python or ctypes": (lambda: _round_trip(open_cuda()), ("",)),
        "cuda by ctypes": (_ctypes_way, ("",)),
        "start": (lambda: json.dumps(start_runtime(_module()).facts()), ("",)),
        "attributes": (_check_attributes, ("",)),
        "header: garbage": (_read_header(os.urandom(64)), no_plan),
        "header: empty": (_read_header(b""), cut),
        "header: cut": (_read_header(b"ftrt\0\0\0"), cut),
        "header: an ONNX file": (_read_header(onnx), no_plan),
        "header: a loadable": (_read_header(loadable), no_plan),
        "header: other serialization": (
            _read_header(_forge_plan(version, serialization=1)),
            ("engine.serialization",),
        ),
        "pick: another release": (_choose_runtime(older, False), ("engine.version",)),
        "pick: not version-compatible": (_choose_runtime(version, False), ("engine.version",)),
        "pick: later than this": (_choose_runtime(newer, True), ("engine.version",)),
        "pick: earlier, no lean library": (_choose_runtime(older, True), ("engine.version",)),
        "load: garbage": (_load(os.urandom(4096)), invalid),
        "load: empty": (_load(b""), cut),
        "load: the tag alone": (_load(b"ftrt"), cut),
        "load: cut": (_load(_forge_plan(version, more=7)), cut),
        "load: header and nonsense": (_load(_forge_plan(version)), invalid),
        "load: of an older release": (_load(_forge_plan(older)), invalid),
        "load: of a later release": (_load(_forge_plan(newer)), invalid),
        "load: of another platform": (
            _load(_forge_plan(version, platform=1)),
            ("engine.other-board",),
        ),
        "load: garbage by a stream reader": (_load(os.urandom(4096), large=0), invalid),
        "load: nonsense by a stream reader": (_load(_forge_plan(version), large=0), invalid),
        "load: DLA core 0": (_load(_forge_plan(version), dla_core=0), ("engine.dla",)),
        "load_runtime: no such file": (_load(b"ftrt", library=nowhere), ("engine.version",)),
        "load_runtime: its own library": (_own_library, cut),
    }


def _run_case(name: str) -> None:
    call, _ = cases(module_version(_module()))[name]
    begun = time.perf_counter()
    answer: dict[str, Any] = {"code": "", "message": "", "hint": ""}
    try:
        answer["message"] = call()
    except DeviceError as error:
        answer.update(code=error.code, message=error.message, hint=error.hint)
    answer["seconds"] = round(time.perf_counter() - begun, 2)
    print("\n" + json.dumps(answer))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the answers here too")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        _run_case(arguments.one)
        return 0
    module = _module()
    version = module_version(module)
    gpu = True
    try:
        open_cuda()
    except DeviceError as error:
        gpu = False
        print(f"no GPU here: {error.message}")
    print(f"lean runtime {show(version)} ({module.__name__})")
    answers, bad = {}, 0
    for name, (_, right) in cases(version).items():
        wanted = right
        done = subprocess.run(
            [sys.executable, __file__, "--one", name],
            capture_output=True,
            timeout=300,
            check=False,
        )
        lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
        if done.returncode or not lines:
            reported = done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
            answer: dict[str, Any] = {
                "code": "CRASH",
                "message": f"exit {done.returncode}: {reported}",
            }
        else:
            answer = json.loads(lines[-1])
        if not gpu and name.startswith(("cuda", "start", "attributes", "load")):
            wanted = (_NO_GPU, "cuda.no-driver", "cuda.no-device")
        good = answer["code"] in wanted
        bad += not good
        answers[name] = dict(answer, ok=good)
        mark = "ok " if good else "BAD"
        print("{} {:36} {:28} {}".format(mark, name, answer["code"] or "-", answer["message"]))
    if arguments.json:
        document = {"version": show(version), "gpu": gpu, "cases": answers}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{len(answers) - bad} of {len(answers)} as wanted")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
