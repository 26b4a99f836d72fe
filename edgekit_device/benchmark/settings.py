"""How ``bench`` measures, as a host asks for it: one document."""

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
    """trtexec's arguments for each run, for runs on the GPU alone or on a DLA, and for plans that
    carry the lean runtime; seconds until a run is ended. The board replaces {engine}, {times} and
    {core} in them.
    """

    always: Tuple[str, ...] = member(_ARGUMENTS)
    gpu: Tuple[str, ...] = member(_ARGUMENTS)
    dla: Tuple[str, ...] = member(_ARGUMENTS)
    version_compatible: Tuple[str, ...] = member(_ARGUMENTS)
    timeout_s: float = member(number(0.0, 1e9))


# A field with ``absent`` is left out of documents where it holds that: a new one changes no
# measurement that does not use it.
@document(frozen=True)
class BenchSettings:
    """What ``bench`` does on a board; trtexec's option in brackets where it has one.

    Attributes:
        warmup_ms: Milliseconds of warm-up at least (--warmUp).
        duration_s: Seconds to measure at least (--duration).
        iterations: Frames to measure at least, in each stream (--iterations).
        streams: Frames in flight at once, each with a context and a CUDA stream, or a thread, of
            its own (--infStreams).
        graph: Replay each frame's work as a CUDA graph (--useCudaGraph). Refused where a segment
            runs on a DLA or cannot be captured.
        spin: Wait for the GPU spinning (True, --useSpinWait) or blocked (False); None leaves it to
            CUDA, as the loader does when it serves.
        transfers: Copy inputs and outputs for each frame (False: --noDataTransfers).
        sleep_ms: Pause after each frame (--idleTime).
        idle_ms: How long the board is watched idle before the warm-up: the monitor's baseline.
        monitor_ms: Between two samples of the board's state; 0 takes none.
        power_mode: Set while it measures, by name or id, and taken back; None leaves it.
        lock_clocks: Hold all clocks at their highest while it measures (``jetson_clocks``).
        trtexec: Measure the same plans with trtexec, too; None does not.
        profile: Measure single nodes, too, in a run apart.
        shapes: The inputs' shapes to measure, of those that the release was built for; none for
            those of the frames, or the release's first.
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
        """How long it takes at least, without what the frames themselves take."""
        pauses = (self.warmup_ms + self.idle_ms + self.sleep_ms * self.iterations) / 1e3
        engines = 16 * self.trtexec.timeout_s if self.trtexec else 0.0
        return pauses + 4 * self.duration_s + engines


def parse_settings(document: str) -> BenchSettings:
    """Reads ``--settings``; raises DeviceError "usage" where it is wrong."""
    where = "--settings"
    return read(
        BenchSettings, parse_json(document.encode("utf-8"), where, "usage"), where, code="usage"
    )
