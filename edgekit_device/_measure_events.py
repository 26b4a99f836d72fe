"""What segments and copies did and when: their times, and the last frames as events."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from ._cuda_marks import Span
    from ._lanes import Event
    from ._model import Model

__all__ = [
    "EVENT_FRAMES",
    "by_host",
    "copies_to_json",
    "events_to_json",
    "first_of",
    "kept_frames",
    "segment_times",
]

#: Frames that are kept for timelines.
EVENT_FRAMES = 8


def by_host(events: Sequence[Event]) -> bool:
    """Whether one of the segments has no time of the device's clock."""
    return any(event.device_ms is None for event in events)


def segment_times(
    model: Model, events: Sequence[Event]
) -> List[Tuple[Dict[str, Any], List[float]]]:
    """Each segment that ran, described, and its milliseconds."""
    times: Dict[Tuple[int, int], List[float]] = {}
    on_host = by_host(events)  # one clock for all: what follows compares them
    for event in events:
        device_ms = None if on_host else event.device_ms
        spent = (event.end - event.start) * 1e3 if device_ms is None else device_ms
        times.setdefault((event.lane, event.index), []).append(spent)
    return [
        (
            {
                "lane": lane.number,
                "index": segment.index,
                "device": segment.device,
                "layers": list(segment.layers),
            },
            times[lane.number, segment.index],
        )
        for lane in model.lanes
        for segment in lane.segments
        if (lane.number, segment.index) in times
    ]


def kept_frames(model: Model, events: Sequence[Event]) -> List[int]:
    """The last few frames whose every segment ran."""
    counts = Counter((event.lane, event.frame) for event in events)
    whole = {
        frame for (lane, frame), count in counts.items() if count == len(model.lanes[lane].segments)
    }
    return sorted(whole)[-EVENT_FRAMES:]


def first_of(events: Sequence[Event], kept: Sequence[int], began: float) -> Optional[float]:
    """Seconds from ``began``, the run's first measured frame, to the kept ones; None for none."""
    return min((event.start - began for event in events if event.frame in kept), default=None)


def events_to_json(
    events: Sequence[Event], kept: Sequence[int], spans: Sequence[Span] = ()
) -> List[Dict[str, Any]]:
    """The kept frames' events, from zero on; of engines also when the device itself was at work."""
    chosen = sorted((e for e in events if e.frame in kept), key=lambda event: event.start)
    computing = [span for span in spans if span.phase == "compute"]
    found = []
    for event in chosen:
        told = {
            "frame": kept.index(event.frame),
            "lane": event.lane,
            "index": event.index,
            "device": event.device,
            "start_us": (event.start - chosen[0].start) * 1e6,
            "duration_us": (event.end - event.start) * 1e6,
        }
        if event.device_ms is not None:
            start = _device_start(event, event.device_ms, computing)
            told["compute_start_us"] = (start - chosen[0].start) * 1e6
            told["compute_us"] = event.device_ms * 1e3
        found.append(told)
    return found


def _device_start(event: Event, device_ms: float, computing: List[Span]) -> float:
    """When the device began: its own event's time, else as long before the run's end as it took.

    A run ends when the device does, for it waits for it.
    """
    for place, span in enumerate(computing):
        # a frame's further spans are of other engines and of kernels that pack
        if span.frame == event.frame and abs(span.ms - device_ms) < 1e-6:
            return computing.pop(place).start
    return max(event.start, event.end - device_ms / 1e3)


def copies_to_json(
    spans: Sequence[Span], events: Sequence[Event], kept: Sequence[int]
) -> List[Dict[str, Any]]:
    """The kept frames' copies by CUDA's events, on the same axis as their segments' events."""
    starts = [event.start for event in events if event.frame in kept]
    if not starts:
        return []
    zero = min(starts)
    return [
        {
            "frame": kept.index(span.frame),
            "phase": span.phase,
            "start_us": (span.start - zero) * 1e6,
            "duration_us": span.ms * 1e3,
        }
        for span in sorted(spans, key=lambda one: one.start)
        if span.frame in kept and span.phase != "compute"
    ]
