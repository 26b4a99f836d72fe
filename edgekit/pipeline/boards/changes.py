"""Commands that change every board that a user names: rolling back to an earlier release, removing
releases, and the boards' servers.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgekit.deployment.answers import row_rule
from edgekit.errors import BoardError, UsageError
from edgekit.pipeline.boards.addresses import is_config
from edgekit.pipeline.boards.requests import BoardRow, request_from_boards, resolve_app
from edgekit.removed import FormerDict
from edgekit_device.protocol.codec import (
    app_name,
    array,
    choice,
    document,
    flag,
    member,
    nullable,
    record,
    records,
    release_name,
    text,
    with_schema,
)
from edgekit_device.release.journal import TakenBack
from edgekit_device.release.releases import AppReleases, RolledBack, ServeAnswer, ServerStopped
from edgekit_device.store.root import release_number

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient


_RELEASE = nullable(release_name)


@document(frozen=True, kw_only=True)
class BoardToRollBack(BoardRow):
    """A board that did not roll back."""

    name: str = member(text())


@document(frozen=True, kw_only=True)
class RolledBackBoard(BoardToRollBack):
    """A board that rolled back to an earlier release.

    Attributes:
        kind: The kind of connection; ``note`` has it for people.
        before: The release that served before.
        now: The release that serves now; None for none.
        taken_back: Time and reason of the rollback; None in a dry run.
    """

    kind: str = member(text())
    note: str = member(text())
    before: str | None = member(_RELEASE, key="from")
    now: str | None = member(_RELEASE, key="to")
    taken_back: TakenBack | None = member(nullable(record(TakenBack)))


@document(frozen=True)
class Rollback(FormerDict):
    """``edgekit.rollback/1``: boards that rolled back; with ``dry_run`` they would."""

    app: str = member(app_name)
    dry_run: bool = member(flag)
    boards: tuple[RolledBackBoard | BoardToRollBack, ...] = member(
        array(row_rule(RolledBackBoard, BoardToRollBack))
    )
    schema: str = member(choice("edgekit.rollback/1"), default="edgekit.rollback/1")


def roll_back(
    where: str,
    app: str | None = None,
    reason: str | None = None,
    *,
    dry_run: bool = False,
    **settings: Any,
) -> Rollback:
    """Rolls every board back to its previous release.

    Args:
        where: A configuration or a host.
        app: The application; a configuration's own if None.
        reason: For the boards' histories.
        dry_run: Only return the changes that would be made.
        settings: See ``request_from_boards``.

    Raises:
        UsageError: ``app`` is None, and a host has no application of its own.
    """
    name = resolve_app(where, app)

    def request(client: BoardClient) -> tuple[str, str, RolledBack]:
        answer = _preview_rollback(client, name) if dry_run else client.rollback(name, reason)
        return client.kind, client.note, answer

    rows = []
    for board in request_from_boards([where], request, **settings):
        if board.found is None:
            rows.append(board.row(BoardToRollBack, name=board.board))
        else:
            kind, note, answer = board.found
            rows.append(
                board.row(
                    RolledBackBoard,
                    name=board.board,
                    kind=kind,
                    note=note,
                    before=answer.before,
                    now=answer.current,
                    taken_back=answer.taken_back,
                )
            )
    return Rollback(name, dry_run, tuple(rows))


def _preview_rollback(client: BoardClient, app: str) -> RolledBack:
    """Returns the answer that ``BoardClient.rollback`` would give, without a change.

    Raises:
        BoardError: "app.unknown" or "release.no-previous", as the board would refuse it.
    """
    state = _app_releases(client, app)
    current = state.current
    # as the board's own rollback chooses: the previous release, then the newest older one
    rows = [row for row in state.releases if row.ready and row.taken_back is None]
    older = [row.id for row in rows if current and release_number(row.id) < release_number(current)]
    previous = [row.id for row in rows if row.id == state.previous != current]
    target = next(iter([*previous, *sorted(older, key=release_number, reverse=True)]), None)
    if target is None:
        raise BoardError(
            "there is no earlier release to go back to",
            code="release.no-previous",
            where=client.name,
            hint="deploy an earlier bundle",
        )
    return RolledBack(app, target, current, current, None)


def _app_releases(client: BoardClient, app: str) -> AppReleases:
    apps = client.releases()
    if app not in apps:
        raise BoardError(
            "the app does not exist",
            code="app.unknown",
            where=client.name,
            hint=f"available: {', '.join(apps) or 'none'}",
        )
    return apps[app]


@document(frozen=True, kw_only=True)
class BoardRemovals(BoardRow):
    """The releases that were removed from a board; none if it failed."""

    removed: tuple[str, ...] = member(array(text()))


@document(frozen=True)
class Removal(FormerDict):
    """``edgekit.remove/1``: releases that were removed; with ``dry_run`` they would be.

    ``release`` is the named release; None for the application and all its releases.
    """

    app: str = member(app_name)
    release: str | None = member(nullable(text()))
    dry_run: bool = member(flag)
    boards: tuple[BoardRemovals, ...] = member(records(BoardRemovals))
    schema: str = member(choice("edgekit.remove/1"), default="edgekit.remove/1")


def remove(
    wheres: Sequence[str],
    app: str | None = None,
    release: str | None = None,
    *,
    dry_run: bool = False,
    **settings: Any,
) -> Removal:
    """Removes a release or an application from every board.

    Args:
        wheres: Configurations and hosts.
        app: The application; a configuration's own if None.
        release: A release; None for the application and all its releases.
        dry_run: Only return the releases that would be removed.
        settings: See ``request_from_boards``.

    Raises:
        UsageError: No place is given; ``app`` is None, and a host has no application of its own,
            or configurations have several.
    """
    if not wheres:
        raise UsageError("no board is given", hint="give configurations or boards (user@host)")
    names = list(dict.fromkeys(resolve_app(where, app) for where in wheres))
    # a single question covers all boards, and a removal cannot be undone: one application at a time
    if len(names) > 1:
        raise UsageError(
            f"these configurations are of several applications: {', '.join(names)}",
            hint="give one at a time, or choose with --app",
        )
    (name,) = names

    def request(client: BoardClient) -> tuple[str, ...]:
        if dry_run:
            return _preview_removal(client, name, release)
        return client.remove(name, release)

    answered = request_from_boards(wheres, request, **settings)
    rows = (answer.row(BoardRemovals, removed=answer.found or ()) for answer in answered)
    return Removal(name, release, dry_run, tuple(rows))


def _preview_removal(client: BoardClient, app: str, release: str | None) -> tuple[str, ...]:
    state = _app_releases(client, app)
    names = tuple(row.id for row in state.releases)
    if release is None:
        return names
    if release not in names:
        raise BoardError(
            "the release does not exist",
            code="release.unknown",
            where=client.name,
            hint=f"available: {', '.join(names) or 'none'}",
        )
    if release == state.current:
        raise BoardError(
            "the release is in use",
            code="release.in-use",
            where=client.name,
            hint="switch to another release first, or remove the whole app",
        )
    return (release,)


@document(frozen=True, kw_only=True)
class BoardServer(BoardRow, ServeAnswer):
    """A board's server; ``notes`` are for people."""

    notes: tuple[str, ...] = member(array(text()), absent=())


