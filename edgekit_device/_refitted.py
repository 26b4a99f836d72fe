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
import os
from pathlib import Path
from typing import Optional

from ._errors import map_os_errors
from ._files import write_durably
from ._owned import is_owned, owners_of, read_owned
from ._store import Buffer, sha256

__all__ = ["keep", "kept"]

_FOLDER = "refitted"
_SCHEMA = "edgekit.refitted/1"


def kept(release: Path, engine: str, tensorrt: str) -> Optional[Buffer]:
    """The full plan of an engine, hashed again; None where there is none that fits.

    Args:
        release: The release's folder.
        engine: The stripped engine's digest.
        tensorrt: Flavour and version of the module that would load it.
    """
    folder = release / _FOLDER
    try:
        owners = owners_of(release)
        if not is_owned(os.lstat(str(folder)), owners):
            return None
        told = read_owned(folder / (_stem(engine, tensorrt) + ".json"), owners)
        plan = read_owned(folder / (_stem(engine, tensorrt) + ".plan"), owners)
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
        folder.chmod(0o700)  # whatever the umask
        for name, data in (
            (stem + ".plan", plan),
            (stem + ".json", json.dumps(record).encode("utf-8")),
        ):
            write_durably(folder / name, data)
            (folder / name).chmod(0o600)


def _stem(engine: str, tensorrt: str) -> str:
    # one for each flavour; another version's is written over
    return "{}.{}".format(engine, tensorrt.partition(" ")[0])
