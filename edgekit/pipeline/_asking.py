"""The same question to every board that a user means; one that is away hides none of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, UsageError

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
    """

    board: str
    answer: dict[str, Any]
    error: EdgekitError | None
    reachable: bool


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
    boards = [board for where in wheres for board in _boards(where, **options)]

    def ask(board: Board | None) -> Answered:
        name = board.name if board else "edgekit"
        reached = False
        try:
            with _open(board, accept_host_key) as client:
                name, reached = client.name, True
                return Answered(name, question(client), None, True)
        except (BoardError, EnvironmentLack) as error:
            return Answered(name, {}, error, reached)

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
    from edgekit.pipeline._hosts import is_config

    if app is not None:
        return app
    if is_config(where):
        return str(open_config(where).file.name)
    raise UsageError(
        "a host may have several applications",
        where=where,
        hint=f"name one with --app; edgekit status {where} lists them",
    )


def _boards(where: str, **options: str) -> list[Any]:
    from edgekit.config import open_config
    from edgekit.pipeline._hosts import boards_of, boards_of_config, is_config

    if is_config(where):
        return list(boards_of_config(open_config(where))) or [None]
    return list(boards_of(where, None, **options))


def _open(board: Board | None, accept_host_key: bool) -> Any:
    from edgekit.deploy import open_board
    from edgekit.pipeline import _hosts
    from edgekit.pipeline._cache import Cache

    if board is None:
        return open_board(None, state_folder=Cache().folder)
    return _hosts.open_client(board, accept_host_key=accept_host_key)
