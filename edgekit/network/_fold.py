"""Computes nodes whose inputs are all constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.network._graph import subgraphs

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["constant", "fold", "foldable", "repeated"]

# their output is their input in another shape
_VIEWS = {"Reshape", "Unsqueeze", "Squeeze", "Flatten"}
_REPEATS = {"ConstantOfShape", "Expand"}
# explicit quantization must stay visible; random values are not constants
_NEVER = {
    "QuantizeLinear",
    "DequantizeLinear",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
}
# a folded value may have this many elements more than its inputs: larger Tiles and OneHots stay
_LARGEST_GROWTH = 1 << 22
# a repeated value costs nothing until something writes it out; no board could hold more elements
_LARGEST_REPEAT = 1 << 32


def foldable(
    node: onnx.NodeProto,
    constants: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
) -> bool:
    """Whether a node can become a constant without making the model much larger.

    Raises:
        ModelError: ``model.too_large``.
    """
    inputs = [name for name in node.input if name]
    if not inputs or any(name not in constants for name in inputs):
        return False
    if node.op_type in _NEVER or any(True for _ in subgraphs(node)):
        return False
    if node.op_type in _VIEWS:
        return True
    if node.op_type in _REPEATS:
        _fits(node, shapes[node.output[0]])
        return True
    before = sum(constants[name].size for name in inputs)
    after = sum(math.prod(shapes[name]) for name in node.output if name)
    return after <= before + _LARGEST_GROWTH


def repeated(node: onnx.NodeProto, constants: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The output of a plain ConstantOfShape; None for any other node, and for a doubtful one.

    Light models have hundreds of them in place of weights: they need no inference.

    Raises:
        ModelError: ``model.too_large``.
    """
    if node.op_type != "ConstantOfShape" or len(node.input) != 1 or len(node.attribute) > 1:
        return None
    if any(item.name != "value" or not item.HasField("t") for item in node.attribute):
        return None
    sizes = constants.get(node.input[0])
    if sizes is None or sizes.dtype.name != "int64" or sizes.ndim != 1 or (sizes < 0).any():
        return None
    try:
        fill = _fill(node)
    except (ValueError, TypeError, KeyError):
        # inference says better what is wrong with it
        return None
    if fill.size != 1 or fill.dtype.kind not in "fiub":
        return None
    return _repeat(fill, _fits(node, tuple(sizes.tolist())))


def _fits(node: onnx.NodeProto, shape: tuple[int, ...]) -> tuple[int, ...]:
    count = math.prod(shape)
    if count > _LARGEST_REPEAT:
        raise ModelError(
            f"node {node.name!r} ({node.op_type}) makes a constant of {count} elements",
            code="model.too_large",
            where=node.name,
            hint="no board holds such a tensor; the file may be damaged",
        )
    return shape


def _fill(node: onnx.NodeProto) -> np.ndarray:
    import numpy as np
    from onnx import numpy_helper

    if not node.attribute:
        return np.zeros(1, np.float32)
    return numpy_helper.to_array(node.attribute[0].t)


def _repeat(fill: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    import numpy as np

    # a view of one value: such weights cost no memory until something writes them out
    return np.broadcast_to(fill.reshape(()), shape)


def fold(
    node: onnx.NodeProto,
    constants: Mapping[str, np.ndarray],
    types: Mapping[str, onnx.TypeProto],
    version: int,
) -> dict[str, np.ndarray] | None:
    """The outputs of a foldable node by name; None when onnx's reference cannot compute it.

    Args:
        node: The node.
        constants: Values of its inputs.
        types: Types with static shapes of its inputs and outputs.
        version: The ai.onnx opset.
    """
    import numpy as np

    first = node.output[0]
    shape = _shape(types[first])
    if node.op_type in _VIEWS:
        return {first: constants[node.input[0]].reshape(shape)}
    if node.op_type == "Expand":
        return {first: np.broadcast_to(constants[node.input[0]], shape)}
    if node.op_type == "ConstantOfShape":
        return {first: _repeat(_fill(node), shape)}
    return _run(node, constants, types, version)


def _run(
    node: onnx.NodeProto,
    constants: Mapping[str, np.ndarray],
    types: Mapping[str, onnx.TypeProto],
    version: int,
) -> dict[str, np.ndarray] | None:
    import numpy as np
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = list(dict.fromkeys(name for name in node.input if name))
    wanted = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "fold",
        [helper.make_value_info(name, types[name]) for name in names],
        [helper.make_value_info(name, types[name]) for name in wanted],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    try:
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(model).run(None, {name: constants[name] for name in names})
    except Exception:
        # the reference lacks some old operator versions; the node then stays as it is
        return None
    arrays = {name: np.asarray(value) for name, value in zip(wanted, values, strict=True)}
    expected = {
        name: (
            _shape(types[name]),
            helper.tensor_dtype_to_np_dtype(types[name].tensor_type.elem_type),
        )
        for name in wanted
    }
    if any((array.shape, array.dtype) != expected[name] for name, array in arrays.items()):
        return None
    return arrays


def constant(node: onnx.NodeProto) -> np.ndarray:
    """The value of a Constant node.

    Raises:
        ModelError: ``model.type`` for strings and sparse tensors.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    attribute = node.attribute[0]
    if attribute.name == "value":
        return numpy_helper.to_array(attribute.t)
    kinds = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    if attribute.name not in kinds:
        raise ModelError(
            f"constant node {node.name!r} holds a {attribute.name}, not a dense tensor of numbers",
            code="model.type",
            where=node.name,
        )
    return np.asarray(helper.get_attribute_value(attribute), dtype=kinds[attribute.name])


def _shape(proto: onnx.TypeProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in proto.tensor_type.shape.dim)
