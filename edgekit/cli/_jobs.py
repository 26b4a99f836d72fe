"""``edgekit jobs``: what boards work on by themselves; look, attach, read, cancel, remove."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import action, argument, command_with_actions
from edgekit.errors import BoardError, UsageError

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = ["attach", "cancel", "command", "follow", "listing", "log", "remove"]

_WHERE = "YAML configuration, or USER@HOST:PORT or an alias of ~/.ssh/config."
_EXAMPLE = "Example: edgekit jobs attach 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
_ACTIONS = {
    "list": ("_jobs_list", "List the jobs of a board."),
    "attach": ("_jobs", "Follow a job to its end; Ctrl-C leaves it running."),
    "log": ("_jobs", "Print a job's log."),
    "cancel": ("_jobs", "End a job."),
    "remove": ("_jobs", "Forget a job that has ended."),
}
_where = argument("where", _WHERE)
_job = argument("job", "The job's id, or the start of it.")
_reach = o.all_of(
    click.option("--root", default="~/.edgekit", help="Folder on the board, for a HOST."),
    click.option("--python", default="python3", help="Python on the board, for a HOST."),
    o.accept_host_key,
)


@command_with_actions("jobs", "Example: edgekit jobs configs/resnet50-orin.yaml", _ACTIONS)
@_where
@_reach
@o.talk
def command(where: str, json: bool, **settings: Any) -> None:
    _list(where, json, settings)


@action(_ACTIONS["list"][1], "Example: edgekit jobs list nvidia@10.0.0.7")
@_where
@_reach
@o.talk
def listing(where: str, json: bool, **settings: Any) -> None:
    _list(where, json, settings)


@action(_ACTIONS["attach"][1], _EXAMPLE)
@_job
@_where
@_reach
@o.talk
def attach(job: str, where: str, json: bool, quiet: bool, **settings: Any) -> None:
    with _with_job(job, where, settings) as (client, id):
        follow(client, id, quiet=quiet or json, where=where)
        result = client.job_result(id)
    if json:
        o.print_json({"job": id, "board": client.name, "state": "done", "result": result})
    else:
        print(f"{id} on {client.name}: done")


@action(_ACTIONS["log"][1], "Example: edgekit jobs log 0f1e2d3c4b5a6978 nvidia@10.0.0.7")
@_job
@_where
@click.option("--tail", type=click.IntRange(min=1), help="Only the last so many bytes.")
@_reach
@o.talk
def log(job: str, where: str, tail: int | None, json: bool, **settings: Any) -> None:
    with _with_job(job, where, settings) as (client, id):
        start = 0
        if tail is not None:
            start = max(0, client.job_log(id, most=0).size - tail)
        parts = []
        while (page := client.job_log(id, start=start)).data:
            start = page.end
            if json:
                parts.append(page.data)
            else:
                o.say(page.data.decode("utf-8", "replace").removesuffix("\n"))
    if json:
        text = b"".join(parts).decode("utf-8", "replace")
        o.print_json({"job": id, "board": client.name, "state": page.state, "log": text})


@action(_ACTIONS["cancel"][1], "Example: edgekit jobs cancel 0f1e2d3c4b5a6978 nvidia@10.0.0.7")
@_job
@_where
@_reach
@o.talk
def cancel(job: str, where: str, json: bool, **settings: Any) -> None:
    with _with_job(job, where, settings) as (client, id):
        state = client.cancel_job(id)
    if json:
        o.print_json({"job": id, "board": client.name, "state": state})
    else:
        print(f"{id} on {client.name}: {state}")


@action(_ACTIONS["remove"][1], "Example: edgekit jobs remove 0f1e2d3c4b5a6978 nvidia@10.0.0.7")
@_job
@_where
@_reach
@o.talk
def remove(job: str, where: str, json: bool, **settings: Any) -> None:
    with _with_job(job, where, settings) as (client, id):
        client.remove_job(id)
    if json:
        o.print_json({"job": id, "board": client.name, "removed": True})
    else:
        print(f"{id} on {client.name}: removed")


def follow(client: BoardClient, id: str, *, quiet: bool, where: str = "") -> None:
    """Shows a job's progress until it has ended.

    Raises:
        KeyboardInterrupt: Ctrl-C; the job goes on, and stderr says how to come back.
    """
    shown = o.progress(quiet)
    shown.begin(1, 1, f"job {id[:8]}")
    status = "failed"
    last: dict[str, Any] = {}
    seconds = 0.0
    try:
        for event in client.watch_job(id):
            first = last or event
            seconds = max(0.0, event["time"] - first["time"])
            text = " ".join(filter(None, (event["phase"], event["text"])))
            shown.update(event["done"], event["total"], text)
            if event["phase"] == "connection" or event["phase"] != last.get("phase"):
                shown.note(text)
            last = {**event, "time": first["time"]}
        status = "done"
    except KeyboardInterrupt:
        click.echo(
            f"the job goes on; edgekit jobs attach {id} {where or client.name} follows it again",
            err=True,
        )
        raise
    finally:
        shown.end(f"job {id[:8]}", status, seconds, client.name)


def _list(where: str, json: bool, settings: dict[str, Any]) -> None:
    boards: list[tuple[str, list[dict[str, Any]]]] = []
    with contextlib.ExitStack() as stack:
        for client in _clients(stack, where, settings):
            boards.append((client.name, client.jobs()))
    if json:
        rows = [{"board": name, "jobs": jobs} for name, jobs in boards]
        o.print_json({"schema": "edgekit.jobs/1", "boards": rows})
        return
    for name, jobs in boards:
        print(f"{name}: {len(jobs) or 'no'} jobs")
        for row in jobs:
            o.say("  " + _row(row))


def _row(row: dict[str, Any]) -> str:
    import datetime

    when = row["started_at"] or row["queued_at"]
    at = datetime.datetime.fromtimestamp(when).strftime("%Y-%m-%d %H:%M") if when else "?"
    share = f" {row['done']}/{row['total']}" if row["total"] else ""
    error = (row["error"] or {}).get("message", "")
    if row["state"] not in ("queued", "running"):
        return f"{row['job']}  {row['state']:<9}  {at}  {row['name']}  {error}".rstrip()
    return f"{row['job']}  {row['state']:<9}  {at}  {row['name']}  {row['phase']}{share}".rstrip()


def _clients(
    stack: contextlib.ExitStack, where: str, settings: dict[str, Any]
) -> Iterator[BoardClient]:
    from edgekit.pipeline._hosts import boards_of, open_client

    reach = {name: settings[name] for name in ("root", "python")}
    for board in boards_of(where, **reach):
        yield stack.enter_context(open_client(board, accept_host_key=settings["accept_host_key"]))


@contextlib.contextmanager
def _with_job(
    start: str, where: str, settings: dict[str, Any]
) -> Iterator[tuple[BoardClient, str]]:
    """Finds the one job whose id begins so, on whichever of the boards."""
    with contextlib.ExitStack() as stack:
        found = []
        for client in _clients(stack, where, settings):
            found += [(client, row["job"]) for row in client.jobs() if row["job"].startswith(start)]
        if len(found) > 1 and len({id for _, id in found}) > 1:
            raise UsageError(f"{start!r} begins several jobs", hint="edgekit jobs list")
        if not found:
            raise BoardError(
                "no such job",
                code="job.unknown",
                where=start,
                hint=f"edgekit jobs list {where} names those that are there",
            )
        yield found[0]
