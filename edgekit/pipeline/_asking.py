"""The same question to every board that a user means; one that is away hides none of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, UsageError
from edgekit.pipeline import _hosts

if TYPE_CHECKING:
    from edgekit.deploy import Board, BoardClient

__all__ = ["Answered", "app_of", "ask_boards", "document_of"]

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Answered:
    """What one board said, or why it did not.

    Attributes:
        board: The board's name.
        answer: What was asked of it; empty where it failed.
        error: Why it failed, None where it did not.
        reachable: Whether it was reached at all.
        again: What follows ``edgekit jobs ACTION ID`` so that it is this board.
    """

    board: str
    answer: dict[str, Any]
    error: EdgekitError | None
    reachable: bool
    again: str = ""


def ask_boards(
    wheres: Sequence[str],
    question: Callable[[BoardClient], dict[str, Any]],
    *,
    accept_host_key: bool = False,
    **options: str,
) -> list[Answered]:
    """Asks every board, several at once; the answers are in the boards' order.

    Args:
        wheres: Configurations and hosts. A configuration without a board means edgekit's own.
        question: Asks one board.
        accept_host_key: Accept unknown host keys this once.
        options: ``root`` and ``python`` of a host.

    Raises:
        UsageError: One of ``wheres`` is neither.
    """
    boards = []
    for where in wheres:
        found = _hosts.boards_of(where, None, **options)
        boards += [(where, board, len(found) > 1) for board in found]

    def ask(one: tuple[str, Board, bool]) -> Answered:
        where, board, several = one
        name, again, reached = board.name, _hosts.words_for(where, board, several), False
        try:
            with _hosts.open_client(board, accept_host_key=accept_host_key) as client:
                name, reached = client.name, True
                return Answered(name, question(client), None, True, again)
        except (BoardError, EnvironmentLack) as error:
            _hosts.fill_hint(error, where, board, several)
            return Answered(name, {}, error, reached, again)

    if len(boards) == 1:
        return [ask(boards[0])]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(ask, boards))


def document_of(one: Answered, **more: Any) -> dict[str, Any]:
    """Returns a board's part of a document."""
    error = one.error and one.error.to_json()["error"]
    return {"board": one.board, "reachable": one.reachable, "error": error, **more, **one.answer}


def app_of(where: str, app: str | None) -> str:
    """Returns the application that is meant: a configuration's own, or the one that is named.

    Raises:
        UsageError: A host needs its name.
    """
    from edgekit.config import open_config

    if app is not None:
        return app
    if _hosts.is_config(where):
        return str(open_config(where).file.name)
    raise UsageError(
        "a host may have several applications",
        where=where,
        hint=f"name one with --app; edgekit status {where} lists them",
    )
