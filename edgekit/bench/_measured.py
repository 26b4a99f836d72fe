"""Reads segment and node times out of a board's measurement, whatever of them is there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.bench._stats import mean

__all__ = ["NodeTime", "SegmentTime", "node_times", "segment_times"]


@dataclass(frozen=True, slots=True)
class SegmentTime:
    """Mean start and end of one segment, microseconds after the inference's start."""

    lane: int
    index: int
    device: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class NodeTime:
    """One ONNX node in ONNX Runtime's profile: the start counts from the first node's start."""

    lane: int
    segment: int
    node: str
    start_us: float
    duration_us: float


def _finite(value: object) -> float | None:
    """Returns a time as a float: a number, the mean of a list, or a summary's "mean"."""
    if isinstance(value, Mapping):
        return _finite(value.get("mean"))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        numbers = [number for item in value if (number := _finite(item)) is not None]
        return mean(numbers) if numbers else None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _first(entry: Mapping[str, Any], *keys: str) -> float | None:
    for key in keys:
        if (number := _finite(entry.get(key))) is not None:
            return number
    return None


def segment_times(measurement: Mapping[str, Any]) -> tuple[SegmentTime, ...]:
    """Returns the segments that have times, in running order.

    Each has ``start_ms`` and ``end_ms`` (numbers or one per iteration, of which the mean is
    taken), or only a duration (``mean_ms``, ``latency_ms``, ...), and then follows the one before.
    """
    found: list[SegmentTime] = []
    clock: dict[int, float] = {}
    entries = [e for e in measurement.get("segments") or () if isinstance(e, Mapping)]
    for position, entry in enumerate(entries):
        lane = int(entry.get("lane") or 0)
        start, end = _first(entry, "start_ms"), _first(entry, "end_ms")
        if start is None:
            start = clock.get(lane, 0.0) / 1000
        if end is None:
            duration = _first(entry, "mean_ms", "mean", "duration_ms", "latency_ms", "median_ms")
            if duration is None:
                continue
            end = start + duration
        index = entry.get("index")
        # means of separate lists may cross by rounding; a segment never ends before it starts
        times = (max(start, 0.0) * 1000, max(start, end, 0.0) * 1000)
        clock[lane] = times[1]
        found.append(SegmentTime(
            lane, position if index is None else int(index), str(entry.get("device") or "GPU"),
            *times,
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda s: (s.lane, s.start_us, s.index)))


def node_times(measurement: Mapping[str, Any]) -> dict[tuple[int, int], tuple[NodeTime, ...]]:
    """Returns the profiled nodes by (lane, segment), in running order; empty without a profile."""
    found: dict[tuple[int, int], list[NodeTime]] = {}
    for entry in measurement.get("nodes") or ():
        if not isinstance(entry, Mapping):
            continue
        start, duration = _first(entry, "start_us"), _first(entry, "dur_us", "duration_us")
        if start is None or duration is None or duration < 0:
            continue
        lane, segment = int(entry.get("lane") or 0), int(entry.get("segment") or 0)
        node = NodeTime(lane, segment, str(entry.get("node") or ""), start, duration)
        found.setdefault((lane, segment), []).append(node)
    return {
        key: tuple(sorted(nodes, key=lambda node: node.start_us)) for key, nodes in found.items()
    }
