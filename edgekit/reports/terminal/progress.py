"""The progress of a run on stderr: numbered steps, with a spinner on a terminal, otherwise one line
per step.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.markup import escape

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


# before these seconds, parts and share, the time left is a guess
_SURE_S, _SURE_PARTS, _SURE_SHARE = 3.0, 2.0, 0.05


def _without_numbers(text: str) -> str:
    return re.sub(r"[\d.,]+", "", text)


class Terminal:
    """Reports to a rich console on stderr."""

    def __init__(
        self,
        console: Console,
        *,
        verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        # a spinner moves the cursor
        self._live = bool(console.is_terminal and console.color_system)
        self._verbose = verbose
        self._shown_name = ""  # the step's last reported work, with details
        self._clock = clock
        self._status: Status | None = None
        self._label = ""
        # the first update of a count: its clock, time, done, total
        self._first: tuple[bool, float, float, float] | None = None
        self._done = 0.0  # from the last update
        self._least = math.inf  # the shortest time left shown for this count

    def begin(self, number: int, total: int, name: str) -> None:
        """Shows the step's number and name, with a spinner on a terminal."""
        self._label = (
            f"[{number:>2}/{total}] {name}" if self._live else f"[{number}/{total}] {name}"
        )
        self._first = None
        self._shown_name = ""
        if self._live:
            self._status = self._console.status(self._text(""))
            self._status.start()

    def update(self, done: float, total: float, text: str = "", *, at: float | None = None) -> None:
        """Shows the share done and the time left with the spinner; without a spinner, no output.

        In verbose mode new work gets a line: texts of the same work differ in numbers only.
        """
        shown = text
        if total > 0:
            share = f"{100 * min(1.0, done / total):.0f} %"
            shown = f"{text} {share}{self._time_left(done, total, at)}".lstrip()
        news = self._verbose and bool(text) and _without_numbers(text) != self._shown_name
        self._shown_name = _without_numbers(text)
        if shown and news:
            self.note(shown)
        if shown and self._status is not None:
            self._status.update(self._text(shown))

    def end(self, name: str, status: str, seconds: float, detail: str) -> None:
        """Prints the step's line."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        took = "" if status == "reused" else f"{seconds:6.1f} s"
        mark = {"done": "", "failed": "FAILED"}.get(status, status)
        style = {"done": "", "failed": "bold red", "cancelled": "bold"}.get(status, "dim")
        if self._live:
            line = f"{self._label:<19} {took or mark:>8}  "
            line += detail if not took or not mark else f"{mark} {detail}"
        else:
            # no columns, so that a log can be searched
            words = filter(None, (mark, took.strip(), detail))
            line = f"{self._label}: {', '.join(words)}"
        self._label = ""  # further lines belong to no step until the next step begins
        self._console.print(line.rstrip(), style=style, markup=False, highlight=False)

    def note(self, text: str) -> None:
        """Prints a line below the current step; in a log it names the step."""
        if text:
            line = f"{'':<29} {text}" if self._live else f"{self._label}: {text}".removeprefix(": ")
            self._console.print(line, style="dim", markup=False, highlight=False)

    def detail(self, text: str) -> None:
        """Prints a line below the current step, in verbose mode only."""
        if self._verbose:
            self.note(text)

    def _time_left(self, done: float, total: float, at: float | None) -> str:
        """Returns the time left as text, from the progress since the first update of this count.

        It never rises: after slower parts it stays the same until it is correct again.
        """
        now = self._clock() if at is None else at
        # a caller's clock and ours have different zeros: the first field distinguishes them
        state = (at is None, now, done, total)
        first = self._first
        # a smaller number than before begins a new count
        if first is None or first[0] != state[0] or first[3] != total or done < self._done:
            first, self._least = state, math.inf
            self._first = first
        self._done = done
        spent, made = now - first[1], done - first[2]
        if spent < _SURE_S or made < min(_SURE_PARTS, total / 2) or made < _SURE_SHARE * total:
            return ""
        self._least = min(self._least, max(0.0, total - done) * spent / made)
        return f", {self._least:.0f} s left"

    def _text(self, more: str) -> str:
        return escape(f"{self._label} {more}")
