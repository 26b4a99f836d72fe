"""What an engine does with its inputs and outputs: formats, types, shapes, threads, times."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit_device
from edgekit_device.benchmark.command import profile
from edgekit_device.benchmark.measure import bench
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.cuda.memory import DeviceTensor
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry
from edgekit_device.runtime.model import open_model
from tests.edgekit_device.tensorrt.here import Here
from tests.edgekit_device.tensorrt.toys import (
    SHAPE,
    agrees,
    checked,
    entry,
    network,
    plan,
    random_input,
    reference,
)
from tests.trt_double._memory import MEMORY

STEP = 0.0078125  # a power of two: quantising by hand and by the double cannot differ by rounding


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "10.7.0"])
def test_int8_input_is_quantised_and_packed(here: Here, version: str) -> None:
    here.has(version)
    data = plan(version, formats={"x": ("INT8", "CHW32", STEP)})
    x_io = IoEntry("x", "int8", SHAPE, "CHW32", (2048, 2048, 256, 32), STEP)
    model = open_model(checked(data, entry(version, inputs=(x_io,))))
    x = random_input()
    steps = np.clip(np.rint(x / np.float32(STEP)), -128, 127) * np.float32(STEP)
    np.testing.assert_allclose(model({"x": x})["y"], reference(network(), steps), rtol=1e-5)


def test_half_input_in_hwc8(here: Here) -> None:
    here.has("10.3.0")
    data = plan("10.3.0", formats={"x": ("HALF", "HWC8", None)})
    x_io = IoEntry("x", "float16", SHAPE, "HWC8", (1024, 2, 128, 16), None)
    model = open_model(checked(data, entry("10.3.0", inputs=(x_io,))))
    x = random_input()
    rounded = x.astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(model({"x": x})["y"], reference(network(), rounded), rtol=1e-5)


def test_a_manifest_with_another_format_than_the_engines_is_refused(here: Here) -> None:
    here.has("10.3.0")
    wrong = IoEntry("x", "float32", (1, 3, 8, 9), "DLA_LINEAR", (1536, 512, 64, 4), None)
    with pytest.raises(DeviceError) as caught:
        open_model(checked(plan("10.3.0"), entry("10.3.0", inputs=(wrong,))))
    assert caught.value.code == "engine.io"
    for text in ("DLA_LINEAR", "LINEAR", "(1, 3, 8, 9)", "(1, 3, 8, 8)"):
        assert text in caught.value.message


def test_many_threads_share_an_engine(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(checked(plan("10.3.0"), entry("10.3.0")))
    inputs = [random_input(seed) for seed in range(24)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda x: model({"x": x})["y"], inputs))
    for x, y in zip(inputs, found, strict=True):
        np.testing.assert_allclose(y, reference(network(), x), rtol=1e-5)


def test_a_result_keeps_its_values_while_others_run(here: Here) -> None:
    here.has("10.3.0")
    bundle = checked(plan("10.3.0"), entry("10.3.0"))
    (engine,) = open_model(bundle).engines.values()
    segment = bundle.manifest.lanes[0].segments[0]
    first = engine.run(segment, {"x": random_input(1)})["y"]
    second = engine.run(segment, {"x": random_input(2)})["y"]
    assert isinstance(first, DeviceTensor)
    assert first.ptr != second.ptr
    np.testing.assert_allclose(first.numpy(), reference(network(), random_input(1)), rtol=1e-5)


def test_a_tensor_on_the_device_is_fed_without_a_copy(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0")
    file = tmp_path / "toy.plan"
    file.write_bytes(plan("10.3.0"))
    model = edgekit_device.load_plan(file)
    x = random_input()
    place = model.engine._feeder.device.take(x.nbytes)
    model.engine.cuda.copy(place.ptr, x.ctypes.data, x.nbytes, "h2d")
    tensor = DeviceTensor(
        place.ptr, x.nbytes, "float32", SHAPE, "LINEAR", (768, 256, 32, 4), None, place
    )
    before = model.engine._feeder.device.allocated
    found = model({"x": tensor})["y"]
    assert model.engine._feeder.device.allocated == before + 1  # the output alone
    np.testing.assert_allclose(found, reference(network(), x), rtol=1e-5)


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "11.4.0"])
def test_each_shape_runs_in_a_profile_that_takes_it(
    here: Here, version: str, tmp_path: Path
) -> None:
    here.has(version)
    file = tmp_path / "toy.plan"
    shapes = [((1, *SHAPE[1:]), (2, *SHAPE[1:]), (2, *SHAPE[1:])), ((3, *SHAPE[1:]),) * 3]
    file.write_bytes(plan(version, model=network("n"), profiles=shapes))
    model = edgekit_device.load_plan(file)
    for batch in (1, 3, 2, 3):
        x = np.concatenate([random_input(seed) for seed in range(batch)])
        expected = reference(network("n"), x)
        np.testing.assert_allclose(model({"x": x})["y"], expected, rtol=1e-5)
    with pytest.raises(DeviceError, match="no profile") as caught:
        model({"x": np.zeros((4, *SHAPE[1:]), np.float32)})
    assert caught.value.code == "input.shape"


def test_a_bench_reads_the_gpus_clock_and_names_layers(here: Here) -> None:
    here.has("10.3.0")
    bundle = checked(plan("10.3.0"), entry("10.3.0"))
    document = bench(open_model(bundle), {"x": random_input()}, BenchSettings(0.0, 0.0, 3))
    assert (document.clock, document.segments_clock) == ("board-measured", "gpu")
    assert document.iterations == 3
    nodes = profile(bundle, {"x": random_input()}, 0, 2)
    assert {node.node for node in nodes} >= {"conv", "relu"}
    # what the double reports
    assert all(node.mean_us == node.median_us == 125.0 for node in nodes)


def test_a_run_that_fails_waits_for_its_copies(here: Here) -> None:
    here.has("10.3.0")
    model = open_model(checked(plan("10.3.0"), entry("10.3.0")))
    (engine,) = model.engines.values()
    x = random_input()
    model({"x": x})

    (slot,) = engine._slots
    context = slot.context

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return getattr(context, name)

        def execute_async_v3(self, stream: int) -> bool:
            assert MEMORY.queues[int(stream)]  # the copy has not happened yet
            return False

    with here.monkeypatch.context() as patch:
        patch.setattr(slot, "context", Refusing())
        with pytest.raises(DeviceError) as caught:
            model({"x": x})
    assert caught.value.code == "engine.failed"
    assert not MEMORY.queues[int(slot.stream)]
    np.testing.assert_allclose(model({"x": x})["y"], reference(network(), x), rtol=1e-5)


def test_a_plan_of_the_lean_runtime_alone_needs_no_manifest(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0", ["lean"])
    file = tmp_path / "toy.plan"
    file.write_bytes(plan("10.3.0", ["VERSION_COMPATIBLE"]))
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load_plan(file)
    assert caught.value.code == "engine.host-code"
    model = edgekit_device.load_plan(file, trusted=True)
    agrees(model)


@pytest.mark.parametrize("flavour", ["full", "lean"])
def test_a_plan_alone_is_refitted_from_an_onnx_file(
    here: Here, flavour: str, tmp_path: Path
) -> None:
    here.has("10.3.0", [flavour])
    flags = ["STRIP_PLAN", "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"]
    (tmp_path / "toy.plan").write_bytes(plan("10.3.0", flags))
    (tmp_path / "toy.onnx").write_bytes(network().SerializeToString())
    model = edgekit_device.load_plan(tmp_path / "toy.plan", onnx=tmp_path / "toy.onnx")
    agrees(model)


@pytest.mark.parametrize("cuda", ["old", "new"])
def test_both_layouts_of_cuda_python_serve(here: Here, cuda: str) -> None:
    here.has("10.3.0", cuda=cuda)
    model = open_model(checked(plan("10.3.0"), entry("10.3.0")))
    agrees(model)
