"""Inventories of boards: edgekit's own YAML, with the line of every fault, or an Ansible inventory,
read by ``ansible-inventory``; ranges in names, and selectors.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from edgekit import timeouts
from edgekit.config.loader import fault_text
from edgekit.config.positions import LARGEST_YAML, YamlDocument, parse_yaml
from edgekit.config.schema import ContainerSection, Section
from edgekit.deployment.board import Board, Container
from edgekit.errors import ConfigError, EnvironmentLack, Problem, UsageError
from edgekit.files import named_path, parse_json, read_file, regular_file
from edgekit.fleet.waves import AssignedRelease, FleetBoard
from edgekit.network.source import is_config_file
from edgekit.text import listed

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._/-]{0,62}$")]
_Host = Annotated[
    str, Field(min_length=1, max_length=255, pattern=r"^[^\s\x00-\x1f-][^\s\x00-\x1f]*$")
]
_HostKey = Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}=?$")]
_RANGE = re.compile(r"\[(\d+):(\d+)\]")
_MOST = 100_000
#: Most bytes of an inventory for Ansible, over all files of a folder: more take minutes.
LARGEST_INVENTORY = 8 << 20
_ENTRIES = 10_000  # files and folders below an inventory folder
_LARGEST_LISTING = 64 << 20  # bytes of ansible-inventory's output: all variables of each board
_LARGEST_ERRORS = 1 << 20
_MEMORY = 2 << 30  # bytes for ansible-inventory, and for an inventory that is a program
_OWN = ("all", "ungrouped")
_DIGITS = 5  # most digits of a TCP port
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# messages for texts in a wrong form
_FORMS = {
    "host": "a host name or address has no spaces and does not begin with a dash",
    "host_key": "a host key is SHA256:..., as ssh-keygen -lf prints it",
    "label": "a label has letters, digits, '.', '_', '/' and '-'",
    "value": "a label's value is one line of at most 128 characters",
}
# nodes of an inventory of ten thousand boards with ten values each; still stops an alias bomb
_NODES = 400_000
_TERM = re.compile(
    r"(?P<absent>!)?\s*(?P<key>[A-Za-z0-9_][A-Za-z0-9._/-]*)\s*(?:(?P<sign>!=|==?)\s*(?P<value>.*))?"
)


def _number_as_text(value: Any) -> Any:
    """Returns a number in a label as text: ``rack: 12``."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# characters that a terminal and a selector can show: no control characters
Value = Annotated[
    str, BeforeValidator(_number_as_text), Field(pattern=r"^[^\x00-\x1f\x7f]{0,128}$")
]


class DefaultsFile(Section):
    """Default values of boards; labels are merged with a board's own."""

    port: int | None = Field(None, ge=1, le=65535)
    user: str | None = Field(None, min_length=1)
    key: str | None = Field(None, min_length=1)
    root: str | None = Field(None, min_length=1)
    python: str | None = Field(None, min_length=1)
    container: ContainerSection | None = None
    labels: dict[Key, Value] = Field(default_factory=dict)
    config: str | None = Field(None, min_length=1)


class BoardFile(DefaultsFile):
    """A board, or with ``[01:20]`` in name and host twenty boards."""

    name: str = Field(min_length=1)
    host: _Host
    host_key: _HostKey | None = None


class ReleaseFile(Section):
    """The release of the boards that ``select`` names; without ``select``, of all other boards."""

    select: str | None = Field(None, min_length=1)
    config: str = Field(min_length=1)
    bundle: str = Field(min_length=1)


class InventoryFile(Section):
    """An inventory; a board gets the first of ``releases`` that selects it."""

    version: Literal[1]
    defaults: DefaultsFile = Field(default_factory=DefaultsFile)
    releases: list[ReleaseFile] = Field(default_factory=list)
    boards: list[BoardFile] = Field(min_length=1)


