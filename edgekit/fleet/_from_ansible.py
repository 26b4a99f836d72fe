"""An Ansible inventory as ours: read by ``ansible-inventory`` where that is installed.

Its YAML form is also read without Ansible, as long as no value is a template. Names of variables:
https://docs.ansible.com/ansible/latest/inventory_guide/intro_inventory.html
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgekit.config._yaml import Document
from edgekit.deploy import Board
from edgekit.errors import ConfigError, EnvironmentLack, Problem
from edgekit.fleet._types import Member

__all__ = ["by_ansible", "find_program", "members_of"]

_SECONDS = 120
_OWN = ("all", "ungrouped")
_DIGITS = 5  # of a TCP port


def members_of(path: Path, document: Document) -> list[Member]:
    """Returns the boards of an inventory in Ansible's YAML form.

    Raises:
        ConfigError: It is none, or has a template and Ansible is not installed.
    """
    if find_program("ansible-inventory"):
        return by_ansible(path)
    if document.problems:
        raise ConfigError(list(document.problems), code="fleet.inventory")
    hosts: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    places: dict[str, str] = {}

    def walk(name: str, group: Any, inherited: Mapping[str, Any], above: tuple[str, ...]) -> None:
        at = document.where(tuple(part for step in above for part in (step, "children"))[:-1])
        if not isinstance(group, dict) and (group is not None or len(above) == 1):
            problem = Problem(f"'{name}' is empty or no group of boards", at, "version: 1, boards:")
            raise ConfigError([problem], code="fleet.inventory")
        group = group or {}
        if unknown := set(group) - {"hosts", "vars", "children"}:
            problem = Problem(f"'{min(unknown)}' is no part of a group of Ansible's", at,
                              "or begin an inventory of edgekit's own: version: 1")  # fmt: skip
            raise ConfigError([problem], code="fleet.inventory")
        values = {**inherited, **(group.get("vars") or {})}
        for host, own in (group.get("hosts") or {}).items():
            hosts[host] = {**hosts.get(host, {}), **values, **(own or {})}
            groups.setdefault(host, []).extend(above)
            places.setdefault(host, document.name)
        for child, inside in (group.get("children") or {}).items():
            walk(child, inside, values, (*above, child))

    for name, group in document.value.items():
        walk(name, group, {}, (name,))
    return [_member(n, v, groups[n], places[n], path.parent) for n, v in hosts.items()]


def by_ansible(path: Path) -> list[Member]:
    """Returns the boards that ``ansible-inventory --list`` says are in ``path``.

    Raises:
        EnvironmentLack: "fleet.no-ansible".
        ConfigError: Ansible cannot read it.
    """
    program = find_program("ansible-inventory")
    if program is None:
        raise EnvironmentLack(
            "only Ansible can read this inventory, and ansible-inventory is not installed",
            code="fleet.no-ansible",
            where=str(path),
            hint="pip install 'edgekit[ansible]', or write the inventory as YAML (docs/fleet.md)",
        )
    command = [program, "-i", str(path), "--list", "--export"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS,
            stdin=subprocess.DEVNULL, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        problem = Problem(f"ansible-inventory did not end within {_SECONDS} s", str(path))
        raise ConfigError([problem], code="fleet.inventory") from None
    try:
        listing = json.loads(done.stdout)
    except ValueError:
        listing = None
    if done.returncode or not isinstance(listing, dict):
        told = (done.stderr or done.stdout).strip().splitlines()
        problem = Problem(f"Ansible cannot read it: {told[-1] if told else 'no reason'}", str(path))
        raise ConfigError([problem], code="fleet.inventory")
    return _listed(listing, path)


def _listed(listing: Mapping[str, Any], path: Path) -> list[Member]:
    values: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}

    def walk(name: str, inherited: Mapping[str, Any], above: tuple[str, ...]) -> None:
        group = listing.get(name) or {}
        # --export leaves a group's variables with the group
        inside = {**inherited, **(group.get("vars") or {})}
        for host in group.get("hosts") or ():
            values[host] = {**values.get(host, {}), **inside}
            groups.setdefault(host, []).extend((*above, name))
        for child in group.get("children") or ():
            walk(child, inside, (*above, name))

    walk("all", {}, ())
    own = (listing.get("_meta") or {}).get("hostvars") or {}
    folder = path if path.is_dir() else path.parent
    return [
        _member(host, {**inside, **(own.get(host) or {})}, groups[host], str(path), folder)
        for host, inside in values.items()
    ]


def _member(
    name: str, values: Mapping[str, Any], groups: list[str], where: str, folder: Path
) -> Member:
    def text(*keys: str) -> str | None:
        for key in keys:
            if (value := values.get(key)) is None:
                continue
            if "{{" in str(value):
                problem = Problem(f"{name}: {key} is a template, which only Ansible can fill in",
                                  where, "pip install 'edgekit[ansible]'")  # fmt: skip
                raise ConfigError([problem], code="fleet.inventory")
            return str(value)
        return None

    key = text("ansible_ssh_private_key_file", "ansible_private_key_file")
    port = text("ansible_port", "ansible_ssh_port")
    config = text("edgekit_config")
    if port is not None and not (port.isdecimal() and len(port) <= _DIGITS):
        problem = Problem(f"{name}: ansible_port is {port!r}, no TCP port", where)
        raise ConfigError([problem], code="fleet.inventory")
    board = Board(
        name=name,
        host=text("ansible_host", "ansible_ssh_host") or name,
        port=int(port) if port else None,
        user=text("ansible_user", "ansible_ssh_user"),
        key=folder / Path(key).expanduser() if key else None,
        host_key=text("edgekit_host_key"),
        root=text("edgekit_root") or Board("").root,
        python=text("edgekit_python", "ansible_python_interpreter") or Board("").python,
    )
    labels = {group: "" for group in groups if group not in _OWN}
    labels.update(_labels(values.get("edgekit_labels")))
    return Member(board, labels, folder / config if config else None, where)


def _labels(given: Any) -> Iterator[tuple[str, str]]:
    for key, value in given.items() if isinstance(given, dict) else ():
        yield str(key), str(value)


def find_program(name: str) -> str | None:
    """Returns a program of Ansible's: this Python's own, or the one in PATH."""
    own = Path(sys.executable).with_name(name)
    return str(own) if own.is_file() else shutil.which(name)
