"""Jobs of boards, which continue without this machine (`edgekit jobs`): a job is found on any of
several boards.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from edgekit.deployment.answers import job_result
from edgekit.errors import BoardError, EdgekitError, EnvironmentLack, UsageError
from edgekit.pipeline.boards import addresses
from edgekit.pipeline.boards.requests import to_failure
from edgekit.removed import FormerDict
from edgekit_device.build.request import BuildResult
from edgekit_device.jobs.job import LIVE, STATES, JobRow, WatchedEvent
from edgekit_device.protocol.codec import (
    choice,
    document,
    fail,
    flag,
    member,
    nullable,
    record,
    records,
    text,
    with_schema,
)
from edgekit_device.protocol.failure import Failure
from edgekit_device.release.journal import DeploymentFacts, DeploymentResult
from edgekit_device.selftest import SelftestResult

if TYPE_CHECKING:
    from edgekit.deployment.board import Board
    from edgekit.deployment.client import BoardClient
    from edgekit.pipeline.progress import Progress


OnNote = Callable[[str], object]
_ENDED = tuple(state for state in STATES if state not in LIVE)
# characters of a job's id, which is a digest
_SHORTEST = 4
_LOG = text(most=1 << 40)


def _read_result(value: Any) -> object:
    """Returns a job's result as the class that its schema names."""
    found = job_result(value) if isinstance(value, dict) else value
    if found is value:
        fail("", "it is no result of a job")
    return found


_RESULT = with_schema(
    _read_result, anyOf=(BuildResult, DeploymentResult, DeploymentFacts, SelftestResult)
)


@document(frozen=True)
class BoardJobs:
    """A board's jobs, the newest first; none if it was not reached.

    Attributes:
        error: Why it was not reached; None if it was.
        cause: The EdgekitError of ``error``; not in JSON.
    """

    board: str = member(text())
    jobs: tuple[JobRow, ...] = member(records(JobRow))
    error: Failure | None = member(nullable(record(Failure)))
    cause: Any = field(default=None, compare=False)


@document(frozen=True)
class Jobs(FormerDict):
    """``edgekit.jobs/1``: the jobs of boards."""

    boards: tuple[BoardJobs, ...] = member(records(BoardJobs))
    schema: str = member(choice("edgekit.jobs/1"), default="edgekit.jobs/1")


@document(frozen=True)
class JobAnswer(FormerDict):
    """``edgekit.job/1``: a job after an action.

    Attributes:
        job: Its id.
        board: The board's name.
        state: Its state then; None if it was removed.
        result: Its result, if it was followed to its end.
        log: Its log, if that was requested.
        removed: True if it was removed.
    """

    job: str = member(text())
    board: str = member(text())
    state: str | None = member(choice(*STATES), absent=None)
    result: BuildResult | DeploymentResult | DeploymentFacts | SelftestResult | None = member(
        _RESULT, absent=None
    )
    log: str | None = member(_LOG, absent=None)
    removed: bool = member(flag, absent=False)
    schema: str = member(choice("edgekit.job/1"), default="edgekit.job/1")


@document(frozen=True)
class _ConnectedBoard:
    """A board with its jobs; ``again`` are the arguments after ``edgekit jobs ACTION ID``."""

    board: BoardJobs
    client: BoardClient | None
    again: str


def jobs(where: str, board: str | None = None, **settings: Any) -> Jobs:
    """Returns the jobs of boards; a board that does not answer does not stop the others.

    Args:
        where: A configuration or a host.
        board: A board of the configuration.
        settings: ``accept_host_key``, and ``root`` and ``python`` of a host.

    Raises:
        UsageError: There is no such board.
    """
    with contextlib.ExitStack() as stack:
        found = _connect_boards(stack, where, board, **settings)
        return Jobs(tuple(row.board for row in found))