def expand(name: str, host: str) -> list[tuple[str, str]]:
    """Returns pairs of names and hosts; ranges in both are paired in order.

    Raises:
        ValueError: Only one of the two has a range, or the ranges differ in length.
    """
    names, hosts = _expand_range(name), _expand_range(host)
    if names is None and hosts is None:
        return [(name, host)]
    if names is None or hosts is None:
        raise ValueError(f"give a range in both '{name}' and '{host}', or in neither")
    if len(names) != len(hosts):
        raise ValueError(f"{len(names)} names and {len(hosts)} hosts: {name}, {host}")
    return list(zip(names, hosts, strict=True))


def _expand_range(text: str) -> list[str] | None:
    found = list(_RANGE.finditer(text))
    if not found:
        return None
    if len(found) > 1:
        raise ValueError(f"more than one range in '{text}'")
    first, last = found[0].groups()
    # leading zeros are kept: 01 to 20 have two digits
    width = len(first) if first.startswith("0") else 0
    count = int(last) - int(first) + 1
    if not 0 < count <= _MOST:
        raise ValueError(f"the range '{text}' goes from {first} down to {last}")
    start, end = found[0].span()
    return [f"{text[:start]}{i:0{width}d}{text[end:]}" for i in range(int(first), int(last) + 1)]


def read_ansible_inventory(path: Path) -> list[FleetBoard]:
    """Returns the boards that ``ansible-inventory --list`` lists for ``path``.

    Raises:
        EnvironmentLack: "fleet.no-ansible".
        ConfigError: The inventory is too large, or Ansible cannot read it.
    """
    program = find_program("ansible-inventory")
    if program is None:
        raise EnvironmentLack(
            "this inventory needs ansible-inventory, which is not installed",
            code="fleet.no-ansible",
            where=str(path),
            hint="pip install 'edgekit[ansible]', or write the inventory as YAML (docs/fleet.md)",
        )
    _check_size(path)
    output, errors, returned = _run_ansible_inventory(program, path)
    try:
        listing = parse_json(output)
    except (ValueError, RecursionError):
        listing = None
    if returned or not isinstance(listing, dict):
        lines = (errors or output).decode(errors="replace").strip().splitlines()
        raise _inventory_error(
            f"Ansible cannot read it: {lines[-1] if lines else 'it gave no reason'}", path
        )
    return _read_listing(listing, path)


def _inventory_error(message: str, path: Path, hint: str = "") -> ConfigError:
    return ConfigError([Problem(message, str(path), hint)], code="fleet.inventory")


def _check_size(path: Path) -> None:
    """Refuses a file or folder that Ansible would read for minutes.

    Raises:
        ConfigError: The inventory is too large, or not a regular file.
    """
    total = entries = 0
    try:
        if not path.is_dir():
            total = regular_file(path).stat().st_size
        else:
            for folder, _, names in os.walk(path):
                entries += 1 + len(names)
                # a dangling link has no size
                total += sum(f.stat().st_size for n in names if (f := Path(folder, n)).is_file())
                if entries > _ENTRIES or total > LARGEST_INVENTORY:
                    break
    except OSError as error:
        raise _inventory_error(f"cannot be read: {error.strerror}", path) from None
    if entries > _ENTRIES:
        hint = "name the file of boards in it"
        raise _inventory_error(f"the folder contains more than {_ENTRIES:,} files", path, hint)
    if total > LARGEST_INVENTORY:
        message = f"it is larger than {LARGEST_INVENTORY >> 20} MiB"
        raise _inventory_error(
            message, path, "give an inventory of boards; docs/fleet.md has examples"
        )


