"""What an Ansible export consists of besides the role: inventory, playbooks, settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.errors import UsageError
from edgekit.fleet._types import Member

__all__ = ["SETTINGS", "host_vars", "inventory", "percentage", "playbooks", "to_yaml"]

SETTINGS = """\
# Written by edgekit fleet export ansible; ansible-playbook reads it in this folder.
[defaults]
inventory = inventory.yml
roles_path = roles
host_key_checking = True
gathering = explicit
forks = 25
interpreter_python = auto_silent
retry_files_enabled = False
any_errors_fatal = False

[connection]
pipelining = True

[ssh_connection]
ssh_args = -o ControlMaster=auto -o ControlPersist=60s -o StrictHostKeyChecking=yes
retries = 3
"""

PIN = """\
#!/bin/sh
# OpenSSH's KnownHostsCommand: a board's key is known when it has the fingerprint that is pinned.
# Arguments: host, key's type, key, its fingerprint, the pin.
if [ -n "$5" ] && [ "$4" = "$5" ]; then
    printf '%s %s %s\\n' "$1" "$2" "$3"
fi
"""

# OpenSSH splits these itself: no shell reads them
_PINNED = (
    '-o \'KnownHostsCommand=/bin/sh "{{ inventory_dir }}/pinned_host_key" %H %t %K %f '
    "{{ edgekit_board_host_key }}' -o UserKnownHostsFile=none -o GlobalKnownHostsFile=none"
)
_KNOWN = "-o 'UserKnownHostsFile=~/.ssh/known_hosts \"{{ inventory_dir }}/known_hosts\"'"
_ROLE = "edgekit_board"
_GROUP = re.compile(r"[^A-Za-z0-9_]")
_BUDGET = re.compile(r"(\d+)(%?)")


def to_yaml(document: Any, comment: str) -> str:
    """Returns YAML with a comment above it."""
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, width=96, allow_unicode=True)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + "---\n" + text


def host_vars(member: Member) -> dict[str, Any]:
    """Returns what Ansible is to know of a board.

    Raises:
        UsageError: "fleet.container"; its loader runs in a container.
    """
    board = member.board
    if board.container is not None:
        raise UsageError(
            "the board's loader runs in a container, which the Ansible role does not start",
            code="fleet.container",
            where=member.name,
            hint="edgekit fleet deploy does, or install the runtime on the board itself",
        )
    found: dict[str, Any] = {"ansible_host": board.host}
    if board.port is not None:
        found["ansible_port"] = board.port
    if board.user is not None:
        found["ansible_user"] = board.user
    if board.key is not None:
        found["ansible_ssh_private_key_file"] = str(board.key)
    if board.python != "python3":
        found["edgekit_board_python"] = board.python
    if board.python.startswith("/"):
        found["ansible_python_interpreter"] = board.python
    if board.root != "~/.edgekit":
        found["edgekit_board_root"] = board.root
    if board.host_key is not None:
        found["edgekit_board_host_key"] = board.host_key
        found["ansible_ssh_common_args"] = _PINNED
    return found


def inventory(
    members: Sequence[Member],
    bundles: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns an inventory in Ansible's YAML form.

    Args:
        members: The boards, in the order of their waves.
        bundles: By board's name its ``edgekit_board_app``, ``edgekit_board_digest`` and the like.
        settings: Variables of all boards.
    """
    groups: dict[str, dict[str, Any]] = {}
    hosts: dict[str, Any] = {}
    first = next(iter(bundles.values()))
    same = all(facts == first for facts in bundles.values())
    for member in members:
        own = {} if same else dict(bundles[member.name])
        hosts[member.name] = {**host_vars(member), **own}
        for key, value in sorted(member.labels.items()):
            name = _GROUP.sub("_", f"{key}_{value}" if value else key)
            name = f"label_{name}" if name[:1].isdigit() or name in ("all", "ungrouped") else name
            groups.setdefault(name, {"hosts": {}})["hosts"][member.name] = None
    shared: dict[str, Any] = {"ansible_ssh_common_args": _KNOWN, **settings}
    if same:
        shared.update(first)
    boards = {"edgekit_boards": {"hosts": hosts, "vars": shared}}
    return {"all": {"children": {**boards, **groups}}}


def percentage(budget: str) -> int:
    """Returns ``--max-failures`` as Ansible's ``max_fail_percentage``.

    Raises:
        UsageError: It is a number of boards other than 0.
    """
    found = _BUDGET.fullmatch(budget.strip())
    number = int(found[1]) if found else -1
    if found is None or (number and not found[2]) or number > 100:
        raise UsageError(
            f"--max-failures {budget!r}: Ansible counts failures in percent of a wave",
            code="fleet.budget",
            hint="--max-failures 5%, or 0",
        )
    return number


def playbooks(waves: Sequence[int], most: int) -> dict[str, str]:
    """Returns the playbooks' texts by file name.

    Args:
        waves: Boards of each wave.
        most: Percent of a wave that may fail.
    """
    deploy = {
        "name": "Bring the boards to the bundle, wave by wave",
        "hosts": "edgekit_boards",
        "gather_facts": False,
        "serial": list(waves),
        "max_fail_percentage": most,
        "vars": {"edgekit_board_most_failed": most},
        "tasks": [
            {"name": "The board", "ansible.builtin.import_role": {"name": _ROLE}},
        ],
    }
    ask = _of_role("Say what serves", "serving")
    back = _of_role("Go back to the release before, where the bundle serves", "rollback")
    serial = (
        "serial: the boards of each wave, canaries first (a percentage is allowed, too).\n"
        "max_fail_percentage: with more failures in a wave no further one begins. Boards that\n"
        "failed have gone back by themselves; edgekit_board_most_failed, the same number, has the\n"
        "wave's others taken back. Waves before it stay: rollback.yml takes these back."
    )
    twice = "Boards on which another bundle serves are left alone; --limit narrows it to a wave."
    return {
        "deploy.yml": to_yaml([deploy], serial),
        "rollback.yml": to_yaml([back], twice),
        "serving.yml": to_yaml([ask], "Changes nothing."),
    }


def _of_role(name: str, tasks: str) -> dict[str, Any]:
    role = {"name": _ROLE, "tasks_from": tasks}
    return {
        "name": name,
        "hosts": "edgekit_boards",
        "gather_facts": False,
        "tasks": [{"name": "The board", "ansible.builtin.import_role": role}],
    }
