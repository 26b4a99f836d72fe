"""Models of opset 1 to 6, whose operators broadcast by an attribute: onnxruntime computes what the
old operators mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.writing import save

FLOAT, BOOL, INT32 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT32
_NUMPY: dict[str, Any] = {
    "Add": np.add,
    "And": np.logical_and,
    "Div": np.divide,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Pow": np.power,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}


def old(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, Sequence[int]]],
    constants: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 6,
    result: int = FLOAT,
    declared: Sequence[int] | None = None,
) -> onnx.ModelProto:
    """A model of IR 3, whose constants are no inputs."""
    graph = helper.make_graph(
        list(nodes),
        "old",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info("y", result, declared)],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


def run(proto: onnx.ModelProto, path, **feeds: np.ndarray) -> np.ndarray:
    """What onnxruntime computes from the model as edgekit loads it."""
    save(canonical(proto, None), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, feeds)[0]
    return result


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), "n", **attributes)


def some(op: str, shape: Sequence[int], seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).integers(1, 4, size=shape)
    if op in {"And", "Or", "Xor"}:
        return drawn > 2
    return drawn.astype(np.int32 if op == "Equal" else np.float32)


@pytest.mark.few(30)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2, -3, None])
@pytest.mark.parametrize("op", sorted(_NUMPY))
def test_an_axis_of_broadcasting_is_kept(tmp_path, op: str, axis: int | None, constant: bool):
    """All sizes agree, so that only the result tells which dimensions were meant."""
    first = some(op, (4, 4, 4, 4), 1)
    second = some(op, (4, 4), 2)
    start = 2 if axis is None else axis % 4
    kind = helper.np_dtype_to_tensor_dtype(first.dtype)
    given = {} if axis is None else {"axis": axis}
    proto = old(
        [node(op, "x b", broadcast=1, **given)],
        {"x": (kind, first.shape)} | ({} if constant else {"b": (kind, second.shape)}),
        {"b": second} if constant else {},
        result=FLOAT if op in {"Add", "Div", "Mul", "Pow", "Sub"} else BOOL,
        declared=first.shape,
    )
    feeds = {"x": first} | ({} if constant else {"b": second})

    wide = second.reshape((1,) * start + (4, 4) + (1,) * (2 - start))
    np.testing.assert_allclose(run(proto, tmp_path / "m.onnx", **feeds), _NUMPY[op](first, wide))


def test_one_constant_may_broadcast_along_several_axes(tmp_path):
    bias, image = np.arange(4, dtype=np.float32), np.ones((1, 4, 4, 4), np.float32)
    proto = old(
        [node("Add", "x b", "s", broadcast=1, axis=1), node("Mul", "s b", broadcast=1, axis=3)],
        {"x": (FLOAT, image.shape)},
        {"b": bias},
    )

    expected = (image + bias[:, None, None]) * bias
    np.testing.assert_array_equal(run(proto, tmp_path / "m.onnx", x=image), expected)


def test_slopes_per_channel(tmp_path):
    image, slopes = -np.ones((1, 3, 3, 3), np.float32), np.array([1, 2, 3], np.float32)
    proto = old([node("PRelu", "x s")], {"x": (FLOAT, image.shape)}, {"s": slopes})

    expected = image * slopes[:, None, None]
    np.testing.assert_array_equal(run(proto, tmp_path / "m.onnx", x=image), expected)


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (node("Pad", "x", paddings=[0, 0, 1, 1, 0, 0, 1, 1]), (1, 4, 6, 6)),
        (node("Reshape", "x", shape=[4, -1]), (4, 16)),
        (node("Concat", "x x"), (1, 8, 4, 4)),
        (node("Split", "x", "y z", axis=1, split=[1, 3]), (1, 1, 4, 4)),
        (node("Split", "x sizes", "y z", axis=1), (1, 1, 4, 4)),
        (node("Upsample", "x", height_scale=2.0, width_scale=3.0, mode="nearest"), (1, 4, 8, 12)),
        (node("GlobalLpPool", "x", p=2.0), (1, 4, 1, 1)),
        (node("Cast", "x", to="FLOAT"), (1, 4, 4, 4)),
        (node("Relu", "x", consumed_inputs=[0]), (1, 4, 4, 4)),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else None,
)
def test_operators_of_opset_1(made: onnx.NodeProto, shape: tuple[int, ...]) -> None:
    sizes = {"sizes": np.array([1, 3], np.float32)} if "sizes" in made.input else {}
    model = canonical(old([made], {"x": (FLOAT, [1, 4, 4, 4])}, sizes, opset=1), None)

    assert model.graph.shape("y") == shape
    assert layers(model).layers


_CONSTANTS = {n: np.ones(4, np.float32) for n in "sbmv"}


@pytest.mark.parametrize(
    ("made", "opset", "why"),
    [
        (node("Add", "x c", broadcast=1, axis=3), 6, "2 dimensions from axis 3 of 4 on"),
        (node("Tile", "x t a"), 1, "repeats along one axis"),
        (node("Cast", "x", to="FLOATY"), 1, "casts to 'FLOATY'"),
        (node("BatchNormalization", "x s b m v", is_test=0), 6, "in training mode"),
    ],
    ids=["axis", "tile", "cast", "training"],
)
def test_what_has_no_new_form_is_refused_with_its_node(made, opset: int, why: str) -> None:
    inputs = {
        "x": (FLOAT, [1, 4, 4, 4]),
        "c": (FLOAT, [4, 4]),
        "t": (FLOAT, [1]),
        "a": (FLOAT, [1]),
    }
    read = {name: value for name, value in inputs.items() if name in made.input}
    constants = {name: value for name, value in _CONSTANTS.items() if name in made.input}
    with pytest.raises(ModelError, match=why) as caught:
        canonical(old([made], read, constants, opset=opset), None)
    assert caught.value.code == "model.opset"
    assert caught.value.where == "n"
    assert "opset 9" in (caught.value.hint or "")
    assert "Assertion" not in caught.value.message


def test_an_unknown_shape_is_refused_where_an_axis_depends_on_it() -> None:
    strange = helper.make_node("Strange", ["x"], ["s"], "p", domain="mine")
    proto = old(
        [strange, node("Add", "s b", broadcast=1, axis=1)],
        {"x": (FLOAT, [1, 4, 4, 4])},
        {"b": np.ones(4, np.float32)},
    )
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(ModelError, match="the shape of 's' is unknown"):
        canonical(proto, None)
