"""trtexec's iterations as a trace: what the host enqueued, copies in, computing, copies out."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.bench._trace_process import HOST, Process, nanoseconds
from edgekit.bench._trtexec_times import Iteration
from edgekit.bench._types import BOARD_MEASURED

__all__ = ["times_process"]

_MOST = 10_000


def times_process(iterations: Sequence[Iteration], *, pid: int, device: str = "GPU") -> Process:
    """Makes the process of ``--exportTimes``; the first 10,000 iterations.

    Args:
        iterations: From ``read_times``.
        pid: Process number.
        device: Where it computes; trtexec's times do not say.

    Raises:
        DataError: "trace.time".
    """
    process = Process(pid, "trtexec's iterations", BOARD_MEASURED, None)
    zero = min((min(one.start_ms - one.h2d_ms, one.enqueued_ms) for one in iterations), default=0.0)
    if len(iterations) > _MOST:
        process.label = f"the first {_MOST} of {len(iterations)} iterations"

    def at(milliseconds: float) -> int:
        return max(0, nanoseconds(1e3 * (milliseconds - zero)))

    for number, one in enumerate(iterations[:_MOST]):
        steps = []
        end = one.start_ms + one.compute_ms
        for track, name, start, length in (
            (HOST, "enqueue", one.enqueued_ms, one.enqueue_ms),
            ("copies to the device", "H2D", one.start_ms - one.h2d_ms, one.h2d_ms),
            (device, "compute", one.start_ms, one.compute_ms),
            ("copies to the host", "D2H", end, one.d2h_ms),
        ):
            begin, stop = at(start), at(start + max(length, 0.0))
            place = process.free_track(track, begin)
            process.add(place, f"{name} {number}", begin, stop, "iteration", iteration=number)
            steps.append((place, begin))
        process.flow("iteration", steps)
    return process
