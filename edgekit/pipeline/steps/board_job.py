"""A job on a board as a step runs it: its inputs are sent, a running job is joined, and its events
are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from edgekit.pipeline.boards.addresses import job_command

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient
    from edgekit.pipeline.context import Context


def run_board_job(
    context: Context,
    client: BoardClient,
    kind: str,
    request: object,
    blobs: Mapping[str, bytes | memoryview],
) -> tuple[str, object]:
    """Runs a job to its end.

    The job runs on the board independently: if this machine disconnects, the same command finds
    it again, running or done. If forced, a finished job is removed first; a running job is joined.

    Args:
        context: The configuration.
        client: The board.
        kind: As in ``BoardClient.start_job``.
        request: That kind's document.
        blobs: Its inputs, by SHA-256.

    Returns:
        The job's id, and its result as ``BoardClient.job_result`` gives it.
    """
    # verified, since a blob that a power failure cut short would fail the job
    lacking = {digest: blobs[digest] for digest in client.missing(blobs, verify=True)}
    what = "the model" if kind == "build" else "the sources"
    client.receive(lacking, progress=lambda phase, a, b: context.update(a, b, f"sending {what}"))
    started = client.start_job(kind, request)
    # the board keeps a finished job under its request: it would only give the old result
    if started.reused and context.force:
        client.remove_job(started.job)
        started = client.start_job(kind, request)
    job = started.job
    known = ", already finished" if started.reused else ", joined" if started.joined else ""
    context.announce(f"{client.name}: {kind} job {job}{known}")
    try:
        for event in client.watch_job(job):
            words = event.text or event.phase
            # a job that is joined reports its earlier events at once
            at = event.time if event.n else None
            context.update(event.done, event.total, f"{client.name}: {words}", at=at)
    except KeyboardInterrupt:
        end = job_command("cancel", job, context.config, client.name)
        context.announce(
            f"the {kind} continues as job {job} on {client.name}: run the same command to "
            f"rejoin it, or `{end}` to cancel it"
        )
        raise
    return job, client.job_result(job)


def fetch_blobs(context: Context, client: BoardClient, digests: Iterable[str]) -> None:
    """Copies those blobs of a board into the cache that it lacks."""
    wanted = [digest for digest in digests if not context.cache.has_blobs([digest])]
    for digest, data in client.fetch(wanted).items():
        context.cache.put_blob(digest, data)
