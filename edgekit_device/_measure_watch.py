"""What goes on beside a bench: the board is watched, and the host is told how far it is."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

__all__ = ["Watch", "teller"]


class Watch:
    """The sampler around the idle time, the warm-up and the measured frames.

    Args:
        folder: ROOT.
        interval_ms: Between two samples; 0 watches nothing.
        tell: Told of each stage as it begins.

    Attributes:
        document: ``edgekit.monitor/1`` after the measured frames; None where nothing was watched.
    """

    def __init__(self, folder: Path, interval_ms: float, tell: Callable[[str], None]) -> None:
        self.document: Optional[Dict[str, Any]] = None
        self._tell = tell
        self._sampler: Any = None
        if interval_ms:
            from ._monitor import Sampler

            self._sampler = Sampler(int(interval_ms), root=folder)

    def __enter__(self) -> "Watch":
        if self._sampler is not None:
            self._sampler.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    def idle(self, milliseconds: float) -> None:
        """Leaves the board alone: the baseline."""
        if milliseconds:
            self._tell("idle")
        time.sleep(milliseconds / 1e3)
        if self._sampler is not None:
            self._sampler.warming()

    def stage(self, name: str) -> None:
        """A stage of the bench begins."""
        if name == "pipelined":
            self._end()  # what the board does from here on is another measurement's
        self._tell(name)
        if name == "measure" and self._sampler is not None:
            self._sampler.mark()

    def _end(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            self.document = sampler.stop()


def teller(arguments: argparse.Namespace) -> Callable[[str], None]:
    """Tells the host on stdout: ``{"stage", "left_s"}``, one JSON document a line.

    "left_s" are the seconds that this stage and those after it take at least; null for what takes
    as long as it takes.
    """
    measured = arguments.duration_s
    stages: List[Tuple[str, Optional[float]]] = [
        ("open", None),
        ("idle", arguments.idle_ms / 1e3),
        ("warm-up", arguments.warmup_ms / 1e3),
        ("measure", measured),
        ("pipelined", measured),
        ("layers", None),
        ("trtexec", None),
    ]

    def tell(stage: str) -> None:
        place = [name for name, _ in stages].index(stage)
        last = len(stages) if stage == "pipelined" else 4  # whether frames pipeline shows then
        known = [seconds for _, seconds in stages[place:last] if seconds is not None]
        line = {"stage": stage, "left_s": round(sum(known), 3) if known else None}
        os.write(sys.stdout.fileno(), (json.dumps(line) + "\n").encode("ascii"))

    return tell
