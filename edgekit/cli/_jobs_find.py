"""The one job that a user means, on whichever of several boards it is."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, UsageError

if TYPE_CHECKING:
    from edgekit.deploy import Board, BoardClient

__all__ = ["ENDED", "LIVE", "Reached", "find", "reach", "reached", "words_of"]

LIVE = ("queued", "running")
ENDED = ("done", "failed", "cancelled", "lost")

_SHORTEST = 4
_ROOT, _PYTHON = "~/.edgekit", "python3"

reach = o.all_of(
    click.option("--board", help="The board of that name, where there are several."),
    click.option("--root", default=_ROOT, help="Folder on the board, for a HOST."),
    click.option("--python", default=_PYTHON, help="Python on the board, for a HOST."),
    o.accept_host_key,
)


@dataclass(frozen=True)
class Reached:
    """A board, and its jobs; or why it was not reached.

    Attributes:
        name: The board's name.
        client: The board, None where it was not reached.
        jobs: Its jobs, the newest first.
        error: Why it was not reached, None where it was.
        again: What follows ``edgekit jobs ACTION ID`` so that it is the same board.
    """

    name: str
    client: BoardClient | None
    jobs: tuple[dict[str, Any], ...]
    error: EdgekitError | None
    again: str


def reached(stack: contextlib.ExitStack, where: str, settings: dict[str, Any]) -> Iterator[Reached]:
    """Connects to each board that is meant; one that does not answer hides none of the others.

    Args:
        stack: Takes the connections.
        where: A configuration or a host.
        settings: The options of ``reach``.

    Raises:
        UsageError: No such board.
    """
    from edgekit.pipeline._hosts import boards_of, open_client

    options = {name: settings[name] for name in ("root", "python")}
    boards = boards_of(where, **options)
    several = len(boards) > 1
    if (wanted := settings["board"]) is not None:
        names = ", ".join(board.name for board in boards)
        boards = [board for board in boards if board.name == wanted]
        if not boards:
            raise UsageError(f"--board {wanted!r}: there is {names}", where=where)
    accept = settings["accept_host_key"]
    for board in boards:
        again = words_of(where, board, several, accept)
        try:
            client = stack.enter_context(open_client(board, accept_host_key=accept))
            yield Reached(board.name, client, tuple(client.jobs()), None, again)
        except (BoardError, EnvironmentLack) as error:
            yield Reached(board.name, None, (), error, again)


@contextlib.contextmanager
def find(
    start: str, where: str, settings: dict[str, Any], states: Sequence[str]
) -> Iterator[tuple[BoardClient, str, str]]:
    """Finds the one job whose id begins so, on whichever of the boards.

    The same build on several boards has the same id: the one is meant that is in one of
    ``states``.

    Args:
        start: The id, or its first characters.
        where: A configuration or a host.
        settings: The options of ``reach``.
        states: What the action is for.

    Yields:
        The board, the job's id, and ``Reached.again``.

    Raises:
        UsageError: "job.short"; several jobs, or one on several boards.
        BoardError: "job.unknown"; a board was not reached.
    """
    if len(start) < _SHORTEST:
        raise UsageError(
            f"{start!r} is too short for a job's id: give at least {_SHORTEST} characters",
            code="job.short",
            hint=f"{shlex.join(['edgekit', 'jobs', 'list', where])} shows them",
        )
    with contextlib.ExitStack() as stack:
        found: list[tuple[Reached, dict[str, Any]]] = []
        lost: list[Reached] = []
        for one in reached(stack, where, settings):
            found += [(one, row) for row in one.jobs if row["job"].startswith(start)]
            lost += [one] if one.error else []
        if not found:
            raise next((one.error for one in lost if one.error), None) or BoardError(
                "no such job",
                code="job.unknown",
                where=start,
                hint=f"{shlex.join(['edgekit', 'jobs', 'list', where])} names those that are there",
            )
        for one in lost:
            click.echo(f"{one.name} was not reached: {one.error and one.error.message}", err=True)
        board, id = _chosen(start, found, states)
        assert board.client is not None
        yield board.client, id, board.again


def _chosen(
    start: str, found: list[tuple[Reached, dict[str, Any]]], states: Sequence[str]
) -> tuple[Reached, str]:
    ids = sorted({row["job"] for _, row in found})
    if len(ids) > 1:
        raise UsageError(
            f"{start!r} begins several jobs: {', '.join(ids)}", hint="give more of the id"
        )
    meant = [(one, row) for one, row in found if row["state"] in states] or found
    if len(meant) > 1:
        each = ", ".join(f"{one.name} ({row['state']})" for one, row in meant)
        raise UsageError(
            f"job {ids[0]} is on several boards: {each}", hint=f"add --board {meant[0][0].name}"
        )
    return meant[0][0], ids[0]


def words_of(where: str, board: Board, several: bool, accept_host_key: bool = False) -> str:
    """Returns what follows ``edgekit jobs ACTION ID`` so that it is ``board``.

    Args:
        where: A configuration, or a host.
        board: The board.
        several: Whether ``where`` names others, too.
        accept_host_key: Whether its unknown key was accepted this once.
    """
    from edgekit.pipeline._hosts import words_for

    words = words_for(where, board, several)
    return f"{words} --accept-host-key" if accept_host_key else words
