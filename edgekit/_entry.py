"""The program's entry: an interrupt ends it quietly also while it starts and while it ends."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

__all__ = ["main"]


INTERRUPTED = 130


def main() -> NoReturn:
    """Runs the command line."""
    status: object = INTERRUPTED
    try:
        from edgekit.cli import main as run

        run()
    except KeyboardInterrupt:
        pass
    except SystemExit as end:
        status = end.code
    # all is said and done: what is left to do is the interpreter's
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if status == INTERRUPTED:
        _forget_interrupt()
    sys.exit(status)  # type: ignore[arg-type]


def _forget_interrupt() -> None:
    # an interrupt that came through an extension's own exec leaves a mark in CPython, which then
    # ends the process by SIGINT whatever its status is; running any code clears the mark
    import ctypes

    ctypes.pythonapi.PyRun_SimpleString(b"pass")
