"""What ``edgekit doctor`` does beyond looking: prepares a board, and runs its self-test."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli._jobs_follow import follow

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = ["NOT_PREPARED", "selftest", "setup"]

NOT_PREPARED = {
    "shown": "nothing was changed",
    "by-hand": "sudo asks for a password there, so nothing was changed yet",
    "failed": "the board could not be prepared",
}
"""By the states of a setup after which the board is not as it was asked for: how to say so."""


def setup(client: BoardClient, wish: dict[str, Any], json: bool) -> dict[str, Any]:
    """Shows what would change, asks, and does it.

    Returns:
        ``edgekit.setup/1``; "ok" says whether the board is now as was asked for.
    """
    undo = wish["undo"]
    shown = client.setup(undo=undo, apply=False)
    if not json:
        print(f"{client.name}: {shown['text']}")
    if shown["state"] == "shown" and (wish["yes"] or _agreed(json)):
        shown = client.setup(undo=undo, apply=True)
        if not json:
            print(f"{client.name}: {shown['text']}")
    return {"schema": "edgekit.setup/1", "ok": shown["state"] not in NOT_PREPARED, **shown,
            "board": {"name": client.name, "kind": client.kind, "note": client.note}}  # fmt: skip


def _agreed(json: bool) -> bool:
    if json or not sys.stdin.isatty():
        print("nothing was changed; --yes does it", file=sys.stderr)
        return False
    return click.confirm("Do it?", default=False, err=True)


def selftest(client: BoardClient, out: Path, quiet: bool, json: bool, again: str) -> dict[str, Any]:
    """Runs the board's self-test, follows it and writes its answers.

    Args:
        client: The board.
        out: The file of the answers.
        quiet: Show no progress.
        json: Print nothing.
        again: What follows ``edgekit jobs attach ID`` so that it is the same board.
    """
    from edgekit.pipeline._selftest import finished, start, write_answers

    started = start(client)
    result = follow(client, started["job"], quiet=quiet, again=again)
    document = finished(result, client)
    path = write_answers(document, out)
    if not json:
        counts = document["counts"]
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        print(f"{client.name}: {told}; the answers are in {path}")
        failed = [item["id"] for item in document["items"] if item["status"] == "failed"]
        if failed:
            print(f"failed, which is an answer too: {', '.join(failed)}")
    return {**document, "ok": True, "file": str(path)}
