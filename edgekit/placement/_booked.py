"""What a plan's layers and devices are paid for: one sum, which everything shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.network import Network
    from edgekit.placement._types import Loadable, PlacedLayer, Plan, Share, Unfused

__all__ = ["booked_layers", "device_times", "frame_times", "unbooked"]

_DIGITS = 6
_SAME = 1e-6  # relative; a plan's figures are rounded


def device_times(share: Share, loadables: Sequence[Loadable]) -> dict[str, float]:
    """Returns the predicted microseconds that each device works for in a frame of a plan.

    All that is paid on a device counts: its layers, launches of loadables and what their tensors'
    formats cost, reformats (on the GPU), and what broken fusions take. The GPU's is the plan's
    ``gpu_us``.

    Args:
        share: A plan.
        loadables: The loadables of this plan alone.
    """
    found: dict[str, float] = {}

    def pay(device: str, us: float) -> None:
        found[device] = found.get(device, 0.0) + us

    for layer in share.layers:
        pay(layer.device, layer.predicted_us)
    for loadable in loadables:
        pay(f"DLA{loadable.core}", loadable.launch_us + loadable.border_us)
    for reformat in share.reformats:
        pay("GPU", reformat.us)
    for unfused in share.unfused:
        pay(unfused.device, unfused.us)
    return {device: round(us, _DIGITS) for device, us in found.items()}


def frame_times(plan: Plan) -> dict[str, Any]:
    """Returns what a frame takes where the frames follow each other without a pause.

    ``busy_us`` is how long each device works for a frame, the mean of the plans by their shares;
    ``device`` the busiest one. A frame comes out every ``period_us``: that is more than the busiest
    device works by ``sharing_us``, which the devices lose because they share the memory.
    """
    busy: dict[str, float] = {}
    for number, share in enumerate(plan.plans):
        own = [one for one in plan.loadables if one.plan == number]
        for device, us in device_times(share, own).items():
            busy[device] = busy.get(device, 0.0) + share.share * us
    device = max(busy, key=lambda name: busy[name], default="")
    rate = plan.predicted.throughput_qps
    period = 1e6 / rate if rate > 0 else 0.0
    lost = period - busy.get(device, 0.0)
    return {
        "clock": "predicted",
        "period_us": round(period, _DIGITS),
        "busy_us": {name: round(us, _DIGITS) for name, us in busy.items()},
        "device": device,
        "sharing_us": round(lost, _DIGITS) if lost > _SAME * period else 0.0,
    }


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
    readers = _readers(share, network)
    us: dict[str, float] = {}
    uj: dict[str, float] = {}
    for one in share.unfused:
        reader = readers.get((one.what, one.device))
        if reader is not None:
            us[reader] = us.get(reader, 0.0) + one.us
            uj[reader] = uj.get(reader, 0.0) + one.uj
    return _with(share.layers, us, uj)


def unbooked(share: Share, network: Network | None) -> tuple[Unfused, ...]:
    """Returns what broken fusions cost that ``booked_layers`` books to no layer."""
    readers = _readers(share, network)
    return tuple(one for one in share.unfused if (one.what, one.device) not in readers)


def _readers(share: Share, network: Network | None) -> dict[tuple[str, str], str]:
    """Returns the first layer that reads a tensor on a device, by both."""
    readers: dict[tuple[str, str], str] = {}
    if network is None or not share.unfused:
        return readers
    device = {layer.name: layer.device for layer in share.layers}
    for layer in network.layers:
        for tensor in layer.inputs:
            readers.setdefault((tensor, device.get(layer.name, "")), layer.name)
    return readers


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
