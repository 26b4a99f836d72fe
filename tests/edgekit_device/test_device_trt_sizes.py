"""Tensors that have no size before a run are refused when the engine is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgekit_device
from edgekit_device.cuda.driver import open_cuda
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry
from edgekit_device.tensorrt.engine import settled
from tests.edgekit_device.device_trt_here import Here, here_fixture
from tests.edgekit_device.device_trt_toys import SHAPE, network, plan

pytestmark = pytest.mark.usefixtures("quick_collections")

here = pytest.fixture(here_fixture)

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
            helper.make_tensor_value_info("s", TensorProto.INT32, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
    )


def _load(folder: Path, data: bytes) -> Any:
    (folder / "toy.plan").write_bytes(data)
    return edgekit_device.load_plan(folder / "toy.plan")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("batch", [1, "n"])
def test_an_output_as_long_as_its_values_say_is_refused(
    here: Here, version: str, batch: int | str, tmp_path: Path
) -> None:
    here.has(version)
    profiles = [] if batch == 1 else [((1, *SHAPE[1:]), (2, *SHAPE[1:]), (4, *SHAPE[1:]))]
    with pytest.raises(DeviceError, match="'y' depends on values") as caught:
        _load(tmp_path, plan(version, model=non_zero(batch), profiles=profiles))
    assert caught.value.code == "engine.io"
    assert "TopK" in caught.value.hint


@pytest.mark.parametrize("flavour", ["full", "lean"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_tensor_on_the_host_is_refused(
    here: Here, version: str, flavour: str, tmp_path: Path
) -> None:
    here.has(version, [flavour])
    with pytest.raises(DeviceError, match="'s' is read or written on the host") as caught:
        _load(tmp_path, plan(version, LEAN, model=reshaped()))
    assert caught.value.code == "engine.io"


def test_a_dynamic_output_that_inputs_settle_is_none_of_these(here: Here, tmp_path: Path) -> None:
    here.has("10.3.0")
    shapes = [((1, *SHAPE[1:]), (2, *SHAPE[1:]), (4, *SHAPE[1:]))]
    model = _load(tmp_path, plan("10.3.0", model=network("n"), profiles=shapes))
    assert model({"x": np.zeros((4, *SHAPE[1:]), np.float32)})["y"].shape == (4, 5)


@pytest.mark.parametrize("found", [(2, 5), (-1, 5), (1, 5, 1)])
def test_a_buffer_is_made_for_the_promised_shape_only(found: tuple[int, ...]) -> None:
    io = IoEntry("y", "float32", (1, 5), "LINEAR", (20, 4), None)
    assert settled(io, (1, 5)) == (1, 5)
    with pytest.raises(DeviceError, match="for these inputs instead of"):
        settled(io, found)


def test_no_buffer_has_less_than_no_bytes(here: Here) -> None:
    here.has("10.3.0")
    cuda = open_cuda()
    for allocate in (cuda.malloc, cuda.host_alloc):
        with pytest.raises(DeviceError, match="-20 bytes"):
            allocate(-20)
