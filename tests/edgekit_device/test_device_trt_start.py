"""The first start of a runtime happens in a child, so that nothing takes the caller down."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.errors import DeviceError as Error
from edgekit_device.tensorrt import runtimes

BODY = """
import os
class ILogger:
    def __init__(self): pass
class Severity:
    name = "ERROR"
class Runtime:
    num_DLA_cores = 2
    def __init__(self, logger):
        {}
"""


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Makes modules whose Runtime does something, and counts the children."""
    monkeypatch.setattr(runtimes, "_KNOWN", {})
    monkeypatch.setattr(runtimes, "open_cuda", object)
    monkeypatch.syspath_prepend(str(tmp_path))
    calls: list[str] = []
    real = runtimes._try_start

    def counted(name: str) -> None:
        calls.append(name)
        real(name)

    monkeypatch.setattr(runtimes, "_try_start", counted)

    def make(name: str, action: str = "pass") -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.write_text(BODY.format(action))
        made = ModuleType(name)
        made.__file__, made.__version__ = str(file), "10.3.0"
        return made

    return SimpleNamespace(make=make, calls=calls)


def test_a_start_that_goes_well_is_tried_once_for_all_processes(
    starts: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = starts.make("good_runtime")
    runtimes.start_runtime(module, tmp_path)
    runtimes.start_runtime(module, tmp_path)
    monkeypatch.setattr(runtimes, "_KNOWN", {})  # as in the next process
    runtimes.start_runtime(module, tmp_path)
    assert starts.calls == ["good_runtime"]
    module.__version__ = "10.7.0"
    monkeypatch.setattr(runtimes, "_KNOWN", {})
    runtimes.start_runtime(module, tmp_path)
    assert starts.calls == ["good_runtime"] * 2


@pytest.mark.parametrize(
    ("action", "code", "text"),
    [
        ("os.abort()", "tensorrt.crashed", "SIGABRT"),
        ("os.kill(os.getpid(), 11)", "tensorrt.crashed", "SIGSEGV"),
        ("raise RuntimeError('no such symbol')", "tensorrt.failed", "no such symbol"),
        ("os._exit(3)", "tensorrt.failed", "no reason given"),
        (
            "logger.log(Severity, 'CUDA initialization failure with error: 35')",
            "board.no-gpu",
            "error: 35",
        ),
        ("logger.log(Severity, 'something else')", "tensorrt.failed", "something else"),
    ],
)
def test_whatever_the_child_does_is_an_error_here(
    starts: SimpleNamespace, tmp_path: Path, action: str, code: str, text: str
) -> None:
    module = starts.make("bad_runtime", action)
    with pytest.raises(DeviceError, match=text) as caught:
        runtimes.start_runtime(module, tmp_path)
    assert caught.value.code == code
    assert not list(tmp_path.glob("*.json"))  # a failure is never kept


def test_a_start_that_hangs_ends(starts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "_TIMEOUT_S", 1.0)
    module = starts.make("slow_runtime", "import signal; signal.pause()")
    with pytest.raises(DeviceError, match="did not start within") as caught:
        runtimes.start_runtime(module)
    assert caught.value.code == "tensorrt.crashed"


@pytest.mark.parametrize("code", ["cuda.no-driver", "cuda.no-device"])
def test_no_gpu_is_reported_before_any_child(
    starts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def refuse() -> None:
        raise Error("nothing here", code=code, hint="look")

    monkeypatch.setattr(runtimes, "open_cuda", refuse)
    with pytest.raises(DeviceError, match="nothing here") as caught:
        runtimes.start_runtime(starts.make("good_runtime"))
    assert caught.value.code == "board.no-gpu"
    assert starts.calls == []
    assert "good_runtime" not in sys.modules
