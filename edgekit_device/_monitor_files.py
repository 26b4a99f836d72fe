"""Small files of /sys and /proc that are read again and again: opened once, read from the start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from ._probe_files import text_of

__all__ = ["Watched", "watched", "whole", "word_of"]

_MOST = 1 << 16
_MOST_DIGITS = 18


class Watched:
    """An open file of a driver or of the kernel; what cannot be read now is None, never an error.

    A sensor of a part without power answers EAGAIN or EIO and reads again later.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def text(self, most: int = 256) -> Optional[str]:
        """What stands in it now."""
        try:
            return os.pread(self._descriptor, most, 0).decode("ascii", "replace").strip()
        except OSError:
            return None

    def number(self) -> Optional[int]:
        """The whole number that stands in it now."""
        return whole(self.text())


def watched(path: Path) -> Optional[Watched]:
    """The file, open; None where it is not there or not for this account."""
    try:
        # never closed but with the process: what samples is a process of its own
        return Watched(os.open(str(path), os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return None


def word_of(path: Path) -> str:
    """A file of one word, read once; "" when it cannot be read."""
    return text_of(path, _MOST).strip().strip("\0")


def whole(text: Optional[str]) -> Optional[int]:
    """The whole number that a text is; None where it is none."""
    if not text or len(text) > _MOST_DIGITS or not text.lstrip("-").isdigit():
        return None
    try:
        return int(text)
    except ValueError:
        return None  # "--1", or digits of another script