def watch_job(
    job: str, where: str, progress: Progress, on_note: OnNote, **settings: Any
) -> JobAnswer:
    """Follows a job to its end; the other arguments are those of ``find_job``.

    Args:
        job: The id, or its first characters.
        where: A configuration or a host.
        progress: Shows the job's progress.
        on_note: Called with sentences: a board that was not reached, the command to reattach.
        settings: See ``jobs``.

    Raises:
        EdgekitError: The job's own error, or the board's.
    """
    with find_job(job, where, LIVE, on_note, **settings) as (client, id, again):
        result: Any = follow_job(client, id, progress, on_note, again=again)
        return JobAnswer(id, client.name, state="done", result=result)


def job_log(
    job: str,
    where: str,
    on_text: OnNote,
    on_note: OnNote,
    *,
    tail: int | None = None,
    **settings: Any,
) -> JobAnswer:
    """Returns a job's log.

    Args:
        job: The id, or its first characters.
        where: A configuration or a host.
        on_text: Called with each part of the log as it arrives.
        on_note: Called with sentences on boards that were not reached.
        tail: Only this many bytes from the end.
        settings: See ``jobs``.
    """
    with find_job(job, where, LIVE, on_note, **settings) as (client, id, _):
        # `most` 0 asks for the size alone
        start = 0 if tail is None else max(0, client.job_log(id, most=0).size - tail)
        parts = []
        # a log may have gigabytes, so it comes page by page
        while (page := client.job_log(id, start=start)).data:
            start = page.end
            parts.append(page.data)
            on_text(page.data.decode("utf-8", "replace").removesuffix("\n"))
        text = b"".join(parts).decode("utf-8", "replace")
        return JobAnswer(id, client.name, state=page.state, log=text)


def cancel_job(job: str, where: str, on_note: OnNote, **settings: Any) -> JobAnswer:
    """Cancels a job; arguments as in ``watch_job``."""
    with find_job(job, where, LIVE, on_note, **settings) as (client, id, _):
        return JobAnswer(id, client.name, state=client.cancel_job(id))


def remove_job(job: str, where: str, on_note: OnNote, **settings: Any) -> JobAnswer:
    """Removes a job that has ended; arguments as in ``watch_job``."""
    with find_job(job, where, _ENDED, on_note, **settings) as (client, id, _):
        client.remove_job(id)
        return JobAnswer(id, client.name, removed=True)


def _connect_boards(
    stack: contextlib.ExitStack,
    where: str,
    wanted: str | None = None,
    *,
    accept_host_key: bool = False,
    **options: Any,
) -> Iterator[_ConnectedBoard]:
    """Connects to each selected board; ``stack`` takes the connections.

    Raises:
        UsageError: There is no such board.
    """
    boards = addresses.resolve_boards(where, **options)
    several = len(boards) > 1
    if wanted is not None:
        names = ", ".join(board.name for board in boards)
        boards = [board for board in boards if board.name == wanted]
        if not boards:
            raise UsageError(
                f"--board {wanted!r}: no such board",
                where=where,
                hint=f"known: {names}",
            )
    for board in boards:
        again = jobs_arguments(where, board, several, accept_host_key)
        try:
            client = stack.enter_context(
                addresses.open_client(board, accept_host_key=accept_host_key)
            )
            yield _ConnectedBoard(BoardJobs(board.name, client.jobs(), None), client, again)
        except (BoardError, EnvironmentLack) as error:
            lost = BoardJobs(board.name, (), to_failure(error), error)
            yield _ConnectedBoard(lost, None, again)


