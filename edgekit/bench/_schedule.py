"""When each segment of a plan would run on its device, from the plan's predicted layer times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.bench._types import Slot

if TYPE_CHECKING:
    from edgekit.network import Network
    from edgekit.placement import PlacedLayer, Plan

__all__ = ["predicted_schedule"]

Segments = dict[int, list["PlacedLayer"]]


def _segments(layers: tuple[PlacedLayer, ...]) -> Segments:
    found: Segments = {}
    for layer in layers:
        found.setdefault(layer.segment, []).append(layer)
    return dict(sorted(found.items()))


def _before(segments: Segments, network: Network | None) -> dict[int, set[int]]:
    """Returns the segments that each one waits for; the one before it when nothing is known."""
    order = list(segments)
    if network is None:
        return {s: {order[i - 1]} if i else set() for i, s in enumerate(order)}
    home = {layer.name: s for s, members in segments.items() for layer in members}
    makers = {name: layer.name for name, layer in network.producers().items()}
    waits: dict[int, set[int]] = {s: set() for s in order}
    for layer in network.layers:
        for tensor in layer.inputs:
            here, there = home.get(layer.name), home.get(makers.get(tensor, ""))
            # a segment only ever reads from lower numbers (Plan)
            if here is not None and there is not None and there < here:
                waits[here].add(there)
    return waits


def _hand_over(
    plan: Plan,
    segments: Segments,
    waits: Mapping[int, set[int]],
    device: Mapping[int, str],
    paid: Mapping[int, float],
) -> float:
    """Returns the time of one device change, so that the frame ends at the predicted latency.

    What the plan's latency holds beyond layers and launches (reformats) is not known by border, so
    it is shared evenly by the longest chain of device changes.
    """
    finish: dict[int, float] = {}
    changes: dict[int, int] = {}
    for s, members in segments.items():
        finish[s] = max((finish[w] for w in waits[s]), default=0.0)
        finish[s] += paid[s] + sum(layer.predicted_us for layer in members)
        changes[s] = max((changes[w] + (device[w] != device[s]) for w in waits[s]), default=0)
    longest = max(changes.values(), default=0)
    rest = plan.predicted.latency_us - max(finish.values(), default=0.0)
    return rest / longest if longest and rest > 0 else 0.0


def _paid(plan: Plan, variant: int, segments: Segments) -> dict[int, float]:
    """Returns what each segment takes beyond its layers: launches and formats of its loadables."""
    home = {layer.name: s for s, members in segments.items() for layer in members}
    found = dict.fromkeys(segments, 0.0)
    for loadable in plan.loadables:
        segment = home.get(next(iter(loadable.layers), ""))
        if loadable.plan == variant and segment is not None:
            found[segment] += loadable.launch_us + loadable.border_us
    return found


def predicted_schedule(plan: Plan, network: Network | None = None) -> tuple[Slot, ...]:
    """Lays one frame of each plan variant on the devices, first come, first served.

    A device runs one segment at a time. Without ``network`` the segments of a frame run one after
    the other; with it a segment waits only for those whose tensors it reads.

    Returns:
        Slots sorted by start.
    """
    from edgekit.placement import booked_layers

    waiting: dict[tuple[int, int], list[PlacedLayer]] = {}
    waits: dict[tuple[int, int], set[tuple[int, int]]] = {}
    paid: dict[tuple[int, int], float] = {}
    pause = 0.0
    for variant, share in enumerate(plan.plans):
        segments = _segments(booked_layers(share, network))
        before = _before(segments, network)
        beyond = _paid(plan, variant, segments)
        if variant == 0:
            device = {s: members[0].device for s, members in segments.items()}
            pause = _hand_over(plan, segments, before, device, beyond)
        for s, members in segments.items():
            waiting[variant, s] = members
            paid[variant, s] = beyond[s]
            waits[variant, s] = {(variant, earlier) for earlier in before[s]}
    done: dict[tuple[int, int], Slot] = {}
    free: dict[str, float] = {}

    def start(key: tuple[int, int]) -> float:
        device = waiting[key][0].device
        ready = (
            slot.start_us + slot.duration_us + (pause if slot.device != device else 0.0)
            for slot in (done[earlier] for earlier in waits[key])
        )
        return max(*ready, free.get(device, 0.0), 0.0)

    while waiting:
        ready = [key for key in waiting if waits[key] <= done.keys()]
        begin, key = min((start(key), key) for key in ready)
        members = waiting.pop(key)
        times = tuple((layer.name, max(layer.predicted_us, 0.0)) for layer in members)
        slot = Slot(*key, members[0].device, begin, times, paid[key])
        done[key] = slot
        free[slot.device] = begin + slot.duration_us
    return tuple(sorted(done.values(), key=lambda s: (s.start_us, s.variant, s.segment)))
