"""What tells whether written files are still the ones that were written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["file_stamps"]


def file_stamps(paths: Iterable[Path]) -> list[list[int]] | None:
    """Returns size and time of every file, None when one of them is not there."""
    try:
        stats = [path.stat() for path in paths]
    except OSError:
        return None
    return [[stat.st_size, stat.st_mtime_ns] for stat in stats]
