"""What a trace holds of the measured run: one frame's segments, and the layers' own times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["layer_times", "measured_frame", "trace_summary"]

PREDICTED = "predicted"


def _slices(trace: Mapping[str, Any] | None, category: str) -> list[Mapping[str, Any]]:
    """Returns the measured slices of a category, of the process that comes first.

    That one has frames that ran alone; further processes have several in flight.
    """
    found = [
        event
        for event in (trace or {}).get("traceEvents") or ()
        if event.get("ph") == "X"
        and event.get("cat") == category
        and (event.get("args") or {}).get("clock", PREDICTED) != PREDICTED
    ]
    first = min((event["pid"] for event in found), default=None)
    return [event for event in found if event["pid"] == first]


def measured_frame(trace: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns one measured frame as the timeline draws it; None where there is none.

    It is the frame of median length, so that neither a cold one nor an outlier stands for all.
    """
    frames: dict[int, list[Mapping[str, Any]]] = {}
    for event in _slices(trace, "segment"):
        if "segment" in event["args"]:
            frames.setdefault(event["args"].get("frame", 0), []).append(event)
    if not frames:
        return None
    ordered = sorted(frames, key=lambda frame: (_length(frames[frame]), frame))
    frame = ordered[len(ordered) // 2]
    events = frames[frame]
    begin = min(event["ts"] for event in events)
    return {
        "clock": events[0]["args"]["clock"],
        "frame": frame,
        "end_us": max(event["ts"] + event["dur"] for event in events) - begin,
        "slots": [
            {
                "plan": event["args"].get("plan", 0), "segment": event["args"]["segment"],
                "device": event["args"].get("device", "GPU"),
                "start_us": event["ts"] - begin, "duration_us": event["dur"],
            }
            for event in events
        ],
    }  # fmt: skip


def _length(events: Sequence[Mapping[str, Any]]) -> float:
    end: float = max(event["ts"] + event["dur"] for event in events)
    begin: float = min(event["ts"] for event in events)
    return end - begin


def layer_times(trace: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns the measured microseconds of layers by name, the mean over the trace's frames."""
    found: dict[str, list[float]] = {}
    for event in _slices(trace, "layer"):
        args = event["args"]
        if "layer" in args and isinstance(args.get("measured_us"), int | float):
            found.setdefault(args["layer"], []).append(float(args["measured_us"]))
    return {name: sum(times) / len(times) for name, times in found.items()}


def trace_summary(trace: Mapping[str, Any] | None, file: str | None) -> dict[str, Any] | None:
    """Says what the trace has and where it lies."""
    if not trace:
        return None
    events = [event for event in trace.get("traceEvents") or () if event.get("ph") != "M"]
    return {
        "file": file,
        "events": len(events),
        "clocks": dict((trace.get("otherData") or {}).get("clocks") or {}),
        "frames": len({event["args"].get("frame") for event in _slices(trace, "segment")}),
        "measured_layers": len(layer_times(trace)),
    }
