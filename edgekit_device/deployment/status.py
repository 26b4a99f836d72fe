"""The command ``status``: a board's releases, deployments, servers, store and free space."""

from __future__ import annotations

import argparse
from typing import Any, BinaryIO, Dict, Optional

from edgekit_device.board.identity import hello
from edgekit_device.board.power import mend
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.release.journal import history, is_claimed, read_journal
from edgekit_device.release.releases import describe
from edgekit_device.store.partial import partials
from edgekit_device.store.root import App, Root
from edgekit_device.trust.keys import refusals

SCHEMA = "edgekit.board-status/1"
_BOARD = ("version", "loader", "python", "machine", "numpy", "onnxruntime", "backends", "root")
_SHOWN = 5


def do_status(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Answers the board's status; changes nothing but what a cut off benchmark left changed."""
    left = mend(root.folder)
    document = status(root, None if arguments.app is None else root.app(arguments.app))
    return dict(document, power=left)


def status(root: Root, app: Optional[App] = None) -> Dict[str, Any]:
    """The ``edgekit.board-status/1``."""
    facts = hello(root.folder)
    apps = root.apps() if app is None else [app]
    return {
        "schema": SCHEMA,
        "board": {name: facts[name] for name in _BOARD},
        "apps": {one.name: _app(root, one) for one in apps if one.folder.is_dir()},
        "store": {
            **root.store.usage(),
            "partial_bytes": sum(size for _, size, _ in partials(root.folder)),
        },
        "free_bytes": facts["free_bytes"],
    }


def _app(root: Root, app: App) -> Dict[str, Any]:
    # claimed first: one that ends in between has said so in its journal
    claimed = is_claimed(app)
    journal = read_journal(app)
    deployment = None
    if journal is not None:
        deployment = dict(write(journal.facts), alive=journal.live and claimed)
    found: Dict[str, Any] = {"deployment": deployment, "history": write(history(app)[-_SHOWN:])}
    try:
        found.update(describe(app), error=None)
    except DeviceError as error:
        # a damaged release hides nothing of the others
        damaged = {"current": app.link("current"), "previous": app.link("previous")}
        found.update(damaged, releases=[], error=error.to_json()["error"])
    linked = [name for name in (found["current"], found["previous"]) if name is not None]
    found["refused"] = refusals(app, linked)
    found["serving"] = _serving(app)
    found["changed"] = _changed(root, app)
    return found


def _serving(app: App) -> Optional[Dict[str, Any]]:
    from edgekit_device.serve.messages import serving

    try:
        found: Optional[Dict[str, Any]] = write(serving(app))
        return found
    except DeviceError as error:
        return error.to_json()


def _changed(root: Root, app: App) -> Optional[Dict[str, Any]]:
    from edgekit_device.release.changed import changed_of

    try:
        return changed_of(root, app)
    except DeviceError as error:
        return error.to_json()
