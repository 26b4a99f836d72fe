"""One driver a rollout: a flock, which the system lets go of when the driver dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edgekit.errors import UsageError
from edgekit.fleet._hints import ask

__all__ = ["driven", "is_driven"]

_TRIES, _MOMENT_S = 10, 0.02


def _path(folder: Path, id: int) -> Path:
    return folder / f"rollout-{id}.lock"


@contextlib.contextmanager
def driven(folder: Path, id: int, name: str) -> Iterator[None]:
    """Holds a rollout for this process.

    Raises:
        UsageError: "fleet.driven": another process drives it, and which.
    """
    with _path(folder, id).open("a+b") as file:
        if not _held(file):
            file.seek(0)
            who = file.read(200).decode("utf-8", "replace").strip() or "another process"
            raise UsageError(
                f"{name} is driven by {who} already",
                code="fleet.driven",
                where=name,
                hint=f"{ask('status', name, folder)} shows it; "
                f"{ask('pause', name, folder)} stops it",
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        file.flush()
        yield


def _held(file: IO[bytes]) -> bool:
    # whoever asks is_driven() holds it for a moment, too
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_MOMENT_S)
    return False


def is_driven(folder: Path, id: int) -> bool:
    """Whether some process drives the rollout now."""
    try:
        with _path(folder, id).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
