"""What one TensorRT release has: its names, base classes, signatures and enum members."""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data" / "tensorrt_api"

# the 4-part version that the release's libraries write into a plan (JetPack's where there is one)
BUILDS = {
    "8.6.1": (8, 6, 1, 6),
    "10.3.0": (10, 3, 0, 30),
    "10.7.0": (10, 7, 0, 23),
    "10.16.1": (10, 16, 1, 11),
    "11.4.0": (11, 4, 0, 106),
}
VERSIONS = tuple(BUILDS)
UNSAMPLED = {
    "8.5.2": "no bindings wheel of 8.5.2 was published, so its names are not known (JetPack 5.1)"
}


@dataclass(frozen=True)
class ClassFacts:
    """One class or enum of the module."""

    name: str
    bases: tuple[str, ...] = ()
    methods: dict[str, tuple[str, ...]] = field(default_factory=dict)
    properties: dict[str, tuple[str, bool]] = field(default_factory=dict)
    members: dict[str, int] | None = None


@dataclass(frozen=True)
class Facts:
    """One module: its classes in no order, functions with their signatures, and value aliases."""

    version: str
    flavour: str
    classes: dict[str, ClassFacts]
    functions: dict[str, tuple[str, ...]]
    values: tuple[str, ...]


def symbols(version: str) -> dict[str, dict[str, Any]]:
    """The carried record of `version`: name -> kind, signatures, type, value, lean.

    Raises:
        ValueError: A release whose names are not known.
    """
    if version in UNSAMPLED:
        raise ValueError(f"TensorRT {version} is not sampled: {UNSAMPLED[version]}")
    if version not in BUILDS:
        raise ValueError(f"no TensorRT API data for {version}: there is {', '.join(VERSIONS)}")
    found: dict[str, dict[str, Any]] = json.loads((DATA / f"{version}.json").read_text())["symbols"]
    return found


@cache
def facts(version: str, flavour: str = "full") -> Facts:
    """The names of `version`'s `tensorrt` ("full"), `tensorrt_lean` or `tensorrt_dispatch`.

    `tensorrt_dispatch` has exactly the names of `tensorrt_lean` (seen in 10.16.1).
    """
    if flavour not in ("full", "lean", "dispatch"):
        raise ValueError(f"flavour is full, lean or dispatch, not {flavour!r}")
    names = symbols(version)
    if flavour != "full":
        names = {name: entry for name, entry in names.items() if entry.get("lean")}
    classes = {
        name: ClassFacts(
            name,
            tuple(base for base in entry.get("bases", ()) if base in names),
            {},
            {},
            {} if entry["kind"] == "enum" else None,
        )
        for name, entry in names.items()
        if entry["kind"] in ("class", "enum")
    }
    for name in [
        one for one in classes if "." in one
    ]:  # an inherited nested enum is its base's own
        owner, _, nested = name.rpartition(".")
        if any(f"{base}.{nested}" in classes for base in classes[owner].bases):
            del classes[name]
    functions: dict[str, tuple[str, ...]] = {}
    values = []
    for name, entry in names.items():
        owner, _, member = name.rpartition(".")
        kind = entry["kind"]
        if kind == "function":
            functions[name] = tuple(entry["sig"])
        elif kind == "value":
            values.append(name)
        elif kind == "enum_member":
            members = classes[owner].members if owner in classes else None
            if members is not None:
                members[member] = entry["value"]
        elif kind == "method":
            classes[owner].methods[member] = tuple(entry["sig"])
        elif kind == "property":
            classes[owner].properties[member] = (str(entry.get("type")), entry["writable"])
    return Facts(version, flavour, classes, functions, tuple(values))
