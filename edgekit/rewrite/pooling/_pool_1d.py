"""Pools of [N, C, L] as pools of [N, C, L, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.network._window import window
from edgekit.rewrite._types import Match

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["Pool1d"]

_DROPPED = {"auto_pad", "storage_order"}


class Pool1d:
    """A one-dimensional pool between two reshapes."""

    name = "pool-1d"
    reason = (
        "the DLA pools in two dimensions only; a pool over [N, C, L, 1] stands there instead, "
        "between reshapes that can go where the layers around have four dimensions too"
    )
    operators: tuple[str, ...] = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    enabling = True

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns every pool of floats in three dimensions that writes no indices."""
        source = node.inputs[0]
        if any(node.outputs[1:]) or graph.rank(source) != 3 or not graph.floats(source):
            return None
        return Match((node,))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes a reshape, the pool with a second side of 1, and a reshape."""
        (node,) = match.nodes
        source, target = node.inputs[0], node.outputs[0]
        before, after = graph.shape(source), graph.shape(target)
        wide = new.node("Reshape", [source, new.constant([*before, 1], role="shape")], role="in4d")
        attrs = _wide(node, before[2:], after[2:])
        result = new.node(node.op, [wide], name=node.name, **attrs)
        shape = new.constant(list(after), role="shape")
        new.node("Reshape", [result, shape], output=target, name=f"{node.name}:out3d")


def _wide(node: Node, source: tuple[int, ...], target: tuple[int, ...]) -> dict[str, Any]:
    attrs = {key: value for key, value in node.attrs.items() if key not in _DROPPED}
    if node.op.startswith("Global"):
        return attrs
    given = window(node.attrs, node.attrs["kernel_shape"], source, target).params()
    attrs |= {"kernel_shape": given["kernel"], "strides": given["stride"], "pads": given["pads"]}
    if "dilations" in attrs:
        attrs["dilations"] = given["dilation"]
    return attrs
