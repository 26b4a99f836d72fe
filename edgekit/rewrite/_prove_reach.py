"""What the constants of a step's old nodes mean for its proof."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node, Step

__all__ = ["constants_finite", "reach"]

# no activation of FP16 is much larger, and rounding in FP32 stays within the tolerance
_FARTHEST = 1e4
# of the largest number, so that inputs lie beyond it
_BEYOND = 1.5
_NO_BOUND = frozenset({"epsilon", "momentum"})


def reach(graph: Graph, nodes: Sequence[Node]) -> float:
    """Returns how far inputs must be from 0 to get past the nodes' own numbers, as Clip(0, 300).

    What divides, or is a slope below 1, counts by its reciprocal: HardSigmoid with alpha = 0.001
    is 1 from 500 on. At most 10^4.
    """
    far = 0.0
    for node in nodes:
        for value in _numbers(graph, node):
            if math.isfinite(value) and value != 0:
                far = max(far, abs(value))
                if node.op in {"HardSigmoid", "Mul"}:
                    far = max(far, 1 / max(abs(value), 1 / _FARTHEST))
    return min(_BEYOND * far, _FARTHEST)


def _numbers(graph: Graph, node: Node) -> Iterator[float]:
    for name in node.inputs:
        one = name and graph.constant(name) and math.prod(graph.shape(name)) == 1
        if one and graph.floats(name):
            value = graph.scalar(name)
            if value is not None:
                yield value
    for name, item in node.attrs.items():
        if isinstance(item, float) and name not in _NO_BOUND:
            yield item


def constants_finite(graph: Graph, step: Step) -> bool:
    """Whether the constants that a step's old nodes read are finite numbers, one and all."""
    import numpy as np

    for node in step.old:
        for name in node.inputs:
            if name and graph.constant(name) and graph.floats(name):
                value = graph.value(name)
                if value is not None and not np.isfinite(value).all():
                    return False
    return True
