"""resize-sizes: whole-number scales where a Resize gives the output's size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.deconvolution._resizing import resizing

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node
    from edgekit.rewrite._writer import Writer

__all__ = ["ResizeSizes"]


class ResizeSizes:
    """The same Resize, its size given by four scales; coordinates stay what they are."""

    name = "resize-sizes"
    reason = "The DLA takes whole-number scales, not the size of the output"
    operators: tuple[str, ...] = ("Resize",)
    enabling = False

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Returns a Resize of H and W by whole factors that is given sizes or axes."""
        made = resizing(graph, node)
        if made is None or not made.image or made.scaled:
            return None
        factors = [axis.factor for axis in made.axes]
        return Match((node,), factors) if min(factors) > 0 and max(factors) > 1 else None

    def replace(self, graph: Graph, match: Match, new: Writer) -> None:
        """Writes it with scales and without what speaks of sizes."""
        import numpy as np

        node = match.nodes[0]
        gone = {"axes", "keep_aspect_ratio_policy"}
        attrs = {key: value for key, value in node.attrs.items() if key not in gone}
        scales = new.constant(np.array(match.facts, np.float64), role="scales", dtype="float32")
        new.node("Resize", [node.inputs[0], "", scales], output=node.outputs[0], **attrs)
