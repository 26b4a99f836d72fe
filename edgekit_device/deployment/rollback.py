"""The command ``rollback``: going back by hand or at a server's request, also during a
soak.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from typing import Any, BinaryIO, Dict, Optional

from edgekit_device.deployment.states import Deployment
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import write_durably
from edgekit_device.release.journal import (
    AFTER_SWITCH,
    busy,
    claim,
    complete_history,
    is_claimed,
    last_taken_back,
    read_journal,
    record,
    stamp,
)
from edgekit_device.release.releases import rollback
from edgekit_device.serve.messages import reload
from edgekit_device.store.root import App, Root, no_such_app

BACK = "back.json"
_POLL_S = 0.1
_WAIT_S = 120.0
_MOST_TEXT = 4096


def do_rollback(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Goes back to the previous release."""
    app = root.app(arguments.app)
    return roll_back(root, app, arguments.reason or "asked for", to=arguments.release)


def roll_back(
    root: Root, app: App, reason: str, *, wait: bool = True, to: Optional[str] = None
) -> Dict[str, Any]:
    """Makes an earlier release serve again, and notes why the current one is taken back.

    It never goes to a release that was taken back itself. A deployment that has switched and is not
    committed yet is taken back; it does that itself.

    Args:
        root: The installation.
        app: The app.
        reason: For the history.
        wait: Whether to wait for a deployment that takes itself back.
        to: The release to go to; by default the one before.

    Returns:
        "app", "current", "previous", "from", and "taken_back": "release", "at" and "reason" of what
        this took back, None where the board could not write its history.

    Raises:
        DeviceError: "release.no-previous", "release.unknown", "install.taken-back", "deploy.busy".
    """
    if not app.folder.is_dir():
        raise no_such_app(app)
    before = app.link("current")
    if is_claimed(app):
        journal = read_journal(app)
        if journal is not None and journal.state in AFTER_SWITCH:
            return _request_rollback(app, reason, before, wait)
        if journal is not None and journal.live:
            raise busy(app)
    with claim(app) as held:
        journal = read_journal(app)
        if journal is not None and journal.live:
            steps = Deployment(root, app, journal, lambda *step: None, lambda: None, held)
            back = journal.state in AFTER_SWITCH
            steps.give_up(_requested_error(reason))
            if back:
                return _answer(app, before)
        with contextlib.suppress(DeviceError):
            complete_history(app)
        line: Dict[str, Any] = {
            "schema": "edgekit.rollback/1", "id": os.urandom(8).hex(), "app": app.name,
            "state": "rolled-back", "started_at": stamp(), "state_at": stamp(),
            "error": _requested_error(reason).to_json()["error"],
        }  # fmt: skip

        def note(current: Optional[str], target: str) -> None:
            # before the change, so that a power cut loses no reason; a full disk may keep it from
            # being written, and does not prevent going back
            line.update(release=current, previous=target)
            with contextlib.suppress(DeviceError):
                record(app, line)

        rollback(app, to, note)
        if "release" in line:
            record(app, line)
        with contextlib.suppress(DeviceError):
            reload(app)
        return _answer(app, before)


def wanted_back(app: App) -> None:
    """Raises DeviceError "rollback.asked" if a rollback was requested."""
    try:
        found = json.loads((app.folder / BACK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    journal = read_journal(app)
    if journal is None or journal.state not in AFTER_SWITCH:
        return
    reason = found.get("reason") if isinstance(found, dict) else None
    raise _requested_error(str(reason or "asked for"))


def _request_rollback(app: App, reason: str, before: Optional[str], wait: bool) -> Dict[str, Any]:
    """Makes the running deployment roll itself back."""
    with map_os_errors(str(app.folder)):
        text = json.dumps({"reason": reason[:_MOST_TEXT]})
        write_durably(app.folder / BACK, text.encode("utf-8"))
    until = time.monotonic() + _WAIT_S
    while wait and is_claimed(app):
        if time.monotonic() > until:
            raise busy(app)
        time.sleep(_POLL_S)
    return _answer(app, before)


def _answer(app: App, before: Optional[str]) -> Dict[str, Any]:
    return {
        "app": app.name,
        "current": app.link("current"),
        "previous": app.link("previous"),
        "from": before,
        "taken_back": last_taken_back(app),
    }


def _requested_error(reason: str) -> DeviceError:
    return DeviceError(reason[:_MOST_TEXT], code="rollback.asked")
