"""Computes nodes whose inputs are all constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError
from edgekit.network._deferred import Constant, real
from edgekit.network._fold_plain import plain
from edgekit.network._graph import has_bodies

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["VIEWS", "constant", "evaluator", "fold", "foldable", "outputs_of", "repeated", "run"]

# their output is their input in another shape
VIEWS = {"Reshape", "Unsqueeze", "Squeeze", "Flatten"}
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
    constants: Mapping[str, Constant],
    shapes: Mapping[str, tuple[int, ...]],
) -> bool:
    """Whether a node can become a constant without making the model much larger.

    Raises:
        ModelError: ``model.too_large``.
    """
    inputs = [name for name in node.input if name]
    if not inputs or any(name not in constants for name in inputs):
        return False
    if node.op_type in _NEVER or has_bodies(node):
        return False
    if node.op_type in VIEWS:
        return True
    if node.op_type in _REPEATS:
        _fits(node, shapes[node.output[0]])
        return True
    before = sum(constants[name].size for name in inputs)
    after = sum(math.prod(shapes[name]) for name in node.output if name)
    return after <= before + _LARGEST_GROWTH


def repeated(node: onnx.NodeProto, constants: Mapping[str, Constant]) -> np.ndarray | None:
    """The output of a plain ConstantOfShape; None for any other node, and for a doubtful one.

    Light models have hundreds of them in place of weights: they need no inference.

    Raises:
        ModelError: ``model.too_large``.
    """
    if node.op_type != "ConstantOfShape" or len(node.input) != 1 or len(node.attribute) > 1:
        return None
    if any(item.name != "value" or not item.HasField("t") for item in node.attribute):
        return None
    given = constants.get(node.input[0])
    if given is None or given.dtype.name != "int64" or given.ndim != 1:
        return None
    sizes = real(given)
    if (sizes < 0).any():
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
    if node.op_type in VIEWS:
        return {first: constants[node.input[0]].reshape(shape)}
    if node.op_type == "Expand":
        return {first: np.broadcast_to(constants[node.input[0]], shape)}
    if node.op_type == "ConstantOfShape":
        return {first: _repeat(_fill(node), shape)}
    expected = outputs_of(node, types)
    quick = plain(node, constants)
    if quick is not None and (quick.shape, quick.dtype) == expected[first]:
        return {first: quick}
    arrays = run(node, constants, types, version)
    if arrays is None or any((a.shape, a.dtype) != expected[name] for name, a in arrays.items()):
        return None
    return arrays


def run(
    node: onnx.NodeProto,
    values: Mapping[str, np.ndarray],
    types: Mapping[str, onnx.TypeProto],
    version: int,
) -> dict[str, np.ndarray] | None:
    """The outputs of a node by name as onnx's reference computes them; None when it cannot."""
    import numpy as np

    reference = evaluator(node, types, version)
    if reference is None:
        return None
    wanted = [name for name in node.output if name]
    try:
        with np.errstate(all="ignore"):
            made = reference.run(None, dict(values))
    except Exception:
        # the reference lacks some old operator versions; the node then stays as it is
        return None
    return {name: np.asarray(value) for name, value in zip(wanted, made, strict=True)}


def evaluator(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], version: int
) -> Any | None:
    """onnx's reference for one node; None when it does not know the operator."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    graph = helper.make_graph(
        [node],
        "fold",
        [helper.make_value_info(n, types[n]) for n in dict.fromkeys(node.input) if n],
        [helper.make_value_info(name, types[name]) for name in node.output if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    try:
        return ReferenceEvaluator(model)
    except Exception:
        # some old operator versions are unknown to it
        return None


def outputs_of(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and NumPy type of a node's outputs by name."""
    from onnx import helper

    return {
        name: (
            _shape(types[name]),
            helper.tensor_dtype_to_np_dtype(types[name].tensor_type.elem_type),
        )
        for name in node.output
        if name
    }


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
