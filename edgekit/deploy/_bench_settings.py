"""How a board measures: one value for the board's ``bench`` command."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from edgekit.errors import BoardError

__all__ = ["BenchSettings"]

_CUT_OFF = ("board.killed", "board.connection-lost", "board.timeout")


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """What ``bench`` on a board does; trtexec's option in brackets where it has one.

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
        trtexec: Measure the same plans with trtexec, too: its arguments, of
            ``edgekit.trt.run_command``. None does not.
        profile: Measure layers, too, in a run apart.
        threads: Of each engine; 0 leaves it to the backend.
    """

    warmup_ms: float = 200.0
    duration_s: float = 3.0
    iterations: int = 10
    streams: int = 1
    graph: bool = False
    spin: bool | None = None
    transfers: bool = True
    sleep_ms: float = 0.0
    idle_ms: float = 0.0
    monitor_ms: float = 0.0
    power_mode: str | None = None
    lock_clocks: bool = False
    trtexec: Mapping[str, Any] | None = None
    profile: bool = False
    threads: int = 0

    def options(self) -> list[str]:
        """Returns the board command's options; what is not asked for is left out."""
        found = [
            f"--warmup-ms={self.warmup_ms:g}",
            f"--duration-s={self.duration_s:g}",
            f"--iterations={self.iterations}",
            f"--threads={self.threads}",
        ]
        if self.streams != 1:
            found.append(f"--streams={self.streams}")
        for name in ("sleep_ms", "idle_ms", "monitor_ms"):
            value = getattr(self, name)
            if value:
                found.append(f"--{name.replace('_', '-')}={value:g}")
        if self.power_mode is not None:
            found.append(f"--power-mode={self.power_mode}")
        if self.trtexec is not None:
            found.append(f"--trtexec={json.dumps(self.trtexec, separators=(',', ':'))}")
        flags = {
            "--graph": self.graph,
            "--spin": self.spin is True,
            "--blocking": self.spin is False,
            "--no-transfers": not self.transfers,
            "--lock-clocks": self.lock_clocks,
            "--profile": self.profile,
        }
        return found + [flag for flag, asked in flags.items() if asked]

    @contextmanager
    def told_of_clocks(self, board: str) -> Iterator[None]:
        """Says what becomes of power mode and clocks where the command within is cut off.

        Raises:
            BoardError: What was raised; one whose command was killed says what may still be set.
            KeyboardInterrupt: As it was, with a sentence about them.
        """
        if self.power_mode is None and not self.lock_clocks:
            yield
            return
        try:
            yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "the board takes power mode and clocks back within some seconds"
            ) from None
        except BoardError as error:
            if error.code in _CUT_OFF:
                error.hint = (
                    "power mode and clocks may still be as the benchmark set them, and "
                    f"`edgekit status {board}` takes them back; {error.hint}"
                )
            raise

    def seconds(self) -> float:
        """Returns how long it takes at least, beside what the frames themselves take."""
        pauses = (self.warmup_ms + self.idle_ms + self.sleep_ms * self.iterations) / 1e3
        engines = 16 * float(self.trtexec["timeout_s"]) if self.trtexec else 0.0
        return pauses + 4 * self.duration_s + engines
