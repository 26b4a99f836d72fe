"""The same request to every board that a user names, where an unreachable board does not stop the
others; and a board's row in a document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from edgekit.deployment.board import DescribedBoard
from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, UsageError
from edgekit.pipeline.boards import addresses
from edgekit.pipeline.boards.addresses import boards_or_embedded
from edgekit_device.protocol.codec import (
    document,
    flag,
    member,
    nullable,
    record,
    text,
)
from edgekit_device.protocol.failure import Failure

if TYPE_CHECKING:
    from edgekit.config.loader import Config
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient


# connections: each holds a thread and an SSH session
_AT_ONCE = 8
_Found = TypeVar("_Found")
_Row = TypeVar("_Row")


@document(frozen=True, kw_only=True)
class BoardRow:
    """A board in a document.

    Attributes:
        board: The board's name.
        reachable: True if it was reached.
        error: Its failure; None if it did not fail.
        cause: The EdgekitError of ``error``; not in JSON.
        again: The arguments after ``edgekit jobs ACTION ID`` that select the board; not in JSON.
    """

    board: str = member(text())
    reachable: bool = member(flag)
    error: Failure | None = member(nullable(record(Failure)))
    cause: Any = field(default=None, compare=False)
    again: str = field(default="", compare=False)


def describe_board(client: BoardClient) -> DescribedBoard:
    """Returns a board's description in documents."""
    return DescribedBoard(client.name, client.kind, client.note)


def to_failure(error: EdgekitError) -> Failure:
    """Returns an error in the form of documents."""
    found = error.stated()
    return Failure(found.code, found.message, found.where, found.hint)


@dataclass(frozen=True, slots=True)
class BoardAnswer(Generic[_Found]):
    """The answer of a board, or its failure.

    Attributes:
        board: The board's name.
        found: Its answer; None if it failed.
        error: Its failure; None if it did not fail.
        reachable: True if it was reached.
        again: The arguments after ``edgekit jobs ACTION ID`` that select the board.
    """

    board: str
    found: _Found | None
    error: EdgekitError | None
    reachable: bool
    again: str = ""

    def row(self, kind: Callable[..., _Row], /, **more: Any) -> _Row:
        """Returns a row of this board: a ``BoardRow``, or a ``kind`` with ``more`` fields."""
        error = None if self.error is None else to_failure(self.error)
        return kind(
            board=self.board,
            reachable=self.reachable,
            error=error,
            cause=self.error,
            again=self.again,
            **more,
        )


def request_from_boards(
    wheres: Sequence[str],
    question: Callable[[BoardClient], _Found],
    *,
    config: Config | None = None,
    accept_host_key: bool = False,
    **options: Any,
) -> list[BoardAnswer[_Found]]:
    """Queries every board, several at once; the answers are in the boards' order.

    Args:
        wheres: Configurations and hosts. A configuration without a board means edgekit's own.
        question: Queries a board.
        config: The configuration of ``wheres``, if it is open.
        accept_host_key: Accept unknown host keys for this call.
        options: ``root`` and ``python`` of a host.

    Raises:
        UsageError: An entry of ``wheres`` is neither.
    """
    boards = []
    for where in wheres:
        found = (
            addresses.resolve_boards(where, **options)
            if config is None
            else boards_or_embedded(config)
        )
        boards += [(where, board, len(found) > 1) for board in found]

    def request(named: tuple[str, Board, bool]) -> BoardAnswer[_Found]:
        where, board, several = named
        name, again, reached = board.name, addresses.command_words(where, board, several), False
        try:
            with addresses.open_client(board, accept_host_key=accept_host_key) as client:
                name, reached = client.name, True
                return BoardAnswer(name, question(client), None, True, again)
        except (BoardError, EnvironmentLack) as error:
            # only failures of a board: a user's mistake would be the same on every board
            addresses.fill_hint(error, where, board, several)
            return BoardAnswer(name, None, error, reached, again)

    # without a thread, so that Ctrl-C reaches the request at once
    if len(boards) == 1:
        return [request(boards[0])]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(request, boards))


def resolve_app(where: str, app: str | None) -> str:
    """Returns the application: the named one, or a configuration's own.

    Raises:
        UsageError: A host needs the application's name.
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
