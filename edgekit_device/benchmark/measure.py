"""Benchmarks a loaded model by trtexec's method: a single stream in the caller's thread, several
streams in a thread each, or frames in flight over several devices. A frame runs as for a caller, or
at fixed addresses as in trtexec.

"cpu-measured": the reference backend, not a board. "board-measured": TensorRT's engines and
loadables. Whole frames and the start times of events always use the processor's clock. Segments'
times ("segments_clock") come from CUDA events around their work ("gpu", without copies to and from
the host), or from the processor's clock around their runs ("cpu") if a segment has no events.
"phases_ms" come from CUDA events around copies and engines, and the host's time in enqueueV3.

trtexec (TensorRT 10.3, samples/common/sampleInference.cpp) warms up for at least --warmUp
milliseconds, then runs at least --iterations times and at least --duration seconds.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from edgekit_device.benchmark.events import (
    EVENT_FRAMES,
    EventPairs,
    lacks_device_times,
    retained_copies,
    retained_events,
    retained_frames,
    retained_start,
    segment_times,
)
from edgekit_device.benchmark.fixed_addresses import FixedLane, find_obstacle
from edgekit_device.benchmark.measurement import (
    MeasuredEvent,
    Measurement,
    Pipelined,
    StreamRate,
    Times,
)
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.benchmark.statistics import summary
from edgekit_device.cuda.driver import Cuda
from edgekit_device.errors import DeviceError
from edgekit_device.runtime.model import Model
from edgekit_device.runtime.pipeline import LaneRun, SegmentEvent, run_stream, share_lanes

if TYPE_CHECKING:
    import numpy as np

    Frames = Union[Dict[str, np.ndarray], Sequence[Dict[str, np.ndarray]]]

_MOST_STREAMS = 64
_PHASES = ("enqueue", "h2d", "compute", "d2h", "host")
_LOOK_S = 0.2  # longest delay of a signal by a wait for threads
_END_S = 2.0

#: Runs a frame on a lane: (lane, index of the frame, number, record).
RunFrame = Callable[[LaneRun, int, int, Optional[Callable[[SegmentEvent], None]]], None]


def bench(
    model: Model,
    inputs: Frames,
    settings: Optional[BenchSettings] = None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Measurement:
    """Measures latency (frames one after the other in each stream) and throughput.

    Args:
        model: A loaded model; for a model with several shapes, the result of ``Model.variant``.
        inputs: A frame, which is repeated, or several, which are cycled.
        settings: The settings; None for the defaults.
        on_stage: Called as a stage begins: "warm-up", "measure" (right before the first measured
            frame) and, for frames in flight, "pipelined".

    Raises:
        DeviceError: "bench.graph" or "bench.fixed" if the model cannot be measured with these
            settings, "bench.shape" for a model with several variants, "bench.streams", or a run's
            error.
    """
    if len(model.variants) > 1:
        raise DeviceError(
            "the model has several variants, but only one can be measured",
            code="bench.shape",
            where=model.name,
            hint="with model.variant(model.planned(shapes)) as variant: bench(variant, inputs)",
        )
    settings = settings or BenchSettings()
    if not 1 <= settings.streams <= _MOST_STREAMS:
        raise DeviceError(
            "{} streams cannot be measured".format(settings.streams),
            code="bench.streams",
            hint="use 1 to {}".format(_MOST_STREAMS),
        )
    frames = [model.check(frame) for frame in ([inputs] if isinstance(inputs, dict) else inputs)]
    cuda = find_cuda(model)
    fixed = needs_fixed_addresses(model, graph=settings.graph, transfers=settings.transfers)
    pace = Pace(settings.warmup_ms, settings.duration_s, settings.iterations, settings.sleep_ms)
    runs = partial(
        make_fixed_run, model, frames, graph=settings.graph, transfers=settings.transfers
    )
    with ExitStack() as stack:
        # made before the warm-up: captures and buffers are no part of the measured time
        streams = [
            BenchStream(
                model,
                len(frames),
                number,
                settings.streams,
                stack.enter_context(runs()) if fixed else make_run(model, frames),
                cuda,
            )
            for number in range(settings.streams)
        ]
        on_stage("warm-up")
        run_streams(streams, pace, lambda: on_stage("measure"))
    began = min(each.start for each in streams)
    flight = FramesInFlight(None, (), None)
    # with one device frames in flight would only wait for each other
    if len(model.devices) > 1 and not fixed:
        on_stage("pipelined")
        flight = measure_in_flight(
            model,
            frames,
            iterations=settings.iterations,
            duration_s=settings.duration_s,
            began=began,
        )
    return _summarise(model, streams, began, settings.warmup_ms, flight)


def _summarise(
    model: Model,
    streams: Sequence[BenchStream],
    began: float,
    warmup_ms: float,
    flight: FramesInFlight,
) -> Measurement:
    pairs = sorted(
        pair
        for each in streams
        for pair in zip(each.ends, each.latencies)  # noqa: B905 (3.8)
    )
    latencies = [latency for _, latency in pairs]
    # over all streams: their frames overlap, so latencies do not add up to it
    duration = max(each.ends[-1] for each in streams) - began
    events = [event for each in streams for event in each.events]
    retained = retained_frames(model, events)
    marks = [each.marks for each in streams if each.marks is not None]
    spans = [span for each in marks for span in each.read(EVENT_FRAMES)]
    rates = tuple(
        StreamRate(number, len(each.latencies), len(each.latencies) / (each.ends[-1] - each.start))
        for number, each in enumerate(streams)
    )
    return Measurement(
        backend=model.backend,
        clock="cpu-measured" if model.backend == "reference" else "board-measured",
        warmup_ms=warmup_ms,
        segments_clock="cpu" if lacks_device_times(events) else "gpu",
        iterations=len(latencies),
        duration_s=duration,
        latency_ms=summary(latencies),
        samples_ms=tuple(latencies),
        throughput_qps=len(latencies) / duration,
        phases_ms=_phases(streams) if marks else dict.fromkeys(_PHASES),
        streams=rates if len(rates) > 1 else None,
        segments=segment_times(model, events),
        events=retained_events(events, retained, spans),
        events_start_s=retained_start(events, retained, began),
        copies=retained_copies(spans, events, retained),
        pipelined=flight.pipelined,
        pipelined_events=flight.events,
        pipelined_start_s=flight.start_s,
    )


def _phases(streams: Sequence[BenchStream]) -> Dict[str, Optional[Times]]:
    """Returns summaries by phase; None for a phase that not every frame has: a loadable has no
    events.
    """
    found: Dict[str, List[float]] = {name: [] for name in _PHASES}
    for stream in streams:
        assert stream.marks is not None
        for latency, frame in zip(stream.latencies, stream.marks.frames):  # noqa: B905 (3.8)
            for name, spent in frame.items():
                found[name].append(spent)
            if "compute" in frame:
                # enqueueV3 returns early: its time on the host overlaps the device's work
                on_device = sum(spent for name, spent in frame.items() if name != "enqueue")
                found["host"].append(max(latency - on_device, 0.0))
    count = sum(len(stream.latencies) for stream in streams)
    return {
        name: summary(values) if len(values) == count else None for name, values in found.items()
    }


class Pace:
    """The measurement's length: trtexec's three numbers, and a pause after each frame."""

    def __init__(
        self, warmup_ms: float, duration_s: float, iterations: int, sleep_ms: float
    ) -> None:
        self.warmup_s = warmup_ms / 1e3
        self.duration_s = duration_s
        self.iterations = max(iterations, 1)
        self.sleep_s = sleep_ms / 1e3


class BenchStream:
    """A stream of frames, one after the other, and their times.

    Args:
        model: The model; its lanes take turns.
        frames: Number of different frames.
        number: Index of the stream among ``of`` streams, which run different frames at once.
        run: Runs a frame.
        cuda: The device whose events are recorded; None without events.

    Attributes:
        latencies: Milliseconds of each frame on the host's clock.
        ends: Time of each frame's end (``time.perf_counter``).
        events: Events of every segment's run.
        start: Time at which the first frame began.
        marks: Phases by CUDA's events; None without ``cuda``.
    """

    def __init__(
        self,
        model: Model,
        frames: int,
        number: int,
        of: int,
        run: RunFrame,
        cuda: Optional[Cuda] = None,
    ) -> None:
        self._turns = share_lanes(model.lanes)
        self._frames, self._number, self._of = frames, number, of
        self._run = run
        self._cuda = cuda
        self.latencies: List[float] = []
        self.ends: List[float] = []
        self.events: List[SegmentEvent] = []
        self.start = 0.0
        self.marks: Optional[EventPairs] = None

    def warm_up(self, pace: Pace, stop: threading.Event) -> None:
        """Runs for the warm-up's time, in the thread that will measure."""
        if self._cuda is not None:
            # here, because an observer is set for the calling thread alone
            self.marks = EventPairs(self._cuda)
            self._cuda.observe(self.marks)
        until, number = time.perf_counter() + pace.warmup_s, 0
        while time.perf_counter() < until and not stop.is_set():
            self._run(next(self._turns), self._frame(number), number, None)
            number += 1
            if self.marks is not None:
                self.marks.forget()

    def measure(self, pace: Pace, stop: threading.Event) -> None:
        """Runs frames and records their times."""
        clock, run, marks = time.perf_counter, self._run, self.marks
        latencies, ends, record = self.latencies, self.ends, self.events.append
        self.start = end = clock()
        while (
            len(latencies) < pace.iterations or end - self.start < pace.duration_s
        ) and not stop.is_set():
            turn = len(latencies)
            lane, frame, number = (
                next(self._turns),
                self._frame(turn),
                # numbers are unique over all streams: they identify a frame's events
                turn * self._of + self._number,
            )
            before = clock()
            run(lane, frame, number, record)
            end = clock()
            latencies.append((end - before) * 1e3)
            ends.append(end)
            if marks is not None:
                marks.frame(number)
            if pace.sleep_s:
                time.sleep(pace.sleep_s)

    def stop_recording(self) -> None:
        """Ends the recording, in the thread that measured."""
        if self._cuda is not None:
            self._cuda.observe(None)

    def _frame(self, turn: int) -> int:
        return (turn * self._of + self._number) % self._frames


