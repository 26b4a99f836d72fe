"""Frames in flight over several devices: their rate, and a few of them on the run's one clock."""

from __future__ import annotations

import time
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

from ._lanes import Event
from ._measure_events import EVENT_FRAMES, events_to_json, first_of, kept_frames
from ._pipeline import run_stream

if TYPE_CHECKING:
    import numpy as np

    from ._model import Model

__all__ = ["in_flight"]


def in_flight(
    model: Model,
    frames: Sequence[Dict[str, np.ndarray]],
    *,
    iterations: int,
    duration_s: float,
    began: float,
) -> Dict[str, Any]:
    """Measures frames in flight.

    Args:
        model: Of more than one device.
        frames: Used in turns.
        iterations: Frames at least.
        duration_s: Seconds at least.
        began: When the first measured frame of the run began (``time.perf_counter``).

    Returns:
        "pipelined", "pipelined_events" and "pipelined_start_s" of ``edgekit.device.bench/1``. The
        events are of the first frames that count, so that a timeline has them soon after those
        that ran alone.
    """
    fill = 2 * len(model.devices)  # frames that fill the pipeline: they count as warm-up
    events: List[Event] = []

    def record(event: Event) -> None:
        if fill <= event.frame < fill + EVENT_FRAMES:
            events.append(event)

    results = run_stream(model.lanes, cycle(frames), 0, record)
    for _ in islice(results, fill):
        pass
    start = end = time.perf_counter()
    count = 0
    while count < iterations or end - start < duration_s:
        next(results)
        end = time.perf_counter()
        count += 1
    results.close()
    kept = kept_frames(model, events)
    return {
        "pipelined": {"frames": count, "throughput_qps": count / (end - start)},
        "pipelined_events": events_to_json(events, kept),
        "pipelined_start_s": first_of(events, kept, began),
    }
