"""The double's runtimes refuse what they must, and engines compute what the model says."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.edgekit_device.tensorrt.toys import network, reference
from tests.trt_double import double
from tests.trt_double._formats import nbytes, pack, physical, strides, unpack
from tests.trt_double.double_toys import setup

LEAN = "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"


def runtime(version: str, flavour: str = "full") -> tuple[Any, Any]:
    trt = double.module(version, flavour)
    return trt, trt.Runtime(trt.Logger(trt.Logger.VERBOSE))


def run(engine: Any, x: np.ndarray) -> np.ndarray:
    """Runs on NumPy's own memory."""
    y = np.zeros((1, 5), np.float32)
    context = engine.create_execution_context()
    assert context.set_tensor_address("x", x.ctypes.data)
    assert context.set_tensor_address("y", y.ctypes.data)
    assert not context.set_tensor_address("z", y.ctypes.data)
    assert context.execute_async_v3(0)
    return y


@pytest.mark.parametrize("version", double.VERSIONS)
def test_an_engine_computes_what_the_model_says(version: str) -> None:
    on = setup(version)
    plan = on.plan()
    assert tuple(bytes(plan)[24:28]) == on.trt._double.build
    engine = on.runtime().deserialize_cuda_engine(plan)
    x = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    np.testing.assert_allclose(run(engine, x), reference(network(), x), rtol=1e-5, atol=1e-6)
    assert [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)] == ["x", "y"]
    assert engine.get_tensor_mode("y") == on.trt.TensorIOMode.OUTPUT
    assert tuple(engine.get_tensor_shape("x")) == (1, 3, 8, 8)
    assert on.violations == []


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.7.0"])
def test_the_core_is_set_before_a_dla_plan_is_read(version: str) -> None:
    on = setup(version, "FP16", "GPU_FALLBACK", dla=True)
    plan = on.plan()
    assert on.runtime(core=1).deserialize_cuda_engine(plan) is not None
    assert on.violations == []
    assert on.runtime().deserialize_cuda_engine(plan) is not None
    assert on.violations == ["Runtime.DLA_core was not set before a plan with DLA layers"]
    on.runtime(core=2)
    assert on.violations[-1] == "Runtime.DLA_core = 2 of 2 cores"


def test_plans_are_of_one_release_unless_version_compatible() -> None:
    plain, lean = bytes(setup("10.3.0").plan()), bytes(setup("10.3.0", *LEAN).plan())
    trt, newer = runtime("10.7.0")
    assert newer.deserialize_cuda_engine(plain) is None
    assert "expecting library version 10.7.0.23 got 10.3.0.30" in trt._double.messages[-1][1]
    assert newer.deserialize_cuda_engine(lean) is not None
    trt, older = runtime("8.6.1")
    assert older.deserialize_cuda_engine(lean) is None


def test_lean_takes_version_compatible_plans_alone() -> None:
    trt, lean = runtime("10.3.0", "lean")
    assert lean.deserialize_cuda_engine(bytes(setup("10.3.0").plan())) is None
    assert "Unexpected call to stub loadRunner" in trt._double.messages[-1][1]
    engine = lean.deserialize_cuda_engine(bytes(setup("10.3.0", *LEAN).plan()))
    with pytest.raises(TypeError):
        engine.get_tensor_format("x")
    with pytest.raises(TypeError):
        engine.create_engine_inspector()
    assert engine.get_tensor_format_desc("x") == "Row major linear FP32"


def test_a_plan_with_a_runtime_inside_needs_leave() -> None:
    plan = bytes(setup("10.3.0", "VERSION_COMPATIBLE").plan())
    trt, dispatch = runtime("10.3.0", "dispatch")
    assert dispatch.deserialize_cuda_engine(plan) is None
    dispatch.engine_host_code_allowed = True
    assert dispatch.deserialize_cuda_engine(plan) is not None
    assert trt._double.violations == []
    trt, lean = runtime("10.3.0", "lean")
    lean.engine_host_code_allowed = True
    assert lean.deserialize_cuda_engine(bytes(setup("10.3.0", *LEAN).plan())) is not None
    assert trt._double.violations == ["engine_host_code_allowed for a plan that carries no code"]


