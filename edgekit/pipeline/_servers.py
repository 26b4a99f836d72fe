"""Servers on boards: started, asked and ended from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.pipeline._asking import Answered, ask_boards, document_of
from edgekit.pipeline._boards import taken_back_note
from edgekit.pipeline._hosts import is_config

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = ["serve_document"]


def serve_document(
    where: str, app: str, action: str, options: list[str], **settings: Any
) -> tuple[dict[str, Any], list[Answered]]:
    """Does one thing to every board's server and returns an ``edgekit.serve/1``.

    Args:
        where: A configuration or a host.
        app: The application.
        action: As :meth:`edgekit.deploy.BoardClient.serve` takes it.
        options: Of the board's command.
        settings: As for ``ask_boards``.
    """

    def ask(client: BoardClient) -> dict[str, Any]:
        answer = client.serve(app, action, options)
        back = answer.get("taken_back")
        if back is None:
            return answer
        serving = (answer["serving"] or {}).get("release")
        config = where if is_config(where) else "CONFIG"
        note = taken_back_note(client.name, serving, back, config)
        return {**answer, "notes": [*answer.get("notes", ()), note]}

    answered = ask_boards([where], ask, **settings)
    boards = [document_of(one) for one in answered]
    return {"schema": "edgekit.serve/1", "app": app, "action": action, "boards": boards}, answered