def run_streams(
    streams: Sequence[BenchStream], pace: Pace, begin: Optional[Callable[[], None]] = None
) -> None:
    """Warms all streams up, calls ``begin``, and measures them at the same time.

    Raises:
        DeviceError: A frame's error; the other streams end first.
    """
    stop = threading.Event()
    if len(streams) == 1:
        (only,) = streams
        try:
            only.warm_up(pace, stop)
            if begin is not None:
                begin()
            only.measure(pace, stop)
        finally:
            only.stop_recording()
        return
    errors: List[BaseException] = []
    # all streams begin at once: a stream alone would be measured without contention
    barrier = threading.Barrier(len(streams), begin)

    def work(stream: BenchStream) -> None:
        try:
            stream.warm_up(pace, stop)
            barrier.wait()
            stream.measure(pace, stop)
        except threading.BrokenBarrierError:
            pass  # another stream failed, or the benchmark was ended
        except BaseException as error:
            errors.append(error)
            stop.set()
            # otherwise the other threads would wait at the barrier for ever
            barrier.abort()
        finally:
            stream.stop_recording()

    threads = [
        threading.Thread(target=work, args=(each,), name="edgekit-bench", daemon=True)
        for each in streams
    ]
    try:
        for thread in threads:
            thread.start()
        # in short waits: a signal is handled between them
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(_LOOK_S)
    finally:
        stop.set()
        barrier.abort()
        for thread in threads:
            # join raises for a thread that never started
            if thread.ident is not None:
                thread.join(_END_S)
    if errors:
        raise errors[0]


