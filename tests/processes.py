"""The processes of this machine by their command lines: suites beside this one have boards too."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["processes"]


def processes(*words: str | Path) -> dict[int, list[str]]:
    """Command lines, by process id, of all that have each of these words in theirs.

    Whoever kills what it finds names its board's folder too: a job's id is made of its request, so
    another test's board may run a job of the same id.
    """
    found = {}
    wanted = {os.fspath(word) for word in words}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = os.fsdecode(path.read_bytes()).split("\0")
        except OSError:
            continue  # it has ended
        if wanted <= set(line):
            found[int(path.parent.name)] = line
    return found
