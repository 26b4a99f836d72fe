"""The steps of a run with their times and states, and the interface that reports progress."""

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
    """Receives the progress of steps."""

    def begin(self, number: int, total: int, name: str) -> None:
        """Reports that a step begins."""

    def update(self, done: float, total: float, text: str = "", *, at: float | None = None) -> None:
        """Reports that a part of the step is done.

        ``at`` is the time of the event in seconds, on a board's clock: a board's news may be old.
        """

    def end(self, name: str, status: str, seconds: float, detail: str) -> None:
        """Reports that a step ended: "done", "reused", "failed", "cancelled" (the board's job was
        cancelled) or "left" (the board continues without this command).
        """

    def note(self, text: str) -> None:
        """Reports a note for the user."""

    def detail(self, text: str) -> None:
        """Reports details such as the time of parts, shown on request (-v)."""


class SilentProgress:
    """A progress that ignores all events."""

    def begin(self, number: int, total: int, name: str) -> None:
        """Ignores the event."""

    def update(self, done: float, total: float, text: str = "", *, at: float | None = None) -> None:
        """Ignores the event."""

    def end(self, name: str, status: str, seconds: float, detail: str) -> None:
        """Ignores the event."""

    def note(self, text: str) -> None:
        """Ignores the event."""

    def detail(self, text: str) -> None:
        """Ignores the event."""


def bound_text(value: float, bound: float, shown: Callable[[float], str] = "{:.6g}".format) -> str:
    """Returns the progress of a search in words: the best value found and the proven bound."""
    proven = f"bound {shown(bound)}" if math.isfinite(bound) else "no bound yet"
    return f"best {shown(value) if math.isfinite(value) else 'none'}, {proven}"


@dataclass
class StepRecord:
    """A step while it runs.

    Attributes:
        doing: The current work, for the detail of a failure; empty if the step's name suffices.
    """

    name: str
    status: str = "done"
    detail: str = ""
    doing: str = ""

    def reuse(self, detail: str = "") -> None:
        """Marks the step as reused: its result was cached."""
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
        """Runs a step; records it as failed if it raises, or as cancelled if its job was."""
        step = StepRecord(name)
        began = self._clock()
        number = self.names.index(name) + 1 if name in self.names else len(self.done) + 1
        self.progress.begin(number, max(len(self.names), number), name)
        try:
            yield step
        except BaseException as error:
            # also KeyboardInterrupt: the record has the step that Ctrl-C ended
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
