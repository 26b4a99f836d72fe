"""How the actions of ``edgekit fleet`` print rollouts, and by which status they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from edgekit._listed import counted
from edgekit.cli import _options as o
from edgekit.errors import BoardError, GateError

__all__ = ["finish", "finish_ansible", "show", "show_all"]

_ORDER = ("failed", "rolled-back", "offline", "skipped", "aborted", "running", "pending", "done")
_TROUBLE = ("failed", "rolled-back", "offline", "skipped", "aborted")
_DIGITS = 12


def finish(
    document: Mapping[str, Any], folder: Path, json: bool, stopped: bool, accept_host_key: bool
) -> None:
    """Prints a rollout that was driven and says by the exit status what became of it.

    Args:
        document: It.
        folder: The state's.
        json: Whether the document is printed.
        stopped: Whether Ctrl-C was met.
        accept_host_key: Whether unknown host keys were accepted: whoever goes on may have to.

    Raises:
        GateError: Too many boards failed, or another process paused or aborted it.
        KeyboardInterrupt: It was paused by Ctrl-C.
    """
    from edgekit.fleet._hints import ask

    name, state = str(document["rollout"]), document["state"]
    more = ("--accept-host-key",) if accept_host_key else ()
    goes_on = ask("resume", name, folder, *more)
    if json:
        o.print_json(document)
    else:
        _show_one(document)
    if stopped:
        told = f"{state}; go on with: {goes_on}" if _left(document) else state
        click.echo(told, err=True)
        raise o.Interrupted
    if failure := document["failure"]:
        raise o.printed(
            GateError(
                failure["message"],
                code=failure["code"],
                where=failure["where"],
                hint=failure["hint"],
            )
        )
    if state in ("paused", "aborted"):
        done = f"{document['counts'].get('done', 0)} of {counted(len(document['boards']), 'board')}"
        hint = f"{goes_on} goes on with it"
        if state == "aborted":
            hint = f"{ask('rollback', name, folder)} takes back what is done"
        raise o.printed(
            GateError(
                f"{name} was {state} when {done} had been done",
                code=f"fleet.{state}",
                where=name,
                hint=hint,
            )
        )


def finish_ansible(document: Mapping[str, Any], json: bool) -> None:
    """Prints what Ansible's recap says and ends with the status of its outcome.

    Args:
        document: An ``edgekit.fleet.ansible-run/1``.
        json: Whether it is printed as it is.

    Raises:
        GateError: Not all boards have the release.
        BoardError: Ansible failed before it was done with the boards.
        KeyboardInterrupt: Ctrl-C stopped it.
    """
    from edgekit.fleet._hints import by_hand

    if json:
        o.print_json(document)
    else:
        o.say(f"{document['rollout']}: {document['state']}: {_counts(document['counts'])}")
        rows = [row for row in document["boards"] if row["state"] != "ok"]
        cells = [(row["board"], str(row["wave"]), row["state"], _why(row)) for row in rows]
        for line in _columns(("board", "wave", "state", "why"), cells) if rows else ():
            o.say(f"  {line}")
        o.say_notes(document)
    if document["state"] == "interrupted":
        click.echo(by_hand(Path(document["folder"])), err=True)
        raise o.Interrupted
    if failure := document["failure"]:
        kind = GateError if failure["code"] == "fleet.failures" else BoardError
        text = failure["message"]
        more = {name: failure[name] for name in ("code", "where", "hint")}
        raise o.printed(kind(text, **more))


def show(document: Mapping[str, Any], folder: Path, *, every: bool = False) -> None:
    """Prints a rollout as it is now: its waves, and the boards that are not well, with why.

    Args:
        document: It.
        folder: The state's.
        every: Whether boards that are well are printed, too.
    """
    _show_one(document, every=every)
    if failure := document["failure"]:
        o.say(f"failed: {failure['message']}")
        o.say(f"  {failure['hint']}")
    _say_left(document, folder)


def show_all(listing: Mapping[str, Any], folder: Path) -> None:
    """Prints all rollouts, the newest first, each with why it failed."""
    rows = listing["rollouts"]
    if not rows:
        o.say("no rollouts yet")
        return
    cells = [
        (row["rollout"], row["state"], row["updated_at"], _counts(row["counts"])) for row in rows
    ]
    lines = _columns(("rollout", "state", "changed", "boards"), cells)
    o.say(lines[0])
    for row, line in zip(rows, lines[1:], strict=True):
        o.say(line)
        if failure := row["failure"]:
            o.say(f"  {failure['message']}")
        _say_left(row, folder)


def _left(row: Mapping[str, Any]) -> bool:
    return row["state"] in ("running", "rolling-back", "paused")


def _say_left(row: Mapping[str, Any], folder: Path) -> None:
    """Says how a rollout goes on that waits for somebody."""
    from edgekit.fleet._hints import going_on

    if _left(row) and not row["driven"]:
        why = "" if row["state"] == "paused" else "no process drives it: "
        o.say(f"  {why}{going_on(row['rollout'], folder, row['failure'])} goes on with it")


def _show_one(document: Mapping[str, Any], *, every: bool = False) -> None:
    driven = ", driven now" if document["driven"] else ""
    o.say(f"{document['rollout']}: {document['state']}{driven}: {_counts(document['counts'])}")
    for wave in document["waves"]:
        told = _counts(wave["counts"])
        o.say(f"  wave {wave['wave']}: {counted(wave['boards'], 'board')}: {told}")
    rows = [row for row in document["boards"] if every or row["error"] or row["state"] in _TROUBLE]
    rows.sort(key=lambda row: _ORDER.index(row["state"]))
    if rows:
        cells = [(row["board"], row["state"], _serves(row), _why(row)) for row in rows]
        for line in _columns(("board", "state", "serves", "why"), cells):
            o.say(f"  {line}")
    o.say_notes(document)


def _serves(row: Mapping[str, Any]) -> str:
    if row["serves"] is None:
        return "-"
    release = row["release"] if row["state"] == "done" else None
    return str(release or row["serves"][:_DIGITS] or "nothing")


def _why(row: Mapping[str, Any]) -> str:
    error = row["error"]
    return f"{error['code']}: {error['message']}" if error else ""


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the heads and the rows as lines; nothing is cut, the last column may be long."""
    widths = [
        max(map(len, column))
        for column in zip(heads[:-1], *(row[:-1] for row in rows), strict=True)
    ]
    made = []
    for row in (heads, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)]
        made.append("  ".join([*cells, row[-1]]).rstrip())
    return made
