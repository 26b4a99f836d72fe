"""The fake cuda-python answers in tuples, runs work when it is waited for, and sees misuse."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import numpy as np
import pytest

from tests.trt_double._memory import MEMORY
from tests.trt_double.board import install
from tests.trt_double.double_toys import setup
from tests.trt_double.fake_driver import modules

NAMES = {
    "new": ("cuda.bindings.runtime", "cuda.bindings.driver"),
    "old": ("cuda.cudart", "cuda.cuda"),
}


@pytest.fixture(params=["new", "old"])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(runtime, driver) of a layout, imported as a user imports them."""
    install(monkeypatch, "10.3.0", cuda=request.param)
    runtime, driver = (importlib.import_module(name) for name in NAMES[request.param])
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    return runtime, driver


def test_work_waits_for_a_synchronisation(cuda: Any) -> None:
    runtime, _ = cuda
    data = np.arange(4, dtype=np.float32)
    back = np.zeros(4, np.float32)
    kinds = runtime.cudaMemcpyKind
    (_, pointer), (_, stream) = runtime.cudaMalloc(16), runtime.cudaStreamCreate()
    to, out = kinds.cudaMemcpyHostToDevice, kinds.cudaMemcpyDeviceToHost
    assert runtime.cudaMemcpyAsync(pointer, data.ctypes.data, 16, to, stream) == (0,)
    assert runtime.cudaMemcpyAsync(back.ctypes.data, pointer, 16, out, stream) == (0,)
    assert not back.any()
    assert runtime.cudaStreamSynchronize(stream) == (0,)
    np.testing.assert_array_equal(back, data)
    assert runtime.cudaFree(pointer) == (runtime.cudaError_t.cudaSuccess,)
    assert runtime.cudaStreamDestroy(stream) == (0,)
    assert MEMORY.offences == []


def test_copies_past_a_block_and_unknown_pointers_are_seen(cuda: Any) -> None:
    runtime, driver = cuda
    (_, pointer) = runtime.cudaMalloc(16)
    host = np.zeros(8, np.float32)
    kind = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
    assert runtime.cudaMemcpy(pointer, host.ctypes.data, 32, kind) != (0,)
    assert driver.cuMemcpyHtoD(pointer + 8, host.ctypes.data, 16)[0].name != "CUDA_SUCCESS"
    assert runtime.cudaFree(pointer + 4) != (0,)
    assert runtime.cudaFreeHost(pointer) != (0,)
    assert len(MEMORY.offences) == 4
    with pytest.raises(TypeError):
        runtime.cudaMemcpy(pointer, host.ctypes.data, 16, 1)


def test_the_driver_wants_a_context_in_each_thread(cuda: Any) -> None:
    _, driver = cuda
    assert driver.cuMemAlloc(4)[0] == driver.CUresult.CUDA_SUCCESS
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(driver.cuMemAlloc(4)))
    thread.start()
    thread.join()
    assert seen == [(driver.CUresult.CUDA_ERROR_INVALID_CONTEXT, None)]


def test_events_measure_what_has_happened(cuda: Any) -> None:
    runtime, _ = cuda
    (_, stream), (_, first), (_, last) = (
        runtime.cudaStreamCreate(),
        runtime.cudaEventCreate(),
        runtime.cudaEventCreate(),
    )
    runtime.cudaEventRecord(first, stream)
    runtime.cudaEventRecord(last, stream)
    assert runtime.cudaEventElapsedTime(first, last)[0] != 0
    runtime.cudaEventSynchronize(last)
    status, milliseconds = runtime.cudaEventElapsedTime(first, last)
    assert (status, milliseconds >= 0) == (0, True)


def test_kernels_are_found_by_name_in_their_image(cuda: Any) -> None:
    _, driver = cuda
    _, module = driver.cuModuleLoadData(b".entry pack_chw16(\0")
    status, function = driver.cuModuleGetFunction(module, b"pack_chw16")
    assert status == 0
    assert driver.cuModuleGetFunction(module, b"other")[0].name == "CUDA_ERROR_NOT_FOUND"
    _, stream = driver.cuStreamCreate(1)
    assert driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0) == (0,)
    with pytest.raises(TypeError):
        driver.cuModuleGetFunction(module, "pack_chw16")


def test_only_one_layout_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "10.3.0", cuda="old")
    with pytest.raises(ImportError):
        importlib.import_module("cuda.bindings.driver")
    install(monkeypatch, "10.3.0", cuda="none")
    with pytest.raises(ImportError):
        importlib.import_module("cuda.cuda")
    with pytest.raises(ValueError, match="layout"):
        modules("newest")


def test_an_engine_runs_in_stream_order_and_needs_space(cuda: Any) -> None:
    runtime, _ = cuda
    on = setup("10.3.0")
    context = on.runtime().deserialize_cuda_engine(on.plan()).create_execution_context()
    (_, x), (_, small), (_, y) = (runtime.cudaMalloc(size) for size in (768, 16, 20))
    (_, stream) = runtime.cudaStreamCreate()
    runtime.cudaMemset(x, 0, 768)
    context.set_tensor_address("x", x)
    context.set_tensor_address("y", small)
    assert not context.execute_async_v3(int(stream))
    assert "tensor y: 20 bytes" in on.violations[0]
    context.set_tensor_address("y", y)
    before = bytes(MEMORY.blocks[y])
    assert context.execute_async_v3(int(stream))
    assert bytes(MEMORY.blocks[y]) == before
    runtime.cudaStreamSynchronize(stream)
    assert bytes(MEMORY.blocks[y]) != before
