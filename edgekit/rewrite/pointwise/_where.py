"""Where to products with the condition's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import (
    LARGEST_FP16,
    form,
    image,
    number,
    scaled,
    to_shape,
)
from edgekit.rewrite.pointwise._mask import Mask, elem_type, tree
from edgekit.rewrite.pointwise._spread import broadcasts, spread, spreadable

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Where"]

_RANK = 4


class Where:
    """c a + (1 - c) b for c of 0 and 1: differs where a or b is infinite or not a number."""

    name = "where"
    reason = (
        "the DLA has no selection; c a + (1 - c) b with a condition of 0 and 1 is the same for "
        "finite numbers"
    )
    operators: tuple[str, ...] = ("Where",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """A Where of images and constants that FP16 can hold."""
        condition, *branches = node.inputs
        output = node.outputs[0]
        whole = graph.shape(output)
        if not graph.floats(output) or len(whole) != _RANK:
            return None
        if not all(_branch(graph, name, whole) for name in branches):
            return None
        fixed = graph.constant(condition)
        if fixed:
            fits = form(graph.shape(condition), whole)
            moving = [name for name in branches if not graph.constant(name)]
            if not fits or not moving or not all(_within(graph, name) for name in branches):
                return None
            return Match((node,))
        found = tree(graph, condition, node)
        if found is None or graph.dtype(condition) != "bool":
            return None
        if not _fits(graph, condition, branches, whole):
            return None
        if not all(_within(graph, name) for name in branches):
            return None
        return Match((node, *found.nodes), found.again)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the products and their sum, or the scale that they amount to."""
        node = match.nodes[0]
        if graph.constant(node.inputs[0]):
            _by_constant(graph, new, node)
        else:
            _by_mask(graph, new, node, match.facts)


def _branch(graph: Graph, name: str, whole: Sequence[int]) -> bool:
    if not graph.constant(name):
        return image(graph, name) and graph.shape(name) == tuple(whole)
    return bool(form(graph.shape(name), whole))


def _within(graph: Graph, name: str) -> bool:
    """Whether a constant is within FP16: 0 times what is not (a mask of -inf) is no number.

    The one place where the values of an array decide, looked at when all else fits.
    """
    import numpy as np

    value = graph.value(name)
    return value is None or bool((np.abs(value) <= LARGEST_FP16).all())


def _fits(graph: Graph, condition: str, branches: Sequence[str], whole: Sequence[int]) -> bool:
    shape = graph.shape(condition)
    if shape == tuple(whole):
        return True
    if not all(graph.constant(name) for name in branches) and broadcasts(shape, whole):
        return True
    return graph.dtype(branches[0]) == "float32" and spreadable(shape, whole)


def _by_mask(graph: Graph, new: Writer, node: Node, again: Sequence[Node]) -> None:
    condition, *branches = node.inputs
    output = node.outputs[0]
    whole = graph.shape(output)
    shape = graph.shape(condition)
    masks = Mask(graph, new, graph.dtype(output))
    masks.repeat(again)
    mask = masks.of(condition)
    arrays = [n for n in branches if graph.constant(n) and number(graph, n) is None]
    moving = [n for n in branches if not graph.constant(n)]
    if shape != whole and (arrays or not moving or not broadcasts(shape, whole)):
        mask, shape = spread(new, mask, shape, whole), whole
    yes, no = (None if not graph.constant(n) else number(graph, n) for n in branches)
    if yes is not None and no is not None:
        scaled(new, mask, yes - no, no, shape[1], output=output)
        return
    if no == 0.0 or yes == 0.0:
        # half of it is nothing
        part = mask if no == 0.0 else scaled(new, mask, -1.0, 1.0, shape[1], role="not")
        operand = branches[0] if no == 0.0 else branches[1]
        _product(graph, new, part, operand, whole, output)
        return
    parts = []
    for name, value, factor, shift in (
        (branches[0], yes, 1.0, 0.0),
        (branches[1], no, -1.0, 1.0),
    ):
        if value is not None:
            line = (factor * value, shift * value)
            parts.append(scaled(new, mask, *line, shape[1], role="number"))
            continue
        part = mask if factor > 0 else scaled(new, mask, factor, shift, shape[1], role="not")
        parts.append(_product(graph, new, part, name, whole, ""))
    new.node("Add", parts, output=output)


def _product(
    graph: Graph, new: Writer, mask: str, operand: str, whole: Sequence[int], output: str
) -> str:
    if graph.constant(operand):
        operand = to_shape(graph, new, operand, whole)
    return new.node("Mul", [mask, operand], output=output)


def _by_constant(graph: Graph, new: Writer, node: Node) -> None:
    """The condition is known: factors and shifts of 0 and 1."""
    condition, *branches = node.inputs
    output = node.outputs[0]
    whole = graph.shape(output)
    to = elem_type(graph.dtype(output))
    mask = new.node("Cast", [to_shape(graph, new, condition, whole)], role="number", to=to)
    rest = new.node("Sub", [new.constant(1.0), mask], role="not")
    moving = [
        new.node(
            "Mul",
            [name, part],
            output=output if any(number(graph, n) == 0.0 for n in branches) else "",
            role="part",
        )
        for name, part in zip(branches, (mask, rest), strict=True)
        if not graph.constant(name)
    ]
    if len(moving) == 1:
        (fixed,) = (n for n in branches if graph.constant(n))
        if number(graph, fixed) == 0.0:
            return
        part = mask if fixed == branches[0] else rest
        moving.append(_passed(graph, new, fixed, part, whole))
    new.node("Add", moving, output=output)


def _passed(graph: Graph, new: Writer, fixed: str, part: str, whole: Sequence[int]) -> str:
    """Returns the constant that is added where the condition lets it through, in full."""
    product = new.node("Mul", [fixed, part], role="fixed")
    return new.node("Expand", [product, new.constant([1, *whole[1:]])], role="repeated")
