"""Finds GELU with the error function: the operator, and what exporters write for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgekit.rewrite._types import Match
from edgekit.rewrite.pointwise._common import image
from edgekit.rewrite.pointwise._gated import gated

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node

__all__ = ["OPERATORS", "erf_gelu"]

OPERATORS = ("Gelu", "Erf")
# exporters round 1 / sqrt(2) in several ways
_CLOSE = 1e-3


def erf_gelu(graph: Graph, node: Node) -> Match | None:
    """Returns the nodes of 0.5 x (1 + erf(x / sqrt(2))), with (x, output)."""
    if node.op == "Gelu":
        if node.attrs.get("approximate", "none") != "none" or not image(graph, node.inputs[0]):
            return None
        return Match((node,), (node.inputs[0], node.outputs[0]))
    found = gated(graph, node)
    if found is None:
        return None
    source, output, first, third, half = found.facts
    if third or abs(half - 0.5) > _CLOSE or abs(first - 1 / math.sqrt(2)) > _CLOSE:
        return None
    return Match(found.nodes, (source, output))
