"""Reads the ``edgekit.device.bench/1`` document of the board's loader (docs/architecture.md).

A part that is absent or null (another backend, no profile) is read as empty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Copy", "NodeTime", "Run", "copies", "node_times", "runs"]


@dataclass(frozen=True, slots=True)
class Run:
    """One segment's run in one frame; microseconds from the first shown frame's start."""

    frame: int
    lane: int
    segment: int
    device: str
    start_us: float
    duration_us: float


@dataclass(frozen=True, slots=True)
class Copy:
    """A frame's copy to the device ("h2d") or back; it can begin before the first segment does."""

    frame: int
    phase: str
    start_us: float
    duration_us: float


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One node of a segment's engine and its mean time under ONNX Runtime's profiler."""

    node: str
    mean_us: float


def _time(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _entries(measurement: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [entry for entry in measurement.get(key) or () if isinstance(entry, Mapping)]


def _from_segments(measurement: Mapping[str, Any]) -> list[Run]:
    """Lays the segments' mean times one after the other, as one frame."""
    found, start = [], 0.0
    for entry in _entries(measurement, "segments"):
        duration = _time((entry.get("latency_ms") or {}).get("mean"))
        if duration is None:
            continue
        lane, index = int(entry.get("lane") or 0), int(entry["index"])
        # lanes are other plans: each is a frame of its own
        found.append(Run(lane, lane, index, str(entry["device"]), start, 1000 * duration))
        start += 1000 * duration
    return found


def runs(measurement: Mapping[str, Any], key: str = "events") -> tuple[Run, ...]:
    """Returns the segments' runs of a few frames, sorted by start.

    Args:
        measurement: The loader's document.
        key: "events" (frames one after the other; the segments' means where there are none) or
            "pipelined_events" (several frames in flight).
    """
    found = []
    for entry in _entries(measurement, key):
        start, duration = _time(entry.get("start_us")), _time(entry.get("duration_us"))
        if start is not None and duration is not None:
            found.append(Run(
                int(entry.get("frame") or 0), int(entry.get("lane") or 0), int(entry["index"]),
                str(entry["device"]), start, duration,
            ))  # fmt: skip
    if not found and key == "events":
        found = _from_segments(measurement)
    return tuple(sorted(found, key=lambda run: (run.start_us, run.frame, run.segment)))


def node_times(measurement: Mapping[str, Any]) -> dict[tuple[int, int], tuple[NodeTime, ...]]:
    """Returns the profiled nodes by (lane, segment), in running order; empty without a profile."""
    found: dict[tuple[int, int], list[NodeTime]] = {}
    for entry in _entries(measurement, "nodes"):
        mean = _time(entry.get("mean_us"))
        if mean is not None:
            key = (int(entry.get("lane") or 0), int(entry["index"]))
            found.setdefault(key, []).append(NodeTime(str(entry.get("node") or ""), mean))
    return {key: tuple(nodes) for key, nodes in found.items()}


def copies(measurement: Mapping[str, Any]) -> tuple[Copy, ...]:
    """Returns the shown frames' copies, sorted by start; ``start_us`` can be negative."""
    found = []
    for entry in _entries(measurement, "copies"):
        start, duration = entry.get("start_us"), _time(entry.get("duration_us"))
        early = _time(-start) if isinstance(start, int | float) and start < 0 else None
        begin = -early if early is not None else _time(start)
        if begin is not None and duration is not None:
            frame, phase = entry.get("frame"), str(entry.get("phase") or "copy")
            found.append(Copy(frame if type(frame) is int else 0, phase, begin, duration))
    return tuple(sorted(found, key=lambda copy: copy.start_us))
