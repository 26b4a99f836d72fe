"""What a command without numbered steps is at, told on stderr while it is long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

__all__ = ["Beat"]

_SOON_S = 2.0  # a command that is done by then says nothing
_EVERY_S = 5.0  # between two lines, where no spinner turns


class Beat:
    """While the block lasts and is long: a spinner on a terminal, elsewhere a line now and then.

    Call it with what is done from now on. A thread tells it, for what takes long may be one call of
    a library; rich is imported by then only, and on a terminal only: it would cost a short command
    its start.

    Args:
        name: The command.
        quiet: Says nothing.
    """

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name, self._text = name, ""
        self._began = time.monotonic()
        self._end = threading.Event()
        self._thread = None if quiet else threading.Thread(target=self._tell, daemon=True)

    def __call__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> Beat:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _tell(self) -> None:
        if self._end.wait(_SOON_S):
            return
        if not sys.stderr.isatty():
            self.lines(self._end.wait)
            return
        from rich.text import Text

        from edgekit.cli._talk import console

        screen = console(stderr=True)
        if not (screen.is_terminal and screen.color_system):  # a spinner moves the cursor
            self.lines(self._end.wait)
            return
        with screen.status("") as status:
            while not self._end.is_set():
                # rich would read a text as markup
                status.update(Text(f"{self._name}: {self._text}".removesuffix(": ")))
                self._end.wait(0.2)

    def lines(self, wait: Callable[[float], bool]) -> None:
        """Prints lines until ``wait``, which is told the seconds, says that it is over."""
        over = False
        while not over:
            spent = time.monotonic() - self._began
            said = ", ".join(filter(None, (self._text, f"{spent:.0f} s")))
            print(f"{self._name}: {said}", file=sys.stderr, flush=True)
            over = wait(_EVERY_S)
