"""Q/DQ nodes that implicit INT8 does away with inside a kernel, though they may cut values off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.quantize._needs import needs

if TYPE_CHECKING:
    from edgekit.network import Layer, Network

__all__ = ["without_effect"]

# what they give is as large as what they read, or comes of several
_KEEPING = frozenset({"Add", "Clip", "Relu", "Sub", "Sum"})


def without_effect(
    network: Network, given: Mapping[str, float], scales: Mapping[str, float]
) -> list[str]:
    """Returns the tensors whose Q/DQ nodes matter, and whose scale implicit INT8 does not use.

    A convolution, the sum behind it and an activation are one kernel, in FP32 until its end. A
    quantiser between them rounds, which hardly matters, and cuts off what is beyond its range: a
    range narrower than that at the end of the kernel changes results much.

    Args:
        network: The plain network's layers.
        given: What the Q/DQ nodes said, by tensor.
        scales: All scales.
    """
    inside = needs(network, scales).inside
    consumers = network.consumers()
    return [name for name in given if name in inside and _cuts(name, scales, consumers, inside)]


def _cuts(
    name: str,
    scales: Mapping[str, float],
    consumers: Mapping[str, tuple[Layer, ...]],
    inside: frozenset[str],
) -> bool:
    end = name
    while end in inside:
        (layer,) = consumers[end]
        if layer.op not in _KEEPING:
            return True
        end = layer.outputs[0]
    # without a scale the kernel writes floats, which have all values
    return scales[name] < scales.get(end, float("inf"))
