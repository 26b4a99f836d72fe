"""The steps of a run: their names, and what became of each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.errors import EdgekitError
from edgekit.pipeline._progress import Progress

__all__ = ["STEPS", "Step", "Steps"]

STEPS = (
    "check", "rewrite", "calibrate", "plan", "build", "bundle", "deploy", "refit", "self-test",
    "infer", "bench", "report",
)  # fmt: skip


@dataclass
class Step:
    """One step while it runs."""

    name: str
    status: str = "done"
    detail: str = ""

    def reuse(self, detail: str = "") -> None:
        """Says that nothing had to be done."""
        self.status = "reused"
        self.detail = detail or self.detail


class Steps:
    """Counts steps, times them and tells the progress."""

    def __init__(
        self,
        names: Sequence[str],
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.names = list(names)
        self.progress = progress
        self.done: list[dict[str, Any]] = []
        self._clock = clock

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Runs a step; one that raises is recorded as failed."""
        step = Step(name)
        began = self._clock()
        number = self.names.index(name) + 1 if name in self.names else len(self.done) + 1
        self.progress.begin(number, max(len(self.names), number), name)
        try:
            yield step
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            why = error.message if isinstance(error, EdgekitError) else ""
            step.status, step.detail = "failed", "interrupted" if interrupted else why
            raise
        finally:
            seconds = self._clock() - began
            self.done.append(
                {"name": name, "status": step.status, "seconds": round(seconds, 3),
                 "detail": step.detail}
            )  # fmt: skip
            self.progress.end(name, step.status, seconds, step.detail)
