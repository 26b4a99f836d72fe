"""resize-nearest-large, resize-linear-in-steps, resize-linear-to-pool: growing in several steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._growth import repeated, stages
from edgekit.rewrite.deconvolution._resize_coordinates import grown
from edgekit.rewrite.deconvolution._stages import write

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer
    from edgekit.rewrite.deconvolution._growth import Growth, Stage

__all__ = ["ResizeLinearInSteps", "ResizeLinearToPool", "ResizeNearestLarge"]


class ResizeNearestLarge:
    """Repeating elements a times and the result b times repeats them a * b times.

    A single element may be repeated too often, with a Slice behind it: so global features are
    brought back to any size. Other factors with a prime over the limit stay as they are.
    """

    name = "resize-nearest-large"
    reason = "The DLA repeats elements up to 32 times in one layer; two layers repeat more"
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Resize that repeats elements more often than one layer can."""
        found = grown(graph, node)
        if found is None or not repeated(found[1]):
            return None
        plan = _plan(found[1], linear=False)
        if plan is None or max(map(len, plan)) < 2:
            return None
        return Match((node,), plan)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the Resizes."""
        _replace(graph, match, new)


class ResizeLinearInSteps:
    """Linear growth that one layer of the DLA cannot do, by several.

    Of half_pixel, an odd factor may stand before any other, for then the result's elements hold
    the input's, and between these it is linear again: 6 is 3, then 2. What no linear layer does
    (5, 7, 8 and more, and asymmetric and aligned corners) repeats elements and averages
    neighbours. All steps are means of the elements: no value grows.

    Left are factors with a prime over the pooling window (11, 13), and aligned corners that are
    no whole number of elements apart: resize-to-convolution has these.
    """

    name = "resize-linear-in-steps"
    reason = (
        "The DLA interpolates by factors up to 4 with half_pixel coordinates only; other growth "
        "is several such steps, or repeated elements averaged over their neighbours"
    )
    operators: tuple[str, ...] = ("Resize",)
    # an average that leaves out the borders is for Xavier to be rewritten once more
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a linear Resize that takes more than one layer."""
        found = grown(graph, node)
        if found is None or repeated(found[1]):
            return None
        plan = _plan(found[1], linear=True)
        if plan is None or all([stage.kind for stage in part] in ([], ["linear"]) for part in plan):
            return None
        return Match((node,), plan)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the Resizes and AveragePools."""
        _replace(graph, match, new)


class ResizeLinearToPool:
    """Linear growth without any linear layer, for releases whose DLA has none.

    These are mostly Xavier's, whose averages count their padding: a scale by position makes up
    for it.
    """

    name = "resize-linear-to-pool"
    reason = (
        "The DLA of TensorRT before 8.5.2 repeats elements only; averaged over neighbours, "
        "repeated elements are interpolated ones"
    )
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a linear Resize by whole factors."""
        found = grown(graph, node)
        if found is None or repeated(found[1]):
            return None
        plan = _plan(found[1], linear=False)
        return None if plan is None else Match((node,), plan)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the Resizes and AveragePools."""
        _replace(graph, match, new, inclusive=True)


def _plan(sides: tuple[Growth, Growth], *, linear: bool) -> tuple[list[Stage], list[Stage]] | None:
    down, across = (stages(side, linear=linear) for side in sides)
    return None if down is None or across is None else (down, across)


def _replace(graph: Graph, match: Match, new: Writer, *, inclusive: bool = False) -> None:
    node = match.nodes[0]
    shape = graph.shape(node.inputs[0])
    write(
        new,
        node.inputs[0],
        shape,
        match.facts,
        output=node.outputs[0],
        name=node.name,
        inclusive=inclusive,
    )