def find_cuda(model: Model) -> Optional[Cuda]:
    """Returns the device that the model's engines run on; None for the reference backend."""
    for engine in model.engines.values():
        found: Optional[Cuda] = getattr(engine, "cuda", None)
        if found is not None:
            return found
    return None


def needs_fixed_addresses(model: Model, *, graph: bool, transfers: bool) -> bool:
    """Returns True if frames must run at fixed addresses; False for the reference backend.

    Raises:
        DeviceError: "bench.graph" or "bench.fixed" if they cannot.
    """
    if model.backend == "reference" or (transfers and not graph):
        return False

    reason = find_obstacle(model, graph=graph)
    if reason:
        mode = "as a CUDA graph" if graph else "without transfers"
        raise DeviceError(
            "this release cannot be measured {}: {}".format(mode, reason),
            code="bench.graph" if graph else "bench.fixed",
            where=model.name,
            hint="measure without {}".format("--graph" if graph else "--no-transfers"),
        )
    return True


def make_run(model: Model, frames: Sequence[Dict[str, np.ndarray]]) -> RunFrame:
    """Returns a function that runs frames as for a caller of the model: arrays in, arrays out."""

    def run(lane: LaneRun, frame: int, number: int, record: Any) -> None:
        model.run_lane(lane.number, frames[frame], record, number)

    return run


