"""The steps of a run, their times and states, and what a run reports them to."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgekit.error_document import FinishedStep
from edgekit.errors import EdgekitError


class Progress(Protocol):
    """What a step reports to."""

    def begin(self, number: int, total: int, name: str) -> None:
        """A step begins."""

    def update(self, done: float, total: float, text: str = "", *, at: float | None = None) -> None:
        """Part of the step is done.

        ``at`` is when, in seconds of another clock than this machine's: a board's news may be old.
        """

    def end(self, name: str, status: str, seconds: float, detail: str) -> None:
        """A step ended: "done", "reused", "failed", "cancelled" (the board's job was) or "left" (it
        goes on without this command).
        """

    def note(self, text: str) -> None:
        """Something the user should know."""

    def detail(self, text: str) -> None:
        """Details such as where time goes, shown on request (-v)."""


class Quiet:
    """Reports nothing."""

    def begin(self, number: int, total: int, name: str) -> None:
        """Does nothing."""

    def update(self, done: float, total: float, text: str = "", *, at: float | None = None) -> None:
        """Does nothing."""

    def end(self, name: str, status: str, seconds: float, detail: str) -> None:
        """Does nothing."""

    def note(self, text: str) -> None:
        """Does nothing."""

    def detail(self, text: str) -> None:
        """Does nothing."""


def describe_bound(
    value: float, bound: float, shown: Callable[[float], str] = "{:.6g}".format
) -> str:
    """Says how far a search is: the best value found, and what is proven of any other."""
    proven = f"bound {shown(bound)}" if math.isfinite(bound) else "no bound yet"
    return f"best {shown(value) if math.isfinite(value) else 'none'}, {proven}"


@dataclass
class StepRecord:
    """One step while it runs.

    Attributes:
        doing: What it does just now, for the detail of a failure; empty where its name says it.
    """

    name: str
    status: str = "done"
    detail: str = ""
    doing: str = ""

    def reuse(self, detail: str = "") -> None:
        """Says that nothing had to be done."""
        self.status = "reused"
        self.detail = detail or self.detail


class StepLog:
    """Counts steps, times them and reports the progress."""

    def __init__(
        self,
        names: Sequence[str],
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.names = list(names)
        self.progress = progress
        self.done: list[FinishedStep] = []
        self._clock = clock

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[StepRecord]:
        """Runs a step; one that raises is recorded as failed, or cancelled where its job was."""
        step = StepRecord(name)
        began = self._clock()
        number = self.names.index(name) + 1 if name in self.names else len(self.done) + 1
        self.progress.begin(number, max(len(self.names), number), name)
        try:
            yield step
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            why = error.message if isinstance(error, EdgekitError) else ""
            cancelled = isinstance(error, EdgekitError) and error.code == "job.cancelled"
            step.status = "cancelled" if cancelled else "failed"
            step.detail = "interrupted" if interrupted else why
            if step.doing:
                step.detail = f"{step.doing}: {step.detail}"
            raise
        finally:
            seconds = self._clock() - began
            self.done.append(FinishedStep(name, step.status, round(seconds, 3), step.detail))
            self.progress.end(name, step.status, seconds, step.detail)
