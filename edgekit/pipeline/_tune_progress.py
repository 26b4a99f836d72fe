"""How a tuning tells of itself: a line for each thing done, and one where it is long at one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from edgekit.pipeline._progress import Progress

__all__ = ["Pulse"]

SILENT_S = 4.0


class Pulse:
    """The progress of trials; a context manager, in which no more than seconds pass in silence.

    Args:
        say: Prints a line.
        inner: Is told every step, too; None: steps are named only where they are long.
        clock: Seconds.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        inner: Progress | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._inner, self._clock = say, inner, clock
        self._what, self._step, self._more = "the configuration's plan", "", ""
        self._last = self._since = clock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tune-pulse", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SILENT_S / 4):
            self.beat()

    def beat(self) -> None:
        """Says what is going on if nothing was said for long."""
        now = self._clock()
        if now - self._last < SILENT_S:
            return
        doing = " ".join(word for word in (self._step, self._more) if word)
        self._line(f"{self._what}{': ' if doing else ''}{doing}, {now - self._since:.0f} s")

    def tell(self, text: str) -> None:
        """Says what the tuning does now."""
        self._what, self._step, self._more = text.partition(": ")[0], "", ""
        self._since = self._clock()
        self._line(text)

    def begin(self, number: int, total: int, name: str) -> None:
        """A step of a trial begins."""
        self._step, self._more = name, ""
        if self._inner is not None:
            self._inner.begin(number, total, name)

    def update(self, done: float, total: float, text: str = "", *, at: float | None = None) -> None:
        """Part of it is done."""
        self._more = f"{text} {min(1.0, done / total):.0%}".strip() if total > 0 else text
        if self._inner is not None:
            self._inner.update(done, total, text, at=at)

    def end(self, name: str, status: str, seconds: float, detail: str) -> None:
        """A step ended."""
        self._step = self._more = ""
        if self._inner is not None:
            self._inner.end(name, status, seconds, detail)

    def note(self, text: str) -> None:
        """What a trial's step notes is of interest with the other steps only."""
        if self._inner is not None:
            self._inner.note(text)

    def detail(self, text: str) -> None:
        """As ``note``."""
        if self._inner is not None:
            self._inner.detail(text)

    def _line(self, text: str) -> None:
        self._last = self._clock()
        self._say(text)
