"""The command ``status``: a board's releases, deployments, servers, store and free space."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import replace
from typing import BinaryIO, Callable, Mapping, Optional, Tuple, TypeVar

from edgekit_device.board.identity import DeviceSoftware, hello
from edgekit_device.board.power import restore_interrupted
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    mapping,
    member,
    nullable,
    record,
    records,
    text,
)
from edgekit_device.protocol.failure import Failed, Failure, or_failed
from edgekit_device.protocol.server import query_server
from edgekit_device.protocol.serving import ServingStatus
from edgekit_device.release.changed import Changed, find_change
from edgekit_device.release.journal import (
    DeploymentEntry,
    DeploymentFacts,
    HistoryEntry,
    history_entry,
    is_claimed,
    read_history,
    read_journal,
)
from edgekit_device.release.releases import AppReleases, describe
from edgekit_device.store.partial import partials
from edgekit_device.store.root import App, Root
from edgekit_device.trust.keys import Refusal, find_refusals

SCHEMA = "edgekit.board-status/1"
_SHOWN = 5
_Found = TypeVar("_Found")


@document(frozen=True)
class ShownDeployment(DeploymentFacts):
    """An app's newest deployment; ``alive`` is true if a process works on it."""

    alive: bool = member(flag)


@document(frozen=True)
class AppStatus(AppReleases):
    """An app's entry of the status.

    Attributes:
        history: The newest deployments and rollbacks that ended, oldest first.
        error: Why its releases cannot be listed; None if they can.
        refused: The linked releases whose signatures are no longer accepted.
        serving: Its server's status; None if no server runs.
        changed: How the board differs from the board on which its release was tested.
    """

    deployment: Optional[ShownDeployment] = member(nullable(record(ShownDeployment)))
    history: "Tuple[DeploymentEntry | HistoryEntry, ...]" = member(array(history_entry))
    error: Optional[Failure] = member(nullable(record(Failure)))
    refused: Tuple[Refusal, ...] = member(records(Refusal))
    serving: "ServingStatus | Failed | None" = member(nullable(or_failed(ServingStatus)))
    changed: "Changed | Failed | None" = member(nullable(or_failed(Changed)))


@document(frozen=True)
class StoreUse:
    """The store's contents; ``partial_bytes`` belong to incomplete blobs.

    Attributes:
        blobs: Number of blobs in the store.
    """

    blobs: int = member(fields.count)
    bytes: int = member(fields.count)
    partial_bytes: int = member(fields.count)


@document(frozen=True)
class BoardStatus:
    """``edgekit.board-status/1``.

    Attributes:
        device: The board's software.
        power: Power mode and clocks that an interrupted benchmark had left changed.
    """

    device: DeviceSoftware = member(record(DeviceSoftware), key="board")
    apps: Mapping[str, AppStatus] = member(mapping(record(AppStatus)))
    store: StoreUse = member(record(StoreUse))
    free_bytes: int = member(fields.count)
    power: Optional[str] = member(nullable(text()))
    schema: str = member(choice(SCHEMA), default=SCHEMA)


def do_status(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> BoardStatus:
    """Answers the board's status; restores only settings that a dead benchmark left changed."""
    left = restore_interrupted(root.folder)
    document = status(root, None if arguments.app is None else root.app(arguments.app))
    return replace(document, power=left)


def status(root: Root, app: Optional[App] = None) -> BoardStatus:
    """Returns the ``edgekit.board-status/1``, of all apps or of ``app`` alone."""
    facts = hello(root.folder)
    apps = root.apps() if app is None else [app]
    return BoardStatus(
        device=DeviceSoftware(
            **{item.name: getattr(facts, item.name) for item in dataclasses.fields(DeviceSoftware)}
        ),
        apps={entry.name: _app_status(root, entry) for entry in apps if entry.folder.is_dir()},
        store=StoreUse(
            **root.store.usage(),
            partial_bytes=sum(size for _, size in partials(root.folder)),
        ),
        free_bytes=facts.free_bytes,
        power=None,
    )


def _app_status(root: Root, app: App) -> AppStatus:
    # claimed first: a deployment that ends in between has recorded that in its journal
    claimed = is_claimed(app)
    deployment, past, failure = None, [], None
    try:
        journal, past = read_journal(app), read_history(app)
        if journal is not None:
            deployment = ShownDeployment(**vars(journal.facts), alive=journal.live and claimed)
        found = describe(app)
    except DeviceError as error:
        # a damaged release does not hide the others
        found = AppReleases(app.link("current"), app.link("previous"), (), None)
        failure = Failure.of(error)
    # each takes calls of ssh-keygen, so only releases that may serve are checked
    linked = [name for name in (found.current, found.previous) if name is not None]
    return AppStatus(
        **vars(found),
        deployment=deployment,
        history=tuple(past[-_SHOWN:]),
        error=failure,
        refused=tuple(find_refusals(app, linked)),
        serving=_query_or_failure(lambda: query_server(app.folder)),
        changed=_query_or_failure(lambda: find_change(root, app)),
    )


def _query_or_failure(query: Callable[[], Optional[_Found]]) -> "_Found | Failed | None":
    try:
        return query()
    except DeviceError as error:
        return Failed(Failure.of(error))