def test_another_releases_runtime_is_loaded_from_a_file(tmp_path: Path) -> None:
    plan = bytes(setup("8.6.1", *LEAN).plan())
    _, full = runtime("10.3.0")
    assert full.load_runtime(str(tmp_path / "libnvinfer_lean.so.8.6.1")) is None
    for name, fits in (("libnvinfer_lean.so.8.6.1", True), ("libnvinfer_lean.so.10.3.0", False)):
        (tmp_path / name).write_bytes(b"")
        loaded = full.load_runtime(str(tmp_path / name))
        assert (loaded.deserialize_cuda_engine(plan) is not None) is fits


def test_running_without_an_address_is_an_offence() -> None:
    on = setup("10.3.0")
    context = on.runtime().deserialize_cuda_engine(on.plan()).create_execution_context()
    assert not context.execute_async_v3(0)
    assert on.violations == ["execute_async_v3 without x, y"]


def test_layers_are_reported_to_a_profiler() -> None:
    on = setup("10.3.0")
    engine = on.runtime().deserialize_cuda_engine(on.plan())
    context = engine.create_execution_context()
    reported: list[str] = []

    class Profiler(on.trt.IProfiler):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            on.trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            reported.append(layer_name)

    x, y = np.zeros((1, 3, 8, 8), np.float32), np.zeros((1, 5), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    profiler = context.profiler = Profiler()
    context.enqueue_emits_profile = False
    assert context.execute_async_v3(0)
    assert (reported, profiler) == ([], context.profiler)
    assert context.report_to_profiler()
    assert reported[:2] == ["conv", "norm"]


@pytest.mark.parametrize(
    ("form", "dtype", "shape", "stored"),
    [  # NvInferRuntimeBase.h and the CHWx layouts, by hand
        ("LINEAR", "FLOAT", [1, 3, 4, 5], (1, 3, 4, 5)),
        ("DLA_LINEAR", "HALF", [1, 3, 4, 5], (1, 3, 4, 32)),
        ("DLA_LINEAR", "INT8", [1, 3, 4, 65], (1, 3, 4, 128)),
        ("DLA_HWC4", "INT8", [1, 3, 4, 5], (1, 4, 16, 4)),
        ("DLA_HWC4", "HALF", [1, 1, 4, 5], (1, 4, 32, 1)),
        ("CHW16", "HALF", [1, 17, 4, 5], (1, 2, 4, 5, 16)),
        ("CHW32", "INT8", [1, 33, 4, 5], (1, 2, 4, 5, 32)),
        ("CHW4", "INT8", [1, 3, 4, 5], (1, 1, 4, 5, 4)),
        ("HWC8", "HALF", [1, 3, 4, 5], (1, 4, 5, 8)),
    ],
)
def test_formats_come_back_and_lie_where_the_headers_say(
    form: str, dtype: str, shape: list[int], stored: tuple[int, ...]
) -> None:
    values = np.arange(np.prod(shape)).reshape(shape) % 100
    raw = pack(values, dtype, form)
    assert physical(shape, dtype, form)[0] == stored
    assert len(raw) == nbytes(shape, dtype, form)
    np.testing.assert_array_equal(unpack(raw, shape, dtype, form), values)
    assert len(strides(shape, dtype, form)) == len(shape)
    size = len(raw) // int(np.prod(stored))
    if form in ("LINEAR", "DLA_LINEAR"):  # the last row's second element, by its strides
        row = strides(shape, dtype, form)[2] * (shape[2] - 1) + 1
        kinds = {"FLOAT": ctypes.c_float, "INT8": ctypes.c_int8}
        if dtype in kinds:
            found = kinds[dtype].from_buffer_copy(raw, row * size).value
            assert found == values[0, 0, -1, 1]
