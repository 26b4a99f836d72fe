"""Whether FP16 can hold the numbers that a step brings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Fixed, Node, Step

__all__ = ["fits_half", "in_half"]

# IEEE 754 binary16: the smallest normal number and the largest one
_LEAST, _MOST = 2.0**-14, 65504.0
# products of their weights are summed: small ones are lost beside large ones in any case
_SUMS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# larger constants of the model are weights, whose values are none of a rewrite's business
_SMALL = 4096


def in_half(*values: float) -> bool:
    """Whether each value is zero or a normal number of FP16.

    The DLA computes in FP16 or INT8, so a factor outside is infinite there, or inexact.
    """
    return all(value == 0 or _LEAST <= abs(value) <= _MOST for value in values)


def fits_half(graph: Graph, step: Step) -> bool:
    """Whether FP16 holds the floating-point constants that a step brings.

    Those of the replaced nodes may stay, whatever they are; what only recipes read is no constant
    of the new nodes, and what recipes make depends on weights.
    """
    fixed = {item.name: item for item in step.fixed if item.value.dtype.kind == "f"}
    had: set[float] | None = None
    for node in step.new:
        if node.name in step.recipes:
            continue
        for name in node.inputs:
            if name not in fixed:
                continue
            beyond = _beyond(fixed[name], node)
            if beyond:
                had = _old(graph, step) if had is None else had
                if not beyond <= had:
                    return False
    return True


def _beyond(item: Fixed, node: Node) -> set[float]:
    """Returns the sizes of what FP16 cannot hold, as FP32 has them."""
    import numpy as np

    sizes = np.abs(item.value.reshape(-1))
    if node.op in _SUMS and item.name != node.input(2):
        sizes = sizes.max(initial=0.0, keepdims=True)
    held = (sizes == 0) | ((sizes >= _LEAST) & (sizes <= _MOST))
    return set() if held.all() else _sizes(sizes[~held])


def _old(graph: Graph, step: Step) -> set[float]:
    found: set[float] = set()
    for node in step.old:
        for name in node.inputs:
            if name and graph.constant(name) and graph.floats(name):
                small = math.prod(graph.shape(name)) <= _SMALL
                value = graph.value(name) if small else None
                found |= set() if value is None else _sizes(value)
        for value in node.attrs.values():
            if isinstance(value, float):
                found |= _sizes(value)
    return found


def _sizes(value: np.ndarray | float) -> set[float]:
    import numpy as np

    return set(np.abs(np.asarray(value, np.float32)).reshape(-1).tolist())
