"""``edgekit jobs``: the long work of boards, which goes on without this machine: list it, follow
it, read its log, cancel or remove it. A job is found on whichever of several boards it is.
"""

from __future__ import annotations

import contextlib
import datetime
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import options as o
from edgekit.cli.commands import argument, command
from edgekit.cli.output import mark_printed, print_json, progress, say
from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, UsageError

if TYPE_CHECKING:
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient


LIVE = ("queued", "running")
ENDED = ("done", "failed", "cancelled", "lost")
_SHORTEST = 4
_ROOT, _PYTHON = "~/.edgekit", "python3"

job_board_options = o.all_of(
    click.option("--board", help="Board to use, if the configuration has several."),
    click.option("--root", default=_ROOT, help="Folder on the board, for a HOST."),
    click.option("--python", default=_PYTHON, help="Python on the board, for a HOST."),
    o.accept_host_key,
)
_WHERE = "YAML configuration, or USER@HOST:PORT or an alias of ~/.ssh/config."
_EXAMPLE = "edgekit jobs attach 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
_where_argument = argument("where", _WHERE)
_job_argument = argument("job", "Job id, or at least its first four characters.")


@dataclass(frozen=True)
class ConnectedBoard:
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


def connect_boards(
    stack: contextlib.ExitStack, where: str, settings: dict[str, Any]
) -> Iterator[ConnectedBoard]:
    """Connects to each board that is meant; one that does not answer hides none of the others.

    Args:
        stack: Takes the connections.
        where: A configuration or a host.
        settings: The options of ``reach``.

    Raises:
        UsageError: No such board.
    """
    from edgekit.pipeline.boards.addresses import boards_of, open_client

    options = {name: settings[name] for name in ("root", "python")}
    boards = boards_of(where, **options)
    several = len(boards) > 1
    if (wanted := settings["board"]) is not None:
        names = ", ".join(board.name for board in boards)
        boards = [board for board in boards if board.name == wanted]
        if not boards:
            raise UsageError(f"--board {wanted!r}: no such board; known: {names}", where=where)
    accept = settings["accept_host_key"]
    for board in boards:
        again = jobs_arguments(where, board, several, accept)
        try:
            client = stack.enter_context(open_client(board, accept_host_key=accept))
            yield ConnectedBoard(board.name, client, tuple(client.jobs()), None, again)
        except (BoardError, EnvironmentLack) as error:
            yield ConnectedBoard(board.name, None, (), error, again)


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
            f"{start!r} is too short for a job id: give at least {_SHORTEST} characters",
            code="job.short",
            hint=f"list them with: {shlex.join(['edgekit', 'jobs', 'list', where])}",
        )
    with contextlib.ExitStack() as stack:
        found: list[tuple[ConnectedBoard, dict[str, Any]]] = []
        lost: list[ConnectedBoard] = []
        for one in connect_boards(stack, where, settings):
            found += [(one, row) for row in one.jobs if row["job"].startswith(start)]
            lost += [one] if one.error else []
        if not found:
            raise next((one.error for one in lost if one.error), None) or BoardError(
                "no such job",
                code="job.unknown",
                where=start,
                hint=f"list the jobs with: {shlex.join(['edgekit', 'jobs', 'list', where])}",
            )
        for one in lost:
            click.echo(f"{one.name} was not reached: {one.error and one.error.message}", err=True)
        board, id = _chosen(start, found, states)
        assert board.client is not None
        yield board.client, id, board.again


def _chosen(
    start: str, found: list[tuple[ConnectedBoard, dict[str, Any]]], states: Sequence[str]
) -> tuple[ConnectedBoard, str]:
    ids = sorted({row["job"] for _, row in found})
    if len(ids) > 1:
        raise UsageError(
            f"{start!r} matches several jobs: {', '.join(ids)}", hint="give more of the id"
        )
    meant = [(one, row) for one, row in found if row["state"] in states] or found
    if len(meant) > 1:
        each = ", ".join(f"{one.name} ({row['state']})" for one, row in meant)
        raise UsageError(
            f"job {ids[0]} is on several boards: {each}", hint=f"add --board {meant[0][0].name}"
        )
    return meant[0][0], ids[0]


def jobs_arguments(where: str, board: Board, several: bool, accept_host_key: bool = False) -> str:
    """Returns what follows ``edgekit jobs ACTION ID`` so that it is ``board``.

    Args:
        where: A configuration, or a host.
        board: The board.
        several: Whether ``where`` names others, too.
        accept_host_key: Whether its unknown key was accepted this once.
    """
    from edgekit.pipeline.boards.addresses import command_words

    words = command_words(where, board, several)
    return f"{words} --accept-host-key" if accept_host_key else words


# A job's progress on stderr, until it has ended or is left.


