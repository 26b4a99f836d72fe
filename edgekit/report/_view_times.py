"""The view of the timeline: the predicted frame, and the measured one beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from edgekit.report import _charts as charts
from edgekit.report import _text as text
from edgekit.report._view_verdict import clock_tag

__all__ = ["timeline_view", "trace_view"]


def timeline_view(timeline: Mapping[str, Any], linked: Collection[int] = ()) -> dict[str, Any]:
    """Returns the predicted frame, and beside it the measured one.

    Both have one scale where both are of the board; a CPU's time is no board time. Segments in
    ``linked`` have a row in the table of segments, to which their slots lead.
    """
    predicted, measured = timeline, timeline["measured"]
    end = predicted["end_us"]
    if measured and measured["clock"] == "board-measured":
        end = max(end, measured["end_us"])
    plans = len({slot["plan"] for slot in timeline["slots"]})
    found = [_frame(timeline["tracks"], timeline["slots"], end, "predicted", linked)]
    if measured:
        own = end if measured["clock"] == "board-measured" else measured["end_us"]
        found.append(_frame(timeline["tracks"], measured["slots"], own, measured["clock"], linked))
    return {
        "frames": found,
        "one_scale": bool(measured) and measured["clock"] == "board-measured",
        "title": "a frame of each plan" if plans > 1 else "a frame",
        "empty": predicted["end_us"] <= 0 and not measured,
    }  # fmt: skip


def _frame(
    tracks: Sequence[str],
    slots: Sequence[Mapping[str, Any]],
    end: float,
    clock: str,
    linked: Collection[int],
) -> dict[str, Any]:
    from markupsafe import Markup

    at_work = {slot["device"] for slot in slots}
    tracks = [one for one in dict.fromkeys([*tracks, *at_work]) if one in at_work]
    return {
        "clock": clock_tag(clock),
        "tracks": [
            {"device": text.clean(device), "css": charts.device_class(device),
             "chart": Markup(charts.track(slots, device, end, clock, linked))}
            for device in tracks
        ],
        "ticks": [text.microseconds(end * step / 4) for step in range(5)],
    }  # fmt: skip


def trace_view(trace: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns where the trace lies and what it has, and its measured time that is of no layer."""
    if not trace:
        return None
    return {
        "file": text.clean(trace.get("file") or ""),
        "words": f"{text.counted(trace.get('events', 0), 'event')}, "
        + text.counted(trace.get("frames", 0), "measured frame"),
        "unbooked": [
            {"what": text.clean(one["what"]), "time": text.microseconds(one["us"]),
             "nodes": text.counted(one["nodes"], "node")}
            for one in trace.get("unbooked") or ()
        ],
    }  # fmt: skip
