"""Handling of SIGINT, SIGTERM and SIGHUP inside a block."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def handle_interrupts(
    handler: Callable[[int, FrameType | None], object],
) -> Iterator[Callable[[], None]]:
    """Handles SIGINT, SIGTERM and SIGHUP by ``handler`` inside the block.

    Yields a function that restores the former handlers earlier and may be called repeatedly. In
    other threads than the main one nothing changes: Python sets handlers in the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    former = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, before in former.items():
            signal.signal(number, before)

    for number in _SIGNALS:
        signal.signal(number, handler)
    try:
        yield restore
    finally:
        restore()
