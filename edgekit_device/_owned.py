"""Files of a release that no signature covers: whose they must be to be believed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Optional, Set

from ._store import Buffer, map_handle

__all__ = ["is_owned", "owners_of", "read_owned"]

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_MAPPED_BYTES = 256 << 20  # from here on a file is not copied to be hashed


def owners_of(release: Path) -> Set[int]:
    """Who may have written such files: root, this user and the release's owner."""
    return {0, os.geteuid(), release.stat().st_uid}


def is_owned(facts: os.stat_result, owners: Set[int]) -> bool:
    """Whether nobody else can have written what these facts are of."""
    return facts.st_uid in owners and not facts.st_mode & _WRITABLE


def read_owned(path: Path, owners: Set[int]) -> Optional[Buffer]:
    """What lies there; None where others could have written it.

    Small ones are copied, so that what is hashed is what is used, whatever happens to the file.

    Raises:
        OSError: It cannot be read, or is a link.
    """
    handle = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or not is_owned(facts, owners):
            return None
        if facts.st_size < _MAPPED_BYTES:
            return file.read()
        return map_handle(file.fileno())
