"""The measured loop: one stream in the caller's thread, several in a thread each."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Callable, List, Optional, Sequence

from ._lanes import Event, LaneRun, share_lanes

if TYPE_CHECKING:
    from ._cuda import Cuda
    from ._cuda_marks import Marks
    from ._model import Model

__all__ = ["Pace", "RunFrame", "Stream", "run_streams"]

_LOOK_S = 0.2  # how long a wait for threads may hold up a signal
_END_S = 2.0

#: Runs one frame of one lane: (lane, index of the frame, number, record).
RunFrame = Callable[[LaneRun, int, int, Optional[Callable[[Event], None]]], None]


class Pace:
    """How long to go on: trtexec's three numbers, and a pause after each frame."""

    def __init__(
        self, warmup_ms: float, duration_s: float, iterations: int, sleep_ms: float
    ) -> None:
        self.warmup_s = warmup_ms / 1e3
        self.duration_s = duration_s
        self.iterations = max(iterations, 1)
        self.sleep_s = sleep_ms / 1e3


class Stream:
    """Frames one after the other, and what they took.

    Args:
        model: Whose lanes take turns.
        frames: How many different frames there are.
        number: Which of ``of`` streams it is; they run different frames at once.
        run: Runs one.
        cuda: The device whose events are to be kept; None where there is none.

    Attributes:
        latencies: Milliseconds of each frame on the host's clock.
        ends: When each was done (``time.perf_counter``).
        events: Of every segment's run.
        start: When the first began.
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
        self.events: List[Event] = []
        self.start = 0.0
        self.marks: Optional[Marks] = None

    def warm_up(self, pace: Pace, stop: threading.Event) -> None:
        """Runs for the warm-up's time, in the thread that will measure."""
        if self._cuda is not None:
            from ._cuda_marks import Marks

            self.marks = Marks(self._cuda)
            self._cuda.observe(self.marks)
        until, number = time.perf_counter() + pace.warmup_s, 0
        while time.perf_counter() < until and not stop.is_set():
            self._run(next(self._turns), self._frame(number), number, None)
            number += 1
            if self.marks is not None:
                self.marks.forget()

    def measure(self, pace: Pace, stop: threading.Event) -> None:
        """Runs and keeps what each frame took."""
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

    def let_go(self) -> None:
        """Ends the observing, in the thread that measured."""
        if self._cuda is not None:
            self._cuda.observe(None)

    def _frame(self, turn: int) -> int:
        return (turn * self._of + self._number) % self._frames


def run_streams(
    streams: Sequence[Stream], pace: Pace, begin: Optional[Callable[[], None]] = None
) -> None:
    """Warms all streams up, calls ``begin``, and measures them at the same time.

    Raises:
        DeviceError: What a frame raised; the other streams end first.
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
            only.let_go()
        return
    errors: List[BaseException] = []
    barrier = threading.Barrier(len(streams), begin)

    def work(stream: Stream) -> None:
        try:
            stream.warm_up(pace, stop)
            barrier.wait()
            stream.measure(pace, stop)
        except threading.BrokenBarrierError:
            pass  # another stream failed, or the whole was ended
        except BaseException as error:
            errors.append(error)
            stop.set()
            barrier.abort()
        finally:
            stream.let_go()

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
            if thread.ident is not None:
                thread.join(_END_S)
    if errors:
        raise errors[0]
