"""Parts of the report document: its timeline and its histogram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgekit.report._measured import measured_frame

if TYPE_CHECKING:
    from edgekit.report._types import RunFacts

__all__ = ["histogram", "timeline"]

HISTOGRAM_BINS = 32


def timeline(facts: RunFacts) -> dict[str, Any]:
    """Returns when each segment runs: as predicted, and in ``measured`` a frame as it was."""
    from edgekit.bench import predicted_schedule
    from edgekit.placement import device_times

    plan = facts.plan
    slots = predicted_schedule(plan, facts.network)
    busy: dict[str, float] = {}
    for number, share in enumerate(plan.plans):
        own = [one for one in plan.loadables if one.plan == number]
        for device, us in device_times(share, own).items():
            busy[device] = busy.get(device, 0.0) + us
    tracks = ["GPU", *(f"DLA{core}" for core in range(facts.target.dla.cores))]
    tracks += sorted({slot.device for slot in slots} - set(tracks))
    return {
        "clock": "predicted",
        "end_us": max((slot.start_us + slot.duration_us for slot in slots), default=0.0),
        "busy_us": busy,
        "tracks": tracks,
        "slots": [
            {
                "plan": slot.variant, "segment": slot.segment, "device": slot.device,
                "start_us": slot.start_us, "duration_us": slot.duration_us,
                "layers": len(slot.layers),
                "first": slot.layers[0][0] if slot.layers else "",
                "last": slot.layers[-1][0] if slot.layers else "",
                "reformats_us": sum(step.us for step in slot.steps if step.kind == "reformat"),
                "launch_us": sum(step.us for step in slot.steps if step.kind == "launch"),
            }
            for slot in slots
        ],
        "measured": measured_frame(facts.trace),
    }  # fmt: skip


def histogram(samples: Sequence[float]) -> dict[str, Any] | None:
    """Returns counts of equal bins from the fastest to the slowest sample, in milliseconds."""
    if len(samples) < 2:
        return None
    low, high = min(samples), max(samples)
    width = (high - low) / HISTOGRAM_BINS
    counts = [0] * HISTOGRAM_BINS
    for value in samples:
        place = int((value - low) / width) if width > 0 else 0
        counts[min(place, HISTOGRAM_BINS - 1)] += 1
    return {"low_ms": low, "high_ms": high, "counts": counts}
