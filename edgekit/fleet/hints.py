"""Names of rollouts, and what a user may do next as commands that can be typed as they stand."""

from __future__ import annotations

import itertools
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.knowledge import cache_folder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
UNKNOWN_HOST_KEY = "board.unknown-host-key"

#: How a board's host key comes to be known for good.
ACCEPT_KEY = (
    "compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the board, then pin "
    'it in the inventory, `host_key: "SHA256:..."`, or connect once with ssh, which saves it'
)


def state_folder() -> Path:
    """Returns the folder of the rollouts' state where no other is named."""
    return cache_folder() / "fleet"


def rollout_name(name: str | None, app: str, taken: Callable[[str], bool]) -> str:
    """Returns the name of a new rollout: the one that is given, or the app's and the time.

    Args:
        name: The given one, which may be taken.
        app: The application.
        taken: Whether there is a rollout of a name.

    Raises:
        UsageError: It is no name.
    """
    if name is None:
        first = f"{app}-{time.strftime('%Y%m%d-%H%M%S')}"[-64:]
        more = (f"{first}-{number}" for number in itertools.count(2))
        return next(new for new in itertools.chain([first], more) if not taken(new))
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"--name {name!r}: use letters, digits, '.', '_' and '-'")
    return name


def ansible_folder(folder: Path, name: str) -> Path:
    """Returns where the export of a rollout by Ansible lies, in the state's folder."""
    return folder / "ansible" / name


def playbook_command(folder: Path) -> str:
    """Returns what can be done with an export, by commands in its folder."""
    return (
        f"cd {shlex.quote(str(folder))}, then run `ansible-playbook deploy.yml` to continue, "
        "rollback.yml to roll back, or serving.yml to see the current releases"
    )


def action_command(action: str, name: str, folder: Path, *more: str) -> str:
    """Returns the command of an action on a rollout.

    Args:
        action: "resume", "rollback" and the like.
        name: The rollout's.
        folder: The state's; named unless it is edgekit's own.
        more: Further options.
    """
    return shlex.join(["edgekit", "fleet", action, name, *more, *state_option(folder)])


def state_option(folder: Path) -> list[str]:
    """Returns the option that names the state's folder; none where it is edgekit's own."""
    if folder.resolve() == state_folder().resolve():
        return []
    return ["--state", str(folder.resolve())]


def resume_command(name: str, folder: Path, code: str = "") -> str:
    """Returns the command that a rollout goes on with.

    Args:
        name: The rollout's.
        folder: The state's.
        code: Of the error by which it stopped. One that waits for host keys would pause again
            without their consent.
    """
    keys = code == UNKNOWN_HOST_KEY
    return action_command("resume", name, folder, *(("--accept-host-key",) if keys else ()))
