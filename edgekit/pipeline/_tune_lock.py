"""One tuning of a folder at a time: a flock, which the system lets go of when the process dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from edgekit.errors import UsageError

__all__ = ["alone_in"]

NAME = "lock"
_MOST = 200


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Holds a folder for this process: its journal and its application on the board are one's.

    Raises:
        UsageError: "tune.busy": another process tunes there, and which.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / NAME).open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            who = file.read(_MOST).decode("utf-8", "replace").strip() or "another process"
            raise UsageError(
                f"{who} tunes in this folder", code="tune.busy", where=str(folder),
                hint="wait for it, or give this one a folder of its own with --out",
            ) from error  # fmt: skip
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        file.flush()
        yield
