"""Ctrl-Z while a page is live: the terminal is given back, and taken again when it goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

__all__ = ["Stopped"]


class Stopped:
    """While the block lasts, Ctrl-Z stops the program as it stops others.

    Args:
        soon: Calls a function when nothing is being drawn.
        leave: Gives the terminal back.
        back: Takes it again and draws.
    """

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], None],
        leave: Callable[[], object],
        back: Callable[[], object],
    ) -> None:
        self._soon = soon
        self._leave = leave
        self._back = back
        self._handler: Any = None

    def __enter__(self) -> Stopped:
        # a shell without jobs has it ignored: nobody could bring the program back
        if hasattr(signal, "SIGTSTP") and signal.getsignal(signal.SIGTSTP) != signal.SIG_IGN:
            self._handler = signal.signal(signal.SIGTSTP, self._asked)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGTSTP, self._handler)

    def _asked(self, number: int, frame: object) -> None:
        self._soon(self._stop)

    def _stop(self) -> None:
        self._leave()
        # unlike SIGTSTP's default, it also stops a program whose shell is gone
        os.kill(os.getpid(), signal.SIGSTOP)
        self._back()
