"""The same request to every board that a user names, of which an unreachable one hides none of
the others: what they serve, deploy and keep, going back, removing, and their servers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, UsageError
from edgekit.pipeline.boards import addresses
from edgekit.pipeline.boards.addresses import is_config
from edgekit_device.store.root import number_of

if TYPE_CHECKING:
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient


_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class BoardAnswer:
    """What one board said, or why it did not.

    Attributes:
        board: The board's name.
        answer: Its answer; empty where it failed.
        error: Why it failed, None where it did not.
        reachable: Whether it was reached at all.
        again: What follows ``edgekit jobs ACTION ID`` so that it is this board.
    """

    board: str
    answer: dict[str, Any]
    error: EdgekitError | None
    reachable: bool
    again: str = ""


def request_from_boards(
    wheres: Sequence[str],
    question: Callable[[BoardClient], dict[str, Any]],
    *,
    accept_host_key: bool = False,
    **options: str,
) -> list[BoardAnswer]:
    """Queries every board, several at once; the answers are in the boards' order.

    Args:
        wheres: Configurations and hosts. A configuration without a board means edgekit's own.
        question: Queries one board.
        accept_host_key: Accept unknown host keys this once.
        options: ``root`` and ``python`` of a host.

    Raises:
        UsageError: One of ``wheres`` is neither.
    """
    boards = []
    for where in wheres:
        found = addresses.boards_of(where, None, **options)
        boards += [(where, board, len(found) > 1) for board in found]

    def request(one: tuple[str, Board, bool]) -> BoardAnswer:
        where, board, several = one
        name, again, reached = board.name, addresses.command_words(where, board, several), False
        try:
            with addresses.open_client(board, accept_host_key=accept_host_key) as client:
                name, reached = client.name, True
                return BoardAnswer(name, question(client), None, True, again)
        except (BoardError, EnvironmentLack) as error:
            addresses.fill_hint(error, where, board, several)
            return BoardAnswer(name, {}, error, reached, again)

    if len(boards) == 1:
        return [request(boards[0])]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(request, boards))


def document_of(one: BoardAnswer, **more: Any) -> dict[str, Any]:
    """Returns a board's part of a document."""
    error = one.error and one.error.to_json()["error"]
    return {"board": one.board, "reachable": one.reachable, "error": error, **more, **one.answer}


def app_of(where: str, app: str | None) -> str:
    """Returns the application that is meant: a configuration's own, or the one that is named.

    Raises:
        UsageError: A host needs its name.
    """
    from edgekit.config.loader import open_config

    if app is not None:
        return app
    if addresses.is_config(where):
        return str(open_config(where).file.name)
    raise UsageError(
        "no application is given, and a host may have several",
        where=where,
        hint=f"choose one with --app; edgekit status {where} lists them",
    )


_ENDED = ("committed", "rolled-back", "failed")

DocumentAndAnswers = tuple[dict[str, Any], list[BoardAnswer]]
"""A document, and what each board answered, for its errors."""


def status_document(
    wheres: Sequence[str], app: str | None = None, **settings: Any
) -> DocumentAndAnswers:
    """Returns an ``edgekit.status/1``; a deployment that was cut off is carried on first.

    Args:
        wheres: Configurations and hosts.
        app: Only this application.
        settings: See ``ask_boards``.
    """

    def request(client: BoardClient) -> dict[str, Any]:
        found = client.status(app)
        if any(_is_dead(one.get("deployment")) for one in found["apps"].values()):
            client.resume(app)
            found = client.status(app)
        return {"kind": client.kind, "status": found}

    answered = request_from_boards(wheres, request, **settings)
    boards = [
        {**document_of(one), **one.answer.get("status", {}), "board": one.board,
         "device": one.answer.get("status", {}).get("board")}
        for one in answered
    ]  # fmt: skip
    for board in boards:
        board.pop("status", None)
    return {"schema": "edgekit.status/1", "boards": boards}, answered


def releases_document(
    wheres: Sequence[str], app: str | None = None, **settings: Any
) -> DocumentAndAnswers:
    """Returns an ``edgekit.releases/1``; "refused" says why a release loads no more."""

    def request(client: BoardClient) -> dict[str, Any]:
        found = client.releases(app)["apps"]
        why = {(one["app"], one["release"]): one for one in client.trust()["refused"]}
        for name, facts in found.items():
            for release in facts["releases"]:
                refused = why.get((name, release["id"]))
                release["refused"] = refused and {key: refused[key] for key in ("code", "message")}
        return {"apps": {name: one for name, one in found.items() if one["releases"]}}

    answered = request_from_boards(wheres, request, **settings)
    boards = [document_of(one, apps={}) for one in answered]
    return {"schema": "edgekit.releases/1", "boards": boards}, answered


def rollback_document(
    wheres: Sequence[str],
    app: str,
    reason: str | None = None,
    *,
    dry_run: bool = False,
    **settings: Any,
) -> DocumentAndAnswers:
    """Takes every board back and returns an ``edgekit.rollback/1``.

    Args:
        wheres: Configurations and hosts.
        app: The application.
        reason: For the boards' histories.
        dry_run: Change nothing, and return what would change.
        settings: See ``request_from_boards``.
    """

    def request(client: BoardClient) -> dict[str, Any]:
        answer = would_roll_back(client, app) if dry_run else client.rollback(app, reason)
        return {"kind": client.kind, "note": client.note, "from": answer["from"],
                "to": answer["current"], "taken_back": answer["taken_back"]}  # fmt: skip

    answered = request_from_boards(wheres, request, **settings)
    boards = [{"name": one.board, **document_of(one)} for one in answered]
    document = {"schema": "edgekit.rollback/1", "app": app, "dry_run": dry_run, "boards": boards}
    return document, answered