def _run_ansible_inventory(program: str, path: Path) -> tuple[bytes, bytes, int]:
    """Returns stdout, stderr and exit code of ``ansible-inventory --list``.

    Raises:
        ConfigError: The output is too large, or the program takes too long.
    """
    late = threading.Event()
    with (
        # a file, because a full pipe would block the program while its output is read
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [program, "-i", str(path), "--list"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):

        def end() -> None:
            # an inventory that is a program runs in the same session
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        def end_late() -> None:
            late.set()
            end()

        if sys.platform == "linux":
            # Ansible keeps the whole output of an inventory program in memory
            with contextlib.suppress(OSError, ValueError):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        timer = threading.Timer(timeouts.ANSIBLE_INVENTORY_S, end_late)
        timer.start()
        try:
            assert process.stdout is not None
            output = process.stdout.read(_LARGEST_LISTING + 1)
            if len(output) <= _LARGEST_LISTING:
                process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                end()
        errors.seek(0)
        said = errors.read(_LARGEST_ERRORS)
    if late.is_set():
        raise _inventory_error(
            f"ansible-inventory took longer than {timeouts.ANSIBLE_INVENTORY_S} s", path
        )
    if len(output) > _LARGEST_LISTING:
        most = _LARGEST_LISTING >> 20
        raise _inventory_error(f"ansible-inventory lists more than {most} MiB", path)
    return output, said, process.returncode


def _read_listing(listing: Mapping[str, Any], path: Path) -> list[FleetBoard]:
    groups: dict[str, list[str]] = {}

    def walk(name: str, above: tuple[str, ...]) -> None:
        group = listing.get(name) or {}
        for host in group.get("hosts") or ():
            groups.setdefault(host, []).extend((*above, name))
        for child in group.get("children") or ():
            walk(child, (*above, name))

    walk("all", ())
    # all variables of each host, with those of its groups
    values = (listing.get("_meta") or {}).get("hostvars") or {}
    folder = path if path.is_dir() else path.parent
    return [
        _member(host, values.get(host) or {}, groups[host], str(path), folder) for host in groups
    ]


def _member(
    name: str, values: Mapping[str, Any], groups: list[str], where: str, folder: Path
) -> FleetBoard:
    def text(*keys: str) -> str | None:
        return next((str(values[key]) for key in keys if values.get(key) is not None), None)

    key = text("ansible_ssh_private_key_file", "ansible_private_key_file")
    port = text("ansible_port", "ansible_ssh_port")
    config = text("edgekit_config")
    bundle = text("edgekit_bundle")
    if port is not None and not (port.isdecimal() and len(port) <= _DIGITS):
        problem = Problem(f"{name}: ansible_port {port!r} is not a TCP port", where)
        raise ConfigError([problem], code="fleet.inventory")
    board = Board(
        name=name,
        host=text("ansible_host", "ansible_ssh_host") or name,
        port=int(port) if port else None,
        user=text("ansible_user", "ansible_ssh_user"),
        key=named_path(folder, key) if key else None,
        host_key=text("edgekit_host_key"),
        root=text("edgekit_root") or Board("").root,
        python=text("edgekit_python", "ansible_python_interpreter") or Board("").python,
    )
    labels = {group: "" for group in groups if group not in _OWN}
    if isinstance(given := values.get("edgekit_labels"), dict):
        labels.update((str(key), str(value)) for key, value in given.items())
    return FleetBoard(
        board,
        labels,
        named_path(folder, config) if config else None,
        where,
        AssignedRelease(named_path(folder, bundle)) if bundle else None,
    )


def find_program(name: str) -> str | None:
    """Returns an Ansible program beside this Python, else from PATH; None if it is missing."""
    own = Path(sys.executable).with_name(name)
    return str(own) if own.is_file() else shutil.which(name)


def load_inventory(path: str | Path) -> tuple[FleetBoard, ...]:
    """Reads edgekit's inventory, or Ansible's (INI, YAML, a folder, a script).

    Raises:
        ConfigError: All faults of the inventory, each with file, line and column.
        EnvironmentLack: Only Ansible can read the inventory, and Ansible is not installed.
    """
    path = Path(path)
    if path.is_dir() or not is_config_file(path):
        if not path.exists():
            raise _missing_error(path)
        return _check_distinct(read_ansible_inventory(path), path)
    document = _parse(path)
    # Ansible's YAML has the names of groups at its top level
    if isinstance(document.value, dict) and not {"version", "boards"} & set(document.value):
        members = read_ansible_inventory(path)
    else:
        members = _read_document(document, path.parent)
    return _check_distinct(members, path)


def _missing_error(path: Path) -> ConfigError:
    hint = "give a YAML file of boards (docs/fleet.md) or an Ansible inventory"
    return ConfigError(
        [Problem("the inventory does not exist", str(path), hint)], code="fleet.no-inventory"
    )


def _parse(path: Path) -> YamlDocument:
    try:
        text = read_file(path, LARGEST_YAML).decode("utf-8")
    except FileNotFoundError:
        raise _missing_error(path) from None
    except UnicodeDecodeError as error:
        problem = Problem(f"not UTF-8 text (byte {error.start})", str(path))
        raise ConfigError([problem], code="fleet.inventory") from None
    except OSError as error:
        problem = Problem(f"cannot be read: {error.strerror}", str(path))
        raise ConfigError([problem], code="fleet.inventory") from None
    return parse_yaml(text, str(path), most=_NODES)


def _read_document(document: YamlDocument, folder: Path) -> list[FleetBoard]:
    if not isinstance(document.value, dict):
        kind = "empty" if document.value is None else "not a mapping of keys"
        problem = Problem(f"the inventory is {kind}", f"{document.name}:1:1", "version: 1")
        raise ConfigError([problem], code="fleet.inventory")
    problems = list(document.problems)
    members: list[FleetBoard] = []
    try:
        file = InventoryFile.model_validate(document.value)
    except ValidationError as error:
        problems += [_problem(document, fault) for fault in error.errors(include_url=False)]
    else:
        for index, row in enumerate(file.boards):
            where = document.where(("boards", index))
            try:
                members += _members(row, file.defaults, folder, where)
            except ValueError as fault:
                problems.append(Problem(str(fault), where))
        members, wrong = _assign_releases(document, file.releases, members, folder)
        problems += wrong
    if problems:
        raise ConfigError(problems, code="fleet.inventory")
    return members


def _members(row: BoardFile, own: DefaultsFile, folder: Path, where: str) -> list[FleetBoard]:
    def path(text: str | None) -> Path | None:
        return named_path(folder, text) if text else None

    inside = row.container or own.container
    made = []
    for name, host in expand(row.name, row.host):
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not a valid name: use letters, digits, '.', '_' and '-'")
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
        made.append(FleetBoard(board, labels, path(row.config or own.config), where))
    return made


def _assign_releases(
    document: YamlDocument, releases: list[ReleaseFile], members: list[FleetBoard], folder: Path
) -> tuple[list[FleetBoard], list[Problem]]:
    """Returns the boards with their assigned releases, and the faults of the release rows."""
    rows, problems = [], []
    for index, row in enumerate(releases):
        release = AssignedRelease(named_path(folder, row.bundle), named_path(folder, row.config))
        try:
            rows.append((parse_selector(row.select) if row.select else [], release))
        except UsageError as error:
            where = document.where(("releases", index, "select"))
            problems.append(Problem(error.message.removeprefix("--select "), where, error.hint))

    def of(member: FleetBoard) -> AssignedRelease | None:
        # the first row that selects the board counts
        fits = (
            release for terms, release in rows if all(_matches(member, *term) for term in terms)
        )
        return next(fits, None)

    return [replace(member, release=of(member)) for member in members], problems


def _problem(document: YamlDocument, fault: ErrorDetails) -> Problem:
    path: tuple[str | int, ...] = tuple(fault["loc"])
    # pydantic adds it if the key itself is at fault, not its value
    if path and path[-1] == "[key]":
        path = path[:-1]
    shown = ".".join(map(str, path))
    where = document.where(path)
    if fault["type"] == "extra_forbidden":
        models: dict[int, type[BaseModel]] = {1: InventoryFile, 2: DefaultsFile}
        model = models.get(len(path), ReleaseFile if path[0] == "releases" else BoardFile)
        known = list(model.model_fields)
        near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(known)}"
        return Problem(f"unknown key '{shown}'", where, hint)
    if fault["type"] == "missing":
        return Problem(f"key '{shown}' is missing", where, "add it; see docs/fleet.md")
    message, hint = fault_text(fault)
    if fault["type"] == "string_pattern_mismatch":
        of_label = "labels" in path
        form = _FORMS[
            "value"
            if of_label and fault["loc"][-1] != "[key]"
            else "label"
            if of_label
            else str(path[-1])
        ]
        message, hint = f"{form}, found {fault['input']!r}", ""
    return Problem(f"{shown}: {message}", where, hint)


