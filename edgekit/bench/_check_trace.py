"""Checks a trace against the Trace Event Format and against edgekit's own promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgekit.bench._check_trace_order import flow_faults, name_faults, order_faults
from edgekit.bench._types import CLOCKS

__all__ = ["event_faults", "validate_trace"]

# the phases edgekit writes, out of those the format knows
PHASES = ("X", "M", "C", "i", "s", "t", "f")
METADATA = {
    "process_name": "name", "thread_name": "name", "process_labels": "labels",
    "process_sort_index": "sort_index", "thread_sort_index": "sort_index",
}  # fmt: skip
_SCOPES = ("g", "p", "t")
# viewers hold nanoseconds in 64 bits, the end of a slice, too
_LATEST_US = 2**62 / 1000


def _is_time(value: object) -> bool:
    return _is_number(value) and 0 <= float(value) <= _LATEST_US  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no double holds
        return False


def event_faults(at: str, event: object) -> list[str]:
    """Returns the faults of one event's own fields; ``at`` begins each."""
    if not isinstance(event, Mapping):
        return [f"{at} is no object"]
    faults = []
    phase = event.get("ph")
    if not isinstance(phase, str) or phase not in PHASES:
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
    if phase == "i" and event.get("s") not in _SCOPES:
        faults.append(f"{at}.s is {event.get('s')!r}, not one of {', '.join(_SCOPES)}")
    if phase in ("s", "t", "f") and type(event.get("id")) is not int:
        faults.append(f"{at}.id is no whole number")
    args = event.get("args")
    if not isinstance(args, Mapping):
        return [*faults, f"{at}.args is no object"]
    return faults + (_series(at, args) if phase == "C" else _args(at, event, args))


def _series(at: str, args: Mapping[str, Any]) -> list[str]:
    """A counter's ``args`` are its series: numbers, and no clock among them."""
    if not args:
        return [f"{at}.args has no series"]
    return [f"{at}.args.{key} is no number" for key, value in args.items() if not _is_number(value)]


def _args(at: str, event: Mapping[str, Any], args: Mapping[str, Any]) -> list[str]:
    faults = []
    clock = args.get("clock")
    if not isinstance(clock, str) or clock not in CLOCKS:
        faults.append(f"{at}.args.clock is {clock!r}, not one of {', '.join(CLOCKS)}")
    if event.get("ph") == "M":
        needed = METADATA.get(str(event.get("name")))
        if needed is None:
            faults.append(f"{at}: no metadata event is called {event.get('name')!r}")
        elif needed not in args:
            faults.append(f"{at}.args lacks {needed}")
        elif type(args[needed]) is not (int if needed == "sort_index" else str):
            faults.append(f"{at}.args.{needed} is {str(args[needed])[:60]!r}")
    return faults


def validate_trace(document: object) -> list[str]:
    """Returns what is wrong with a trace, one line a fault; empty when it is sound.

    Checked: the object form's members, each event's fields and types (Trace Event Format,
    sections "JSON Object Format", "Complete Events", "Metadata Events", "Counter Events",
    "Instant Events", "Flow Events"), times that are finite and go up, slices that nest, flows
    that begin and end once within slices, named tracks, and one ``clock`` for each process.
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
    own = [f for i, event in enumerate(events) for f in event_faults(f"traceEvents[{i}]", event)]
    # the rest reads fields that must be sound first
    if own:
        return faults + own
    return faults + order_faults(events) + flow_faults(events) + name_faults(events)
