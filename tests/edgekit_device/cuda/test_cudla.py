"""Loadables through cuDLA, against a stub of libcudla that refuses wrong orders."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgekit.dla.formats import strides
from edgekit_device.arrays.formats import convert, pack
from edgekit_device.board.probe import probe
from edgekit_device.cuda import cudla_library
from edgekit_device.cuda.cudla import LoadableEngine, open_loadable
from edgekit_device.cuda.cudla_library import cudla_facts
from edgekit_device.cuda.memory import DeviceTensor
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry
from tests.edgekit_device.cuda.cudla_host_cuda import (
    HostCuda,
    build_stub,
    descriptor,
    entry,
    loadable,
)

pytestmark = pytest.mark.usefixtures("quick_collections")

_SHAPE = (1, 64, 32, 60)
_STRIDES = strides(_SHAPE, "int8", "DLA_LINEAR")
IN = IoEntry("input", "int8", _SHAPE, "DLA_LINEAR", _STRIDES, 0.5)
OUT = replace(IN, name="M0_519", format="CHW32", strides=strides(_SHAPE, "int8", "CHW32"))
# the numbers of a planar tensor are those seen on an Orin (cuda-samples issue 192)
_IN = descriptor("input'", 131072, _SHAPE, (1, 4), (1, 64, 2048, 2048))
_OUT = descriptor("M0_519'", 2 * 32 * 60 * 32, _SHAPE, (3, 4), (1, 60 * 32, 32 * 60 * 32))


@pytest.fixture(scope="session")
def cudla_stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("cudla"))


@pytest.fixture
def calls(cudla_stub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    log = tmp_path / "calls"
    monkeypatch.setenv("EDGEKIT_CUDLA", str(cudla_stub))
    monkeypatch.setenv("EDGEKIT_CUDLA_STUB_LOG", str(log))
    monkeypatch.setattr(cudla_library, "_OPEN", [])
    yield log
    # the stub counts failures until it is called without one
    monkeypatch.delenv("EDGEKIT_CUDLA_STUB_FAIL", raising=False)
    cudla_facts()


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="ascii").splitlines()


def _open(cuda: HostCuda, core: int = 0) -> LoadableEngine:
    return open_loadable(loadable([_IN], [_OUT]), core, entry(IN, OUT), cuda)


def test_a_loadable_runs_and_is_taken_down_in_order(calls: Path) -> None:
    cuda = HostCuda()
    engine = _open(cuda, 1)
    values = np.arange(np.prod(_SHAPE), dtype=np.float32).reshape(_SHAPE) % 50
    found = engine.run(SimpleNamespace(outputs=("M0_519",)), {"input": values})["M0_519"]
    assert (found.format, found.shape, found.scale) == ("CHW32", _SHAPE, 0.5)
    # the stub adds one to each byte; the first line of the first plane is 60 of 64 bytes
    raw = np.empty(64, np.uint8)
    cuda.copy(raw.ctypes.data, found.ptr, 64, "d2h")
    assert raw[:60].tolist() == (np.arange(60) % 50 * 2 + 1).tolist()
    assert raw[60:].tolist() == [1] * 4  # padding was zero
    assert found.numpy("float32").shape == _SHAPE
    engine.close()
    order = [line.split()[0] for line in _lines(calls)]
    assert order == [
        "cudlaDeviceGetCount",
        "cudlaCreateDevice",
        "cudlaModuleLoadFromMemory",
        *["cudlaModuleGetAttributes"] * 4,
        *["cudlaMemRegister"] * 2,
        "cudlaSubmitTask",
        "cudlaGetLastError",
        *["cudlaMemUnregister"] * 2,
        "cudlaModuleUnload",
        "cudlaDestroyDevice",
    ]
    assert "cudlaCreateDevice 1" in _lines(calls)
    assert not cuda.streams
    del found, engine
    gc.collect()
    assert not cuda.blocks


@pytest.mark.parametrize(
    ("function", "number"),
    [
        ("cudlaDeviceGetCount", 1),
        ("cudlaCreateDevice", 1),
        ("cudlaModuleLoadFromMemory", 1),
        ("cudlaModuleGetAttributes", 1),
        ("cudlaModuleGetAttributes", 4),
        ("cudlaMemRegister", 1),
        ("cudlaMemRegister", 2),
    ],
)
def test_what_was_opened_is_closed_when_a_later_step_fails(
    calls: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    cuda = HostCuda()
    monkeypatch.setenv("EDGEKIT_CUDLA_STUB_FAIL", f"{function}:{number}:2")
    with pytest.raises(DeviceError, match=f"{function} failed: cudlaErrorOutOfResources") as caught:
        _open(cuda)
    assert caught.value.code == "cudla.failed"
    names = [line.split()[0] for line in _lines(calls)]
    assert "WRONG" not in names
    undone = {"cudlaCreateDevice": "cudlaDestroyDevice", "cudlaMemRegister": "cudlaMemUnregister"}
    undone["cudlaModuleLoadFromMemory"] = "cudlaModuleUnload"
    for done, undo in undone.items():
        assert names.count(undo) == names.count(done) - (done == function)
    del caught
    gc.collect()
    assert not cuda.streams
    assert not cuda.blocks


def test_an_error_of_the_hardware_is_reported_and_the_engine_lives_on(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _open(HostCuda())
    feeds = {"input": np.zeros(_SHAPE, np.int8)}
    monkeypatch.setenv("EDGEKIT_CUDLA_STUB_FAIL", "cudlaGetLastError:1:0x40000006")
    with pytest.raises(DeviceError, match="cudlaErrorDlaErrEngineTimeout") as caught:
        engine.run(None, feeds)
    assert caught.value.code == "cudla.hardware"
    assert engine.run(None, feeds)["M0_519"].shape == _SHAPE
    engine.close()
    assert not [line for line in _lines(calls) if line.startswith("WRONG")]


def test_threads_and_living_results_have_memory_of_their_own(calls: Path) -> None:
    engine = _open(HostCuda())
    results: dict[int, int] = {}

    def work(number: int) -> None:
        for _ in range(5):
            found = engine.run(None, {"input": np.full(_SHAPE, number, np.int8)})["M0_519"]
            raw = np.empty(1, np.uint8)
            found.owner.cuda.copy(raw.ctypes.data, found.ptr, 1, "d2h")
            results[number] = int(raw[0])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: number + 1 for number in range(4)}
    retained = [engine.run(None, {"input": np.full(_SHAPE, n, np.int8)})["M0_519"] for n in (7, 8)]
    assert retained[0].ptr != retained[1].ptr
    # a result of one loadable feeds the next without a look at its bytes
    second = open_loadable(
        loadable([descriptor("a", _OUT.size, _SHAPE, (3, 4), ())], [_OUT]),
        0,
        entry(replace(OUT, name="a"), OUT),
        engine.cuda,
    )
    raw = np.empty(1, np.uint8)
    last = second.run(None, {"a": retained[0]})["M0_519"]
    second.cuda.copy(raw.ctypes.data, last.ptr, 1, "d2h")
    assert raw[0] == 9
    for one in (second, engine):
        one.close()
    assert not [line for line in _lines(calls) if line.startswith("WRONG")]


class _Kernels:
    """Plays the GPU's packer over the host's memory."""

    def __init__(self, cuda: HostCuda, off: int = 0) -> None:
        self.cuda, self.off, self.calls = cuda, off, 0

    def convert(self, src: int, source: DeviceTensor, dst: int, io: IoEntry, stream: int) -> None:
        self.calls += 1
        array = convert(source.numpy(), io.dtype, source.scale, io.scale)
        stored = pack(array, io.format, io.strides).reshape(-1) + np.int8(self.off)
        self.cuda.copy(dst, stored.ctypes.data, stored.nbytes, "h2d")


@pytest.mark.parametrize(("off", "requested"), [(0, 3), (1, 1)])
def test_kernels_pack_for_a_loadable_where_they_agree_with_numpy(
    calls: Path, off: int, requested: int
) -> None:
    cuda = HostCuda()
    engine = _open(cuda)
    engine._feeder._packer = kernels = _Kernels(cuda, off)
    values = np.arange(np.prod(_SHAPE), dtype=np.float32).reshape(_SHAPE) % 50
    for _ in range(3):
        found = engine.run(None, {"input": values})["M0_519"]
        raw = np.empty(60, np.uint8)
        cuda.copy(raw.ctypes.data, found.ptr, 60, "d2h")
        assert raw.tolist() == (np.arange(60) % 50 * 2 + 1).tolist()
    assert kernels.calls == requested
    engine.close()


def test_wrong_feeds_are_reported(calls: Path) -> None:
    engine = _open(HostCuda())
    with pytest.raises(DeviceError, match="missing"):
        engine.run(None, {})
    with pytest.raises(DeviceError, match=r"\[1, 3, 4\] given"):
        engine.run(None, {"input": np.zeros((1, 3, 4), np.float32)})
    engine.close()


def test_a_plan_a_damaged_loadable_and_a_missing_core(calls: Path) -> None:
    with pytest.raises(DeviceError, match="TensorRT plan") as caught:
        open_loadable(b"ftrt" + bytes(60), 0, entry(IN, OUT), HostCuda())
    assert caught.value.code == "cudla.not-a-loadable"
    with pytest.raises(DeviceError, match=r"cudlaErrorUmd \(7\)") as caught:
        open_loadable(bytes(64), 0, entry(IN, OUT), HostCuda())
    assert "check that the loadable" in caught.value.hint
    with pytest.raises(DeviceError, match="DLA core 2 does not exist"):
        _open(HostCuda(), 2)


def test_facts(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = cudla_facts()
    assert (facts.version, facts.devices, facts.notes) == ("1.2.1", 2, ())
    monkeypatch.setattr(cudla_library, "_OPEN", [])
    monkeypatch.setenv("EDGEKIT_CUDLA", "/nowhere/libcudla.so.1")
    assert cudla_facts().path is None
    with pytest.raises(DeviceError) as caught:
        _open(HostCuda())
    assert caught.value.code == "cudla.missing"


def test_a_probe_has_cudla_s_own_answer(calls: Path, tmp_path: Path) -> None:
    facts = probe(tmp_path).cudla_facts
    assert (facts.version, facts.devices) == ("1.2.1", 2)
