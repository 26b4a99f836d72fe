"""Is a release fit to serve on this board: golden vectors, accuracy and latency, and its record."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Union

from ._errors import DeviceError, map_os_errors
from ._files import write_durably
from ._golden import frame_of, need_golden
from ._health_latency import clock_of, measure_in_turns
from ._policy import read_policy
from ._release import check_release, is_ready, to_bytes
from ._root import App, Root

if TYPE_CHECKING:
    from ._model import Model
    from ._verify import Checked

__all__ = ["HEALTH", "SCHEMA", "examine", "read_health"]

HEALTH = "health.json"
SCHEMA = "edgekit.health/1"
_TRIES = 3


def examine(
    root: Root,
    app: Union[App, str],
    folder: Path,
    policy: Optional[Mapping[str, Any]],
    model: Optional[Model] = None,
) -> Dict[str, Any]:
    """Runs all that the policy asks of a release, and keeps the figures in its health.json.

    Args:
        root: The installation.
        app: The application.
        folder: The release's folder; it is ready.
        policy: See ``read_policy``; None for what a policy of nothing means.
        model: The release, where it is loaded already.

    Returns:
        ``edgekit.health/1`` (docs/health.md).

    Raises:
        DeviceError: "selftest.failed", "health.accuracy", "health.latency"; "policy.invalid",
            "release.not-ready"; whatever loading and running raise.
    """
    from ._fingerprint_now import fingerprint_now
    from ._model import open_model

    asked = read_policy(policy)
    app = root.app(app) if isinstance(app, str) else app
    where = "{}/{}".format(app.name, folder.name)
    if not is_ready(folder):
        raise DeviceError(
            "the release's weights were not checked yet",
            code="release.not-ready",
            where=where,
            hint="run refit first",
        )
    checked = check_release(root, folder)
    if model is None:
        model = open_model(checked)
    notes: List[str] = list(model.notes)
    golden = need_golden(model, checked, where)
    accuracy = None
    frame = frame_of(checked.manifest)
    latency, previous = _latency(root, app, folder, model, frame, asked, where, notes)
    document = {
        "schema": SCHEMA,
        "release": folder.name,
        "digest": checked.manifest.digest,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "backend": model.backend,
        "clock": clock_of(model),
        "fingerprint": fingerprint_now(root.folder, checked.manifest.backend),
        "golden": {"cases": len(golden["cases"]), "bit_equal": golden["bit_equal"]},
        "accuracy": accuracy,
        "latency_ms": latency,
        "previous": previous,
        "on_change": asked["on_change"],
        "notes": notes,
    }
    with map_os_errors(str(folder)):
        write_durably(folder / HEALTH, to_bytes(document))
    return document


def read_health(folder: Path) -> Optional[Dict[str, Any]]:
    """A release's health.json; None where it was never examined here, or the record is damaged."""
    try:
        found = json.loads((folder / HEALTH).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else None


def _latency(
    root: Root,
    app: App,
    folder: Path,
    model: Model,
    frame: Dict[str, Any],
    asked: Mapping[str, Any],
    where: str,
    notes: List[str],
) -> Tuple[Dict[str, Any], Optional[Dict[str, Any]]]:
    """The release's figures and the previous one's; a slow round is measured again first."""
    models, frames = [model], [frame]
    other = _other(app, folder)
    if asked["latency_factor"] is not None and other is not None:
        beside = _open_other(root, app, other, notes)
        if beside is not None:
            models.append(beside[0])
            frames.append(frame_of(beside[1].manifest))
    faults: List[str] = []
    for number in range(_TRIES):
        figures = measure_in_turns(models, frames, asked["measure_s"])
        mine = dict(figures[0], rounds=number + 1)
        theirs = None
        if len(figures) > 1:
            ratio = mine["p50"] / figures[1]["p50"]
            theirs = dict(figures[1], release=other, ratio=ratio)
        faults = _too_slow(mine, theirs, asked)
        if not faults:
            return mine, theirs
    raise DeviceError(
        "the release is too slow here: {} (measured {} times, {})".format(
            "; ".join(faults), _TRIES, clock_of(model)
        ),
        code="health.latency",
        where=where,
        hint="allow more with deploy.health.latency_ms or latency_factor, or build a faster one",
    )


def _too_slow(
    mine: Mapping[str, Any], theirs: Optional[Mapping[str, Any]], asked: Mapping[str, Any]
) -> List[str]:
    faults = []
    budget, factor = asked["latency_ms"], asked["latency_factor"]
    if budget is not None and mine["p50"] > budget:
        faults.append("half of its frames need over {:.3f} ms, the budget is {:g} ms".format(
            mine["p50"], budget))  # fmt: skip
    if factor is not None and theirs is not None and theirs["ratio"] > factor:
        faults.append("{:.2f} times {}, which needs {:.3f} ms beside it; allowed is {:g}".format(
            theirs["ratio"], theirs["release"], theirs["p50"], factor))  # fmt: skip
    return faults


def _other(app: App, folder: Path) -> Optional[str]:
    """The release to be compared with: what serves, or served before this one did."""
    for name in (app.link("current"), app.link("previous")):
        if name is not None and name != folder.name:
            return name
    return None


def _open_other(
    root: Root, app: App, name: str, notes: List[str]
) -> Optional[Tuple[Model, Checked]]:
    from ._model import open_model

    try:
        checked = check_release(root, app.release(name))
        return open_model(checked), checked
    except DeviceError as error:
        # what cannot run any more is no measure for what can
        notes.append("not compared with {}, which does not load: {}".format(name, error.message))
        return None
