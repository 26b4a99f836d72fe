"""Follows a deployment on a board to its end, also over a reboot of the board."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.deploy._answers import odd
from edgekit.errors import BoardError

if TYPE_CHECKING:
    from edgekit.deploy._client import BoardClient
    from edgekit.deploy._types import Progress

__all__ = ["follow"]

# the board's states, by the names that progress has had before there were any
_PHASES = {
    "downloading": "download",
    "verifying": "stage",
    "refitting": "refit",
    "testing": "selftest",
    "switching": "switch",
    "soaking": "soak",
}
_COUNTED = ("download", "soak")
# the job's processes ended, and the deployment's journal says how to go on
_CUT_OFF = ("job.lost", "job.crashed", "job.terminated")
_TIMES = 3
_SCHEMA = "edgekit.deployment/1"


def follow(
    board: BoardClient,
    request: Mapping[str, Any],
    progress: Progress | None = None,
    on_start: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Starts a deployment, or joins the same one, and returns what became of it.

    Args:
        board: Where.
        request: The job's request.
        progress: See ``install``.
        on_start: Called with the id of the job, and again if another one carries it on.

    Returns:
        ``edgekit.deployment/1`` in the state "committed", with "refit" and "changed".

    Raises:
        BoardError: Why it failed or was taken back; "deploy.busy".
    """
    job = str(board.start_job("deploy", request)["job"])
    for number in range(_TIMES + 1):
        if on_start is not None:
            on_start(job)
        _watch(board, job, progress)
        try:
            return _result(board, job)
        except BoardError as error:
            if error.code not in _CUT_OFF or number == _TIMES:
                raise
            resumed = board.resume(str(request["app"]))
            if not resumed:
                raise
            job = str(resumed[0]["job"])
    raise AssertionError("the last round returns or raises")


def _result(board: BoardClient, job: str) -> dict[str, Any]:
    found = board.job_result(job)
    if found.get("schema") != _SCHEMA:
        raise odd(f"what job {job} made is no {_SCHEMA}", board.name)
    return found


def _watch(board: BoardClient, job: str, progress: Progress | None) -> None:
    begun = ""
    for event in board.watch_job(job):
        phase = _PHASES.get(event["phase"])
        if progress is None or phase is None:
            continue
        if begun != phase:
            if begun:
                progress(begun, 1, 1)
            progress(phase, 0, 1)
            begun = phase
        if phase in _COUNTED and event["total"] > 1:
            progress(phase, event["done"], event["total"])
    if progress is not None and begun:
        progress(begun, 1, 1)
