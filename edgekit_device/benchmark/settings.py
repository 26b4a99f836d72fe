"""The settings of ``bench``, a document from the host."""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from edgekit_device.protocol.codec import (
    array,
    document,
    flag,
    integer,
    mapping,
    member,
    nullable,
    number,
    parse_json,
    read,
    record,
    shape,
    text,
)

_AMOUNT = number(0, 1e9)
_COUNT = integer(0, 1 << 30)
_ARGUMENTS = array(text(most=1 << 16))


@document(frozen=True)
class TrtexecOptions:
    """trtexec's arguments for each run, for runs on the GPU alone or on a DLA, and for plans with
    an embedded lean runtime; and the limit of a run in seconds. The board replaces {engine},
    {times} and {core} in the arguments.
    """

    always: Tuple[str, ...] = member(_ARGUMENTS)
    gpu: Tuple[str, ...] = member(_ARGUMENTS)
    dla: Tuple[str, ...] = member(_ARGUMENTS)
    version_compatible: Tuple[str, ...] = member(_ARGUMENTS)
    timeout_s: float = member(number(0.0, 1e9))


# Documents leave out a field that equals its ``absent``: a new field does not change measurements
# that do not use it.
@document(frozen=True)
class BenchSettings:
    """Settings of ``bench`` on a board, with trtexec's option in brackets.

    Attributes:
        warmup_ms: Least time of warm-up in milliseconds (--warmUp).
        duration_s: Least time to measure in seconds (--duration).
        iterations: Least number of frames to measure, in each stream (--iterations).
        streams: Frames in flight at once, each with its own context and CUDA stream, or its own
            thread (--infStreams).
        graph: Replay each frame's work as a CUDA graph (--useCudaGraph). Refused if a segment runs
            on a DLA or cannot be captured.
        spin: Wait for the GPU spinning (True, --useSpinWait) or blocked (False); None leaves it to
            CUDA, as the loader does when it serves.
        transfers: Copy inputs and outputs for each frame (False: --noDataTransfers).
        sleep_ms: Pause after each frame (--idleTime).
        idle_ms: Milliseconds for which the idle board is sampled before the warm-up: the baseline.
        monitor_ms: Milliseconds between two samples of the board's state; 0 takes no samples.
        power_mode: Name or id of the power mode to set during the measurement; None does not change
            it.
        lock_clocks: Hold all clocks at their highest during the measurement (``jetson_clocks``).
        trtexec: Measure the same plans also with trtexec; None does not.
        profile: Measure single nodes in a separate run.
        shapes: The inputs' shapes to measure, among those that the release was built for; empty for
            the frames' shapes, or the release's first.
    """

    warmup_ms: float = member(_AMOUNT, default=200.0)
    duration_s: float = member(_AMOUNT, default=3.0)
    iterations: int = member(_COUNT, default=10)
    streams: int = member(_COUNT, default=1)
    graph: bool = member(flag, default=False)
    spin: Optional[bool] = member(nullable(flag), default=None)
    transfers: bool = member(flag, default=True)
    sleep_ms: float = member(_AMOUNT, default=0.0)
    idle_ms: float = member(_AMOUNT, default=0.0)
    monitor_ms: float = member(_AMOUNT, default=0.0)
    power_mode: Optional[str] = member(text(), absent=None)
    lock_clocks: bool = member(flag, absent=False)
    trtexec: Optional[TrtexecOptions] = member(record(TrtexecOptions), absent=None)
    profile: bool = member(flag, absent=False)
    shapes: Mapping[str, Tuple[int, ...]] = member(mapping(shape()), absent=dict)

    def seconds(self) -> float:
        """Returns the least time in seconds, without the time of the frames themselves."""
        pauses = (self.warmup_ms + self.idle_ms + self.sleep_ms * self.iterations) / 1e3
        engines = 16 * self.trtexec.timeout_s if self.trtexec else 0.0
        return pauses + 4 * self.duration_s + engines


def parse_settings(document: str) -> BenchSettings:
    """Reads ``--settings``; raises DeviceError "usage" if it is invalid."""
    where = "--settings"
    return read(
        BenchSettings, parse_json(document.encode("utf-8"), where, "usage"), where, code="usage"
    )
