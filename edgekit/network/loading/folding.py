"""Constant folding: nodes whose inputs are all constants, computed now or when their
values are first read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.model import QDQ, Constant, Deferred, DeferredStep, materialise
from edgekit.network.protos import RANDOM, has_bodies
from edgekit.network.windows import attributes

_ARITHMETIC = {"Add": "add", "Sub": "subtract", "Mul": "multiply"}
_PLAIN_MOVES = frozenset({"Concat", "Gather", "Transpose"})
# operators whose output is the input in another shape
VIEWS = {"Reshape", "Unsqueeze", "Squeeze", "Flatten"}
_REPEATS = {"ConstantOfShape", "Expand"}
# explicit quantization must stay visible; random values are not constants
_NEVER = QDQ | RANDOM
# most elements of a folded value beyond those of its inputs: larger Tiles and OneHots stay
_LARGEST_GROWTH = 1 << 22
# a repeated value takes no memory until it is written out; no board can hold more elements
_LARGEST_REPEAT = 1 << 32
# most bytes that folding reads or computes at load time, for a node and in total: larger nodes are
# computed lazily, and so are all above _SMALL when the total is exceeded
_LARGEST_NOW = 1 << 20
_ALL_NOW = 64 << 20
_SMALL = 1 << 12
# views of their input in onnx's reference evaluator: lazy computation has no benefit
_SLICES = {"Transpose", "Slice", "Split"}
_MOVES = {*_SLICES, "Concat", "Gather", "Tile"}
_ELEMENTWISE = {
    "Abs", "Add", "Cast", "CastLike", "Ceil", "Clip", "Div", "Equal", "Erf", "Exp", "Floor",
    "Greater", "Less", "Log", "Max", "Mean", "Min", "Mul", "Neg", "Not", "Pow", "Reciprocal",
    "Relu", "Round", "Sigmoid", "Sign", "Sqrt", "Sub", "Sum", "Tanh", "Where",
}  # fmt: skip
_REDUCTIONS = {
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
}
_PRODUCTS = {"MatMul", "Gemm"}
# operators that are tested on single elements in onnx's reference evaluator, with the result's type
_TRIED = _ELEMENTWISE | _REDUCTIONS | _PRODUCTS


def fold_with_numpy(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns the output of a supported node, equal to onnx's reference; None for other nodes.

    Args:
        node: A node of opset 7 or later.
        values: Values of its inputs.
    """
    name = _ARITHMETIC.get(node.op_type, "")
    if not name and node.op_type not in _PLAIN_MOVES:
        return None
    read = [values[item] for item in node.input]
    if name:
        # NumPy would promote mixed types, which ONNX does not allow
        if len({item.dtype for item in read}) > 1 or read[0].dtype.kind not in "fiu":
            return None
        with np.errstate(all="ignore"):
            return np.asarray(getattr(np, name)(*read))
    given = attributes(node)
    if node.op_type == "Transpose":
        return np.transpose(read[0], given.get("perm"))
    if node.op_type == "Gather":
        return _gather(read[0], read[1], given.get("axis", 0))
    if "axis" not in given or len({item.dtype for item in read}) > 1:
        return None
    return np.concatenate(read, given["axis"])


