"""What a TensorRT release has, by the names of its Python API (``trt/releases.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge
from edgekit.dla import Version, parse_version

__all__ = ["Release", "facts", "python_of", "release", "sources", "within"]


@dataclass(frozen=True, slots=True)
class Release:
    """One release.

    Attributes:
        text: As it was asked for: "10.3" or "10.3.0.30".
        version: Its numbers.
    """

    text: str
    version: Version

    def has(self, name: str) -> bool:
        """Says whether the release has a name of the Python API ("BuilderFlag.STRIP_PLAN").

        Raises:
            KeyError: edgekit's table does not have the name.
        """
        return within(facts()["names"][name], self.version)

    def since(self, name: str) -> str:
        """Returns the first release with a name; empty where it is older than all known ones."""
        return str(facts()["names"][name].get("since", ""))

    @property
    def typings(self) -> tuple[str, ...]:
        """How precision can be told: "weak" (flags), "strong" (types in the network), or both."""
        return tuple(n for n, row in facts()["typing"].items() if within(row, self.version))

    def dtype(self, name: str) -> str:
        """Returns the NumPy type that an engine's input or output of a model's type has."""
        row = facts()["narrowed"].get(name)
        return str(row["to"]) if row is not None and within(row, self.version) else name

    def warnings(self, features: frozenset[str]) -> tuple[str, ...]:
        """Returns what the release is known to do wrong with any of these features."""
        rows = [row for row in facts()["warnings"] if within(row, self.version)]
        return tuple(
            f"TensorRT {self.text}: {row['why']} ({', '.join(sources(row['source']))})"
            for row in rows
            if features & set(row["features"])
        )


def release(tensorrt: str) -> Release:
    """Returns a release by its number, "10.3" or "10.3.0.30".

    Raises:
        UsageError: It is no version (code "tensorrt.version").
    """
    return Release(tensorrt, parse_version(tensorrt))


def within(row: Mapping[str, Any], version: Version) -> bool:
    """Whether a row holds for a version: from ``since`` up to, without, ``until``."""
    since, until = row.get("since"), row.get("until")
    return not (
        (since is not None and version < parse_version(since))
        or (until is not None and version >= parse_version(until))
    )


def python_of(jetpack: str) -> str:
    """Returns the Python of a JetPack ("6.2" has "3.10"); empty where not known."""
    return str(facts()["python"].get(jetpack.strip().split(".")[0], ""))


@lru_cache(maxsize=1)
def facts() -> dict[str, Any]:
    """Returns ``trt/releases.yaml``."""
    found: dict[str, Any] = read_knowledge(data_folder("trt") / "releases.yaml")
    return found


def sources(keys: list[str]) -> tuple[str, ...]:
    """Returns the titles of sources."""
    known = _sources()
    return tuple(known[key]["title"] for key in keys)


@lru_cache(maxsize=1)
def _sources() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = read_knowledge(data_folder("trt") / "_sources.yaml")[
        "sources"
    ]
    return found
