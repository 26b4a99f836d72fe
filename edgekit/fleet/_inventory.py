"""Reads an inventory: edgekit's own YAML, with every fault told by its line, or Ansible's."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._files import regular
from edgekit.config._yaml import Document, parse_yaml
from edgekit.deploy import Board, Container
from edgekit.errors import ConfigError, Problem
from edgekit.fleet._ranges import expand
from edgekit.fleet._types import Member

if TYPE_CHECKING:
    from edgekit.fleet._inventory_schema import BoardFile, DefaultsFile

__all__ = ["Inventory", "check_members", "load_inventory"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# what is wrong with a text that does not have its form
_FORMS = {
    "host": "a host name or address has no spaces and begins with no dash",
    "host_key": "a host key is SHA256:..., as ssh-keygen -lf prints it",
    "label": "a label has letters, digits, '.', '_', '/' and '-'",
    "value": "a label's value is one line of at most 128 letters",
}
# an inventory of ten thousand boards, ten values each; an alias bomb is still found
_NODES = 400_000


@dataclass(frozen=True, slots=True)
class Inventory:
    """The boards of a file.

    Attributes:
        path: The file.
        members: Its boards, in its order.
        digest: SHA-256 of the boards as they were understood.
    """

    path: str
    members: tuple[Member, ...]

    @property
    def digest(self) -> str:
        """What tells a changed inventory from an unchanged one; comments do not count."""
        shown = [(m.name, sorted(m.labels.items()), sorted(map(str, m.entry().items())))
                 for m in self.members]  # fmt: skip
        return hashlib.sha256(repr(shown).encode()).hexdigest()


def load_inventory(path: str | Path) -> Inventory:
    """Reads ``path``: edgekit's inventory, or one of Ansible's (INI, YAML, a folder, a script).

    Raises:
        ConfigError: Every fault of it, each with file, line and column.
        EnvironmentLack: It is one that only Ansible can read, and Ansible is not installed.
    """
    from edgekit.fleet import _from_ansible

    path = Path(path)
    if path.is_dir() or path.suffix.lower() not in (".yaml", ".yml"):
        if not path.exists():
            raise _missing(path)
        return Inventory(str(path), check_members(_from_ansible.by_ansible(path)))
    document = _parse(path)
    if isinstance(document.value, dict) and not {"version", "boards"} & set(document.value):
        members = _from_ansible.members_of(path, document)
    else:
        members = _own(document, path.parent)
    return Inventory(str(path), check_members(members))


def _missing(path: Path) -> ConfigError:
    hint = "give a YAML file of boards (docs/fleet.md) or an Ansible inventory"
    return ConfigError([Problem("no such inventory", str(path), hint)], code="fleet.no-inventory")


def _parse(path: Path) -> Document:
    try:
        text = regular(path).read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise _missing(path) from None
    except UnicodeDecodeError as error:
        problem = Problem(f"not UTF-8 text (byte {error.start})", str(path))
        raise ConfigError([problem], code="fleet.inventory") from None
    except OSError as error:
        problem = Problem(f"cannot be read: {error.strerror}", str(path))
        raise ConfigError([problem], code="fleet.inventory") from None
    return parse_yaml(text, str(path), most=_NODES)


def _own(document: Document, folder: Path) -> list[Member]:
    from pydantic import ValidationError

    from edgekit.fleet._inventory_schema import InventoryFile

    if not isinstance(document.value, dict):
        kind = "empty" if document.value is None else "no mapping of keys"
        problem = Problem(f"the inventory is {kind}", f"{document.name}:1:1", "version: 1")
        raise ConfigError([problem], code="fleet.inventory")
    problems = list(document.problems)
    members: list[Member] = []
    try:
        file = InventoryFile.model_validate(document.value)
    except ValidationError as error:
        problems += [_problem(document, dict(fault)) for fault in error.errors(include_url=False)]
    else:
        for index, row in enumerate(file.boards):
            where = document.where(("boards", index))
            try:
                members += _members(row, file.defaults, folder, where)
            except ValueError as fault:
                problems.append(Problem(str(fault), where))
    if problems:
        raise ConfigError(problems, code="fleet.inventory")
    return members


def _members(row: BoardFile, own: DefaultsFile, folder: Path, where: str) -> list[Member]:
    def path(text: str | None) -> Path | None:
        return folder / Path(text).expanduser() if text else None

    inside = row.container or own.container
    made = []
    for name, host in expand(row.name, row.host):
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name: letters, digits, '.', '_' and '-'")
        board = Board(
            name=name,
            host=host,
            port=row.port or own.port,
            user=row.user or own.user,
            key=path(row.key or own.key),
            host_key=row.host_key,
            root=row.root or own.root or Board("").root,
            python=row.python or own.python or Board("").python,
            container=Container(inside.image, inside.runtime, tuple(inside.options))
            if inside
            else None,
        )
        labels = {**own.labels, **row.labels}
        made.append(Member(board, labels, path(row.config or own.config), where))
    return made


def _problem(document: Document, fault: dict[str, Any]) -> Problem:
    from pydantic import BaseModel

    from edgekit.fleet._inventory_schema import BoardFile, DefaultsFile, InventoryFile

    path: tuple[str | int, ...] = tuple(fault["loc"])
    if path and path[-1] == "[key]":
        path = path[:-1]
    shown = ".".join(map(str, path))
    where = document.where(path)
    if fault["type"] == "extra_forbidden":
        models: dict[int, type[BaseModel]] = {1: InventoryFile, 2: DefaultsFile}
        model = models.get(len(path), BoardFile)
        known = list(model.model_fields)
        near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}"
        return Problem(f"unknown key '{shown}'", where, hint)
    if fault["type"] == "missing":
        return Problem(f"key '{shown}' is missing", where, "add it; see docs/fleet.md")
    found = fault["input"]
    told = "" if isinstance(found, dict | list) else f", found {found!r}"
    number = isinstance(found, bool | float)
    hint = f"write it in quotes: '{found}'" if fault["type"] == "string_type" and number else ""
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "string_pattern_mismatch":
        of_label = "labels" in path
        message = _FORMS["value" if of_label and fault["loc"][-1] != "[key]" else
                         "label" if of_label else str(path[-1])]  # fmt: skip
    return Problem(f"{shown}: {message[:1].lower()}{message[1:]}{told}", where, hint)


def check_members(members: Iterable[Member]) -> tuple[Member, ...]:
    """Returns the boards if each is another one.

    Raises:
        ConfigError: A name stands twice, two names are of one board, or there is no board.
    """
    names: dict[str, Member] = {}
    places: dict[tuple[object, ...], Member] = {}
    problems: list[Problem] = []
    every = tuple(members)
    for member in every:
        board = member.board
        other = names.setdefault(board.name.lower(), member)
        if other is not member:
            message = f"board '{board.name}' stands twice; first at {other.where}"
            problems.append(Problem(message, member.where, "give each board a name of its own"))
            continue
        # one account with one folder is one board, by whatever name; 22 is SSH's own port
        place = (board.host.lower(), board.port or 22, board.user, board.root,
                 board.container and board.container.image)  # fmt: skip
        other = places.setdefault(place, member)
        if other is not member:
            problems.append(
                Problem(
                    f"'{other.name}' and '{board.name}' are the same board: {board.host}, port "
                    f"{board.port or 22}, folder {board.root}; the first at {other.where}",
                    member.where,
                    "leave one out, or give them different `root:` folders",
                )
            )
        problems += [Problem(p.message, member.where, p.hint) for p in board.problems()]
    if not every:
        problems.append(Problem("the inventory has no board", ""))
    if problems:
        raise ConfigError(problems, code="fleet.inventory")
    return every
