"""Benchmarks a loaded model by trtexec's method, and says on which clock.

"cpu-measured": the reference backend, which is no board's. "board-measured": TensorRT's engines and
loadables. Whole frames and events' places in time are the processor's clock always; segments' times
("segments_clock") are CUDA events around their work ("gpu", without copies to and from the host),
or the processor's clock around their runs ("cpu") where one of them has no events.

trtexec (TensorRT 10.3, samples/common/sampleReporting.cpp and sampleInference.cpp) warms up for at
least --warmUp milliseconds, then runs at least --iterations times and at least --duration seconds;
a percentile p is the sorted value that leaves ``floor((1 - p / 100) * n)`` larger ones out.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ._lanes import Event, share_lanes
from ._model import Model
from ._pipeline import run_stream

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Settings", "bench", "summary"]

_EVENT_FRAMES = 8


class Settings:
    """trtexec's three numbers: milliseconds of warm-up, seconds, and least iterations."""

    def __init__(
        self, warmup_ms: float = 200.0, duration_s: float = 3.0, iterations: int = 10
    ) -> None:
        self.warmup_ms = warmup_ms
        self.duration_s = duration_s
        self.iterations = iterations


def summary(values: List[float]) -> Dict[str, float]:
    """min, mean, median, p90, p95, p99 and max of ``values`` (not empty), as trtexec has them."""
    ordered = sorted(values)
    count = len(ordered)
    middle = count // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    def percentile(p: int) -> float:
        # whole numbers: (1 - 0.9) * 10 is a little below 1 in doubles
        return ordered[max(count - 1 - (100 - p) * count // 100, 0)]

    return {
        "min": ordered[0],
        "mean": sum(ordered) / count,
        "median": median,
        "p90": percentile(90),
        "p95": percentile(95),
        "p99": percentile(99),
        "max": ordered[-1],
    }


def bench(
    model: Model, inputs: Dict[str, np.ndarray], settings: Optional[Settings] = None
) -> Dict[str, Any]:
    """Measures latency (frames one after the other) and throughput (frames in flight).

    Args:
        model: A loaded model.
        inputs: One frame, used again and again.
        settings: Warm-up, duration and iterations.

    Returns:
        The ``edgekit.device.bench/1`` document of docs/architecture.md without "nodes".
    """
    settings = settings or Settings()
    frame = model.check(inputs)
    clock = time.perf_counter
    turns = share_lanes(model.lanes)
    warm_until = clock() + settings.warmup_ms / 1e3
    while clock() < warm_until:
        model.run_lane(next(turns).number, frame)
    events: List[Event] = []
    latencies: List[float] = []
    start = end = clock()
    while len(latencies) < settings.iterations or end - start < settings.duration_s:
        lane, before = next(turns).number, clock()
        model.run_lane(lane, frame, events.append, len(latencies))
        end = clock()
        latencies.append((end - before) * 1e3)
    pipelined, in_flight = _pipelined(model, frame, settings)
    return {
        "schema": "edgekit.device.bench/1",
        "backend": model.backend,
        "clock": "cpu-measured" if model.backend == "reference" else "board-measured",
        "segments_clock": "cpu" if _by_host(events) else "gpu",
        "warmup_ms": settings.warmup_ms,
        "iterations": len(latencies),
        "duration_s": end - start,
        "latency_ms": summary(latencies),
        "samples_ms": latencies,
        "throughput_qps": len(latencies) / (end - start),
        "pipelined": pipelined,
        "segments": _segments(model, events),
        "events": _to_json(model, events),
        "pipelined_events": _to_json(model, in_flight),
    }


def _pipelined(
    model: Model, frame: Dict[str, np.ndarray], settings: Settings
) -> Tuple[Optional[Dict[str, Any]], List[Event]]:
    if len(model.devices) < 2:
        return None, []
    events: List[Event] = []
    results = run_stream(model.lanes, repeat(frame), 0, events.append)
    # the first frames fill the pipeline; they count as warm-up
    for _ in islice(results, 2 * len(model.devices)):
        pass
    start = end = time.perf_counter()
    count = 0
    while count < settings.iterations or end - start < settings.duration_s:
        next(results)
        end = time.perf_counter()
        count += 1
    results.close()
    return {"frames": count, "throughput_qps": count / (end - start)}, events


def _by_host(events: List[Event]) -> bool:
    return any(event.device_ms is None for event in events)


def _segments(model: Model, events: List[Event]) -> List[Dict[str, Any]]:
    times: Dict[Tuple[int, int], List[float]] = {}
    by_host = _by_host(events)  # one clock for all: what follows compares them
    for event in events:
        device_ms = None if by_host else event.device_ms
        spent = (event.end - event.start) * 1e3 if device_ms is None else device_ms
        times.setdefault((event.lane, event.index), []).append(spent)
    return [
        {
            "lane": lane.number,
            "index": segment.index,
            "device": segment.device,
            "layers": list(segment.layers),
            "latency_ms": summary(times[lane.number, segment.index]),
        }
        for lane in model.lanes
        for segment in lane.segments
        if (lane.number, segment.index) in times
    ]


def _to_json(model: Model, events: List[Event]) -> List[Dict[str, Any]]:
    """The last few frames whose every segment ran, from zero on."""
    counts = Counter((event.lane, event.frame) for event in events)
    whole = {
        frame for (lane, frame), count in counts.items() if count == len(model.lanes[lane].segments)
    }
    kept = sorted(whole)[-_EVENT_FRAMES:]
    chosen = sorted((e for e in events if e.frame in kept), key=lambda event: event.start)
    return [
        {
            "frame": kept.index(event.frame),
            "lane": event.lane,
            "index": event.index,
            "device": event.device,
            "start_us": (event.start - chosen[0].start) * 1e6,
            "duration_us": (event.end - event.start) * 1e6,
        }
        for event in chosen
    ]