def _check_distinct(members: Iterable[FleetBoard], path: Path) -> tuple[FleetBoard, ...]:
    """Returns the boards of an inventory if all differ.

    Raises:
        ConfigError: A name occurs twice, two names mean one board, or there is no board.
    """
    names: dict[str, FleetBoard] = {}
    places: dict[tuple[object, ...], FleetBoard] = {}
    problems: list[Problem] = []
    every = tuple(members)
    for member in every:
        board = member.board
        other = names.setdefault(board.name.lower(), member)
        if other is not member:
            message = f"board '{board.name}' appears twice; first at {other.where}"
            problems.append(Problem(message, member.where, "give each board its own name"))
            continue
        # host, account and folder identify a board, whatever its name; 22 is SSH's default port
        place = (
            board.host.lower(),
            board.port or 22,
            board.user,
            board.root,
            board.container and board.container.image,
        )
        other = places.setdefault(place, member)
        if other is not member:
            problems.append(
                Problem(
                    f"'{other.name}' and '{board.name}' are the same board: {board.host}, port "
                    f"{board.port or 22}, folder {board.root}; the first is at {other.where}",
                    member.where,
                    "remove one, or give them different `root:` folders",
                )
            )
        problems += [Problem(p.message, member.where, p.hint) for p in board.problems()]
    if not every:
        hint = "add a host to it, or a board to `boards:`; docs/fleet.md has an example"
        problems.append(Problem("the inventory contains no boards", str(path), hint))
    if problems:
        raise ConfigError(problems, code="fleet.inventory")
    return every