def would_roll_back(client: BoardClient, app: str) -> dict[str, Any]:
    """Returns what ``BoardClient.rollback`` would answer, and changes nothing.

    Raises:
        BoardError: "app.unknown" or "release.no-previous", as the board would refuse it.
    """
    state = _state_of(client, app)
    current = state["current"]
    rows = [row for row in state["releases"] if row["ready"] and not row.get("taken_back")]
    older = [row["id"] for row in rows if current and number_of(row["id"]) < number_of(current)]
    previous = [row["id"] for row in rows if row["id"] == state["previous"] != current]
    target = next(iter([*previous, *sorted(older, key=number_of, reverse=True)]), None)
    if target is None:
        raise BoardError(
            "there is no earlier release to go back to",
            code="release.no-previous",
            where=client.name,
            hint="deploy an earlier bundle",
        )
    return {"from": current, "current": target, "taken_back": None}


def _would_remove(client: BoardClient, app: str, release: str | None) -> list[str]:
    state = _state_of(client, app)
    names = [str(row["id"]) for row in state["releases"]]
    if release is None:
        return names
    if release not in names:
        raise BoardError(
            "the release does not exist",
            code="release.unknown",
            where=client.name,
            hint=f"available: {', '.join(names) or 'none'}",
        )
    if release == state["current"]:
        raise BoardError(
            "the release is in use",
            code="release.in-use",
            where=client.name,
            hint="switch to another release first, or remove the whole app",
        )
    return [release]


def _state_of(client: BoardClient, app: str) -> dict[str, Any]:
    apps = client.releases()["apps"]
    if app not in apps:
        raise BoardError(
            "the app does not exist",
            code="app.unknown",
            where=client.name,
            hint=f"available: {', '.join(apps) or 'none'}",
        )
    found: dict[str, Any] = apps[app]
    return found


def remove_document(
    wheres: Sequence[str],
    app: str | None,
    release: str | None = None,
    *,
    dry_run: bool = False,
    **settings: Any,
) -> DocumentAndAnswers:
    """Removes a release or an application everywhere and returns an ``edgekit.remove/1``.

    Args:
        wheres: Configurations and hosts.
        app: The application; a configuration's own when None.
        release: One release; None for the application and all its releases.
        dry_run: Change nothing, and return what would be removed.
        settings: See ``request_from_boards``.

    Raises:
        UsageError: ``app`` is None, and a host has no application of its own, or configurations
            have several.
    """
    names = list(dict.fromkeys(app_of(where, app) for where in wheres))
    if len(names) > 1:
        raise UsageError(
            f"these configurations are of several applications: {', '.join(names)}",
            hint="give one at a time, or choose with --app",
        )
    app = names[0]

    def request(client: BoardClient) -> dict[str, Any]:
        if dry_run:
            return {"removed": _would_remove(client, app, release)}
        return {"removed": list(client.remove(app, release)["removed"])}

    answered = request_from_boards(wheres, request, **settings)
    document = {"schema": "edgekit.remove/1", "app": app, "release": release, "dry_run": dry_run,
                "boards": [document_of(one, removed=[]) for one in answered]}  # fmt: skip
    return document, answered


def _is_dead(deployment: dict[str, Any] | None) -> bool:
    return (
        deployment is not None
        and deployment.get("state") not in _ENDED
        and deployment.get("alive") is False
    )


def serve_document(
    where: str, app: str, action: str, options: list[str], **settings: Any
) -> tuple[dict[str, Any], list[BoardAnswer]]:
    """Does one thing to every board's server and returns an ``edgekit.serve/1``.

    Args:
        where: A configuration or a host.
        app: The application.
        action: As :meth:`edgekit.deployment.client.BoardClient.serve` takes it.
        options: Of the board's command.
        settings: As for ``ask_boards``.
    """

    def request(client: BoardClient) -> dict[str, Any]:
        answer = client.serve(app, action, options)
        back = answer.get("taken_back")
        if back is None:
            return answer
        serving = (answer["serving"] or {}).get("release")
        config = where if is_config(where) else "CONFIG"
        note = taken_back_note(client.name, serving, back, config)
        return {**answer, "notes": [*answer.get("notes", ()), note]}

    answered = request_from_boards([where], request, **settings)
    boards = [document_of(one) for one in answered]
    return {"schema": "edgekit.serve/1", "app": app, "action": action, "boards": boards}, answered


def taken_back_note(board: str, serving: str | None, back: Mapping[str, str], config: str) -> str:
    """Says that another release serves than the one deployed last, and why.

    Args:
        board: The board's name.
        serving: The release that serves, None for none.
        back: "release", "at" and "reason" of the one that was taken back.
        config: The configuration's file.
    """
    return (
        f"{board} serves {serving or 'nothing'}: the configuration's release, "
        f"{back['release']}, was rolled back at {back['at']}: {back['reason']} (install "
        f"it again with: edgekit deploy {shlex.quote(config)} --again)"
    )


def serving_of(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the release that serves, None for none; ``state`` is of the board's "releases"."""
    return next((r for r in state.get("releases", ()) if r["id"] == state.get("current")), None)
