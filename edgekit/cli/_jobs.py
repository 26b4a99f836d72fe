"""``edgekit jobs``: what boards work on by themselves; look, attach, read, cancel, remove."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.cli._commands import action, argument, command_with_actions
from edgekit.cli._jobs_find import ENDED, LIVE, Reached, find, reach, reached
from edgekit.cli._jobs_follow import follow

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = ["attach", "cancel", "command", "listing", "log", "remove"]

_WHERE = "YAML configuration, or USER@HOST:PORT or an alias of ~/.ssh/config."
_EXAMPLE = "edgekit jobs attach 0f1e2d3c4b5a6978 nvidia@10.0.0.7"
_ACTIONS = {
    "list": ("_jobs_list", "List the jobs of a board."),
    "attach": ("_jobs", "Follow a job to its end; Ctrl-C leaves it running."),
    "log": ("_jobs", "Print a job's log."),
    "cancel": ("_jobs", "End a job."),
    "remove": ("_jobs", "Forget a job that has ended."),
}
_where = argument("where", _WHERE)
_job = argument("job", "The job's id, or its first four characters or more.")


@command_with_actions("jobs", "edgekit jobs configs/resnet50-orin.yaml", _ACTIONS)
@_where
@reach
@o.talk
def command(where: str, json: bool, **settings: Any) -> None:
    _list(where, json, settings)


@action(_ACTIONS["list"][1], "edgekit jobs list nvidia@10.0.0.7")
@_where
@reach
@o.talk
def listing(where: str, json: bool, **settings: Any) -> None:
    _list(where, json, settings)


@action(_ACTIONS["attach"][1], _EXAMPLE)
@_job
@_where
@reach
@o.talk
def attach(job: str, where: str, json: bool, quiet: bool, **settings: Any) -> None:
    with find(job, where, settings, LIVE) as (client, id, again):
        result = follow(client, id, quiet=quiet or json, again=again)
    if json:
        _print(client, id, state="done", result=result)
    else:
        print(f"{id} on {client.name}: done")


@action(_ACTIONS["log"][1], "edgekit jobs log 0f1e2d3c4b5a6978 nvidia@10.0.0.7")
@_job
@_where
@click.option("--tail", type=click.IntRange(min=1), help="Only the last so many bytes.")
@reach
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
                o.say(page.data.decode("utf-8", "replace").removesuffix("\n"))
    if json:
        text = b"".join(parts).decode("utf-8", "replace")
        _print(client, id, state=page.state, log=text)


@action(_ACTIONS["cancel"][1], "edgekit jobs cancel 0f1e2d3c4b5a6978 nvidia@10.0.0.7")
@_job
@_where
@reach
@o.talk
def cancel(job: str, where: str, json: bool, **settings: Any) -> None:
    with find(job, where, settings, LIVE) as (client, id, _):
        state = client.cancel_job(id)
    if json:
        _print(client, id, state=state)
    else:
        print(f"{id} on {client.name}: {state}")


@action(_ACTIONS["remove"][1], "edgekit jobs remove 0f1e2d3c4b5a6978 nvidia@10.0.0.7")
@_job
@_where
@reach
@o.talk
def remove(job: str, where: str, json: bool, **settings: Any) -> None:
    with find(job, where, settings, ENDED) as (client, id, _):
        client.remove_job(id)
    if json:
        _print(client, id, removed=True)
    else:
        print(f"{id} on {client.name}: removed")


def _print(client: BoardClient, id: str, **more: Any) -> None:
    o.print_json({"schema": "edgekit.job/1", "job": id, "board": client.name, **more})


def _list(where: str, json: bool, settings: dict[str, Any]) -> None:
    with contextlib.ExitStack() as stack:
        boards = list(reached(stack, where, settings))
    if json:
        o.print_json({"schema": "edgekit.jobs/1", "boards": [_document(one) for one in boards]})
    else:
        for one in boards:
            _show(one)
    for one in boards:
        if one.error is not None:
            raise o.printed(one.error)


def _document(one: Reached) -> dict[str, Any]:
    error = one.error and one.error.to_json()["error"]
    return {"board": one.name, "jobs": list(one.jobs), "error": error}


def _show(one: Reached) -> None:
    if one.error is not None:
        o.say(f"{one.name}: not reached: {one.error.message}")
        return
    count = len(one.jobs)
    print(f"{one.name}: {count or 'no'} job{'' if count == 1 else 's'}")
    for row in one.jobs:
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