def parse_selector(text: str) -> list[tuple[str, bool, str | None]]:
    """Reads comma-separated terms: ``KEY=VALUE``, ``KEY!=VALUE``, ``KEY`` (the label exists) and
    ``!KEY`` (it does not).

    Returns:
        For each term its key, False if it is negated, and the value's pattern, if any.

    Raises:
        UsageError: The text is no selector.
    """
    terms = []
    for term in text.split(","):
        found = _TERM.fullmatch(term.strip())
        if found is None or (found["absent"] and found["sign"]):
            raise UsageError(
                f"{text!r} is not a valid selector: {term!r}",
                code="fleet.selector",
                hint="--select 'site=a,kind!=xavier,!spare'",
            )
        # brackets are literal here: only * and ? are wildcards
        value = found["value"].replace("[", "[[]") if found["sign"] else None
        terms.append((found["key"], found["sign"] != "!=" and not found["absent"], value))
    return terms


def _matches(member: FleetBoard, key: str, wanted: bool, pattern: str | None) -> bool:
    value = {**member.labels, "name": member.name}.get(key)
    met = value is not None and (pattern is None or fnmatchcase(value, pattern))
    return met is wanted


def select(members: Iterable[FleetBoard], text: str | None) -> tuple[FleetBoard, ...]:
    """Returns the boards that a selector selects; all boards without a selector.

    Raises:
        UsageError: "fleet.selector": the text is no selector; "fleet.nothing-selected", with the
            existing labels.
    """
    every = tuple(members)
    if not text:
        return every
    terms = parse_selector(text)
    chosen = tuple(m for m in every if all(_matches(m, *term) for term in terms))
    if not chosen:
        raise UsageError(
            f"--select {text!r} matches no board of the inventory",
            code="fleet.nothing-selected",
            hint=f"labels in the inventory: {_known_labels(every)}",
        )
    return chosen


def _known_labels(members: Iterable[FleetBoard]) -> str:
    values: dict[str, set[str]] = {}
    for member in members:
        for key, value in member.labels.items():
            values.setdefault(key, set()).add(value)
    parts = []
    for key in sorted(values):
        words = sorted(value for value in values[key] if value)
        parts.append(f"{key}={listed(words, 6)}" if words else key)
    return "; ".join(parts[:20]) or "none (select boards with name=...)"
