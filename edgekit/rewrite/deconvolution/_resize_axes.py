"""resize-1d and resize-channels-last: a Resize of other axes as one of H and W."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._resizing import resizing

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ResizeChannelsLast", "ResizeOneDimension"]


class ResizeOneDimension:
    """[N, C, L] is [N, C, L, 1] between Reshapes, which meet others on their way and vanish."""

    name = "resize-1d"
    reason = "The DLA resizes height and width only; a one-dimensional image has a width of 1"
    operators: tuple[str, ...] = ("Resize",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Resize of L in a tensor [N, C, L]."""
        made = resizing(graph, node)
        if made is None or len(made.axes) != 3 or any(a.scale != 1 for a in made.axes[:2]):
            return None
        return Match((node,), (0, 1, 2)) if made.axes[2].out != made.axes[2].size else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a Reshape, the Resize, and a Reshape."""
        node = match.nodes[0]
        before = new.constant([*graph.shape(node.inputs[0]), 1], role="shape")
        source = new.node("Reshape", [node.inputs[0], before], name=f"{node.name}:before")
        made = _again(graph, node, new, source, match.facts, single=True)
        after = new.constant(list(graph.shape(node.outputs[0])), role="shape")
        new.node("Reshape", [made, after], output=node.outputs[0], name=f"{node.name}:after")


class ResizeChannelsLast:
    """Transposed, the axes that are resized are H and W; a Transpose behind it turns it back.

    That is what models have that keep channels last; Transposes of neighbours cancel. Nothing makes
    a Resize of other axes out of one of H and W, so each is turned once.
    """

    name = "resize-channels-last"
    reason = "The DLA resizes height and width only; a transposition makes other axes these"
    operators: tuple[str, ...] = ("Resize",)
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Resize of one or two axes of a 4-D tensor, C among them, N not."""
        made = resizing(graph, node)
        if made is None or len(made.axes) != 4:
            return None
        resized = [i for i, a in enumerate(made.axes) if a.scale != 1 or a.out != a.size]
        if not resized or 0 in resized or 1 not in resized or len(resized) == 3:
            return None
        rest = [i for i in (1, 2, 3) if i not in resized]
        # of two axes that stay, the last one becomes the channels: [N, L, 1, C]
        order = (0, rest[-1], *sorted({1, 2, 3} - {rest[-1]}))
        return Match((node,), order)

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a Transpose, the Resize, and a Transpose."""
        node, order = match.nodes[0], match.facts
        name = f"{node.name}:before"
        source = new.node("Transpose", [node.inputs[0]], name=name, perm=list(order))
        made = _again(graph, node, new, source, order, single=False)
        back = [order.index(axis) for axis in range(4)]
        name = f"{node.name}:after"
        new.node("Transpose", [made], output=node.outputs[0], name=name, perm=back)


def _again(
    graph: Graph, node: Node, new: Writer, source: str, order: tuple[int, ...], *, single: bool
) -> str:
    """Writes the Resize with its axes in another order; a last one of size 1 is added."""
    made = resizing(graph, node)
    assert made is not None
    gone = {"axes", "keep_aspect_ratio_policy"}
    attrs = {key: value for key, value in node.attrs.items() if key not in gone}
    axes = [made.axes[axis] for axis in order]
    if node.input(3):
        sizes = new.constant([a.out for a in axes] + [1] * single, role="sizes")
        read = [source, "", "", sizes]
    else:
        factors = [a.scale for a in axes] + [1.0] * single
        scales = new.constant(factors, role="scales", dtype="float32")
        read = [source, "", scales]
    return new.node("Resize", read, name=node.name, **attrs)
