"""The folder that ``edgekit fleet export ansible`` writes: the boards, the signed bundle, the
loader, playbooks, and a role that calls the board's one command (``install``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from edgekit.bundles.files import build_board_loader, read, write
from edgekit.bundles.manifest import Bundle
from edgekit.bundles.sign import allowed_signers_line
from edgekit.config.loader import Config, open_config
from edgekit.errors import UsageError
from edgekit.files import write_error
from edgekit.fleet.bundles import signing_key_line
from edgekit.fleet.inventory import load_inventory, select
from edgekit.fleet.waves import DEFAULT_WAVES, FleetBoard, make_waves
from edgekit.pipeline.boards.addresses import config_boards
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.progress import Progress
from edgekit.removed import FormerDict
from edgekit_device.protocol import codec, fields
from edgekit_device.protocol.codec import array, choice, document, text
from edgekit_device.release.policy import Policy

_ROLE = "edgekit_board"
_COMMENT = "Written by edgekit fleet export ansible. The waves use this order of boards."

_SETTINGS = """\
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

# OpenSSH splits these options itself, without a shell
_PINNED = (
    '-o \'KnownHostsCommand=/bin/sh "{{ playbook_dir }}/pinned_host_key" %H %t %K %f '
    "{{ edgekit_board_host_key }}' -o UserKnownHostsFile=none -o GlobalKnownHostsFile=none"
)
_KNOWN = "-o 'UserKnownHostsFile=~/.ssh/known_hosts \"{{ playbook_dir }}/known_hosts\"'"
_GROUP = re.compile(r"[^A-Za-z0-9_]")
_BUDGET = re.compile(r"(\d+)(%?)")


@document(frozen=True)
class Exported(FormerDict):
    """``edgekit.fleet.ansible/1``: a folder for Ansible.

    Attributes:
        folder: Path of the folder.
        boards: Number of boards.
        waves: Number of boards by wave.
        order: Names of the boards, wave by wave.
        bundles: App and digest of each bundle.
        notes: Notes for the user.
    """

    folder: str = codec.member(text())
    boards: int = codec.member(fields.count)
    waves: tuple[int, ...] = codec.member(array(fields.count))
    order: tuple[str, ...] = codec.member(array(text()))
    bundles: tuple[tuple[str, str], ...] = codec.member(array(array(text(), 2, 2)))
    notes: tuple[str, ...] = codec.member(array(text(most=1 << 18)), default=())
    schema: str = codec.member(choice("edgekit.fleet.ansible/1"), default="edgekit.fleet.ansible/1")