def _gather(data: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray | None:
    # the reference raises the error, or makes the empty result
    if not data.ndim or not index.size:
        return None
    length = data.shape[axis]
    if index.min() < -length or index.max() >= length:
        return None
    return np.asarray(np.take(data, index, axis))


def foldable(
    node: onnx.NodeProto,
    constants: Mapping[str, Constant],
    shapes: Mapping[str, tuple[int, ...]],
) -> bool:
    """Returns True if a node can become a constant without making the model much larger.

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
        _check_size(node, shapes[node.output[0]])
        return True
    before = sum(constants[name].size for name in inputs)
    after = sum(math.prod(shapes[name]) for name in node.output if name)
    # growth, not size: a large constant that is only moved must fold
    return after <= before + _LARGEST_GROWTH


def fold_constant_of_shape(
    node: onnx.NodeProto, constants: Mapping[str, Constant]
) -> np.ndarray | None:
    """Returns the output of a valid ConstantOfShape; None for any other node.

    Light models have hundreds of such nodes instead of weights: they need no inference.

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
    sizes = materialise(given)
    if (sizes < 0).any():
        return None
    try:
        fill = _fill(node)
    except (ValueError, TypeError, KeyError):
        # inference raises a better error
        return None
    if fill.size != 1 or fill.dtype.kind not in "fiub":
        return None
    return _repeat(fill, _check_size(node, tuple(sizes.tolist())))


def _check_size(node: onnx.NodeProto, shape: tuple[int, ...]) -> tuple[int, ...]:
    count = math.prod(shape)
    if count > _LARGEST_REPEAT:
        raise ModelError(
            f"node {node.name!r} ({node.op_type}) computes a constant of {count} elements",
            code="model.too_large",
            where=node.name,
            hint="this is too large for any board; maybe the file is damaged",
        )
    return shape


def _fill(node: onnx.NodeProto) -> np.ndarray:
    # ONNX's default: FP32 zeros
    if not node.attribute:
        return np.zeros(1, np.float32)
    return numpy_helper.to_array(node.attribute[0].t)


def _repeat(fill: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    # a view of a single value: such weights take no memory until they are written out
    return np.broadcast_to(fill.reshape(()), shape)


def fold(
    node: onnx.NodeProto,
    constants: Mapping[str, np.ndarray],
    types: Mapping[str, onnx.TypeProto],
    version: int,
) -> dict[str, np.ndarray] | None:
    """Returns the outputs of a foldable node by name; None if onnx's reference cannot compute it.

    Args:
        node: The node.
        constants: Values of its inputs.
        types: Types with static shapes of its inputs and outputs.
        version: The ai.onnx opset.
    """
    first = node.output[0]
    shape = _shape(types[first])
    if node.op_type in VIEWS:
        return {first: constants[node.input[0]].reshape(shape)}
    if node.op_type == "Expand":
        return {first: np.broadcast_to(constants[node.input[0]], shape)}
    if node.op_type == "ConstantOfShape":
        return {first: _repeat(_fill(node), shape)}
    expected = output_types(node, types)
    # the reference takes far longer to build than these operators take to run
    quick = fold_with_numpy(node, constants)
    if quick is not None and (quick.shape, quick.dtype) == expected[first]:
        return {first: quick}
    arrays = run(node, constants, types, version)
    # the reference has wrong types or shapes for some operators: inference decides
    if arrays is None or any((a.shape, a.dtype) != expected[name] for name, a in arrays.items()):
        return None
    return arrays


def run(
    node: onnx.NodeProto,
    values: Mapping[str, np.ndarray],
    types: Mapping[str, onnx.TypeProto],
    version: int,
) -> dict[str, np.ndarray] | None:
    """Returns the outputs of a node by name from onnx's reference evaluator; None if it fails."""
    reference = evaluator(node, types, version)
    if reference is None:
        return None
    wanted = [name for name in node.output if name]
    try:
        with np.errstate(all="ignore"):
            made = reference.run(None, dict(values))
    except Exception:
        # the reference lacks some old operator versions; the node is then kept
        return None
    return {name: np.asarray(value) for name, value in zip(wanted, made, strict=True)}


def evaluator(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], version: int
) -> Any | None:
    """Returns onnx's reference evaluator for a node; None if it lacks the operator."""
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
        # it lacks some old operator versions
        return None


def output_types(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Returns shape and NumPy type of a node's outputs by name."""
    return {
        name: (
            _shape(types[name]),
            helper.tensor_dtype_to_np_dtype(types[name].tensor_type.elem_type),
        )
        for name in node.output
        if name
    }


def constant(node: onnx.NodeProto) -> np.ndarray:
    """Returns the value of a Constant node.

    Raises:
        ModelError: ``model.type`` for strings and sparse tensors.
    """
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
            f"constant node {node.name!r} has a {attribute.name}, but a dense tensor of numbers "
            "was expected",
            code="model.type",
            where=node.name,
        )
    return np.asarray(helper.get_attribute_value(attribute), dtype=kinds[attribute.name])


def _shape(proto: onnx.TypeProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in proto.tensor_type.shape.dim)


class LazyFolding:
    """Selects the nodes to fold lazily: large nodes, and further nodes after a total size."""

    def __init__(self) -> None:
        self._done = 0

    def step(
        self,
        node: onnx.NodeProto,
        constants: Mapping[str, Constant],
        types: Mapping[str, onnx.TypeProto],
        version: int,
    ) -> dict[str, Constant] | None:
        """Returns the lazy outputs of a foldable node; None to compute them now.

        Args:
            node: The node.
            constants: Its inputs.
            types: Types with static shapes of its inputs and outputs.
            version: The ai.onnx opset.
        """
        read = {name: constants[name] for name in node.input if name}
        if not self._should_defer(node, read, types) or not _can_compute(
            node, read, types, version
        ):
            return None
        names = list(read)

        def compute(values: Sequence[np.ndarray]) -> Mapping[str, np.ndarray]:
            made = fold(node, dict(zip(names, values, strict=True)), types, version)
            if made is None:
                raise ModelError(
                    f"node {node.name!r} ({node.op_type}) cannot be computed from its constants",
                    code="model.constant",
                    where=node.name,
                    hint="fold the constants when exporting the model, or export it again",
                )
            return made

        step = DeferredStep(list(read.values()), compute)
        return {
            name: Deferred(step, name, shape, dtype)
            for name, (shape, dtype) in output_types(node, types).items()
        }

    def _should_defer(
        self,
        node: onnx.NodeProto,
        read: Mapping[str, Constant],
        types: Mapping[str, onnx.TypeProto],
    ) -> bool:
        # reading it now would compute the whole chain before it
        if any(isinstance(value, Deferred) for value in read.values()):
            return True
        if node.op_type in VIEWS or node.op_type in _SLICES or node.op_type == "Expand":
            return False
        made = [math.prod(s) * d.itemsize for s, d in output_types(node, types).values()]
        sizes = [*made, *(value.nbytes for value in read.values())]
        if node.op_type == "Gather":
            # it reads no more than its output
            sizes = made
        if max(sizes) > (_LARGEST_NOW if self._done <= _ALL_NOW else _SMALL):
            return True
        self._done += sum(sizes)
        return False


def _can_compute(
    node: onnx.NodeProto,
    read: Mapping[str, Constant],
    types: Mapping[str, onnx.TypeProto],
    version: int,
) -> bool:
    """Returns True if a later computation of a node will succeed."""
    # these come here only with an input that is computed lazily
    if node.op_type in VIEWS or node.op_type == "Expand":
        return True
    if node.op_type in _TRIED:
        return _computes_small(node, read, types, version)
    if node.op_type == "Gather":
        return _indices_in_range(node, read)
    return node.op_type in _MOVES and evaluator(node, types, version) is not None


def _computes_small(
    node: onnx.NodeProto,
    read: Mapping[str, Constant],
    types: Mapping[str, onnx.TypeProto],
    version: int,
) -> bool:
    """Returns True if a node can be computed on single elements of the same ranks and types."""
    first = read[node.input[0]]
    if node.op_type == "Pow" and first.dtype.kind in "iu":
        # integers have no negative powers, so the result depends on the values
        return False
    small: dict[str, np.ndarray] = {}
    for name, value in read.items():
        # axes decide the result's rank, so they keep their values
        axes = node.op_type in _REDUCTIONS and name != node.input[0]
        small[name] = materialise(value) if axes else np.ones((1,) * value.ndim, value.dtype)
    values = run(node, small, types, version)
    wanted = {name: dtype for name, (_, dtype) in output_types(node, types).items()}
    return values is not None and {n: v.dtype for n, v in values.items()} == wanted


def _indices_in_range(node: onnx.NodeProto, read: Mapping[str, Constant]) -> bool:
    """Returns True if a Gather's indices are in range: otherwise the reference must raise its error
    now."""
    data, index = read[node.input[0]], materialise(read[node.input[1]])
    axis = next((item.i for item in node.attribute if item.name == "axis"), 0)
    length = data.shape[axis]
    return bool(((index >= -length) & (index < length)).all())
