"""Room that a deployment keeps while its release is on trial, so that it can always go back.

Going back takes a journal, a note of the links and a link: on a disk without a byte or an inode
left none of them could be written. What is given up first is made before the switch.
"""

from __future__ import annotations

import contextlib
import os

from ._errors import map_os_errors
from ._root import App

__all__ = ["free_reserve", "keep_reserve"]

# as many files as are new at once while links change, and more than each of them holds
_NAMES = ("reserve.0", "reserve.1", "reserve.2")
_BYTES = 64 * 1024


def keep_reserve(app: App) -> None:
    """Takes the room.

    Raises:
        DeviceError: "board.disk-full": then nothing should be switched.
    """
    for name in _NAMES:
        path = str(app.folder / name)
        with map_os_errors(path):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(handle, 0, _BYTES)
            finally:
                os.close(handle)


def free_reserve(app: App, files: int = len(_NAMES)) -> None:
    """Gives ``files`` files' room back, where it was taken; one is enough for a journal."""
    for name in _NAMES[-files:]:
        with contextlib.suppress(OSError):
            (app.folder / name).unlink()
