"""Who deploys an app: the process that holds the flock on apps/<name>/deploying."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import Iterator, Optional

from ._deployment import JOURNAL, read_journal, writable
from ._errors import DeviceError, map_os_errors
from ._files import is_locked
from ._root import App

__all__ = ["LOCK", "busy", "claim", "claim_by_hand", "is_claimed"]

LOCK = "deploying"

# somebody who only looks, and a rollback or removal by hand, hold it for moments
_WAIT_S = 10.0
_BY_HAND_S = 2.0
_POLL_S = 0.02


@contextmanager
def claim(app: App, wait_s: float = _WAIT_S) -> Iterator[int]:
    """Holds the app for a deployment or for a change by hand; yields the lock's descriptor.

    A child process has to close the descriptor: as long as one is open the app is held.

    Raises:
        DeviceError: "deploy.busy" with who deploys what.
    """
    writable(app)
    deadline = time.monotonic() + wait_s
    while True:
        with map_os_errors(str(app.folder)):
            path = str(app.folder / LOCK)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _taken(handle):
                if time.monotonic() >= deadline:
                    raise busy(app)
                time.sleep(_POLL_S)
            # whoever held it may have removed the app
            if os.path.exists(path) and os.path.samestat(os.fstat(handle), os.stat(path)):
                for left in app.folder.glob(".{}.*".format(JOURNAL)):
                    left.unlink()
                yield handle
                return
        finally:
            os.close(handle)
        writable(app)


@contextmanager
def claim_by_hand(app: App, *, whole: bool = False) -> Iterator[None]:
    """Holds the app for a switch or a removal by hand, where no deployment is unfinished.

    Args:
        app: The app.
        whole: Whether all of it goes; then a deployment that died needs nothing any more.

    Raises:
        DeviceError: "deploy.busy" or "deploy.unfinished".
    """
    with claim(app, wait_s=_BY_HAND_S):
        journal = read_journal(app)
        if journal is not None and journal.live and not whole:
            raise DeviceError(
                "a deployment of {} was cut off while {}".format(
                    str(journal.facts["digest"])[:12], journal.state
                ),
                code="deploy.unfinished",
                where=app.name,
                hint="deploy again, or `edgekit rollback`, which ends it",
            )
        yield


def is_claimed(app: App) -> bool:
    """Whether a process holds the app now."""
    return is_locked(app.folder / LOCK)


def busy(app: App, job: Optional[str] = None) -> DeviceError:
    """The error that names the deployment which is on its way."""
    journal = read_journal(app)
    if journal is None or not journal.live:
        return DeviceError(
            "another command changes this app",
            code="deploy.busy",
            where=app.name,
            hint="try again in a moment",
        )
    facts = journal.facts
    job = job or facts.get("job")
    return DeviceError(
        "{} deploys {} since {} ({})".format(
            facts.get("operator") or "somebody",
            str(facts["digest"])[:12],
            facts.get("started_at"),
            journal.state,
        ),
        code="deploy.busy",
        where=app.name,
        hint="wait for its end: edgekit jobs attach {0} BOARD; "
        "edgekit jobs cancel {0} BOARD takes it back".format(job)
        if job
        else "edgekit status BOARD shows how far it is",
    )


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