@document(frozen=True, kw_only=True)
class StoppedServer(BoardRow, ServerStopped):
    """A board whose server was asked to stop."""


def _server_row(value: Any) -> BoardServer | StoppedServer | BoardRow:
    rows = {"serving": BoardServer, "stopped": StoppedServer}
    # a row has no tag: its keys show which command it answers
    kinds = [kind for key, kind in rows.items() if isinstance(value, dict) and key in value]
    found: BoardServer | StoppedServer | BoardRow = record(next(iter(kinds), BoardRow))(value)
    return found


with_schema(_server_row, anyOf=(BoardServer, StoppedServer, BoardRow))


@document(frozen=True)
class Serving(FormerDict):
    """``edgekit.serve/1``: the servers of boards after ``action``."""

    app: str = member(app_name)
    action: str = member(choice("start", "status", "reload", "stop"))
    boards: tuple[BoardServer | StoppedServer | BoardRow, ...] = member(array(_server_row))
    schema: str = member(choice("edgekit.serve/1"), default="edgekit.serve/1")


def serve(
    where: str,
    action: str = "status",
    app: str | None = None,
    *,
    options: Sequence[str] = (),
    **settings: Any,
) -> Serving:
    """Starts, queries, reloads or stops every board's server.

    Args:
        where: A configuration or a host.
        action: "start", "status", "reload" or "stop".
        app: The application; a configuration's own if None.
        options: Of the board's command, for "start": such as "--workers=2".
        settings: See ``request_from_boards``.

    Raises:
        UsageError: ``app`` is None, and a host has no application of its own.
    """
    name = resolve_app(where, app)

    def request(client: BoardClient) -> tuple[ServeAnswer | ServerStopped, tuple[str, ...]]:
        answer = client.serve(name, action, options)
        if isinstance(answer, ServerStopped) or answer.taken_back is None:
            return answer, ()
        serving = None if answer.serving is None else answer.serving.release
        config = where if is_config(where) else "CONFIG"
        return answer, (taken_back_note(client.name, serving, answer.taken_back, config),)

    rows: list[BoardServer | StoppedServer | BoardRow] = []
    for board in request_from_boards([where], request, **settings):
        if board.found is None:
            rows.append(board.row(BoardRow))
        elif isinstance(board.found[0], ServerStopped):
            rows.append(board.row(StoppedServer, **vars(board.found[0])))
        else:
            answer, notes = board.found
            rows.append(board.row(BoardServer, **vars(answer), notes=notes))
    return Serving(name, action, tuple(rows))


def taken_back_note(board: str, serving: str | None, back: TakenBack, config: str) -> str:
    """Returns the note that another release serves than the last one deployed, and why.

    Args:
        board: The board's name.
        serving: The release that serves; None for none.
        back: The release that was rolled back.
        config: The configuration's file.
    """
    return (
        f"{board} serves {serving or 'nothing'}: the configuration's release, "
        f"{back.release}, was rolled back at {back.at}: {back.reason} (install "
        f"it again with: edgekit deploy {shlex.quote(config)} --again)"
    )
