"""What a trace holds of the measured run: one frame's segments, and the layers' own times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["layer_times", "measured_frame", "measured_parts", "trace_summary", "unbooked_times"]

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


def _times(trace: Mapping[str, Any] | None) -> Iterator[tuple[float, float, Mapping[str, Any]]]:
    """Yields frame, measured microseconds and arguments of every measured layer's slice."""
    for event in _slices(trace, "layer"):
        args = event["args"]
        if isinstance(args.get("measured_us"), int | float):
            # older traces do not tell the frame: each slice stands for one
            yield args.get("frame", event["ts"]), float(args["measured_us"]), args


def layer_times(trace: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns the measured microseconds of layers by name, the mean over the trace's frames.

    A layer's nodes need not follow each other: what is of it in a frame is added up.
    """
    found: dict[str, dict[float, float]] = {}
    for frame, us, args in _times(trace):
        if "layer" in args and "layers" not in args:
            times = found.setdefault(args["layer"], {})
            times[frame] = times.get(frame, 0.0) + us
    return {name: sum(times.values()) / len(times) for name, times in found.items()}


def measured_parts(trace: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Returns what was timed as a whole, the mean over the trace's frames: loadables and fusions.

    Their layers have no times of their own: {"name", "device", "segment", "layers", "us"}.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    frames: dict[tuple[str, ...], set[float]] = {}
    for event in _slices(trace, "layer"):
        args = event["args"]
        if isinstance(args.get("measured_us"), int | float) and args.get("layers"):
            key = tuple(args["layers"])
            row = rows.setdefault(key, {
                "name": str(event.get("name", "")), "device": args.get("device", "GPU"),
                "segment": args.get("segment", 0), "layers": list(key), "us": 0.0,
            })  # fmt: skip
            row["us"] += float(args["measured_us"])
            frames.setdefault(key, set()).add(args.get("frame", event["ts"]))
    return [{**row, "us": row["us"] / len(frames[key])} for key, row in rows.items()]


def unbooked_times(trace: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Returns what of a frame's measured time is of no layer: {"what", "us", "nodes"}.

    Conversions at segments' borders have a row of their own; each node counts once a segment.
    """
    frames: set[float] = set()
    totals: dict[str, float] = {}
    nodes: dict[str, set[tuple[Any, str]]] = {}
    for frame, us, args in _times(trace):
        frames.add(frame)
        if "layer" not in args:
            what = "of segments' borders" if "border_of" in args else "of no layer"
            totals[what] = totals.get(what, 0.0) + us
            own = {(args.get("segment"), node) for node in args.get("measured_nodes") or ()}
            nodes.setdefault(what, set()).update(own)
    return [
        {"what": what, "us": total / len(frames), "nodes": len(nodes[what])}
        for what, total in totals.items()
        if total > 0
    ]


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
        "unbooked": unbooked_times(trace),
    }