@contextlib.contextmanager
def find_job(
    start: str,
    where: str,
    states: Sequence[str],
    on_note: OnNote,
    board: str | None = None,
    **settings: Any,
) -> Iterator[tuple[BoardClient, str, str]]:
    """Finds the job whose id begins with ``start``, on any of the boards.

    The same build on several boards has the same id: the job in a state of ``states`` is meant.

    Args:
        start: The id, or its first characters.
        where: A configuration or a host.
        states: The states to which the action applies.
        on_note: Called with a sentence on each board that was not reached.
        board: A board of the configuration.
        settings: See ``jobs``.

    Yields:
        The board, the job's id, and the arguments after ``edgekit jobs ACTION ID``.

    Raises:
        UsageError: "job.short"; several jobs, or a job on several boards.
        BoardError: "job.unknown"; a board was not reached.
    """
    if len(start) < _SHORTEST:
        raise UsageError(
            f"{start!r} is too short for a job id: give at least {_SHORTEST} characters",
            code="job.short",
            hint=f"list them with: {shlex.join(['edgekit', 'jobs', 'list', where])}",
        )
    with contextlib.ExitStack() as stack:
        connected = list(_connect_boards(stack, where, board, **settings))
        found = [
            (reached, row)
            for reached in connected
            for row in reached.board.jobs
            if row.job.startswith(start)
        ]
        lost = [tried.board for tried in connected if tried.board.cause is not None]
        if not found:
            # the job may be on a board that did not answer: its error comes before "no such job"
            raise next((board.cause for board in lost), None) or BoardError(
                "no such job",
                code="job.unknown",
                where=start,
                hint=f"list the jobs with: {shlex.join(['edgekit', 'jobs', 'list', where])}",
            )
        for missed in lost:
            on_note(f"{missed.board} was not reached: {missed.cause.message}")
        meant, id = _select_job(start, found, states)
        assert meant.client is not None
        yield meant.client, id, meant.again


def _select_job(
    start: str, found: list[tuple[_ConnectedBoard, JobRow]], states: Sequence[str]
) -> tuple[_ConnectedBoard, str]:
    ids = sorted({row.job for _, row in found})
    if len(ids) > 1:
        raise UsageError(
            f"{start!r} matches several jobs: {', '.join(ids)}", hint="give more of the id"
        )
    # equal boards have equal requests and so equal ids: the state decides which job is meant
    meant = [(reached, row) for reached, row in found if row.state in states] or found
    if len(meant) > 1:
        each = ", ".join(f"{reached.board.board} ({row.state})" for reached, row in meant)
        raise UsageError(
            f"job {ids[0]} is on several boards: {each}",
            hint=f"add --board {meant[0][0].board.board}",
        )
    return meant[0][0], ids[0]


def jobs_arguments(where: str, board: Board, several: bool, accept_host_key: bool = False) -> str:
    """Returns the arguments after ``edgekit jobs ACTION ID`` that select ``board``.

    Args:
        where: A configuration, or a host.
        board: The board.
        several: True if ``where`` names other boards, too.
        accept_host_key: True if its unknown key was accepted for this call.
    """
    words = addresses.command_words(where, board, several)
    return f"{words} --accept-host-key" if accept_host_key else words


def follow_job(
    client: BoardClient, id: str, progress: Progress, on_note: OnNote, *, again: str
) -> object:
    """Shows a job's progress until it has ended, and returns its result.

    Args:
        client: The board.
        id: The job.
        progress: Shows the progress.
        on_note: Called at a Ctrl-C with the command to reattach: the job continues.
        again: The arguments after ``edgekit jobs attach ID`` that select the board.

    Raises:
        EdgekitError: The job's own error, or the board's.
        KeyboardInterrupt: Ctrl-C.
    """
    progress.begin(1, 1, f"job {id[:8]}")
    status, detail = "failed", client.name
    first: WatchedEvent | None = None
    last: WatchedEvent | None = None
    try:
        for event in client.watch_job(id):
            words = " ".join(filter(None, (event.phase, event.text)))
            if event.n:  # the board's own event, by the board's clock
                first = first or event
                progress.update(event.done, event.total, words, at=event.time)
            # a note for each phase; its further events only move the progress
            if not event.n or last is None or event.phase != last.phase:
                progress.note(words)
            last = event if event.n else last
        result = client.job_result(id)
        status = "done"
        return result
    except EdgekitError as error:
        status = "cancelled" if error.code == "job.cancelled" else "failed"
        detail = f"{client.name}: {error.message}"
        raise
    except KeyboardInterrupt:
        status, detail = "left", f"{client.name}, where it continues"
        raise
    finally:
        # by the board's clock: the job may have run before this command followed it
        seconds = max(0.0, last.time - first.time) if first and last else 0.0
        progress.end(f"job {id[:8]}", status, seconds, detail)
        if status == "left":
            on_note(f"the job continues; follow it again with: edgekit jobs attach {id} {again}")
