"""The releases that boards serve, deploy and keep (`edgekit status`, `edgekit releases`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.deployment.answers import row_rule
from edgekit.pipeline.boards.requests import BoardRow, request_from_boards
from edgekit.removed import FormerDict
from edgekit_device.board.identity import DeviceSoftware
from edgekit_device.deployment.status import BoardStatus
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    mapping,
    member,
    nullable,
    record,
    records,
    text,
)
from edgekit_device.release.journal import ENDED
from edgekit_device.release.releases import AppReleases, DescribedRelease

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient


@document(frozen=True, kw_only=True)
class ReachedBoard(BoardRow, BoardStatus):
    """A board's status, and its kind of connection (``kind``)."""

    kind: str = member(text())
    device: DeviceSoftware = member(record(DeviceSoftware))


@document(frozen=True, kw_only=True)
class UnknownBoard(BoardRow):
    """A board that did not answer."""

    device: None = member(nullable(text()), default=None)


@document(frozen=True)
class Status(FormerDict):
    """``edgekit.status/1``: releases, deployments, servers, store and free space of boards."""

    boards: tuple[ReachedBoard | UnknownBoard, ...] = member(
        array(row_rule(ReachedBoard, UnknownBoard))
    )
    schema: str = member(choice("edgekit.status/1"), default="edgekit.status/1")


def status(wheres: Sequence[str], app: str | None = None, **settings: Any) -> Status:
    """Returns the status of boards; an interrupted deployment is continued first.

    Args:
        wheres: Configurations and hosts.
        app: Only this application.
        settings: See ``request_from_boards``.
    """

    def request(client: BoardClient) -> tuple[str, BoardStatus]:
        found = client.status(app)
        deployments = [app.deployment for app in found.apps.values() if app.deployment is not None]
        # a deployment whose process died, as after a power failure, is continued by the next
        # command
        if any(
            deployment.state not in ENDED and not deployment.alive for deployment in deployments
        ):
            client.resume(app)
            found = client.status(app)
        return client.kind, found

    rows: list[ReachedBoard | UnknownBoard] = []
    for board in request_from_boards(wheres, request, **settings):
        if board.found is None:
            rows.append(board.row(UnknownBoard))
        else:
            kind, found = board.found
            rows.append(board.row(ReachedBoard, **vars(found), kind=kind))
    return Status(tuple(rows))


@document(frozen=True)
class LoadRefusal:
    """The reason why a release no longer loads."""

    code: str = member(text())
    message: str = member(text(most=1 << 18))


@document(frozen=True)
class ListedRelease(DescribedRelease):
    """A release; ``refused`` is the reason why it no longer loads."""

    refused: LoadRefusal | None = member(nullable(record(LoadRefusal)))


@document(frozen=True)
class ListedApp(AppReleases):
    """An application's releases."""

    releases: tuple[ListedRelease, ...] = member(records(ListedRelease))


@document(frozen=True, kw_only=True)
class BoardReleases(BoardRow):
    """A board's releases by application; empty if it failed."""

    apps: Mapping[str, ListedApp] = member(mapping(record(ListedApp)))


@document(frozen=True)
class Releases(FormerDict):
    """``edgekit.releases/1``: the releases on boards."""

    boards: tuple[BoardReleases, ...] = member(records(BoardReleases))
    schema: str = member(choice("edgekit.releases/1"), default="edgekit.releases/1")


def releases(wheres: Sequence[str], app: str | None = None, **settings: Any) -> Releases:
    """Returns the releases on boards; arguments as in ``status``."""

    def request(client: BoardClient) -> Mapping[str, ListedApp]:
        found = client.releases(app)
        why = {
            (refusal.app, refusal.release): LoadRefusal(refusal.code, refusal.message)
            # a key may have been removed or revoked since the installation
            for refusal in client.trust().refused
        }
        return {
            name: ListedApp(
                listed.current,
                listed.previous,
                tuple(
                    ListedRelease(**vars(row), refused=why.get((name, row.id)))
                    for row in listed.releases
                ),
                listed.taken_back,
            )
            for name, listed in found.items()
            if listed.releases
        }

    answered = request_from_boards(wheres, request, **settings)
    return Releases(
        tuple(answer.row(BoardReleases, apps=answer.found or {}) for answer in answered)
    )
