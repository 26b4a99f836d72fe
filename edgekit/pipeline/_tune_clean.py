"""Trials leave the board: what is on its way ends, then their application goes, in bounded time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgekit.errors import EdgekitError

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient

__all__ = ["left_behind", "remove_trials"]

_LIVE = ("queued", "running")
_GRACE_S = 3.0


def remove_trials(client: BoardClient, app: str, tell: Callable[[str], object]) -> bool:
    """Removes the trials' application; what stays, and how to remove it, is told.

    A deployment is a job that goes on without this process, as after a Ctrl-C, and holds the
    application: it is cancelled first.

    Returns:
        Whether none of it is on the board.

    Raises:
        KeyboardInterrupt: A second Ctrl-C; that it stays was told.
    """
    how = f"edgekit remove BOARD --app {app}"
    try:
        for job in client.jobs():
            if job.get("name") == app and job.get("state") in _LIVE:
                client.cancel_job(str(job["job"]), grace_s=_GRACE_S)
        # asked for all of them: of one that is not there a board tells that it has no releases
        if app in client.releases().get("apps", {}):
            client.remove(app)
    except EdgekitError as error:
        tell(f"the trials stay on {client.name} as {app} ({error.message}): {how}")
        return False
    except KeyboardInterrupt:
        tell(f"the trials may stay on {client.name} as {app}: {how}")
        raise
    return True


def left_behind(client: BoardClient, name: str, app: str) -> list[str]:
    """Returns sentences on trials of this configuration that other tunings left.

    Args:
        client: The board.
        name: The configuration's.
        app: This tuning's own application, which it removes in the end.
    """
    from edgekit.history import is_trial

    try:
        apps = client.releases().get("apps", {})
    except EdgekitError:
        return []
    return [
        f"{one} is on the board, trials of a tuning in another folder: unless that one still runs, "
        f"edgekit remove BOARD --app {one}"
        for one in apps
        if one != app and is_trial(one, name)
    ]
