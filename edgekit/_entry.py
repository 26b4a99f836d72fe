"""The program's entry: an interrupt ends it quietly also while it starts and while it ends."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Runs the command line."""
    try:
        from edgekit.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # all is said and done: what is left to do is the interpreter's
        signal.signal(signal.SIGINT, signal.SIG_IGN)
