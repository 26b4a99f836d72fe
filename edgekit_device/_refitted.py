"""Full plans that a refit made, kept in their release so that later loads need no refit.

    releases/<id>/refitted/<engine's digest>.<flavour>.plan
    releases/<id>/refitted/<engine's digest>.<flavour>.json  {"schema","engine","plan","tensorrt"}

The record is written last, so that a plan without one was never finished.

No signature covers these files: they are this board's own. So one is taken only where nobody but
root, this user and the release's owner can have written it, and it never runs code of its own (it
is kept without the lean runtime, and host code stays forbidden). Whoever may write as the
release's owner may also replace the loader.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
from pathlib import Path
from typing import Optional, Set

from ._errors import map_os_errors
from ._files import write_durably
from ._store import Buffer, sha256

__all__ = ["keep", "kept"]

_FOLDER = "refitted"
_SCHEMA = "edgekit.refitted/1"
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_MAPPED_BYTES = 256 << 20  # from here on a plan is not copied to be hashed


def kept(release: Path, engine: str, tensorrt: str) -> Optional[Buffer]:
    """The full plan of an engine, hashed again; None where there is none that fits.

    Args:
        release: The release's folder.
        engine: The stripped engine's digest.
        tensorrt: Flavour and version of the module that would load it.
    """
    folder = release / _FOLDER
    try:
        owners = {0, os.geteuid(), release.stat().st_uid}
        if not _ours(os.lstat(str(folder)), owners):
            return None
        told = _read(folder / (_stem(engine, tensorrt) + ".json"), owners)
        plan = _read(folder / (_stem(engine, tensorrt) + ".plan"), owners)
        if told is None or plan is None:
            return None
        record = json.loads(bytes(told).decode("utf-8"))
    except (OSError, ValueError):
        return None
    wanted = {"schema": _SCHEMA, "engine": engine, "tensorrt": tensorrt, "plan": sha256(plan)}
    return plan if record == wanted else None


def keep(release: Path, engine: str, tensorrt: str, plan: bytes) -> None:
    """Writes a full plan into the release.

    Raises:
        DeviceError: "board.disk-full" and the like.
    """
    folder = release / _FOLDER
    stem = _stem(engine, tensorrt)
    record = {"schema": _SCHEMA, "engine": engine, "tensorrt": tensorrt, "plan": sha256(plan)}
    with map_os_errors(str(folder)):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)  # whatever the umask
        for name, data in (
            (stem + ".plan", plan),
            (stem + ".json", json.dumps(record).encode("utf-8")),
        ):
            write_durably(folder / name, data)
            (folder / name).chmod(0o644)


def _stem(engine: str, tensorrt: str) -> str:
    # one for each flavour; another version's is written over
    return "{}.{}".format(engine, tensorrt.partition(" ")[0])


def _read(path: Path, owners: Set[int]) -> Optional[Buffer]:
    """What lies there; None where others could have written it.

    Small ones are copied, so that what is hashed is what is used, whatever happens to the file.
    """
    handle = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or not _ours(facts, owners):
            return None
        if facts.st_size < _MAPPED_BYTES:
            return file.read()
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _ours(facts: os.stat_result, owners: Set[int]) -> bool:
    return facts.st_uid in owners and not facts.st_mode & _WRITABLE
