"""Is a release fit to serve on this board: golden vectors, accuracy and latency, and its record."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Union

from ._errors import DeviceError
from ._golden import frame_of, need_golden
from ._health_accuracy import need_accuracy
from ._health_latency import clock_of, measure_latency
from ._health_record import SCHEMA, read_health, write_health
from ._policy import read_policy
from ._release import check_release, need_ready
from ._root import App, Root

if TYPE_CHECKING:
    import numpy as np

    from ._model import Model

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
    golden = need_golden(model, checked, where)
    accuracy = need_accuracy(model, checked, asked["accuracy_min"], where)
    frame = frame_of(checked.manifest)
    latency = _known_latency(folder, asked) or _latency(model, frame, asked, where)
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
        "notes": list(model.notes),
    }
    if keeps:
        write_health(folder, document)
    return document


def _known_latency(folder: Path, asked: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """The figures of before, where nothing is to be measured: a soak examines again and again."""
    if asked["measure_s"] or asked["latency_ms"] is not None:
        return None
    known = read_health(folder)
    return None if known is None else known["latency_ms"]


def _latency(
    model: Model, frame: Dict[str, np.ndarray], asked: Mapping[str, Any], where: str
) -> Dict[str, Any]:
    """The release's figures; a slow round is measured again first."""
    budget, seconds = asked["latency_ms"], asked["measure_s"]
    if budget is None:
        seconds = min(seconds, _UNGATED_S)
    for number in range(_TRIES):
        found = dict(measure_latency(model, frame, seconds), rounds=number + 1)
        if budget is None or found["p50"] <= budget:
            return found
    raise DeviceError(
        "the release is too slow here: half of its frames need over {:.3f} ms, the budget is {:g} "
        "ms (measured {} times, {})".format(found["p50"], budget, _TRIES, clock_of(model)),
        code="health.latency",
        where=where,
        hint="allow more with deploy.health.latency_ms, or build a faster one",
    )
