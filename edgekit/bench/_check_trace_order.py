"""What a trace's events say together: times go up, slices nest, flows arrive, tracks have names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

__all__ = ["flow_faults", "name_faults", "order_faults"]

Events = list[Mapping[str, Any]]
# half a nanosecond in microseconds: the format has no finer time
TOLERANCE_US = 0.0005


def order_faults(events: Events) -> list[str]:
    """Returns faults of the sequence: times go up, and slices of a track nest."""
    # an arrow is written when its end is known
    timed = [event for event in events if event["ph"] not in ("M", "s", "t", "f")]
    faults = [
        f"event {after['name']!r} at {after['ts']} stands after one at {before['ts']}"
        for before, after in pairwise(timed)
        if after["ts"] < before["ts"]
    ]
    open_slices: dict[tuple[int, int], Events] = {}
    slices = [event for event in timed if event["ph"] == "X"]
    for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
        stack = open_slices.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"] + TOLERANCE_US:
            stack.pop()
        end = event["ts"] + event["dur"]
        if stack and end > stack[-1]["ts"] + stack[-1]["dur"] + TOLERANCE_US:
            faults.append(f"slice {event['name']!r} ends after {stack[-1]['name']!r} around it")
        stack.append(event)
    return faults


def flow_faults(events: Events) -> list[str]:
    """Returns faults of flows: each starts and ends once, in order, within slices."""
    flows: dict[tuple[str, int | str], Events] = {}
    for event in events:
        if event["ph"] in ("s", "t", "f"):
            flows.setdefault((str(event.get("cat")), event["id"]), []).append(event)
    if not flows:
        return []
    spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            times = spans.setdefault((event["pid"], event["tid"]), [])
            end = event["ts"] + event["dur"]
            # the latest end so far: any slice that began before and is still open will do
            times.append((event["ts"], max(end, times[-1][1] if times else end)))
    faults = []
    for (_, name), steps in flows.items():
        phases = "".join(step["ph"] for step in steps)
        if phases[0] != "s" or phases[-1] != "f" or phases[1:-1].strip("t"):
            faults.append(f"flow {name!r} is {phases!r}, not one start, steps and one end")
        for step in steps:
            times = spans.get((step["pid"], step["tid"]), [])
            at = bisect_right(times, (step["ts"] + TOLERANCE_US, float("inf"))) - 1
            if at < 0 or times[at][1] + TOLERANCE_US < step["ts"]:
                faults.append(f"flow {name!r} at {step['ts']} is in no slice")
    return faults


def name_faults(events: Events) -> list[str]:
    """Returns faults of names and clocks: each track is named, a process has one clock."""
    faults = []
    named = [event for event in events if event["ph"] == "M"]
    threads = {(e["pid"], e["tid"]) for e in named if e["name"] == "thread_name"}
    processes = {e["pid"] for e in named if e["name"] == "process_name"}
    clocks: dict[int, set[str]] = {}
    for event in events:
        found = clocks.setdefault(event["pid"], set())
        if event["ph"] != "C":
            found.add(event["args"]["clock"])
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] not in ("M", "C")}
    faults += [f"track {pid}/{tid} has no thread_name" for pid, tid in sorted(used - threads)]
    faults += [f"process {pid} has no process_name" for pid in sorted(set(clocks) - processes)]
    faults += [
        f"process {pid} mixes clocks: {', '.join(sorted(found))}"
        for pid, found in sorted(clocks.items())
        if len(found) > 1
    ]
    return faults