def follow(client: BoardClient, id: str, *, quiet: bool, again: str) -> dict[str, Any]:
    """Shows a job's progress until it has ended, and returns what it made.

    Args:
        client: The board.
        id: The job.
        quiet: Show nothing but how to come back.
        again: What follows ``edgekit jobs attach ID`` so that it is the same board.

    Raises:
        EdgekitError: The job's own error, or the board's.
        KeyboardInterrupt: Ctrl-C; the job goes on, and stderr says how to come back.
    """
    shown = progress(quiet)
    shown.begin(1, 1, f"job {id[:8]}")
    status, detail = "failed", client.name
    first: dict[str, Any] = {}
    last: dict[str, Any] = {}
    try:
        for event in client.watch_job(id):
            text = " ".join(filter(None, (event["phase"], event["text"])))
            if event["n"]:  # the board's own, by the board's clock
                first = first or event
                shown.update(event["done"], event["total"], text, at=event["time"])
            if not event["n"] or event["phase"] != last.get("phase"):
                shown.note(text)
            last = event if event["n"] else last
        result = client.job_result(id)
        status = "done"
        return result
    except EdgekitError as error:
        detail = f"{client.name}: {error.message}"
        raise
    except KeyboardInterrupt:
        status, detail = "left", f"{client.name}, where it continues"
        raise
    finally:
        seconds = max(0.0, last["time"] - first["time"]) if last else 0.0
        shown.end(f"job {id[:8]}", status, seconds, detail)
        if status == "left":
            click.echo(
                f"the job continues; follow it again with: edgekit jobs attach {id} {again}",
                err=True,
            )


@command("jobs", "edgekit jobs configs/resnet50-orin.yaml")
@_where_argument
@job_board_options
@o.talk
def jobs_command(where: str, json: bool, **settings: Any) -> None:
    _list(where, json, settings)


@jobs_command.action("list", "List the jobs of a board.", "edgekit jobs list nvidia@10.0.0.7")
@_where_argument
@job_board_options
@o.talk
def list_action(where: str, json: bool, **settings: Any) -> None:
    _list(where, json, settings)


@jobs_command.action("attach", "Follow a job to its end; Ctrl-C leaves it running.", _EXAMPLE)
@_job_argument
@_where_argument
@job_board_options
@o.talk
def attach(job: str, where: str, json: bool, quiet: bool, **settings: Any) -> None:
    with find(job, where, settings, LIVE) as (client, id, again):
        result = follow(client, id, quiet=quiet or json, again=again)
    if json:
        _print(client, id, state="done", result=result)
    else:
        print(f"{id} on {client.name}: done")


@jobs_command.action(
    "log", "Print a job's log.", "edgekit jobs log 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
)
@_job_argument
@_where_argument
@click.option("--tail", type=click.IntRange(min=1), help="Show only this many bytes from the end.")
@job_board_options
@o.talk
def log(job: str, where: str, tail: int | None, json: bool, **settings: Any) -> None:
    with find(job, where, settings, LIVE) as (client, id, _):
        start = 0
        if tail is not None:
            start = max(0, client.job_log(id, most=0).size - tail)
        parts = []
        while (page := client.job_log(id, start=start)).data:
            start = page.end
            if json:
                parts.append(page.data)
            else:
                say(page.data.decode("utf-8", "replace").removesuffix("\n"))
    if json:
        text = b"".join(parts).decode("utf-8", "replace")
        _print(client, id, state=page.state, log=text)


@jobs_command.action(
    "cancel", "Cancel a job.", "edgekit jobs cancel 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
)
@_job_argument
@_where_argument
@job_board_options
@o.talk
def cancel(job: str, where: str, json: bool, **settings: Any) -> None:
    with find(job, where, settings, LIVE) as (client, id, _):
        state = client.cancel_job(id)
    if json:
        _print(client, id, state=state)
    else:
        print(f"{id} on {client.name}: {state}")


@jobs_command.action(
    "remove", "Delete a job that has ended.", "edgekit jobs remove 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
)
@_job_argument
@_where_argument
@job_board_options
@o.talk
def remove(job: str, where: str, json: bool, **settings: Any) -> None:
    with find(job, where, settings, ENDED) as (client, id, _):
        client.remove_job(id)
    if json:
        _print(client, id, removed=True)
    else:
        print(f"{id} on {client.name}: removed")


def _print(client: BoardClient, id: str, **more: Any) -> None:
    print_json({"schema": "edgekit.job/1", "job": id, "board": client.name, **more})


def _list(where: str, json: bool, settings: dict[str, Any]) -> None:
    with contextlib.ExitStack() as stack:
        boards = list(connect_boards(stack, where, settings))
    if json:
        print_json({"schema": "edgekit.jobs/1", "boards": [_document(one) for one in boards]})
    else:
        for one in boards:
            _show(one)
    for one in boards:
        if one.error is not None:
            raise mark_printed(one.error)


def _document(one: ConnectedBoard) -> dict[str, Any]:
    error = one.error and one.error.to_json()["error"]
    return {"board": one.name, "jobs": list(one.jobs), "error": error}


def _show(one: ConnectedBoard) -> None:
    if one.error is not None:
        say(f"{one.name}: not reached: {one.error.message}")
        return
    count = len(one.jobs)
    print(f"{one.name}: {count or 'no'} job{'' if count == 1 else 's'}")
    for row in one.jobs:
        say("  " + _row(row))


def _row(row: dict[str, Any]) -> str:
    when = row["started_at"] or row["queued_at"]
    at = datetime.datetime.fromtimestamp(when).strftime("%Y-%m-%d %H:%M") if when else "?"
    share = f" {row['done']}/{row['total']}" if row["total"] else ""
    error = (row["error"] or {}).get("message", "")
    if row["state"] not in ("queued", "running"):
        return f"{row['job']}  {row['state']:<9}  {at}  {row['name']}  {error}".rstrip()
    return f"{row['job']}  {row['state']:<9}  {at}  {row['name']}  {row['phase']}{share}".rstrip()


list_jobs = list_action
