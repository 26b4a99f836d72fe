"""The two links of an app, ``current`` and ``previous``, changed as one.

Two symlinks cannot be renamed at once, so what both shall be is written down first (links.json,
durable). Whoever takes the app's lock next finishes what a power cut left: the pair is the old one
or the new one, and ``current`` by itself changes by one rename.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Dict, Optional, Tuple

from ._checks import is_release
from ._files import fsync_folder, replace_link, write_durably

__all__ = ["LINKS", "finish_links", "intended", "set_links"]

LINKS = "links.json"

_FULL = (errno.ENOSPC, errno.EDQUOT)


def set_links(folder: Path, current: Optional[str], previous: Optional[str]) -> None:
    """Points ``current`` and ``previous`` at these releases; None removes a link.

    The app's lock is held by the caller.

    A disk that is full to the last byte does not keep it from that: then ``current`` comes first,
    and a power cut may leave ``previous`` as it was.

    Raises:
        OSError: The disk has no inode left or worse; the pair is finished by the lock's next
            holder where links.json could still be written.
    """
    wanted = {"current": current, "previous": previous}
    try:
        write_durably(folder / LINKS, json.dumps(wanted).encode("ascii"))
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _apply(folder, wanted, ("current", "previous"))
        return
    _apply(folder, wanted)


def finish_links(folder: Path) -> None:
    """Finishes a change that was cut off, and removes names that a cut has left behind."""
    for pattern in (".current.*", ".previous.*", "." + LINKS + ".*"):
        for left in folder.glob(pattern):
            left.unlink()
    wanted = intended(folder)
    if wanted is not None:
        _apply(folder, wanted)


def intended(folder: Path) -> Optional[Dict[str, Optional[str]]]:
    """The pair of a change that is not finished; None where there is none."""
    try:
        found = json.loads((folder / LINKS).read_bytes().decode("ascii"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or set(found) != {"current", "previous"}:
        return None
    if not all(name is None or is_release(name) for name in found.values()):
        return None
    return found


def _apply(
    folder: Path,
    wanted: Dict[str, Optional[str]],
    order: Tuple[str, str] = ("previous", "current"),
) -> None:
    for which in order:
        release = wanted[which]
        if release is None:
            with contextlib.suppress(FileNotFoundError):
                (folder / which).unlink()
        elif not _points(folder / which, release):
            replace_link(folder / which, "releases/" + release)
    fsync_folder(folder)
    with contextlib.suppress(FileNotFoundError):
        (folder / LINKS).unlink()
    fsync_folder(folder)


def _points(link: Path, release: str) -> bool:
    try:
        return os.readlink(str(link)) == "releases/" + release
    except OSError:
        return False
