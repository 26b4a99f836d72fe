"""The server's log: lines on standard error, which a file that grows too long begins anew."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time

__all__ = ["Log"]

_MOST = 4 << 20


class Log:
    """Writes lines with the time; a journal adds its own."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._stamped = "JOURNAL_STREAM" not in os.environ

    def say(self, text: str) -> None:
        """Writes one line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) if self._stamped else ""
        # requests bring some of it, and terminals show journals
        line = "".join(
            char if char.isprintable() else "\\u{:04x}".format(ord(char))
            for char in " ".join(text.splitlines())
        )
        with contextlib.suppress(OSError, ValueError):
            facts = os.fstat(2)
            if stat.S_ISREG(facts.st_mode) and facts.st_size > _MOST:
                os.ftruncate(2, 0)
            print("{}serve {}: {}".format(stamp, self._app, line), file=sys.stderr, flush=True)
