"""Repetition before element-wise operations that broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["DropExpand"]


_BROADCASTS = frozenset({"Add", "Div", "Max", "Min", "Mul", "Sub"})


class DropExpand:
    """An Expand or Tile before an element-wise operation that broadcasts by itself."""

    name = "drop-expand"
    reason = (
        "The DLA's element-wise operations broadcast [N, C, 1, 1] themselves, without an Expand"
    )
    # at the repetition too, which would be made with layers of its own first
    operators: tuple[str, ...] = ("Expand", "Tile", *sorted(_BROADCASTS))
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns an operation of a whole tensor and a repeated [N, C, 1, 1] or [N, 1, 1, 1]."""
        if node.op in {"Expand", "Tile"}:
            reader = graph.only_reader(node.outputs[0])
            if reader is None or reader.op not in _BROADCASTS or reader.domain:
                return None
            node = reader
        if len(node.inputs) != 2 or not graph.floats(node.outputs[0]):
            return None
        whole = graph.shape(node.outputs[0])
        for index, name in enumerate(node.inputs):
            other = node.inputs[1 - index]
            repeat = graph.producer(name)
            if repeat is None or repeat.op not in {"Expand", "Tile"} or other == name:
                continue
            before = graph.shape(repeat.inputs[0])
            narrow = before in {(whole[0], whole[1], 1, 1), (whole[0], 1, 1, 1)} if whole else False
            if not narrow or graph.constant(repeat.inputs[0]) or graph.shape(other) != whole:
                continue
            return Match((node, repeat), index)
        return None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the operation on the tensor that was repeated."""
        node, repeat = match.nodes
        inputs = list(node.inputs)
        inputs[match.facts] = repeat.inputs[0]
        new.node(node.op, inputs, output=node.outputs[0], **node.attrs)
        repeated = repeat.outputs[0]
        if not graph.inner(repeated, match.nodes):
            # others need it still
            new.node(repeat.op, repeat.inputs, output=repeated, **repeat.attrs)
