"""tegrastats as a child process, read line by line, and how it surely ends.

Nobody else's tegrastats is touched: ``tegrastats --stop`` ends all of them, so it is never called.
Ours is ended by a signal; one that sudo started is root's, takes no signal of ours, and ends at its
next line because nobody reads its pipe any more (SIGPIPE). That holds as well where the reader was
killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import List, NamedTuple, Optional

from ._probe_files import text_of

__all__ = ["Command", "Tegrastats", "find_commands"]

_ALLOWED = re.compile(r"NOPASSWD: (/\S+/tegrastats) --interval (\d{1,6})$", re.MULTILINE)
_LONGEST_LINE = 1 << 16
_GRACE_S = 1.0


class Command(NamedTuple):
    """A way to start tegrastats: its words, the interval they ask for, whether root runs it."""

    words: List[str]
    interval_ms: int
    root: bool


def find_commands(interval_ms: int, root: Path) -> List[Command]:
    """The ways in which this account may start tegrastats, the one that sees most first.

    Args:
        interval_ms: What is wished; through sudo only the rates that setup allowed can be had.
        root: ROOT, whose setup.json says what ``doctor --setup`` allowed.
    """
    here = shutil.which("tegrastats")
    if here is None:
        return []
    plain = [here, "--interval", str(interval_ms)]
    if os.geteuid() == 0:
        return [Command(plain, interval_ms, True)]
    found = []
    try:
        record = json.loads(text_of(root / "setup.json"))
        sudoers = str(record.get("sudoers", "")) if isinstance(record, dict) else ""
    except ValueError:
        sudoers = ""
    rates = {int(rate): path for path, rate in _ALLOWED.findall(sudoers)}
    if rates and shutil.which("sudo"):
        # the slowest that is quick enough; lines in between are left out
        rate = max((rate for rate in rates if rate <= interval_ms), default=min(rates))
        words = ["sudo", "-n", rates[rate], "--interval", str(rate)]
        found.append(Command(words, rate, True))
    return [*found, Command(plain, interval_ms, False)]


class Tegrastats:
    """One running tegrastats; ``descriptor`` is readable when it has said something."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self._rest = b""
        self._process = subprocess.Popen(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.descriptor = self._process.stdout.fileno()

    def lines(self) -> Optional[List[str]]:
        """The lines that are whole by now; None when it has ended. Waits if there is nothing."""
        data = os.read(self.descriptor, 1 << 16)
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_LONGEST_LINE:]
        return [line.decode("utf-8", "replace") for line in whole if line.strip()]

    def close(self) -> None:
        """Ends it and waits for it, so that it leaves no zombie."""
        process = self._process
        assert process.stdout is not None
        process.stdout.close()
        # root's ends at its next line
        patience = _GRACE_S + (self.command.interval_ms / 1e3 if self.command.root else 0.0)
        for end in (process.terminate, process.kill):
            with suppress(OSError):  # root's: EPERM
                end()
            try:
                process.wait(patience)
                return
            except subprocess.TimeoutExpired:
                continue
