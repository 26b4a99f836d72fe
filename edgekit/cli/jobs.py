"""``edgekit jobs``: boards' long jobs, which continue without this machine: list, follow, read
logs, cancel or remove.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import click

from edgekit import api
from edgekit.cli import options as o
from edgekit.cli.commands import argument, command
from edgekit.cli.output import mark_printed, print_json, progress, say
from edgekit.text import ABSENT, counted

if TYPE_CHECKING:
    from edgekit.api import BoardJobs, JobAnswer, JobRow


job_board_options = o.combine(
    click.option("--board", help="Board to use, if the configuration has several."),
    click.option("--root", default="~/.edgekit", help="Folder on the board, for a HOST."),
    click.option("--python", default="python3", help="Python on the board, for a HOST."),
    o.accept_host_key,
)
_WHERE = "YAML configuration, or USER@HOST:PORT or an alias of ~/.ssh/config."
_EXAMPLE = "edgekit jobs attach 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
_where_argument = argument("where", _WHERE)
_job_argument = argument("job", "Job id, or at least its first four characters.")


@command("jobs", "edgekit jobs configs/resnet50-orin.yaml")
@_where_argument
@job_board_options
@o.output_options
def jobs_command(where: str, json: bool, quiet: bool, verbose: bool, **settings: Any) -> None:
    _print_jobs(where, json, **settings)


@jobs_command.action("list", "List the jobs of a board.", "edgekit jobs list nvidia@10.0.0.7")
@_where_argument
@job_board_options
@o.output_options
def list_action(where: str, json: bool, quiet: bool, verbose: bool, **settings: Any) -> None:
    _print_jobs(where, json, **settings)


@jobs_command.action("attach", "Follow a job to its end; Ctrl-C leaves it running.", _EXAMPLE)
@_job_argument
@_where_argument
@job_board_options
@o.output_options
def attach(job: str, where: str, json: bool, quiet: bool, verbose: bool, **settings: Any) -> None:
    shown = progress(quiet or json)
    found = api.watch_job(job, where, progress=shown, on_note=_note, **settings)
    _print_answer(found, json, "done")


@jobs_command.action(
    "log", "Print a job's log.", "edgekit jobs log 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
)
@_job_argument
@_where_argument
@click.option("--tail", type=click.IntRange(min=1), help="Show only this many bytes from the end.")
@job_board_options
@o.output_options
def log(
    job: str,
    where: str,
    tail: int | None,
    json: bool,
    quiet: bool,
    verbose: bool,
    **settings: Any,
) -> None:
    on_text = (lambda text: None) if json else say
    found = api.job_log(job, where, tail=tail, on_text=on_text, on_note=_note, **settings)
    if json:
        print_json(found)


@jobs_command.action(
    "cancel", "Cancel a job.", "edgekit jobs cancel 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
)
@_job_argument
@_where_argument
@job_board_options
@o.output_options
def cancel(job: str, where: str, json: bool, quiet: bool, verbose: bool, **settings: Any) -> None:
    found = api.cancel_job(job, where, on_note=_note, **settings)
    _print_answer(found, json, found.state)


@jobs_command.action(
    "remove", "Delete a job that has ended.", "edgekit jobs remove 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
)
@_job_argument
@_where_argument
@job_board_options
@o.output_options
def remove(job: str, where: str, json: bool, quiet: bool, verbose: bool, **settings: Any) -> None:
    _print_answer(api.remove_job(job, where, on_note=_note, **settings), json, "removed")


def _note(text: str) -> None:
    click.echo(text, err=True)


def _print_answer(found: JobAnswer, json: bool, what: str | None) -> None:
    if json:
        print_json(found)
    else:
        print(f"{found.job} on {found.board}: {what}")


def _print_jobs(where: str, json: bool, **settings: Any) -> None:
    found = api.jobs(where, **settings)
    if json:
        print_json(found)
    else:
        for board in found.boards:
            _print_board_jobs(board)
    for board in found.boards:
        if board.cause is not None:
            raise mark_printed(board.cause)


def _print_board_jobs(board: BoardJobs) -> None:
    if board.error is not None:
        say(f"{board.board}: not reached: {board.error.message}")
        return
    print(f"{board.board}: {counted(len(board.jobs), 'job') if board.jobs else 'no jobs'}")
    for row in board.jobs:
        say("  " + _job_line(row))


def _job_line(row: JobRow) -> str:
    when = row.started_at or row.queued_at
    at = datetime.datetime.fromtimestamp(when).strftime("%Y-%m-%d %H:%M") if when else "?"
    share = f" {row.done}/{row.total}" if row.total else ""
    error = row.error.message if row.error else ""
    last = f"{row.phase}{share}" if row.state in ("queued", "running") else error
    return f"{row.job}  {row.state:<9}  {at}  {row.name or ABSENT}  {last}".rstrip()


list_jobs = list_action
