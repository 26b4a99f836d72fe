"""Operands that repeat in a form that the DLA does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.rewriting.nodes import Match
from edgekit.rewriting.rules.pointwise.operands import image, to_shape

if TYPE_CHECKING:
    from edgekit.rewriting.graph import RewriteGraph, Writer
    from edgekit.rewriting.nodes import Node


def broadcasts(small: Sequence[int], large: Sequence[int]) -> bool:
    """Whether an element-wise layer of the DLA takes these two, the larger one with all of it."""
    n, c, _, _ = large
    return tuple(small) in {tuple(large), (n, c, 1, 1), (n, 1, 1, 1)}


def spreadable(small: Sequence[int], large: Sequence[int]) -> bool:
    """Whether ``spread`` can bring a tensor of one 4-D shape to another."""
    if len(small) != len(large) or small[0] != large[0]:
        return False
    if any(s not in {1, t} for s, t in zip(small, large, strict=True)):
        return False
    times = [t // s for s, t in zip(small[2:], large[2:], strict=True)]
    return all(_steps(factor) is not None for factor in times)


def spread(
    new: Writer, source: str, small: Sequence[int], large: Sequence[int], *, output: str = ""
) -> str:
    """Writes copies along C as a convolution with ones, along H and W as a nearest resize.

    Args:
        new: The replacement.
        source: Tensor of shape ``small``, FP32.
        small: N x c x h x w, each the size in ``large`` or 1; N the same.
        large: N x C x H x W.
        output: Tensor to write when there is anything to repeat; a new one when empty.
    """
    import numpy as np

    writes = []
    if small[1] != large[1]:
        writes.append("Conv")
    rows, columns = (_steps(t // s) or [] for s, t in zip(small[2:], large[2:], strict=True))
    count = max(len(rows), len(columns))
    rows, columns = rows + [1] * (count - len(rows)), columns + [1] * (count - len(columns))
    for index in range(len(writes) + count):
        last = output if index == len(writes) + count - 1 else ""
        if index < len(writes):
            ones = new.constant(np.ones((large[1], 1, 1, 1)), role="ones")
            source = new.node(
                "Conv", [source, ones], output=last, role="copies", kernel_shape=[1, 1]
            )
            continue
        at = index - len(writes)
        scales = new.constant([1.0, 1.0, float(rows[at]), float(columns[at])], role="scales")
        source = new.node(
            "Resize",
            [source, "", scales],
            output=last,
            role="repeated",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    return source


def _steps(factor: int) -> list[int] | None:
    """Factors of ``factor`` in the range of a nearest resize; None if there are none."""
    from edgekit.dla.rules import limit

    most = limit("resize.nearest_scale")[1]
    if factor == 1:
        return []
    if factor <= most:
        return [factor]
    first = next((f for f in range(most, 1, -1) if factor % f == 0 and factor // f <= most), None)
    return None if first is None else [first, factor // first]


_PAIR = 2


class BroadcastOperand:
    """A spatial attention map [N, 1, H, W], a row [N, C, 1, W], a small tensor and large constant.

    Batches are not repeated, nor operands of fewer dimensions: no DLA layer does either.
    """

    name = "broadcast-operand"
    reason = (
        "the DLA's element-wise layers take a second operand of form NCHW, NC11 or N111 only; a "
        "convolution with ones repeats along C, a nearest resize along H and W"
    )
    operators: tuple[str, ...] = ("Add", "Mul", "Sub", "Div", "Max", "Min", "Sum")
    enabling = False

    def match(self, graph: RewriteGraph, node: Node) -> Match | None:
        """An operation of two images, or of an image and a constant, in no form of the DLA's."""
        if len(node.inputs) != _PAIR or graph.rank(node.outputs[0]) != 4:
            return None
        whole = graph.shape(node.outputs[0])
        fixed = [graph.constant(name) for name in node.inputs]
        if all(fixed) or graph.dtype(node.outputs[0]) != "float32":
            return None
        if any(fixed):
            source = node.inputs[fixed.index(False)]
            if not image(graph, source) or graph.shape(source) == whole:
                return None
            if node.op not in {"Add", "Mul", "Sub"} or (node.op == "Sub" and fixed[0]):
                return None
            return Match((node,)) if spreadable(graph.shape(source), whole) else None
        if not all(image(graph, name) for name in node.inputs):
            return None
        small, large = (graph.shape(name) for name in node.inputs)
        if large != whole:
            small, large = large, small
        if large == whole and broadcasts(small, whole):
            return None
        return Match((node,)) if all(spreadable(s, whole) for s in (small, large)) else None

    def replace(self, graph: RewriteGraph, match: Match, new: Writer) -> None:
        """Writes the copies of what is too small, and the operation."""
        node = match.nodes[0]
        whole = graph.shape(node.outputs[0])
        unchanged = _small_operand(graph, node, whole)
        operands = []
        for name in node.inputs:
            if graph.constant(name):
                operands.append(to_shape(graph, new, name, whole))
            elif name == unchanged:
                operands.append(name)
            else:
                operands.append(spread(new, name, graph.shape(name), whole))
        new.node(node.op, operands, output=node.outputs[0])


def _small_operand(graph: RewriteGraph, node: Node, whole: Sequence[int]) -> str:
    """Returns the operand that may stay small, as the other one gets the whole shape."""
    if any(graph.constant(name) for name in node.inputs):
        return ""
    fits = [name for name in node.inputs if broadcasts(graph.shape(name), whole)]
    return fits[0] if fits else ""
