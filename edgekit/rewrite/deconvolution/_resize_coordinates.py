"""resize-coordinates: the combination that the DLA takes, where it has the same effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._growth import Growth, growth, repeated
from edgekit.rewrite.deconvolution._resizing import Resizing, resize, resizing, steady

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ResizeCoordinates", "grown"]

# what TensorRT calls LINEAR/HALF_PIXEL/FORMULA and .../UPPER
_LINEAR = frozenset({"half_pixel", "pytorch_half_pixel"})


class ResizeCoordinates:
    """Which elements are read, and with which weights, is compared, not how it is called.

    Nearest resizing by whole factors repeats elements, whichever the coordinates and roundings
    that say so; that is asymmetric and floor, which every release's DLA takes. The same goes for
    a linear or cubic Resize of a single element.
    """

    name = "resize-coordinates"
    reason = (
        "The DLA takes few combinations of coordinates and rounding; for whole factors many "
        "others have the same effect as one of these"
    )
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Resize by whole factors in the effect, not the words, of one that is taken."""
        from edgekit.dla import limit

        found = grown(graph, node)
        if found is None:
            return None
        made, (down, across) = found
        nearest = repeated((down, across))
        if not nearest and any(item.kind not in {"half_pixel", "same"} for item in (down, across)):
            return None
        _, most = limit("resize.nearest_scale" if nearest else "resize.linear_scale")
        factors = (down.factor, across.factor)
        if max(factors) > most or _taken(made, nearest=nearest):
            return None
        return Match((node,), (factors, "nearest" if nearest else "linear"))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a Resize in that combination."""
        node = match.nodes[0]
        factors, mode = match.facts
        resize(new, node.inputs[0], factors, mode, output=node.outputs[0])


def grown(graph: Graph, node: Node) -> tuple[Resizing, tuple[Growth, Growth]] | None:
    """Returns how a Resize of H and W grows them; None for any other, and where nothing grows.

    None too where rounding errors of its coordinates are larger than a proof allows.
    """
    made = resizing(graph, node)
    if made is None or not made.image:
        return None
    sides = [growth(made, axis) for axis in made.axes[2:]]
    if sides[0] is None or sides[1] is None or all(a.out == a.size for a in made.axes):
        return None
    if not all(axis.out == axis.size or steady(made, axis) for axis in made.axes[2:]):
        return None
    return made, (sides[0], sides[1])


def _taken(made: Resizing, *, nearest: bool) -> bool:
    if not made.scaled:
        return False
    if nearest:
        words = (made.mode, made.coordinates, made.rounding)
        return words == ("nearest", "asymmetric", "floor")
    return made.mode == "linear" and made.coordinates in _LINEAR
