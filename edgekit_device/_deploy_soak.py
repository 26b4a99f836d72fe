"""The soak: a release that has just come to serve is examined until it is believed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, Optional

from ._deploy_child import Progress, Turn
from ._errors import DeviceError
from ._health import examine
from ._policy import read_policy
from ._serving import reload, serving

if TYPE_CHECKING:
    from ._deploy_run import Deploying

__all__ = ["soak"]

_POLL_S = 0.25


def soak(run: Deploying) -> None:
    """Examines the release that serves, once and then every ``soak_every_s`` for ``soak_s``.

    Where a server runs, it has to take the release, and to answer without errors of its own.

    Raises:
        DeviceError: What the release failed with: as ``examine``, as ``reload``, or
            "health.serving".
    """
    policy = read_policy(run.journal.facts["policy"])
    until = time.monotonic() + policy["soak_s"]
    known = _taken(run, policy["timeouts"]["test_s"])
    while True:
        _examine(run, policy)
        known = _watch(run, known)
        left = until - time.monotonic()
        if left <= 0:
            return
        pause = time.monotonic() + min(left, policy["soak_every_s"])
        while time.monotonic() < pause:
            run.stopped()
            total = max(1, int(policy["soak_s"]))
            run.tell("soaking", total - int(max(0.0, until - time.monotonic())), total, "")
            time.sleep(min(_POLL_S, max(0.0, pause - time.monotonic())))


def _examine(run: Deploying, policy: Dict[str, Any]) -> None:
    facts = run.journal.facts
    asked = dict(facts["policy"])
    if policy["latency_ms"] is None:
        asked["measure_s"] = 0.0  # its figures were taken before it served, with the board's time

    def work(turn: Turn, tell: Progress) -> Dict[str, Any]:
        turn("soaking")
        folder = run.app.release(facts["release"])
        return examine(run.root, run.app, folder, asked, keeps=False)

    run.child(work, {"soaking": policy["timeouts"]["test_s"]}, journaled=False)


def _taken(run: Deploying, limit_s: float) -> Optional[Dict[str, Any]]:
    """Has a server take the release; None where none runs."""
    found = reload(run.app, limit_s)
    if found is not None and found["release"] != run.journal.facts["release"]:
        why = _last_error(found) or "it answers with {}".format(found["release"])
        raise _bad(run, "the server did not take the release: {}".format(why))
    return found


def _watch(run: Deploying, known: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Compares a server's counters with those of before."""
    found = serving(run.app)
    if found is None or known is None or found["pid"] != known["pid"]:
        if found is None and known is not None:
            raise _bad(run, "the server ended")
        return found
    for what in ("errors", "restarts"):
        more = int(found.get(what) or 0) - int(known.get(what) or 0)
        if more > 0:
            last = _last_error(found)
            raise _bad(run, "{} new {}{}".format(more, what, ": " + last if last else ""))
    return found


def _last_error(found: Dict[str, Any]) -> str:
    last = found.get("last_error")
    return str(last.get("message") or "") if isinstance(last, dict) else ""


def _bad(run: Deploying, text: str) -> DeviceError:
    return DeviceError(
        "the release does not serve well: {}".format(text),
        code="health.serving",
        where="{}/{}".format(run.app.name, run.journal.facts["release"]),
        hint="`edgekit status` shows what serves and its last error",
    )
