"""What a TensorRT release has (`trt/releases.yaml`) and which features go together
(`trt/features.yaml`), by the names of TensorRT's Python API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit.knowledge import data_folder, read_knowledge
from edgekit.targets.releases import parse_version, within
from edgekit_device.versions import Version


@dataclass(frozen=True, slots=True)
class TensorRTRelease:
    """One release.

    Attributes:
        text: As it was requested: "10.3" or "10.3.0.30".
        version: Its numbers.
    """

    text: str
    version: Version

    def has(self, name: str) -> bool:
        """Says whether the release has a name of the Python API ("BuilderFlag.STRIP_PLAN").

        Raises:
            KeyError: edgekit's table does not have the name.
        """
        return _holds(release_facts()["names"][name], self.version)

    def since(self, name: str) -> str:
        """Returns the first release with a name; empty where it is older than all known ones."""
        return str(release_facts()["names"][name].get("since", ""))

    @property
    def typings(self) -> tuple[str, ...]:
        """How precision can be given: "weak" (flags), "strong" (types in the network), or both."""
        return tuple(n for n, row in release_facts()["typing"].items() if _holds(row, self.version))

    def dtype(self, name: str) -> str:
        """Returns the NumPy type that an engine's input or output of a model's type has."""
        row = release_facts()["narrowed"].get(name)
        return str(row["to"]) if row is not None and _holds(row, self.version) else name

    def warnings(self, features: frozenset[str]) -> tuple[str, ...]:
        """Returns what the release is known to do wrong with any of these features."""
        rows = [row for row in release_facts()["warnings"] if _holds(row, self.version)]
        return tuple(
            f"TensorRT {self.text}: {row['why']} ({', '.join(sources(row['source']))})"
            for row in rows
            if features & set(row["features"])
        )


def release(tensorrt: str) -> TensorRTRelease:
    """Returns a release by its number, "10.3" or "10.3.0.30".

    Raises:
        UsageError: It is no version (code "tensorrt.version").
    """
    return TensorRTRelease(tensorrt, parse_version(tensorrt))


def _holds(row: Mapping[str, Any], version: Version) -> bool:
    return within(version, row.get("since"), row.get("until"))


@lru_cache(maxsize=1)
def release_facts() -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: what it is, the configuration key that requests it, and the name that it needs.

    ``without`` is what an engine lacks that had to do without it.
    """

    name: str
    what: str
    key: str = ""
    flag: str = ""
    without: str = ""

    def on(self, release: TensorRTRelease) -> bool:
        """Whether a release has it."""
        return not self.flag or release.has(self.flag)

    @property
    def builder_flag(self) -> str:
        """The name of TensorRT's BuilderFlag; empty where it is no flag."""
        kind, _, name = self.flag.partition(".")
        return name if kind == "BuilderFlag" else ""


@dataclass(frozen=True, slots=True)
class FeatureRule:
    """What is known of one, two or three features together.

    Attributes:
        of: Their names; of a "required" row, the first needs the second.
        status: One of ``STATUSES``.
        basis: header, docs, source, blog, issue, or inferred.
        why: As a text.
        sources: Titles.
        since: First release that it holds for; empty for all.
        until: First release that it no longer holds for; empty for none.
        platforms: Platforms that it holds for ("jetson", "drive"); empty for all.
    """

    of: tuple[str, ...]
    status: str
    basis: str
    why: str
    sources: tuple[str, ...]
    since: str = ""
    until: str = ""
    platforms: tuple[str, ...] = ()

    def holds(self, release: TensorRTRelease, platform: str) -> bool:
        """Whether it is about a release on a platform."""
        if not within(release.version, self.since or None, self.until or None):
            return False
        return not self.platforms or platform in self.platforms

    @property
    def reason(self) -> str:
        """Why, and who says so."""
        return f"{self.why} ({', '.join(self.sources) or 'stated nowhere'})"


def features() -> dict[str, Feature]:
    """Returns the features by name."""
    return {
        name: Feature(
            name, row["what"], row.get("key", ""), row.get("flag", ""), row.get("without", "")
        )
        for name, row in _feature_facts()["features"].items()
    }


@lru_cache(maxsize=1)
def feature_rules() -> tuple[FeatureRule, ...]:
    """Returns every row, in the file's order."""
    return tuple(
        FeatureRule(
            tuple(row["of"]), row["status"], row["basis"], row["why"], sources(row["source"]),
            row.get("since", ""), row.get("until", ""), tuple(row.get("platforms", ())),
        )
        for row in _feature_facts()["rows"]
    )  # fmt: skip


def rules_for(
    names: Iterable[str], release: TensorRTRelease, platform: str
) -> tuple[FeatureRule, ...]:
    """Returns the rows about features that are all requested; of a "required" one, the first."""
    wanted = set(names)
    return tuple(
        row
        for row in feature_rules()
        if set(row.of[:1] if row.status == "required" else row.of) <= wanted
        and row.holds(release, platform)
    )


def limits(names: Iterable[str]) -> tuple[dict[str, Any], ...]:
    """Returns what these features need beyond other features: {"feature", "profiles", "why"}."""
    wanted = set(names)
    return tuple(row for row in _feature_facts()["limits"] if row["feature"] in wanted)


def give_up() -> tuple[str, ...]:
    """Returns the features that a build may leave out, the least missed first."""
    return tuple(_feature_facts()["give_up"])


@lru_cache(maxsize=1)
def _feature_facts() -> dict[str, Any]:
    found: dict[str, Any] = read_knowledge(data_folder("trt") / "features.yaml")
    return found
