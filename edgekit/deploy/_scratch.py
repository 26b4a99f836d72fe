"""A private folder among the machine's temporary ones, that outlives its process only for a while.

Whoever lives holds a lock on its folder, so one that can be locked belongs to nobody: the next that
makes one takes it away.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["scratch"]


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A new folder, gone when the block has ended; sweeps those that killed processes have left.

    Args:
        prefix: What their names begin with; nobody else's may.
    """
    with contextlib.suppress(OSError):
        _sweep(prefix)
    while True:
        folder = tempfile.mkdtemp(prefix=prefix)
        handle = _claimed(folder)
        if handle is not None:
            break
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _claimed(folder: str) -> int | None:
    """Its descriptor, locked; None where another process has swept it as it was being made."""
    try:
        handle = _open(folder)
    except FileNotFoundError:
        return None
    with contextlib.suppress(FileNotFoundError):
        if _locked(handle) and os.path.samestat(os.fstat(handle), os.stat(folder)):
            return handle
    os.close(handle)
    return None


def _sweep(prefix: str) -> None:
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix):
                continue
            with contextlib.suppress(OSError):
                handle = _open(entry.path)
                try:
                    if os.fstat(handle).st_uid == os.geteuid() and _locked(handle):
                        shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(handle)


def _open(folder: str) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
