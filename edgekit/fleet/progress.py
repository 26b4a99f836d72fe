"""How a rollout reports on stderr: live lines on a terminal, plain ones elsewhere."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rich.live import Live
from rich.text import Text

from edgekit.text import counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_SHOWN = 8  # boards in trouble on a terminal


class RolloutReporter(Protocol):
    """What a rollout reports to."""

    def wave(self, number: int, total: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """A wave begins or goes on."""

    def back(self, wave: int | None, total: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Boards of one wave, or of all of them, are about to be taken back."""

    def board(self, name: str, state: str, error: Mapping[str, Any] | None = None) -> None:
        """A board is in another state."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def close(self) -> None:
        """Nothing more comes."""


class SilentReporter:
    """Reports nothing."""

    def wave(self, number: int, total: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Does nothing."""

    def back(self, wave: int | None, total: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Does nothing."""

    def board(self, name: str, state: str, error: Mapping[str, Any] | None = None) -> None:
        """Does nothing."""

    def note(self, text: str) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class ConsoleReporter:
    """Reports to a rich console: a line a wave that is updated, failed boards below."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._verbose = verbose
        self._live: Live | None = None
        self._title, self._goal = "", "done"
        self._states: dict[str, str] = {}
        self._trouble: dict[str, str] = {}
        self._lock = threading.Lock()

    def wave(self, number: int, total: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Prints the wave before it and begins the line of this one."""
        self._begin(f"wave {number + 1}/{total}", "done", rows)

    def back(self, wave: int | None, total: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Prints the wave before it and begins the line of what goes back."""
        which = "" if wave is None else f" wave {wave + 1}/{total}"
        self._begin(f"rolling back{which}", "rolled-back", rows)

    def _begin(self, title: str, goal: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self._end()
        self._title, self._goal = title, goal
        self._states = {str(row["name"]): str(row["state"]) for row in rows}
        self._trouble = {}
        if not self._states:
            self._print(f"{title}: no board")
            self._title = ""
        elif self._console.is_terminal and self._console.color_system:
            self._live = Live(self._shown(), console=self._console, transient=True)
            self._live.start()
        else:
            self._print(f"{self._title}: {counted(len(self._states), 'board')}")

    def board(self, name: str, state: str, error: Mapping[str, Any] | None = None) -> None:
        """Counts a board; one in trouble gets a line with its reason."""
        with self._lock:
            old = self._states.get(name)
            self._states[name] = state
            why = str(error["message"]) if error else ""
            news = old != state and state in ("failed", "offline", "rolled-back", "skipped")
            if error:
                self._trouble[name] = f"{name}: {state}: {why}"
            else:
                self._trouble.pop(name, None)
        if self._live is not None:
            self._live.update(self._shown())
        elif news or (self._verbose and old != state):
            self._print(f"{self._title}: {name}: {state}" + (f": {why}" if why else ""))

    def note(self, text: str) -> None:
        """Prints a line."""
        self._print(text)

    def close(self) -> None:
        """Prints the last wave."""
        self._end()

    def _end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._title:
            self._print(self._line())
            for text in self._trouble.values() if self._console.is_terminal else ():
                self._print(f"  {text}")
            self._title = ""

    def _line(self) -> str:
        counts = Counter(self._states.values())
        text = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        reached = f"{counts[self._goal]} of {len(self._states)} {self._goal}"
        return f"{self._title}: {reached} ({text})"

    def _shown(self) -> RenderableType:
        lines = [self._line(), *list(self._trouble.values())[-_SHOWN:]]
        return Text("\n  ".join(lines), no_wrap=True, overflow="ellipsis")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)
