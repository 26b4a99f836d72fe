"""What boards serve, deploy and keep; and going back or removing there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.pipeline._asking import Answered, app_of, ask_boards, document_of

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = [
    "releases_document",
    "remove_document",
    "rollback_document",
    "status_document",
]

_ENDED = ("committed", "rolled-back", "failed")

Told = tuple[dict[str, Any], list[Answered]]
"""A document, and what each board answered, for its errors."""


def status_document(wheres: Sequence[str], app: str | None = None, **settings: Any) -> Told:
    """Returns an ``edgekit.status/1``; a deployment that was cut off is carried on first.

    Args:
        wheres: Configurations and hosts.
        app: Only this application.
        settings: See ``ask_boards``.
    """

    def ask(client: BoardClient) -> dict[str, Any]:
        found = client.status(app)
        if any(_is_dead(one.get("deployment")) for one in found["apps"].values()):
            client.resume(app)
            found = client.status(app)
        return {"kind": client.kind, "status": found}

    answered = ask_boards(wheres, ask, **settings)
    boards = [
        {**document_of(one), **one.answer.get("status", {}), "board": one.board,
         "device": one.answer.get("status", {}).get("board")}
        for one in answered
    ]  # fmt: skip
    for board in boards:
        board.pop("status", None)
    return {"schema": "edgekit.status/1", "boards": boards}, answered


def releases_document(wheres: Sequence[str], app: str | None = None, **settings: Any) -> Told:
    """Returns an ``edgekit.releases/1``; "refused" says why a release loads no more."""

    def ask(client: BoardClient) -> dict[str, Any]:
        found = client.releases(app)["apps"]
        why = {(one["app"], one["release"]): one for one in client.trust()["refused"]}
        for name, facts in found.items():
            for release in facts["releases"]:
                refused = why.get((name, release["id"]))
                release["refused"] = refused and {key: refused[key] for key in ("code", "message")}
        return {"apps": {name: one for name, one in found.items() if one["releases"]}}

    answered = ask_boards(wheres, ask, **settings)
    boards = [document_of(one, apps={}) for one in answered]
    return {"schema": "edgekit.releases/1", "boards": boards}, answered


def rollback_document(
    wheres: Sequence[str], app: str, reason: str | None = None, **settings: Any
) -> Told:
    """Takes every board back and returns an ``edgekit.rollback/1``."""

    def ask(client: BoardClient) -> dict[str, Any]:
        answer = client.rollback(app, reason)
        return {"kind": client.kind, "note": client.note, "from": answer["from"],
                "to": answer["current"], "taken_back": answer["taken_back"]}  # fmt: skip

    answered = ask_boards(wheres, ask, **settings)
    boards = [{"name": one.board, **document_of(one)} for one in answered]
    return {"schema": "edgekit.rollback/1", "app": app, "boards": boards}, answered


def remove_document(
    wheres: Sequence[str], app: str | None, release: str | None = None, **settings: Any
) -> Told:
    """Removes a release or an application everywhere and returns an ``edgekit.remove/1``.

    Raises:
        UsageError: ``app`` is None, and a host has no application of its own, or configurations
            have several.
    """
    names = list(dict.fromkeys(app_of(where, app) for where in wheres))
    if len(names) > 1:
        raise UsageError(
            f"these are several applications: {', '.join(names)}", hint="one at a time, or --app"
        )
    app = names[0]

    def ask(client: BoardClient) -> dict[str, Any]:
        return {"removed": list(client.remove(app, release)["removed"])}

    answered = ask_boards(wheres, ask, **settings)
    document = {"schema": "edgekit.remove/1", "app": app, "release": release,
                "boards": [document_of(one, removed=[]) for one in answered]}  # fmt: skip
    return document, answered


def _is_dead(deployment: dict[str, Any] | None) -> bool:
    return (
        deployment is not None
        and deployment.get("state") not in _ENDED
        and deployment.get("alive") is False
    )
