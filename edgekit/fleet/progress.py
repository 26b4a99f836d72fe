"""A rollout's progress on stderr: lines, and on a terminal a live count of boards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.fleet.store import Row
    from edgekit_device.protocol.failure import Failure


class RolloutReporter:
    """Reports to a rich console; silent without a console."""

    def __init__(self, console: Console | None = None, *, verbose: bool = False) -> None:
        self._console = console or Console(quiet=True)
        self._verbose = verbose
        self._status = self._console.status("")
        self._title, self._goal = "", "done"
        self._states: dict[str, str] = {}

    def begin(self, title: str, goal: str, rows: Iterable[Row]) -> None:
        """Starts counting the boards of a wave or of a rollback.

        Args:
            title: The action on the boards.
            goal: The state that the boards should reach.
            rows: The boards.
        """
        self.end()
        self._title, self._goal = title, goal
        self._states = {row.name: row.state for row in rows}
        self.note(
            f"{title}: {counted(len(self._states), 'board') if self._states else 'no boards'}"
        )
        if not self._states:
            self._title = ""
        elif self._console.is_terminal:
            self._status.start()

    def board(self, name: str, state: str, error: Failure | None = None) -> None:
        """Counts a board; prints a line with the reason if it has an error."""
        old, self._states[name] = self._states.get(name), state
        trouble = state in ("failed", "offline", "rolled-back", "skipped")
        if old != state and (trouble or self._verbose):
            why = f": {error.message}" if error else ""
            self.note(f"{self._title}: {name}: {state}{why}")
        self._status.update(escape(self._line()))

    def note(self, text: str) -> None:
        """Prints a line."""
        self._console.print(text, markup=False, highlight=False)

    def end(self) -> None:
        """Prints the final counts, if counting was started."""
        self._status.stop()
        if self._title:
            self.note(self._line())
            self._title = ""

    def _line(self) -> str:
        counts = Counter(self._states.values())
        text = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
        reached = f"{counts[self._goal]} of {len(self._states)} {self._goal}"
        return f"{self._title}: {reached} ({text})"
