"""Channels to blocks of H and W: a deconvolution with a stride."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match, Node
from edgekit.rewrite.layout._blocks import blocks_at, blocks_of

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._writer import Writer

__all__ = ["DepthToSpace"]


class DepthToSpace:
    """DepthToSpace (DCR and CRD), or reshapes and transpositions of that effect (PixelShuffle).

    A deconvolution whose kernel and stride are the block, with weights of zeros and ones in one
    group (a DLA has no grouped one). A large block is made along H first, then along W: square
    strides from 23 on are disabled, and two steps cost hardly more than one. It is not folded into
    a convolution before it, whose bias would be another one at each place of the block.
    """

    name = "depth-to-space"
    reason = (
        "The DLA does not move blocks between space and depth; "
        "a strided deconvolution with weights of 0 and 1 does"
    )
    operators: tuple[str, ...] = ("DepthToSpace", "Transpose")
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a DepthToSpace, or a transposition between reshapes that makes one."""
        if node.op == "Transpose":
            for nodes, source, output, blocks in blocks_at(graph, node):
                facts = blocks.to_space()
                if facts is not None:
                    return Match(nodes, (source, output, facts))
            return None
        batch, channels, height, width = graph.shape(node.inputs[0])
        block = node.attrs["blocksize"]
        maps, perm = (block, block, channels // block**2), (0, 3, 4, 1, 5, 2)
        if node.attrs.get("mode", "DCR") == "CRD":
            maps, perm = (channels // block**2, block, block), (0, 1, 4, 2, 5, 3)
        steps = [((batch, *maps, height, width), perm)]
        made = blocks_of(graph.shape(node.inputs[0]), steps, graph.shape(node.outputs[0]))
        if made is None or not graph.floats(node.inputs[0]):
            return None
        facts = made.to_space()
        if facts is None:
            return None
        return Match((node,), (node.inputs[0], node.outputs[0], facts))

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes the deconvolutions."""
        import numpy as np

        from edgekit.dla import limit

        source, output, facts = match.facts
        table, rows, columns = facts
        maps = len(table)
        if max(rows, columns) > limit("convolution.stride")[1] and min(rows, columns) > 1:
            new.room(table.size, maps * columns, rows)
            weight = np.zeros((table.size, maps * columns, rows, 1))
            for (k, i, j), channel in np.ndenumerate(table):
                weight[channel, k * columns + j, i, 0] = 1.0
            source = _deconvolution(new, source, weight, "")
            table, rows = np.arange(maps * columns).reshape(maps, 1, columns), 1
        new.room(table.size, maps, rows, columns)
        weight = np.zeros((table.size, maps, rows, columns))
        for (k, i, j), channel in np.ndenumerate(table):
            weight[channel, k, i, j] = 1.0
        _deconvolution(new, source, weight, output)


def _deconvolution(new: Writer, source: str, weight: np.ndarray, output: str) -> str:
    sides = list(weight.shape[2:])
    fixed = new.constant(weight, role="selection")
    role = "blocks"
    inputs = [source, fixed]
    return new.node(
        "ConvTranspose", inputs, output=output, role=role, kernel_shape=sides, strides=sides
    )