@contextmanager
def make_fixed_run(
    model: Model, frames: Sequence[Dict[str, np.ndarray]], *, graph: bool, transfers: bool
) -> Iterator[RunFrame]:
    """Yields a function that runs frames at fixed addresses, with its own contexts, stream and
    buffers.

    Raises:
        DeviceError: As ``FixedLane``.
    """
    cuda = find_cuda(model)
    assert cuda is not None  # every engine is a plan
    made: Dict[int, FixedLane] = {}
    try:
        for lane in model.lanes:
            made[lane.number] = FixedLane(
                model, lane, frames, cuda, graph=graph, transfers=transfers
            )

        def run(lane: LaneRun, frame: int, number: int, record: Any) -> None:
            made[lane.number].frame(frame, number, record)

        yield run
    finally:
        for fixed_lane in made.values():
            fixed_lane.close()


class FramesInFlight(NamedTuple):
    """Frames in flight: their rate, the events of a few frames, and the start of those frames in
    seconds from the first measured frame.
    """

    pipelined: Optional[Pipelined]
    events: Tuple[MeasuredEvent, ...]
    start_s: Optional[float]


def measure_in_flight(
    model: Model,
    frames: Sequence[Dict[str, np.ndarray]],
    *,
    iterations: int,
    duration_s: float,
    began: float,
) -> FramesInFlight:
    """Measures frames in flight.

    Args:
        model: A model with more than one device.
        frames: The frames, which are cycled.
        iterations: Least number of frames.
        duration_s: Least time in seconds.
        began: Time at which the run's first measured frame began (``time.perf_counter``).

    Returns:
        The rate, with the events of the first frames that count, so that a timeline shows them soon
        after the frames that ran alone.
    """
    fill = 2 * len(model.devices)  # frames that fill the pipeline: they count as warm-up
    events: List[SegmentEvent] = []

    def record(event: SegmentEvent) -> None:
        if fill <= event.frame < fill + EVENT_FRAMES:
            events.append(event)

    # endless: the pipeline must stay full until the last frame that counts
    results = run_stream(model.lanes, cycle(frames), 0, record)
    for _ in islice(results, fill):
        pass
    start = end = time.perf_counter()
    count = 0
    while count < iterations or end - start < duration_s:
        next(results)
        end = time.perf_counter()
        count += 1
    # ends the workers; frames still in flight do not count
    results.close()
    retained = retained_frames(model, events)
    return FramesInFlight(
        Pipelined(count, count / (end - start)),
        retained_events(events, retained),
        retained_start(events, retained, began),
    )
