"""Benchmarks a loaded model by trtexec's method, and says on which clock.

"cpu-measured": the reference backend, which is no board's. "board-measured": TensorRT's engines and
loadables. Whole frames and events' places in time are the processor's clock always; segments' times
("segments_clock") are CUDA events around their work ("gpu", without copies to and from the host),
or the processor's clock around their runs ("cpu") where one of them has no events. "phases_ms" are
CUDA events around copies and engines, and the host's time in enqueueV3.

trtexec (TensorRT 10.3, samples/common/sampleReporting.cpp and sampleInference.cpp) warms up for at
least --warmUp milliseconds, then runs at least --iterations times and at least --duration seconds;
a percentile p is the sorted value that leaves ``floor((1 - p / 100) * n)`` larger ones out.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Union

from ._errors import DeviceError
from ._measure_events import (
    EVENT_FRAMES,
    by_host,
    copies_to_json,
    events_to_json,
    first_of,
    kept_frames,
    segment_times,
)
from ._measure_flight import in_flight
from ._measure_streams import Pace, Stream, run_streams
from ._measure_ways import at_fixed, cuda_of, fixed_runs, ordinary_run
from ._model import Model

if TYPE_CHECKING:
    import numpy as np

    Frames = Union[Dict[str, np.ndarray], Sequence[Dict[str, np.ndarray]]]

__all__ = ["Settings", "bench", "summary"]

_MOST_STREAMS = 64
_PHASES = ("enqueue", "h2d", "compute", "d2h", "host")
_NONE = dict.fromkeys(_PHASES)


class Settings:
    """How to measure; trtexec's option in brackets.

    Attributes:
        warmup_ms: Milliseconds of warm-up at least (--warmUp).
        duration_s: Seconds to measure at least (--duration).
        iterations: Frames of each stream at least (--iterations).
        streams: Frames in flight at once (--infStreams).
        graph: Whether frames are replayed as a CUDA graph (--useCudaGraph).
        transfers: Whether each frame is copied to the device and back (not --noDataTransfers).
        sleep_ms: Pause after each frame (--idleTime).
    """

    def __init__(
        self,
        warmup_ms: float = 200.0,
        duration_s: float = 3.0,
        iterations: int = 10,
        *,
        streams: int = 1,
        graph: bool = False,
        transfers: bool = True,
        sleep_ms: float = 0.0,
    ) -> None:
        self.warmup_ms = warmup_ms
        self.duration_s = duration_s
        self.iterations = iterations
        self.streams = streams
        self.graph = graph
        self.transfers = transfers
        self.sleep_ms = sleep_ms


def summary(values: Sequence[float]) -> Dict[str, float]:
    """min, mean, median, p50 to p99.9 and max of ``values`` (not empty), as trtexec has them.

    "p50" is the median, and "p999" p99.9.
    """
    ordered = sorted(values)
    count = len(ordered)
    middle = count // 2
    median = ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    def percentile(permille: int) -> float:
        # whole numbers: (1 - 0.9) * 10 is a little below 1 in doubles
        return ordered[max(count - 1 - (1000 - permille) * count // 1000, 0)]

    return {
        "min": ordered[0],
        "mean": sum(ordered) / count,
        "median": median,
        "p50": median,
        "p90": percentile(900),
        "p95": percentile(950),
        "p99": percentile(990),
        "p999": percentile(999),
        "max": ordered[-1],
    }


def bench(
    model: Model,
    inputs: Frames,
    settings: Optional[Settings] = None,
    tell: Callable[[str], None] = lambda stage: None,
) -> Dict[str, Any]:
    """Measures latency (frames one after the other in each stream) and throughput.

    Args:
        model: A loaded model.
        inputs: One frame, used again and again, or several, which are cycled.
        settings: How.
        tell: Called as a stage begins: "warm-up", "measure" (right before the first measured frame)
            and, where there is such, "pipelined".

    Returns:
        What ``edgekit.device.bench/1`` of docs/architecture.md has of the frames themselves.

    Raises:
        DeviceError: "bench.graph" or "bench.fixed" where the model cannot be measured so,
            "bench.streams", or what a run raises.
    """
    settings = settings or Settings()
    if not 1 <= settings.streams <= _MOST_STREAMS:
        raise DeviceError(
            "{} streams cannot be measured".format(settings.streams),
            code="bench.streams",
            hint="take 1 to {}".format(_MOST_STREAMS),
        )
    frames = [model.check(frame) for frame in ([inputs] if isinstance(inputs, dict) else inputs)]
    cuda = cuda_of(model)
    fixed = at_fixed(model, graph=settings.graph, transfers=settings.transfers)
    pace = Pace(settings.warmup_ms, settings.duration_s, settings.iterations, settings.sleep_ms)
    runs = partial(fixed_runs, model, frames, graph=settings.graph, transfers=settings.transfers)
    with ExitStack() as stack:
        streams = [
            Stream(
                model,
                len(frames),
                number,
                settings.streams,
                stack.enter_context(runs()) if fixed else ordinary_run(model, frames),
                cuda,
            )
            for number in range(settings.streams)
        ]
        tell("warm-up")
        run_streams(streams, pace, lambda: tell("measure"))
    began = min(each.start for each in streams)
    flight: Dict[str, Any] = {"pipelined": None, "pipelined_events": [], "pipelined_start_s": None}
    if len(model.devices) > 1 and not fixed:
        tell("pipelined")
        flight = in_flight(
            model,
            frames,
            iterations=settings.iterations,
            duration_s=settings.duration_s,
            began=began,
        )
    return {
        "schema": "edgekit.device.bench/1",
        "backend": model.backend,
        "clock": "cpu-measured" if model.backend == "reference" else "board-measured",
        "warmup_ms": settings.warmup_ms,
        **_measured(model, streams, began),
        **flight,
    }


def _measured(model: Model, streams: Sequence[Stream], began: float) -> Dict[str, Any]:
    pairs = sorted(
        pair
        for each in streams
        for pair in zip(each.ends, each.latencies)  # noqa: B905 (3.8)
    )
    latencies = [latency for _, latency in pairs]
    duration = max(each.ends[-1] for each in streams) - began
    events = [event for each in streams for event in each.events]
    kept = kept_frames(model, events)
    marks = [each.marks for each in streams if each.marks is not None]
    spans = [span for each in marks for span in each.read(EVENT_FRAMES)]
    return {
        "segments_clock": "cpu" if by_host(events) else "gpu",
        "iterations": len(latencies),
        "duration_s": duration,
        "latency_ms": summary(latencies),
        "samples_ms": latencies,
        "throughput_qps": len(latencies) / duration,
        "phases_ms": _phases(streams) if marks else dict(_NONE),
        "streams": [_stream(number, each) for number, each in enumerate(streams)]
        if len(streams) > 1
        else None,
        "segments": [
            dict(segment, latency_ms=summary(times))
            for segment, times in segment_times(model, events)
        ],
        "events": events_to_json(events, kept, spans),
        "events_start_s": first_of(events, kept, began),
        "copies": copies_to_json(spans, events, kept),
    }


def _stream(number: int, stream: Stream) -> Dict[str, Any]:
    count = len(stream.latencies)
    return {
        "stream": number,
        "iterations": count,
        "throughput_qps": count / (stream.ends[-1] - stream.start),
    }


def _phases(streams: Sequence[Stream]) -> Dict[str, Any]:
    """Summaries by phase; None for what not every frame has: a loadable has no events."""
    found: Dict[str, List[float]] = {name: [] for name in _PHASES}
    for stream in streams:
        assert stream.marks is not None
        for latency, frame in zip(stream.latencies, stream.marks.frames):  # noqa: B905 (3.8)
            for name, spent in frame.items():
                found[name].append(spent)
            if "compute" in frame:
                on_device = sum(spent for name, spent in frame.items() if name != "enqueue")
                found["host"].append(max(latency - on_device, 0.0))
    count = sum(len(stream.latencies) for stream in streams)
    return {
        name: summary(values) if len(values) == count else None for name, values in found.items()
    }
