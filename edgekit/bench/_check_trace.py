"""Checks a trace against the Trace Event Format and against edgekit's own promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from edgekit.bench._types import CLOCKS

__all__ = ["validate_trace"]

# the phases edgekit writes, out of those the format knows; complete events and metadata
PHASES = ("X", "M")
METADATA = {
    "process_name": "name", "thread_name": "name", "process_labels": "labels",
    "process_sort_index": "sort_index", "thread_sort_index": "sort_index",
}  # fmt: skip
# half a nanosecond in microseconds: the format has no finer time
TOLERANCE_US = 0.0005


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value >= 0


def _event(at: str, event: object) -> list[str]:
    """Returns the faults of one event's own fields."""
    if not isinstance(event, Mapping):
        return [f"{at} is no object"]
    faults = []
    phase = event.get("ph")
    if phase not in PHASES:
        faults.append(f"{at}.ph is {phase!r}, not one of {', '.join(PHASES)}")
    if not isinstance(event.get("name"), str) or not event.get("name"):
        faults.append(f"{at}.name is no text")
    faults += [
        f"{at}.{key} is no whole number"
        for key in ("pid", "tid")
        if type(event.get(key)) is not int
    ]
    if not _is_time(event.get("ts")):
        faults.append(f"{at}.ts is no time")
    if phase == "X" and not _is_time(event.get("dur")):
        faults.append(f"{at}.dur is no duration")
    args = event.get("args")
    if not isinstance(args, Mapping):
        return [*faults, f"{at}.args is no object"]
    if args.get("clock") not in CLOCKS:
        faults.append(f"{at}.args.clock is {args.get('clock')!r}, not one of {', '.join(CLOCKS)}")
    if phase == "M":
        needed = METADATA.get(str(event.get("name")))
        if needed is None:
            faults.append(f"{at}: no metadata event is called {event.get('name')!r}")
        elif needed not in args:
            faults.append(f"{at}.args lacks {needed}")
    return faults


def _order(slices: list[Mapping[str, Any]]) -> list[str]:
    """Returns faults of the sequence: times go up, and slices of a track nest."""
    faults = [
        f"event {after['name']!r} at {after['ts']} stands after one at {before['ts']}"
        for before, after in pairwise(slices)
        if after["ts"] < before["ts"]
    ]
    open_slices: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
    for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
        stack = open_slices.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"] + TOLERANCE_US:
            stack.pop()
        end = event["ts"] + event["dur"]
        if stack and end > stack[-1]["ts"] + stack[-1]["dur"] + TOLERANCE_US:
            faults.append(f"slice {event['name']!r} ends after {stack[-1]['name']!r} around it")
        stack.append(event)
    return faults


def _names(events: list[Mapping[str, Any]]) -> list[str]:
    """Returns faults of names and clocks: each track is named, a process has one clock."""
    faults = []
    meta = [event for event in events if event["ph"] == "M"]
    threads = {(e["pid"], e["tid"]) for e in meta if e["name"] == "thread_name"}
    processes = {e["pid"] for e in meta if e["name"] == "process_name"}
    clocks: dict[int, set[str]] = {}
    for event in events:
        clocks.setdefault(event["pid"], set()).add(event["args"]["clock"])
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    faults += [f"track {pid}/{tid} has no thread_name" for pid, tid in sorted(used - threads)]
    faults += [f"process {pid} has no process_name" for pid in sorted(set(clocks) - processes)]
    faults += [
        f"process {pid} mixes clocks: {', '.join(sorted(found))}"
        for pid, found in sorted(clocks.items())
        if len(found) > 1
    ]
    return faults


def validate_trace(document: object) -> list[str]:
    """Returns what is wrong with a trace, one line a fault; empty when it is sound.

    Checked: the object form's members, each event's fields and types (Trace Event Format,
    sections "JSON Object Format", "Complete Events", "Metadata Events"), times that are finite
    and go up, slices that nest, named tracks, and a ``clock`` in every event's ``args``.
    """
    if not isinstance(document, Mapping):
        return ["the trace is no object"]
    events = document.get("traceEvents")
    faults = []
    if document.get("displayTimeUnit") not in ("ms", "ns"):
        faults.append("displayTimeUnit is neither ms nor ns")
    if not isinstance(document.get("otherData"), Mapping):
        faults.append("otherData is no object")
    if not isinstance(events, list) or not events:
        return [*faults, "traceEvents is no list of events"]
    own = [fault for i, event in enumerate(events) for fault in _event(f"traceEvents[{i}]", event)]
    # the rest reads fields that must be sound first
    if own:
        return faults + own
    slices = [event for event in events if event["ph"] == "X"]
    return faults + _order(slices) + _names(events)
