"""Which nodes of constants can wait, and the steps that they become."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.errors import ModelError
from edgekit.network._deferred import Constant, Deferred, Step, real
from edgekit.network._fold import VIEWS, evaluator, fold, outputs_of, run

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["Patience"]

# what folding reads and makes at once: larger nodes wait, and all do when the sum is large
_LARGEST_NOW = 1 << 20
_ALL_NOW = 64 << 20
_SMALL = 1 << 12
# views of their input where onnx's reference computes them: waiting saves nothing
_SLICES = {"Transpose", "Slice", "Split"}
_MOVES = {*_SLICES, "Concat", "Gather", "Tile"}
_ELEMENTWISE = {
    "Abs", "Add", "Cast", "CastLike", "Ceil", "Clip", "Div", "Equal", "Erf", "Exp", "Floor",
    "Greater", "Less", "Log", "Max", "Mean", "Min", "Mul", "Neg", "Not", "Pow", "Reciprocal",
    "Relu", "Round", "Sigmoid", "Sign", "Sqrt", "Sub", "Sum", "Tanh", "Where",
}  # fmt: skip
_REDUCTIONS = {
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
}  # fmt: skip
_PRODUCTS = {"MatMul", "Gemm"}
# computing them on single elements shows whether onnx's reference can, and of what type it makes
_TRIED = _ELEMENTWISE | _REDUCTIONS | _PRODUCTS


class Patience:
    """Decides which folding waits: what is large, or much together, is not done while loading."""

    def __init__(self) -> None:
        self._done = 0

    def step(
        self,
        node: onnx.NodeProto,
        constants: Mapping[str, Constant],
        types: Mapping[str, onnx.TypeProto],
        version: int,
    ) -> dict[str, Constant] | None:
        """The outputs of a foldable node, to be computed later; None to compute them now.

        Args:
            node: The node.
            constants: Its inputs.
            types: Types with static shapes of its inputs and outputs.
            version: The ai.onnx opset.
        """
        read = {name: constants[name] for name in node.input if name}
        if not self._waits(node, read, types) or not _can(node, read, types, version):
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

        step = Step(list(read.values()), compute)
        return {
            name: Deferred(step, name, shape, dtype)
            for name, (shape, dtype) in outputs_of(node, types).items()
        }

    def _waits(
        self,
        node: onnx.NodeProto,
        read: Mapping[str, Constant],
        types: Mapping[str, onnx.TypeProto],
    ) -> bool:
        if any(isinstance(value, Deferred) for value in read.values()):
            return True
        if node.op_type in VIEWS or node.op_type in _SLICES or node.op_type == "Expand":
            return False
        made = [math.prod(s) * d.itemsize for s, d in outputs_of(node, types).values()]
        sizes = [*made, *(value.nbytes for value in read.values())]
        if node.op_type == "Gather":
            # it reads no more than it makes
            sizes = made
        if max(sizes) > (_LARGEST_NOW if self._done <= _ALL_NOW else _SMALL):
            return True
        self._done += sum(sizes)
        return False


def _can(
    node: onnx.NodeProto,
    read: Mapping[str, Constant],
    types: Mapping[str, onnx.TypeProto],
    version: int,
) -> bool:
    """Whether it is sure enough that computing it later will work as it would now."""
    if node.op_type in VIEWS or node.op_type == "Expand":
        return True
    if node.op_type in _TRIED:
        return _tried(node, read, types, version)
    if node.op_type == "Gather":
        return _inside(node, read)
    return node.op_type in _MOVES and evaluator(node, types, version) is not None


def _tried(
    node: onnx.NodeProto,
    read: Mapping[str, Constant],
    types: Mapping[str, onnx.TypeProto],
    version: int,
) -> bool:
    """Whether it works on single elements of the same ranks and types."""
    import numpy as np

    first = read[node.input[0]]
    if node.op_type == "Pow" and first.dtype.kind in "iu":
        # whether an integer has that power depends on the values
        return False
    small: dict[str, np.ndarray] = {}
    for name, value in read.items():
        axes = node.op_type in _REDUCTIONS and name != node.input[0]
        small[name] = real(value) if axes else np.ones((1,) * value.ndim, value.dtype)
    values = run(node, small, types, version)
    wanted = {name: dtype for name, (_, dtype) in outputs_of(node, types).items()}
    return values is not None and {n: v.dtype for n, v in values.items()} == wanted


def _inside(node: onnx.NodeProto, read: Mapping[str, Constant]) -> bool:
    """Whether a Gather's indices are: the reference refuses others, and so it must now."""
    data, index = read[node.input[0]], real(read[node.input[1]])
    axis = next((item.i for item in node.attribute if item.name == "axis"), 0)
    length = data.shape[axis]
    return bool(((index >= -length) & (index < length)).all())
