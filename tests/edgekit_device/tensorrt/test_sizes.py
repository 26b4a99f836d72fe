"""Tensors whose sizes a profile, values or the run decide: where they lie, and how large."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgekit_device
from edgekit_device.benchmark.measure import bench
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.cuda.driver import open_cuda
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry, TensorEntry
from edgekit_device.runtime.model import open_model
from edgekit_device.tensorrt.sizes import final_shape
from tests.edgekit_device.tensorrt.here import Here
from tests.edgekit_device.tensorrt.toys import (
    SHAPE,
    checked,
    entry,
    network,
    plan,
    random_input,
    reference,
)

LEAN = ["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"]
VERSIONS = ["8.6.1", "10.3.0", "11.4.0"]


def _model(nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "toy", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model


def non_zero(batch: int | str = 1) -> onnx.ModelProto:
    """Gives the places of values that are not zero: as many as there are."""
    return _model(
        [
            helper.make_node("NonZero", ["x"], ["z"], "nz"),
            helper.make_node("Cast", ["z"], ["y"], "cast", to=TensorProto.FLOAT),
        ],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *SHAPE[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, None])],
    )


def reshaped() -> onnx.ModelProto:
    """Takes a shape as an input."""
    return _model(
        [helper.make_node("Reshape", ["x", "s"], ["y"], "reshape")],
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, list(SHAPE)),
            helper.make_tensor_value_info("s", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
    )


def _load(folder: Path, data: bytes) -> Any:
    (folder / "toy.plan").write_bytes(data)
    return edgekit_device.load_plan(folder / "toy.plan")


def _places(x: np.ndarray) -> np.ndarray:
    return np.stack(np.nonzero(x)).astype(np.float32)


def _sparse(*shape: int, share: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.uniform(size=shape) < share, 1, 0).astype(np.float32)


@pytest.mark.few(6)
@pytest.mark.parametrize("flavour", ["full", "lean"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("batch", [1, "n"])
def test_an_output_is_as_long_as_its_values_say(
    here: Here, version: str, flavour: str, batch: int | str, tmp_path: Path
) -> None:
    here.has(version, [flavour])
    profiles = [] if batch == 1 else [((1, *SHAPE[1:]), (2, *SHAPE[1:]), (4, *SHAPE[1:]))]
    model = _load(tmp_path, plan(version, LEAN, model=non_zero(batch), profiles=profiles))
    assert model.engine.unsized == ("y",)
    retained = []
    for size, share in ((1, 0.5), (1, 0.0), (1, 1.0), (4, 0.1), (2, 0.9)):
        x = _sparse(size if profiles else 1, *SHAPE[1:], share=share)
        found = model({"x": x})["y"]
        assert found.shape == (4, int(x.sum()))
        np.testing.assert_array_equal(found, _places(x))
        retained.append((found, _places(x)))
    for found, expected in retained:
        np.testing.assert_array_equal(found, expected)


def test_no_memory_for_such_an_output_is_the_calls_error(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0")
    model = _load(tmp_path, plan("10.3.0", model=non_zero()))
    x = _sparse(*SHAPE, share=0.5)
    model({"x": x})

    def full(size: int, most: int = 0) -> Any:
        raise DeviceError("the device is full", code="cuda.no-memory")

    with here.monkeypatch.context() as patch:
        memory = model.engine._slots[0].sized["y"].allocator.memory
        patch.setattr(memory, "_device", SimpleNamespace(take=full))
        with pytest.raises(DeviceError) as caught:
            model({"x": x})
        assert caught.value.code == "cuda.no-memory"
    np.testing.assert_array_equal(model({"x": x})["y"], _places(x))


@pytest.mark.parametrize("flavour", ["full", "lean"])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_input_whose_values_make_a_shape_is_read_on_the_host(
    here: Here, version: str, flavour: str, tmp_path: Path
) -> None:
    here.has(version, [flavour])
    values = {"s": ([1, 1], [4, 48], [192, 192])}
    model = _load(tmp_path, plan(version, LEAN, model=reshaped(), values=values))
    x = random_input()
    kind = {io.name: io.dtype for io in model.inputs}["s"]
    assert kind == ("int32" if version == "8.6.1" else "int64")
    for sizes in ((4, 48), (192, 1), (2, 96)):
        found = model({"x": x, "s": np.array(sizes, kind)})["y"]
        np.testing.assert_array_equal(found, x.reshape(sizes))
    with pytest.raises(DeviceError) as caught:
        model({"x": x})
    assert caught.value.code == "input.missing"


def test_a_measurement_at_fixed_addresses_refuses_them(here: Here) -> None:
    here.has("10.3.0")
    data = plan("10.3.0", model=non_zero())
    y = IoEntry("y", "float32", (4, -1), "LINEAR", (), None)
    bundle = checked(data, entry("10.3.0", outputs=(y,)))
    outputs = (TensorEntry("y", "float32", (4, -1), "LINEAR", (4, 4)),)
    bundle = replace(bundle, manifest=replace(bundle.manifest, outputs=outputs))
    model = open_model(bundle)
    x = _sparse(*SHAPE, share=0.3)
    np.testing.assert_array_equal(model({"x": x})["y"], _places(x))
    assert not model.is_static
    with pytest.raises(DeviceError, match="'y' depends on values") as caught:
        bench(model, {"x": x}, BenchSettings(0.0, 0.0, 2, graph=True))
    assert caught.value.code == "bench.graph"
    assert bench(model, {"x": x}, BenchSettings(0.0, 0.0, 2)).iterations == 2


def test_frames_of_other_shapes_take_the_same_buffers(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0")
    shapes = [((1, *SHAPE[1:]), (2, *SHAPE[1:]), (8, *SHAPE[1:]))]
    model = _load(tmp_path, plan("10.3.0", model=network("n"), profiles=shapes))
    model({"x": np.zeros((1, *SHAPE[1:]), np.float32)})
    allocated = model.engine._feeder.device.allocated
    for batch in (8, 3, 1, 7):
        x = np.concatenate([random_input(seed) for seed in range(batch)])
        found = model({"x": x})["y"]
        np.testing.assert_allclose(found, reference(network("n"), x), rtol=1e-5)
    assert model.engine._feeder.device.allocated == allocated


@pytest.mark.parametrize("shared", [True, False])
def test_several_frames_in_flight_share_a_profile(here: Here, shared: bool, tmp_path: Path) -> None:
    here.has("8.6.1")
    shapes = [((1, *SHAPE[1:]), (2, *SHAPE[1:]), (4, *SHAPE[1:]))]
    data = plan("8.6.1", model=network("n"), profiles=shapes, shared=shared)
    engine = _load(tmp_path, data).engine
    x = np.concatenate([random_input(seed) for seed in range(3)])
    expected = reference(network("n"), x)
    results = []
    with ExitStack() as holding:
        # a context of the profile is in use
        holding.enter_context(engine.hold_context({"x": x}))
        thread = threading.Thread(target=lambda: results.append(engine.enqueue({"x": x})))
        thread.start()
        if shared:
            thread.join()
            assert len(results) == 1
        else:
            with pytest.raises(DeviceError, match="no profile 0 for one more context"):
                holding.enter_context(engine.hold_context({"x": x}))
    thread.join()
    np.testing.assert_allclose(results[0]["y"].numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("found", [(2, 5), (-1, 5), (1, 5, 1)])
def test_a_buffer_is_made_for_the_promised_shape_only(found: tuple[int, ...]) -> None:
    io = IoEntry("y", "float32", (1, 5), "LINEAR", (20, 4), None)
    assert final_shape(io, (1, 5)) == (1, 5)
    with pytest.raises(DeviceError, match="for these inputs instead of"):
        final_shape(io, found)


def test_no_buffer_has_less_than_no_bytes(here: Here) -> None:
    here.has("10.3.0")
    cuda = open_cuda()
    for allocate in (cuda.malloc, cuda.host_alloc):
        with pytest.raises(DeviceError, match="-20 bytes"):
            allocate(-20)
