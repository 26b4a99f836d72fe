"""Is a release fit to serve on this board: golden vectors, accuracy and latency, and its record."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Union

from ._errors import DeviceError
from ._golden import frame_of, need_golden
from ._health_accuracy import need_accuracy
from ._health_latency import clock_of, measure_in_turns
from ._health_record import SCHEMA, read_health, write_health
from ._policy import read_policy
from ._release import check_release, need_ready
from ._root import App, Root

if TYPE_CHECKING:
    from ._model import Model
    from ._verify import Checked

__all__ = ["examine"]

_TRIES = 3
_UNGATED_S = 0.2  # a figure for the record alone costs no more


def examine(
    root: Root,
    app: Union[App, str],
    folder: Path,
    policy: Optional[Mapping[str, Any]],
    model: Optional[Model] = None,
    *,
    keeps: bool = True,
) -> Dict[str, Any]:
    """Runs all that the policy asks of a release, and keeps the figures in its health.json.

    Args:
        root: The installation.
        app: The application.
        folder: The release's folder; it is ready.
        policy: See ``read_policy``; None for what a policy of nothing means.
        model: The release, where it is loaded already.
        keeps: Whether the record is written. A soak only asks again: what was measured before the
            release served, with the board's whole time, stands.

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
    need_ready(app.name, folder)
    checked = check_release(root, folder)
    if model is None:
        model = open_model(checked, untested=True)
    notes: List[str] = list(model.notes)
    golden = need_golden(model, checked, where)
    accuracy = need_accuracy(model, checked, asked["accuracy_min"], where)
    frame = frame_of(checked.manifest)
    latency, previous = _known_latency(folder, asked) or _latency(
        root, app, folder, model, frame, asked, where, notes
    )
    document = {
        "schema": SCHEMA,
        "release": folder.name,
        "digest": checked.manifest.digest,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "backend": model.backend,
        "clock": clock_of(model),
        "fingerprint": fingerprint_now(root.folder, checked.manifest.backend, loads=True),
        "golden": {"cases": len(golden["cases"]), "bit_equal": golden["bit_equal"]},
        "accuracy": accuracy,
        "latency_ms": latency,
        "previous": previous,
        "notes": notes,
    }
    if keeps:
        write_health(folder, document)
    return document


def _known_latency(
    folder: Path, asked: Mapping[str, Any]
) -> Optional[Tuple[Dict[str, Any], Optional[Dict[str, Any]]]]:
    """The figures of before, where nothing is to be measured: a soak examines again and again."""
    if asked["measure_s"] or _gated(asked):
        return None
    known = read_health(folder)
    return None if known is None else (known["latency_ms"], known["previous"])


def _gated(asked: Mapping[str, Any]) -> bool:
    return asked["latency_ms"] is not None or asked["latency_factor"] is not None


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
    seconds = asked["measure_s"] if _gated(asked) else min(asked["measure_s"], _UNGATED_S)
    for number in range(_TRIES):
        figures = measure_in_turns(models, frames, seconds)
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
