"""Full plans that a refit made, kept in their release so that later loads need no refit.

    releases/<id>/refitted/<engine's digest>.plan
    releases/<id>/refitted/<engine's digest>.json   {"schema", "engine", "plan", "tensorrt"}

The record is written last, so that a plan without one was never finished.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

from ._errors import map_os_errors
from ._files import write_durably
from ._store import map_file, sha256

__all__ = ["keep", "kept"]

_FOLDER = "refitted"
_SCHEMA = "edgekit.refitted/1"


def kept(release: Optional[Path], engine: str, tensorrt: str) -> Optional[memoryview]:
    """The full plan of an engine, hashed again; None where there is none that fits.

    Args:
        release: The release's folder, None for a bundle that is no release.
        engine: The stripped engine's digest.
        tensorrt: Version of the module that would load it.
    """
    if release is None:
        return None
    folder = release / _FOLDER
    try:
        record = json.loads((folder / (engine + ".json")).read_text(encoding="utf-8"))
        plan = map_file(folder / (engine + ".plan"))
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
    record = {"schema": _SCHEMA, "engine": engine, "tensorrt": tensorrt, "plan": sha256(plan)}
    with map_os_errors(str(folder)):
        folder.mkdir(exist_ok=True)
        write_durably(folder / (engine + ".plan"), plan)
        write_durably(folder / (engine + ".json"), json.dumps(record).encode("utf-8"))
