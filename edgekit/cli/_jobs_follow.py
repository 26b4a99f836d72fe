"""A job's progress on stderr, until it has ended or is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import _options as o
from edgekit.errors import EdgekitError

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = ["follow"]


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
    shown = o.progress(quiet)
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
        status, detail = "left", f"{client.name}, where it goes on"
        raise
    finally:
        seconds = max(0.0, last["time"] - first["time"]) if last else 0.0
        shown.end(f"job {id[:8]}", status, seconds, detail)
        if status == "left":
            click.echo(
                f"the job goes on; follow it again: edgekit jobs attach {id} {again}", err=True
            )
