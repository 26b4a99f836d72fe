"""Rules between the board's code, the declared names and the names of a release.

A release's names are a mapping as in tests/data/tensorrt_api: name -> kind, sig, value, lean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from _bindings_used import Uses

from edgekit_device.versions import parse_version

__all__ = [
    "Names",
    "compare",
    "find_missing",
    "find_undeclared",
    "find_wrong_calls",
    "read_declared",
]

Names = Mapping[str, Mapping[str, Any]]
# of pybind11's objects and of the module itself
_PYTHON = {"name", "value", "__version__", "__init__", "__members__"}


def read_declared(root: Path) -> dict[str, Any]:
    """tests/data/tensorrt_api/used.yaml."""
    text = (root / "tests" / "data" / "tensorrt_api" / "used.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def _declared_names(used: Mapping[str, Any], part: str = "") -> Iterator[tuple[str, str]]:
    """(range, name) of both parts, or of one."""
    for key in ("full", "runtime"):
        for where, names in used[key].items() if part in ("", key) else ():
            for name in names:
                yield str(where), name


def _applies(where: str, release: str) -> bool:
    word, _, limit = where.partition(" ")
    if word == "since":
        return parse_version(release) >= parse_version(limit)
    if word == "before":
        return parse_version(release) < parse_version(limit)
    return word == "all"


def find_missing(used: Mapping[str, Any], names: Names, release: str, flavour: str) -> list[str]:
    """Declared names that `release`'s module of `flavour` lacks."""
    parts = ("full", "runtime") if flavour == "full" else ("runtime",)
    return [
        f"{name} ({where})"
        for part in parts
        for where, name in _declared_names(used, part)
        if _applies(where, release) and not _has_member(names, name)
    ]


def _has_member(names: Names, name: str) -> bool:
    """Returns True if the class or one of its bases has the member."""
    if name in names:
        return True
    owner, _, member = name.rpartition(".")
    bases = names.get(owner, {}).get("bases", ())
    if any(_has_member(names, f"{base}.{member}") for base in bases):
        return True
    # ILogger.Severity's members are attributes of ILogger and Logger too
    return owner in ("ILogger", "Logger") and f"ILogger.Severity.{member}" in names


def find_undeclared(used: Mapping[str, Any], uses: Uses, releases: Iterable[Names]) -> list[str]:
    """Returns used names that used.yaml lacks, and listed names that the code does not use."""
    known = {name for _, name in _declared_names(used)}
    members = {name.rpartition(".")[2] for name in known} | set(used["ours"]) | _PYTHON
    api = {
        name.rpartition(".")[2]
        for names in releases
        for name, entry in names.items()
        if "." in name and entry["kind"] in ("method", "property")
    }
    touched = {*uses.chains, *uses.members, *(name for _, name, _ in uses.overrides)}
    wrong = [
        f"{places[0]}: trt.{chain} is not declared"
        for chain, places in sorted(uses.chains.items())
        if chain not in known and chain.split(".")[-1] not in _PYTHON
    ]
    wrong += [
        f"{places[0]}: .{name} is not declared"
        for name, places in sorted(uses.members.items())
        if name in api and name not in members
    ]
    wrong += [
        f"{places[0]}: {owner}.{name} is not declared"
        for (owner, name, _), places in sorted(uses.overrides.items())
        if f"{owner}.{name}" not in known
    ]
    for name in sorted(known):
        if name not in touched and name.rpartition(".")[2] not in touched | _PYTHON:
            wrong.append(f"used.yaml: {name} is used nowhere")
    for name in used["ours"]:
        if name not in touched:
            wrong.append(f"used.yaml: {name} of `ours` is used nowhere")
    return wrong


def find_wrong_calls(
    used: Mapping[str, Any], uses: Uses, names: Names, release: str, flavour: str
) -> list[str]:
    """Calls and overrides that no declared method of that name takes in `release`."""
    parts = ("full", "runtime") if flavour == "full" else ("runtime",)
    methods: dict[str, list[str]] = {}
    for part in parts:
        for where, name in _declared_names(used, part):
            entry = names.get(name)
            requested = where == "asked" or _applies(where, release)
            if entry and entry["kind"] == "method" and requested:
                methods.setdefault(name.rpartition(".")[2], []).extend(entry["sig"])
                if name.endswith(".__init__"):  # trt.Builder(logger)
                    methods.setdefault(name.split(".")[0], []).extend(entry["sig"])
    wrong = []
    for (name, keywords, count), places in sorted(uses.calls.items()):
        if name in used["ours"] or name not in methods or name in _PYTHON:
            continue
        since = used["guarded"].get(name, {}).get(count)
        if since and parse_version(release) < parse_version(since):
            continue
        if not any(_accepts_call(text, keywords, count) for text in methods[name]):
            wrong.append(f"{places[0]}: {name} with {count} arguments and {list(keywords)}")
    for (owner, name, count), places in sorted(uses.overrides.items()):
        entry = names.get(f"{owner}.{name}")
        if entry is None:
            continue
        reported = used["trampolines"].get(f"{owner}.{name}")
        if reported is None:
            reported = len(_parameters(entry["sig"][0]))
        if count != reported:
            wrong.append(f"{places[0]}: {owner}.{name} takes {reported} arguments, not {count}")
    return wrong


def _parameters(text: str) -> list[tuple[str, bool]]:
    """(name, has a default) of a signature, without self."""
    inside = text[text.index("(") + 1 : text.rindex(")", 0, text.rindex("->"))]
    flat = re.sub(r"\[[^\[\]]*\]|<[^<>]*>|\([^()]*\)", "", re.sub(r"\[[^\[\]]*\]", "", inside))
    found = []
    for part in flat.split(","):
        name = part.partition(":")[0].strip()
        if name and name != "self":
            found.append((name, "=" in part))
    return found


def _accepts_call(text: str, keywords: tuple[str, ...], count: int) -> bool:
    parameters = _parameters(text)
    if count > len(parameters):
        return False
    left = dict(parameters[count:])
    if any(word not in left for word in keywords):
        return False
    return all(default or name in keywords for name, default in left.items())


def compare(carried: Names, real: Names) -> list[str]:
    """Returns the differences between carried data and a real module."""
    wrong = [f"{name} is in the bindings alone" for name in sorted(set(real) - set(carried))]
    wrong += [
        f"{name} is carried, not in the bindings" for name in sorted(set(carried) - set(real))
    ]
    for name in sorted(set(carried) & set(real)):
        ours, theirs = carried[name], real[name]
        for key in ("kind", "value", "writable"):
            if key in theirs and ours.get(key) != theirs[key]:
                wrong.append(f"{name}: {key} {ours.get(key)} is {theirs[key]} in the bindings")
        if theirs.get("sig"):
            here, there = (
                sorted(str(_parameters(text)) for text in member["sig"])
                for member in (ours, theirs)
            )
            if here != there:
                wrong.append(f"{name}: {ours['sig']} is {theirs['sig']} in the bindings")
        if theirs["kind"] == "class" and _ancestors(carried, name) != set(theirs["bases"]):
            wrong.append(f"{name}: its base classes are {theirs['bases']} in the bindings")
    return wrong


def _ancestors(names: Names, name: str) -> set[str]:
    found: set[str] = set()
    for base in names.get(name, {}).get("bases", ()):
        if base in names:
            found |= {base} | _ancestors(names, base)
    return found