def export(
    folder: Path,
    config: str | Path,
    *,
    inventory: Path | None = None,
    selector: str | None = None,
    bundle: Path | None = None,
    canary: int = 0,
    waves: str = DEFAULT_WAVES,
    budget: str = "0",
    trust_key: bool = True,
    again: bool = False,
    private: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Builds the bundles and writes the folder.

    Args:
        folder: The folder to write.
        config: The configuration of the application.
        inventory: The boards; None for the configuration's boards.
        selector: Selects boards; None for all.
        bundle: A finished bundle to use instead of a build.
        canary: See ``export_ansible``, like ``waves``, ``budget``, ``again`` and ``private``.
        trust_key: Make boards trust the keys that sign the configurations' bundles.
        progress: Called with a build's progress.

    Raises:
        ConfigError: The configuration or the inventory is invalid.
        UsageError: No board is selected, or an error of ``export_ansible``.
        EdgekitError: The build failed.
    """
    opened = open_config(config)
    members = select(_members(inventory, opened), selector)
    configs = {str(m.config): open_config(m.config) for m in members if m.config is not None}
    configs[""] = opened
    _check(folder, members, canary, waves, budget)  # a build may take long
    given = None if bundle is None else read(bundle)
    made: dict[str, Bundle] = {}
    of: dict[str, Bundle] = {}
    for member in members:
        key = str(member.config) if member.config else ""
        if key not in made:
            made[key] = given or _build_bundle(configs[key], progress)
        of[member.name] = made[key]
    signers = (
        [allowed_signers_line(signing_key_line(configs[key])) for key in made] if trust_key else []
    )
    deploy = opened.file.deploy
    return export_ansible(
        folder,
        members,
        of,
        canary=canary,
        waves=waves,
        budget=budget,
        signers=list(dict.fromkeys(signers)),
        policy=replace(deploy.health.policy(), keep=deploy.keep),
        again=again,
        private=private,
        known_hosts=Cache().folder / "known_hosts",
    )


def export_ansible(
    folder: Path,
    members: Sequence[FleetBoard],
    bundles: Mapping[str, Bundle],
    *,
    canary: int = 0,
    waves: str = DEFAULT_WAVES,
    budget: str = "0",
    signers: Sequence[str] = (),
    policy: Policy | None = None,
    again: bool = False,
    private: bool = False,
    known_hosts: Path | None = None,
) -> Exported:
    """Writes the folder, or updates the folder of an earlier export.

    Args:
        folder: The folder to write; other files in it (``group_vars``, ``host_vars``) stay.
        members: The boards.
        bundles: Signed bundles with weights, by board name.
        canary: Number of boards of an extra first wave.
        waves: As for ``make_waves``.
        budget: Percentage of a wave's boards that may fail, "5%".
        signers: Lines of allowed_signers that boards shall trust.
        policy: Limits of the boards' health check.
        again: Deploy a bundle even if a board took it back.
        private: Make a new folder readable for its owner only.
        known_hosts: edgekit's file of known host keys.

    Raises:
        UsageError: No boards, wrong waves, a board with a container, or a folder of others.
        EnvironmentLack: "file.write"; the folder cannot be made.
        BundleError: A bundle without its weights.
    """
    made, most = _check(folder, members, canary, waves, budget)
    ordered = [member for wave in made for member in wave]
    different = {bundle.digest: bundle for bundle in bundles.values()}
    known = ""
    if known_hosts is not None and known_hosts.is_file():
        known = known_hosts.read_text(encoding="utf-8")
    try:
        folder.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, "cannot create the folder", error) from error
    shutil.copytree(Path(__file__).with_name("role"), folder / "roles" / _ROLE, dirs_exist_ok=True)
    loader = build_board_loader(folder / "loader")
    settings = {
        "edgekit_board_signers": list(signers),
        "edgekit_board_policy": codec.write(policy or Policy()),
        **({"edgekit_board_again": True} if again else {}),
        "edgekit_board_loader": "{{ playbook_dir }}/loader/" + loader.name,
    }
    facts = {
        name: {"edgekit_board_app": bundle.name, "edgekit_board_digest": bundle.digest}
        for name, bundle in bundles.items()
    }
    for bundle in different.values():
        _put_bundle(bundle, folder / "bundles" / bundle.name / bundle.digest)
    texts = {
        "ansible.cfg": _SETTINGS,
        "pinned_host_key": PIN,
        "known_hosts": known,
        "inventory.yml": _inventory(ordered, facts, settings),
        **_playbooks([len(wave) for wave in made], most),
    }
    for name, content in texts.items():
        (folder / name).write_text(content, encoding="utf-8")
    return Exported(
        str(folder),
        len(ordered),
        tuple(len(wave) for wave in made),
        tuple(member.name for member in ordered),
        tuple((bundle.name, bundle.digest) for bundle in different.values()),
        _notes(ordered, known),
    )


def _check(
    folder: Path, members: Sequence[FleetBoard], canary: int, waves: str, budget: str
) -> tuple[list[list[FleetBoard]], int]:
    """Returns waves and budget; refuses invalid exports before any file is written."""
    if not members:
        raise UsageError("no board to export", code="fleet.empty")
    most = percentage(budget)
    made = make_waves(members, canary, waves)
    for member in members:
        _host_vars(member)
    ours = not folder.exists() or (folder / "roles" / _ROLE).is_dir()
    if not ours and (not folder.is_dir() or os.listdir(folder)):
        raise UsageError(
            "another file or folder is here",
            code="write.occupied",
            where=str(folder),
            hint="give a new folder, or one that this command wrote",
        )
    return made, most


def _members(inventory: Path | None, config: Config) -> tuple[FleetBoard, ...]:
    if inventory is not None:
        return load_inventory(inventory)

    boards = config_boards(config)
    if not boards:
        raise UsageError(
            "the configuration names no board",
            where=config.path,
            hint="list them under deploy.boards, or give --inventory",
        )
    return tuple(FleetBoard(board, where=config.path) for board in boards)


def _build_bundle(config: Config, progress: Progress | None) -> Bundle:
    with Pipeline(config, progress=progress) as pipeline:
        pipeline.bundle()
        return pipeline.packed()


def _put_bundle(bundle: Bundle, here: Path) -> None:
    """Writes the files that Ansible copies (blobs and the bundle) and the board's request."""
    here.mkdir(parents=True, exist_ok=True)
    write(bundle, here / "bundle", stripped=False)
    write(bundle, here / "bundle.ekb", stripped=False)
    signature = None if bundle.signature is None else bundle.signature.decode("ascii")
    offer = {"manifest": bundle.manifest_bytes.decode("utf-8"), "signature": signature}
    (here / "offer.json").write_text(json.dumps(offer) + "\n", encoding="utf-8")


def _notes(members: Sequence[FleetBoard], known: str) -> tuple[str, ...]:
    loose = [member.name for member in members if member.board.host_key is None]
    if not loose or known:
        return ()
    shown = ", ".join(loose[:3]) + (f" and {len(loose) - 3} more" if len(loose) > 3 else "")
    return (
        f"no host key is pinned for {shown}: put it into ~/.ssh/known_hosts of the user who "
        "runs Ansible",
    )


class _Indented(yaml.SafeDumper):
    """Indents list items below their key, as ansible-lint requires."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _to_yaml(document: Any, comment: str) -> str:
    """Returns YAML with a comment above it."""
    text: str = yaml.dump(document, Dumper=_Indented, sort_keys=False, width=96, allow_unicode=True)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + "---\n" + text


def _host_vars(member: FleetBoard) -> dict[str, object]:
    """Returns Ansible's variables of a board.

    Raises:
        UsageError: "fleet.container": the board's loader runs in a container.
    """
    board = member.board
    if board.container is not None:
        raise UsageError(
            "edgekit_device runs in a container on this board, which the Ansible role does "
            "not support",
            code="fleet.container",
            where=member.name,
            hint="use edgekit fleet deploy without Ansible, or install the runtime on the board "
            "itself",
        )
    found: dict[str, object] = {"ansible_host": board.host}
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


def _inventory(
    members: Sequence[FleetBoard],
    bundles: Mapping[str, Mapping[str, str]],
    settings: Mapping[str, object],
) -> str:
    """Returns an inventory in Ansible's YAML form.

    Args:
        members: The boards, in the order of their waves.
        bundles: By board name, variables such as ``edgekit_board_app`` and
            ``edgekit_board_digest``.
        settings: Variables of all boards.
    """
    groups: dict[str, dict[str, dict[str, None]]] = {}
    hosts = {}
    first = next(iter(bundles.values()))
    same = all(facts == first for facts in bundles.values())
    for member in members:
        own = {} if same else bundles[member.name]
        hosts[member.name] = {**_host_vars(member), **own}
        for key, value in sorted(member.labels.items()):
            name = _GROUP.sub("_", f"{key}_{value}" if value else key)
            # Ansible refuses names of groups that begin with a digit, and has two groups of its own
            name = f"label_{name}" if name[:1].isdigit() or name in ("all", "ungrouped") else name
            groups.setdefault(name, {"hosts": {}})["hosts"][member.name] = None
    shared = {"ansible_ssh_common_args": _KNOWN, **settings, **(first if same else {})}
    boards = {"edgekit_boards": {"hosts": hosts, "vars": shared}}
    return _to_yaml({"all": {"children": {**boards, **groups}}}, _COMMENT)


def percentage(budget: str) -> int:
    """Returns ``--max-failures`` as Ansible's ``max_fail_percentage``.

    Raises:
        UsageError: The budget is a number of boards other than 0.
    """
    found = _BUDGET.fullmatch(budget.strip())
    number = int(found[1]) if found else -1
    if found is None or (number and not found[2]) or number > 100:
        raise UsageError(
            f"--max-failures {budget!r}: Ansible counts failures as a percentage of a wave",
            code="fleet.budget",
            hint="--max-failures 5%, or 0",
        )
    return number


def _playbooks(waves: Sequence[int], most: int) -> dict[str, str]:
    """Returns the playbooks' texts by file name.

    Args:
        waves: Number of boards by wave.
        most: Percentage of a wave that may fail.
    """
    deploy = {
        "name": "Deploy the bundle to the boards, wave by wave",
        "hosts": "edgekit_boards",
        "gather_facts": False,
        "serial": list(waves),
        "max_fail_percentage": most,
        "vars": {"edgekit_board_most_failed": most},
        "tasks": [
            {"name": "The board", "ansible.builtin.import_role": {"name": _ROLE}},
        ],
    }
    serial = (
        "serial: the boards of each wave, canaries first (percentages are allowed).\n"
        "max_fail_percentage: after more failures in a wave, no further wave starts. Failed\n"
        "boards have gone back by themselves; edgekit_board_most_failed (the same number) rolls\n"
        "back the other boards of the wave. Earlier waves stay: roll them back with rollback.yml."
    )
    twice = "Leaves boards with another current bundle alone; --limit restricts it to a wave."
    return {
        "deploy.yml": _to_yaml([deploy], serial),
        "rollback.yml": _role_playbook(
            "Go back to the previous release where the bundle is current", "rollback", twice
        ),
        "serving.yml": _role_playbook("Show the current release", "serving", "Changes nothing."),
    }


def _role_playbook(name: str, tasks: str, comment: str) -> str:
    """Returns a playbook that runs tasks of the role."""
    role = {"name": _ROLE, "tasks_from": tasks}
    play = {
        "name": name,
        "hosts": "edgekit_boards",
        "gather_facts": False,
        "tasks": [
            {"name": "The board", "ansible.builtin.import_role": role, "tags": [f"edgekit_{tasks}"]}
        ],
    }
    return _to_yaml([play], comment)
