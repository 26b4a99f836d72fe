"""Names of rollouts, and the commands to suggest to a user."""

from __future__ import annotations

import itertools
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.files import cache_folder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
UNKNOWN_HOST_KEY = "board.unknown-host-key"

#: How to make a board's host key known permanently.
ACCEPT_KEY = (
    "compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the board, then pin "
    'it in the inventory, `host_key: "SHA256:..."`, or connect once with ssh, which saves it'
)


def state_folder() -> Path:
    """Returns the default folder of the rollouts' state."""
    return cache_folder() / "fleet"


def rollout_name(name: str | None, app: str, taken: Callable[[str], bool]) -> str:
    """Returns the name of a new rollout: the given name, or the app's name and the time.

    Args:
        name: The given name; None to make one.
        app: The application.
        taken: Returns True if a rollout has the name.

    Raises:
        UsageError: The name is invalid.
    """
    if name is None:
        # the end, which has the time, if the app's name is long
        first = f"{app}-{time.strftime('%Y%m%d-%H%M%S')}"[-64:]
        more = (f"{first}-{number}" for number in itertools.count(2))
        return next(new for new in itertools.chain([first], more) if not taken(new))
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"--name {name!r}: use letters, digits, '.', '_' and '-'")
    return name


def ansible_folder(folder: Path, name: str) -> Path:
    """Returns the folder of a rollout's Ansible export, in the state folder."""
    return folder / "ansible" / name


def playbook_command(folder: Path) -> str:
    """Returns the commands that run an export, for its folder."""
    return (
        f"cd {shlex.quote(str(folder))}, then run `ansible-playbook deploy.yml` to continue, "
        "rollback.yml to roll back, or serving.yml to see the current releases"
    )


def action_command(action: str, name: str, folder: Path, *more: str) -> str:
    """Returns the command of an action on a rollout.

    Args:
        action: "resume", "rollback" or another action.
        name: The rollout's name.
        folder: The state folder; named in the command unless it is the default.
        more: Further options.
    """
    return shlex.join(["edgekit", "fleet", action, name, *more, *state_option(folder)])


def state_option(folder: Path) -> list[str]:
    """Returns the option for the state folder; none for the default folder."""
    if folder.resolve() == state_folder().resolve():
        return []
    return ["--state", str(folder.resolve())]


def resume_command(name: str, folder: Path, code: str = "") -> str:
    """Returns the command that resumes a rollout.

    Args:
        name: The rollout's name.
        folder: The state folder.
        code: Code of the error that stopped the rollout. If it waits for host keys, the command
            includes the consent, because it would pause again otherwise.
    """
    keys = code == UNKNOWN_HOST_KEY
    return action_command("resume", name, folder, *(("--accept-host-key",) if keys else ()))
