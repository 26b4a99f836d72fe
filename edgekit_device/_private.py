"""Whose ROOT is, and who else can write there: nobody, or the loader does not work in it.

What is made is for its owner alone, whatever the account's umask. A ROOT that was there before is
left as it is if only its owner writes it. Its blobs may be a link to another disk; a link at any
other place would make of a name that was checked another folder than was checked.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ._errors import DeviceError, map_os_errors

__all__ = ["check_root", "make_private"]

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_FOLDERS = ("apps", "bin", "incoming", "jobs", "kernels", "partial", "timing", "tmp")


def make_private() -> None:
    """From now on this process and its children make files for their owner alone."""
    os.umask(0o077)


def check_root(folder: Path) -> None:
    """Refuses a ROOT that is another account's or that others can write; one may be missing.

    Raises:
        DeviceError: "root.owner", "root.writable" or "root.link".
    """
    with map_os_errors(str(folder)):
        try:
            facts = os.stat(str(folder))
        except FileNotFoundError:
            return
        if facts.st_uid not in (0, os.geteuid()) or (os.geteuid() == 0 and facts.st_uid != 0):
            raise DeviceError(
                "the folder belongs to the account with the number {}".format(facts.st_uid),
                code="root.owner",
                where=str(folder),
                hint="work as that account, use another --root, or: sudo chown -R {} {}".format(
                    os.geteuid(), folder
                ),
            )
        if facts.st_mode & _OTHERS:
            raise DeviceError(
                "other accounts can write to the folder (mode {:o})".format(facts.st_mode & 0o7777),
                code="root.writable",
                where=str(folder),
                hint="whoever writes there says what this board runs: chmod -R go-w {}".format(
                    folder
                ),
            )
        for name in _FOLDERS:
            if os.path.islink(str(folder / name)):
                raise DeviceError(
                    "a link stands where a folder of edgekit's should",
                    code="root.link",
                    where=str(folder / name),
                    hint="remove it; a whole ROOT may lie elsewhere (root: PATH), and so may blobs",
                )
