"""How it ended when a release was tested again, or built again, on a board that has changed.

    releases/<id>/retested.json  {"schema", "at", "now", "ok", "error"}

It holds until the board changes again, so that a load does not try in vain what failed, nor test
again what passed. A redeployment tries anew.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping

from ._changed_errors import failed
from ._errors import DeviceError
from ._files import write_durably
from ._fingerprint_now import COMPARED
from ._owned import owners_of, read_owned
from ._release import to_bytes

if TYPE_CHECKING:
    from ._model import Model

__all__ = ["compared", "passed", "read_outcome", "remembering"]

RETESTED = "retested.json"
_SCHEMA = "edgekit.retested/1"
# errors of the moment, by what stands before their dot, and by their codes
_PASSING = ("board", "job", "blob", "cuda")
_NO_MEMORY = ("tensorrt.no-memory", "build.no-memory")


def passed(release: Path, now: Mapping[str, str], told: str, where: str) -> bool:
    """Whether it was tested on this very board already and passed.

    Raises:
        DeviceError: "board.changed": it was, and failed.
    """
    known = read_outcome(release)
    if known.get("now") != compared(_backend_of(now), now):
        return False
    if known.get("ok") is not True:
        raise failed(told, where, known.get("error") or {})
    return True


def _lasting(error: DeviceError) -> bool:
    """Whether the same would happen again: not what a full disk or a killed job does."""
    return error.code.split(".")[0] not in _PASSING and error.code not in _NO_MEMORY


def _backend_of(now: Mapping[str, str]) -> str:
    return str(now.get("backend"))


def compared(backend: str, now: Mapping[str, str]) -> Dict[str, str]:
    """What of a board's fingerprint counts for a backend's releases."""
    return {name: now.get(name) or "" for name in COMPARED.get(backend, ())}


def read_outcome(release: Path) -> Dict[str, Any]:
    """How it ended last; empty where there was nothing, or others could have written it."""
    try:
        data = read_owned(release / RETESTED, owners_of(release))
        found = None if data is None else json.loads(bytes(data).decode("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("schema") == _SCHEMA else {}


def write_outcome(release: Path, document: Dict[str, Any]) -> None:
    """Keeps how it ended."""
    # who may not write there tests it at each load
    with contextlib.suppress(OSError, DeviceError):
        write_durably(release / RETESTED, to_bytes(document))
        (release / RETESTED).chmod(0o600)


def remembering(
    release: Path, now: Mapping[str, str], told: str, where: str, work: Callable[[], Model]
) -> Model:
    """Does it, and keeps how it ended, so that no load tries again in vain."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    document: Dict[str, Any] = {"schema": _SCHEMA, "at": stamp, "error": None, "ok": True}
    document["now"] = compared(_backend_of(now), now)
    try:
        model = work()
    except DeviceError as error:
        if not _lasting(error):
            raise
        document.update(ok=False, error=error.to_json()["error"])
        write_outcome(release, document)
        raise failed(told, where, document["error"]) from error
    known = read_outcome(release)
    if (known.get("now"), known.get("ok")) != (document["now"], True):
        write_outcome(release, document)
    return model
