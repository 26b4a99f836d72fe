"""Gives tensors without a scale that of their neighbours, as NVIDIA's qdq-translator does.

Its step 3 goes forward and backward through MaxPool Flatten Relu Pad Transpose Reshape Squeeze and
Concat, which :func:`follow` does where all readers agree; and it takes what is missing of
``out = 127 * a * b`` for a Mul, and 1/127 for a Sigmoid. Averages take the scale of what they
average (its options AveragePool, GlobalAveragePool and ReduceMean): the DLA has one for both
anyway. They hand none back, for an average is smaller than what it is made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.dla import LEVELS
from edgekit.quantize._follow import follow
from edgekit.quantize._scales import float32

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgekit.network import Model, Network

__all__ = ["Propagated", "propagate"]

# the builder erases some of them, so that the layers do not have both of their tensors
_SHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_AVERAGES = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})


@dataclass(frozen=True, slots=True)
class Propagated:
    """A scale that no Q/DQ node gives.

    Attributes:
        tensor: Its name.
        scale: As found.
        rule: "follows" (the values are a neighbour's, or some of them), "average", "Mul" or
            "Sigmoid".
    """

    tensor: str
    scale: float
    rule: str


def propagate(
    model: Model, network: Network, scales: Mapping[str, float]
) -> tuple[dict[str, float], tuple[Propagated, ...]]:
    """Returns the scales with those that follow, and what followed in the order found.

    Repeats itself until nothing follows any more; no given scale is changed.

    Args:
        model: A plain model.
        network: Its layers.
        scales: What the Q/DQ nodes said.
    """
    known = dict(scales)
    found: list[Propagated] = []
    graph = model.proto.graph
    readers = Counter(name for node in graph.node for name in node.input)
    ends = {value.name for value in graph.output}
    there = {value.name for value in (*graph.value_info, *graph.input, *graph.output)}

    def give(tensor: str, scale: float, rule: str) -> None:
        # layers have inner tensors that no ONNX tensor is called
        if tensor in there and tensor not in known and scale > 0:
            known[tensor] = float32(scale)
            found.append(Propagated(tensor, known[tensor], rule))

    before = -1
    while before != len(found):
        before = len(found)
        for tensor, scale in follow(network, known).items():
            give(tensor, scale, "follows")
        for node in graph.node:
            three = [*node.input[:2], *node.output[:1]]
            if node.op_type == "Sigmoid":
                give(node.output[0], 1 / LEVELS, "Sigmoid")
            elif node.op_type in _AVERAGES and node.input[0] in known:
                give(node.output[0], known[node.input[0]], "average")
            elif node.op_type in _SHAPES:
                source, target = node.input[0], node.output[0]
                give(target, known.get(source, 0.0), "follows")
                if readers[source] == 1 and source not in ends:
                    give(source, known.get(target, 0.0), "follows")
            elif node.op_type == "Mul" and all(name in there for name in three):
                _product(three[0], three[1], three[2], known, give)
    return known, tuple(found)


def _product(
    one: str,
    other: str,
    out: str,
    known: Mapping[str, float],
    give: Callable[[str, float, str], None],
) -> None:
    """What is missing of ``out = 127 * one * other``, where one of the three is."""
    if one in known and other in known:
        give(out, LEVELS * known[one] * known[other], "Mul")
    elif out in known and one in known:
        give(other, known[out] / known[one] / LEVELS, "Mul")
    elif out in known and other in known:
        give(one, known[out] / known[other] / LEVELS, "Mul")
