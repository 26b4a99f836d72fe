"""Is the board still what a release was tested on?

A JetPack upgrade brings another TensorRT, whose engines are others; an upgrade of ONNX Runtime may
round elsewhere. The board now is compared with the fingerprint in the release's health.json, which
is what it was tested on. A release that was tested on something else is not loaded until it is
deployed again, which builds and tests for the board as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from ._errors import DeviceError
from ._fingerprint_now import COMPARED, fingerprint_now
from ._health_record import read_health
from ._root import App, Root

if TYPE_CHECKING:
    from ._verify import Checked

__all__ = ["changed_of", "changes", "need_unchanged"]


def need_unchanged(checked: Checked) -> None:
    """Refuses a release whose board is no longer what it was tested on.

    Args:
        checked: A checked bundle; one that was never tested here is not refused, since the backend
            itself says what it cannot run.

    Raises:
        DeviceError: "board.changed", with what changed, from what to what, and the command that
            mends it.
    """
    release, root = checked.files.release, checked.files.root
    health = None if release is None else read_health(release)
    if health is None or root is None:
        return
    backend = checked.manifest.backend
    now = fingerprint_now(root.folder, backend, loads=True)
    found = changes(backend, dict(health.get("fingerprint") or {}), now)
    if found:
        raise DeviceError(
            "this board is no longer what the release was tested on: "
            + "; ".join("{what} {from} -> {to}".format(**one) for one in found),
            code="board.changed",
            where=checked.files.where,
            hint="run edgekit deploy CONFIG: it builds and tests for the board as it is now",
        )


def changes(
    backend: str, tested: Mapping[str, str], now: Mapping[str, str]
) -> List[Dict[str, str]]:
    """What differs, as "what", "from" and "to"; what either side does not know is left out."""
    found = []
    for name in COMPARED.get(backend, ()):
        before, here = tested.get(name) or "", now.get(name) or ""
        if before and here and before != here and not _same_release(name, before, here):
            found.append({"what": name, "from": before[:80], "to": here[:80]})
    return found


def changed_of(root: Root, app: App) -> Optional[Dict[str, Any]]:
    """What ``status`` says of an app's current release; None where the board is as it was.

    Loads neither the release nor a runtime.

    Returns:
        "release", and "changes" as ``changes`` returns them.
    """
    current = app.link("current")
    health = None if current is None else read_health(app.releases_folder / current)
    if health is None:
        return None
    backend = str(health.get("backend"))
    now = fingerprint_now(root.folder, backend)
    found = changes(backend, dict(health.get("fingerprint") or {}), now)
    return {"release": current, "changes": found} if found else None


def _same_release(name: str, before: str, here: str) -> bool:
    """Versions of which one is told to more parts ("10.3.0" and "10.3.0.30")."""
    if name not in ("tensorrt", "runtime_version"):
        return False
    first, second = before.split("."), here.split(".")
    known = min(len(first), len(second))
    return known >= 3 and first[:known] == second[:known]
