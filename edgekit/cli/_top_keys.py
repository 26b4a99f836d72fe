"""What a terminal tells while a page is live: a key that ends it with success, another size."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Keys", "Pressed", "Resized"]


class Pressed(BaseException):
    """The key was pressed; no library's ``except Exception`` takes it for an error of its own."""


class Keys:
    """While the block lasts, a press of ``key`` raises ``Pressed`` in the main thread, once.

    Where stdin is no terminal, or the system has no termios, no key is looked for.
    """

    def __init__(self, key: str) -> None:
        self._key = key.encode("ascii")
        self._before: list[Any] | None = None
        self._handler: Any = None
        self._end, self._told = -1, -1
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Keys:
        try:
            import termios
            import tty

            descriptor = sys.stdin.fileno()
            if not os.isatty(descriptor):
                return self
            self._before = termios.tcgetattr(descriptor)
            tty.setcbreak(descriptor)  # Ctrl-C stays a signal
        except (ImportError, OSError, ValueError):
            return self
        self._handler = signal.signal(signal.SIGUSR1, _raise)
        self._end, self._told = os.pipe()
        self._thread = threading.Thread(target=self._wait, args=(descriptor,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is None:
            return
        if self._thread is not None:
            os.close(self._told)
            self._thread.join()
            os.close(self._end)
        signal.signal(signal.SIGUSR1, self._handler)
        self.rest()

    def rest(self) -> None:
        """Makes the terminal again what it was before the block."""
        if self._before is not None:
            import termios

            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    def resume(self) -> None:
        """Undoes ``rest``."""
        if self._before is not None:
            import tty

            tty.setcbreak(sys.stdin.fileno())

    def _wait(self, descriptor: int) -> None:
        while True:
            ready = select.select([descriptor, self._end], [], [])[0]
            if self._end in ready:
                return
            typed = os.read(descriptor, 64)
            if not typed:
                return
            if self._key in typed:
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGUSR1)
                return


class Resized:
    """While the block lasts, another size of the terminal calls ``draw`` in the main thread.

    Args:
        draw: Draws the page again. It is not called while another drawing ``waits()``.
    """

    def __init__(self, draw: Callable[[], None]) -> None:
        self._draw = draw
        self._handler: Any = None
        self._busy = False
        self._pending: list[Callable[[], None]] = []

    def __enter__(self) -> Resized:
        if hasattr(signal, "SIGWINCH"):
            self._handler = signal.signal(signal.SIGWINCH, self._changed)
        return self

    def __exit__(self, *exc: object) -> None:
        if hasattr(signal, "SIGWINCH"):
            signal.signal(signal.SIGWINCH, self._handler)

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Lets a change that comes within the block wait for its end: drawing is not reentrant."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        pending, self._pending = self._pending, []
        for call in pending:
            self.soon(call)

    def soon(self, call: Callable[[], None]) -> None:
        """Calls a function that draws, now or after what is being drawn."""
        if not self._busy:
            with self.waits():
                call()
        elif call not in self._pending:
            self._pending.append(call)

    def _changed(self, number: int, frame: object) -> None:
        self.soon(self._draw)


def _raise(number: int, frame: object) -> None:
    raise Pressed
