"""Blobs on their way: ``partial/<sha256>`` holds what has arrived, one channel writes it at a time.

What a cut leaves is kept and counts: the next transfer asks how much there is and goes on behind
it. Nothing is believed of it: the whole blob is hashed, the kept bytes too, before it gets its
name in the store.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import List, Tuple

from ._checks import is_digest
from ._errors import DeviceError, map_os_errors
from ._files import durable_folder

__all__ = ["Partial", "kept_bytes", "partials"]

# a channel that hears nothing ends before (``_receive``), so a living one is not waited for in vain
_WAIT_S = 60.0
_POLL_S = 0.02


def _folder(root: Path) -> Path:
    return root / "partial"


def kept_bytes(root: Path, digest: str) -> int:
    """How many bytes of the blob are kept under the installation's folder ``root``."""
    try:
        return os.stat(str(_folder(root) / digest)).st_size
    except FileNotFoundError:
        return 0


def partials(root: Path) -> List[Tuple[str, int, float]]:
    """Digest, bytes and time of the last write of every blob that is kept in part."""
    found = []
    folder = _folder(root)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_digest(path.name):
            try:
                facts = path.stat()
            except FileNotFoundError:
                continue  # it became whole just now
            found.append((path.name, facts.st_size, facts.st_mtime))
    return found


class Partial:
    """One blob's kept bytes, open and locked.

    Attributes:
        path: Where they lie.
        handle: The open file.
        size: Bytes kept when it was opened.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.handle = handle
        self.size = os.fstat(handle).st_size

    @classmethod
    def open(cls, root: Path, digest: str, wait_s: float = _WAIT_S) -> "Partial":
        """Opens the blob's part, empty where there is none; others wait until it is closed.

        Raises:
            DeviceError: "board.busy" when another channel holds it for longer than ``wait_s``.
        """
        path = _folder(root) / digest
        deadline = time.monotonic() + wait_s
        while True:
            with map_os_errors(str(path)):
                durable_folder(path.parent)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                handle = os.open(str(path), flags, 0o600)
            try:
                if _lock(handle, deadline, path):
                    return cls(path, handle)
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    def __enter__(self) -> "Partial":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets others at it; an empty part goes."""
        try:
            if _is(self.handle, self.path) and os.fstat(self.handle).st_size == 0:
                self.path.unlink()
        finally:
            os.close(self.handle)

    def drop(self) -> None:
        """Throws the bytes away."""
        self.path.unlink()


def _lock(handle: int, deadline: float, path: Path) -> bool:
    """Waits for the lock; False when the file is no longer the one of that name."""
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise DeviceError(
                    "another transfer is sending this blob",
                    code="board.busy",
                    where=path.name,
                    hint="wait for it to end, then try again",
                ) from error
            time.sleep(_POLL_S)
    # whoever held it may have finished the blob and given the file its name in the store
    return _is(handle, path)


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(str(path)))
    except FileNotFoundError:
        return False
