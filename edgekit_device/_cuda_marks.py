"""Where a frame's time goes, by CUDA's events: pairs around copies, kernels and engines.

Events are put on the stream while a frame runs and read later: reading them costs the host time
that a frame's own figure must not have. Names are trtexec's (samples/common/sampleReporting.h):
h2d, compute, d2h, and enqueue, which is the host's time in enqueueV3 or in a graph's launch.
"""

from __future__ import annotations

import time
from typing import Dict, List, NamedTuple, Tuple

from ._cuda import Cuda

__all__ = ["Marks", "Span"]

_PHASES = ("h2d", "compute", "d2h")
_TRIES = 5
_UNREAD = 4096  # frames whose events may wait to be read


class Span(NamedTuple):
    """One piece of a frame's work on the device; ``start`` is of ``time.perf_counter``."""

    frame: int
    phase: str
    start: float
    ms: float


class Marks:
    """One thread's events.

    Args:
        cuda: The device.

    Attributes:
        frames: Milliseconds by phase of every frame that was read: "h2d", "compute", "d2h" and
            "enqueue", each only where the frame had such work.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._free: List[int] = []
        self._all: List[int] = []
        self._now: List[Tuple[str, int, int]] = []
        self._enqueue = 0.0
        self._enqueued = False
        self._unread: List[Tuple[int, List[Tuple[str, int, int]], Dict[str, float]]] = []
        self.frames: List[Dict[str, float]] = []
        self._base, self._zero = self._begin()

    def _begin(self) -> Tuple[int, float]:
        """An event, and when it passed on the host's clock: that of the quickest of some tries.

        A stream that has nothing to do passes an event at once; the host knows when it asked for it
        and when it learnt of it.
        """
        stream = self._cuda.stream()
        found: List[Tuple[float, int, float]] = []
        for _ in range(_TRIES):
            event = self._event()
            before = time.perf_counter()
            self._cuda.record(event, stream)
            self._cuda.synchronize(stream)
            after = time.perf_counter()
            found.append((after - before, event, (before + after) / 2))
        self._cuda.destroy_stream(stream)
        _, event, passed = min(found)
        self._free += [other for _, other, _ in found if other != event]
        return event, passed

    def pair(self, phase: str) -> Tuple[int, int]:
        """Two events for the caller to put around a piece of work of this phase."""
        first, last = self._event(), self._event()
        self._now.append((phase, first, last))
        return first, last

    def enqueued(self, seconds: float) -> None:
        """Adds the host's time in one enqueue."""
        self._enqueue += seconds
        self._enqueued = True

    def forget(self) -> None:
        """Drops what was marked since the last frame: a warm-up's."""
        self._recycle(self._now)
        self._now, self._enqueue, self._enqueued = [], 0.0, False

    def frame(self, number: int) -> None:
        """Ends a frame, all of whose work has been waited for."""
        host = {"enqueue": self._enqueue * 1e3} if self._enqueued else {}
        self._unread.append((number, self._now, host))
        self._now, self._enqueue, self._enqueued = [], 0.0, False
        if len(self._unread) > _UNREAD:
            self._read(len(self._unread) // 2)

    def read(self, spans: int = 0) -> List[Span]:
        """Reads all that is unread into ``frames``; the last ``spans`` frames' pieces, too."""
        found = []
        for number, pieces, _ in self._unread[-spans:] if spans else ():
            for phase, first, last in pieces:
                start = self._zero + self._cuda.elapsed_ms(self._base, first) / 1e3
                found.append(Span(number, phase, start, self._cuda.elapsed_ms(first, last)))
        self._read(len(self._unread))
        return found

    def _read(self, count: int) -> None:
        for _, pieces, totals in self._unread[:count]:
            for phase, first, last in pieces:
                if phase in _PHASES:
                    spent = self._cuda.elapsed_ms(first, last)
                    totals[phase] = totals.get(phase, 0.0) + spent
            self._recycle(pieces)
            self.frames.append(totals)
        del self._unread[:count]

    def _recycle(self, pieces: List[Tuple[str, int, int]]) -> None:
        for _, first, last in pieces:
            self._free += (first, last)

    def _event(self) -> int:
        if self._free:
            return self._free.pop()
        made = self._cuda.event()
        self._all.append(made)
        return made

    def __del__(self) -> None:
        for event in getattr(self, "_all", []):
            try:
                self._cuda.destroy_event(event)
            except Exception:  # at the process's end the context may be gone already
                return
