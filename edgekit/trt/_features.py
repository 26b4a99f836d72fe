"""Which features go together (``trt/features.yaml``), as rows that know when they hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge
from edgekit.trt._releases import Release, sources, within

__all__ = ["STATUSES", "Feature", "Row", "features", "give_up", "limits", "rows", "rows_for"]

STATUSES = ("required", "allowed", "ignored", "forbidden", "not_applicable", "unknown")


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: what it is, where a configuration asks for it, and the name that it needs.

    ``without`` is what an engine lacks that had to do without it.
    """

    name: str
    what: str
    key: str = ""
    flag: str = ""
    without: str = ""

    def on(self, release: Release) -> bool:
        """Whether a release has it."""
        return not self.flag or release.has(self.flag)

    @property
    def builder_flag(self) -> str:
        """The name of TensorRT's BuilderFlag; empty where it is no flag."""
        kind, _, name = self.flag.partition(".")
        return name if kind == "BuilderFlag" else ""


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one, two or three features together.

    Attributes:
        of: Their names; of a "required" row, the first needs the second.
        status: One of ``STATUSES``.
        basis: header, docs, source, blog, issue, or inferred.
        why: As a text.
        sources: Titles.
        since: First release that it holds for; empty for all.
        until: First release that it no longer holds for; empty for none.
        targets: Boards that it holds for; empty for all.
    """

    of: tuple[str, ...]
    status: str
    basis: str
    why: str
    sources: tuple[str, ...]
    since: str = ""
    until: str = ""
    targets: tuple[str, ...] = ()

    def holds(self, release: Release, target: str) -> bool:
        """Whether it is about a release on a board."""
        ends = {k: v for k, v in (("since", self.since), ("until", self.until)) if v}
        return within(ends, release.version) and (not self.targets or target in self.targets)

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
        for name, row in _facts()["features"].items()
    }


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """Returns every row, in the file's order."""
    return tuple(
        Row(
            tuple(row["of"]), row["status"], row["basis"], row["why"], sources(row["source"]),
            row.get("since", ""), row.get("until", ""), tuple(row.get("targets", ())),
        )
        for row in _facts()["rows"]
    )  # fmt: skip


def rows_for(asked: Iterable[str], release: Release, target: str) -> tuple[Row, ...]:
    """Returns the rows about features that are all asked for; of a "required" one, the first."""
    wanted = set(asked)
    return tuple(
        row
        for row in rows()
        if set(row.of[:1] if row.status == "required" else row.of) <= wanted
        and row.holds(release, target)
    )


def limits(asked: Iterable[str]) -> tuple[dict[str, Any], ...]:
    """Returns what these features ask for beyond other features: {"feature", "profiles", "why"}."""
    wanted = set(asked)
    return tuple(row for row in _facts()["limits"] if row["feature"] in wanted)


def give_up() -> tuple[str, ...]:
    """Returns the features that a build may leave out, the least missed first."""
    return tuple(_facts()["give_up"])


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    found: dict[str, Any] = read_knowledge(data_folder("trt") / "features.yaml")
    return found
