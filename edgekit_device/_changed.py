"""What becomes of a release when its board is no longer what it was tested on.

A JetPack upgrade brings another TensorRT, whose engines are others; an upgrade of ONNX Runtime may
round elsewhere. The board now is held against the fingerprint in the release's health.json (what
it was tested on) and, of TensorRT's engines, against the manifest's (what they were built on).

"refuse" says so (DeviceError "board.changed"). "rebuild" tests the release again where its engines
still run, and otherwise builds them again here from what travelled with the bundle (``_rebuilt``);
how that ended is remembered in ``retested.json``, until the board changes again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from ._changed_errors import refusal
from ._changed_errors import told as text_of
from ._errors import DeviceError
from ._fingerprint_now import COMPARED, fingerprint_now
from ._health_record import read_health
from ._release import check_release
from ._retested import compared, passed, read_outcome, remembering
from ._root import App, Root

if TYPE_CHECKING:
    from ._model import Model
    from ._verify import Checked

__all__ = ["changed_of", "changes", "settle"]

_BUILT = ("module", "l4t", "tensorrt")


def settle(
    checked: Checked, threads: int = 0, profile: Optional[Path] = None, *, untested: bool = False
) -> Optional[Model]:
    """Decides about a release before it is opened.

    Args:
        checked: A checked bundle; one that is no release was never tested here.
        threads: As for ``open_model``.
        profile: As for ``open_model``.
        untested: Whether it is about to be tested here, whatever it was tested on before.

    Returns:
        The model where it is another than the release's own engines, or was opened to be tested
        again; None where the release is to be opened as it is.

    Raises:
        DeviceError: "board.changed", with what changed, from what to what, and what to do.
    """
    release, root = checked.files.release, checked.files.root
    if release is None or root is None:
        return None
    manifest = checked.manifest
    health = read_health(release)
    may_build = manifest.rebuild is not None
    if health is None and not may_build:
        return None  # never examined here: the backend itself knows what it cannot run
    now = fingerprint_now(root.folder, manifest.backend, loads=True)
    other_engines = _built_elsewhere(checked, now)
    tested = {} if health is None or untested else dict(health.get("fingerprint") or {})
    found = changes(manifest.backend, tested, now)
    if not found and not other_engines:
        return None
    rebuilds = _wish(checked, health) == "rebuild"
    where = checked.files.where
    told = text_of(found or other_engines)
    if other_engines:
        if rebuilds and may_build:
            from ._rebuilt import open_rebuilt

            if not untested:
                passed(release, now, told, where)
            return remembering(
                release, now, told, where,
                lambda: open_rebuilt(checked, now, threads, profile, anew=untested),
            )  # fmt: skip
        if not found:
            return None  # the backend refuses them, and says on what they were built
        raise refusal(told, where, rebuilds)
    if not rebuilds:
        raise refusal(told, where, False)
    if passed(release, now, told, where):
        return None
    return remembering(release, now, told, where, lambda: _tested(checked, threads, profile))


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
        "release", "changes" (``changes``), "on_change", and "state": "refused", "pending" (the
        next load tests or builds it again), "passed" or "failed" (it did).
    """
    current = app.link("current")
    if current is None:
        return None
    folder = app.releases_folder / current
    health = read_health(folder)
    if health is None:
        return None
    backend = str(health.get("backend"))
    now = fingerprint_now(root.folder, backend)
    found = changes(backend, dict(health.get("fingerprint") or {}), now)
    if not found:
        return None
    try:
        wish = _wish(check_release(root, folder), health)
    except DeviceError:
        wish = "refuse"  # nothing that fails its own checks is tested or built again
    state = "pending" if wish == "rebuild" else "refused"
    outcome = read_outcome(folder)
    if wish == "rebuild" and outcome.get("now") == compared(backend, now):
        state = "passed" if outcome.get("ok") is True else "failed"
    return {"release": current, "changes": found, "on_change": wish, "state": state}


def _wish(checked: Checked, health: Optional[Mapping[str, Any]]) -> str:
    """What the deployment wanted, or else what the bundle says."""
    said = None if health is None else health.get("on_change")
    requires = checked.manifest.requires
    return str(said or (requires.on_change if requires is not None else "refuse"))


def _built_elsewhere(checked: Checked, now: Mapping[str, str]) -> List[Dict[str, str]]:
    """Why TensorRT's engines do not run here; empty where they may."""
    manifest = checked.manifest
    entries = manifest.engines.values()
    if not entries or all(e.version_compatible and e.dla_core is None for e in entries):
        return []
    built = dict(manifest.document["fingerprint"])
    found = changes(manifest.backend, built, now)
    return [one for one in found if one["what"] in _BUILT]


def _tested(checked: Checked, threads: int, profile: Optional[Path]) -> Model:
    """Opens the release's own engines and runs all that the bundle has to test them with."""
    from ._golden import need_golden
    from ._health_accuracy import need_accuracy
    from ._model import open_backend

    model = open_backend(checked, threads, profile)
    need_golden(model, checked, checked.files.where)
    need_accuracy(model, checked, None, checked.files.where)
    return model


def _same_release(name: str, before: str, here: str) -> bool:
    """Versions of which one is told to more parts ("10.3.0" and "10.3.0.30")."""
    if name not in ("tensorrt", "runtime_version"):
        return False
    first, second = before.split("."), here.split(".")
    known = min(len(first), len(second))
    return known >= 3 and first[:known] == second[:known]
