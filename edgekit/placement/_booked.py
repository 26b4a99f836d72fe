"""What each layer of a plan is paid for, where a border broke what its device runs fused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network import Network
    from edgekit.placement._types import PlacedLayer, Share

__all__ = ["booked_layers"]

_DIGITS = 6


def booked_layers(share: Share, network: Network | None) -> tuple[PlacedLayer, ...]:
    """Returns a plan's layers with what they take alone where they do not run with a neighbour.

    A plan's layers have the times of fused kernels: a layer that its device would compute with the
    one before it takes 0 of its own. Where the plan has that one on another device, ``unfused``
    holds what the layer then takes; here it is the layer's that reads the tensor between the two.
    What is not between two layers stays with ``unfused``.

    Args:
        share: A plan.
        network: Its layers; without it nothing is booked.
    """
    if network is None or not share.unfused:
        return share.layers
    readers: dict[tuple[str, str], str] = {}
    device = {layer.name: layer.device for layer in share.layers}
    for layer in network.layers:
        for tensor in layer.inputs:
            readers.setdefault((tensor, device.get(layer.name, "")), layer.name)
    us: dict[str, float] = {}
    uj: dict[str, float] = {}
    for one in share.unfused:
        reader = readers.get((one.what, one.device))
        if reader is not None:
            us[reader] = us.get(reader, 0.0) + one.us
            uj[reader] = uj.get(reader, 0.0) + one.uj
    return _with(share.layers, us, uj)


def _with(
    layers: Sequence[PlacedLayer], us: dict[str, float], uj: dict[str, float]
) -> tuple[PlacedLayer, ...]:
    return tuple(
        replace(
            layer,
            predicted_us=round(layer.predicted_us + us[layer.name], _DIGITS),
            predicted_uj=round(layer.predicted_uj + uj[layer.name], _DIGITS),
        )
        if layer.name in us
        else layer
        for layer in layers
    )
