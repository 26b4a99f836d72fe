"""JetPack releases: which TensorRT a board has with which JetPack, and which JetPack an L4T
release belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError
from edgekit.knowledge import data_folder
from edgekit.targets.board import Target
from edgekit.targets.loader import get, read_yaml

_PREFIX = "jetpack"


@dataclass(frozen=True, slots=True)
class JetPack:
    """JetPack releases that share a TensorRT.

    Attributes:
        versions: JetPack versions, oldest first.
        l4t: Jetson Linux versions; empty where not publicly known.
        tensorrt: The TensorRT that they bring; empty where not publicly known.
        also: Other releases that sources name instead.
        up_to: The newest TensorRT that can be installed beside it; empty where that is its own.
        note: What else is to know of them.
    """

    versions: tuple[str, ...]
    l4t: tuple[str, ...]
    tensorrt: str
    note: str
    also: tuple[str, ...] = ()
    up_to: str = ""

    @property
    def tensorrt_text(self) -> str:
        """The TensorRT as people read it: "10.16.1 or 10.16.2" where sources differ, or ""."""
        return " or ".join(self.possible)

    @property
    def possible(self) -> tuple[str, ...]:
        """The TensorRT releases that sources name, oldest first; empty where none is known."""
        return tuple(sorted((*self.also, self.tensorrt))) if self.tensorrt else ()


def jetpacks(target: Target) -> tuple[JetPack, ...]:
    """Returns the JetPack releases for a board, oldest first; empty where it runs none.

    They stand in ``targets/_jetpack.yaml`` by SoC. A board file may name the first of them that is
    for it (``software.jetpack_since``), or have ``software.releases`` of its own instead.
    """
    software = target.facts.get("software")
    module = target.facts.get("module")
    if isinstance(software, Mapping) and "releases" in software:
        rows = [row for row in software["releases"] if "jetpack" in row]
    else:
        soc = module.get("soc") if isinstance(module, Mapping) else None
        table = _table(data_folder("targets"))
        rows = [row for row in table if soc in row["socs"]]
        since = software.get("jetpack_since") if isinstance(software, Mapping) else None
        if since is not None:
            first = next(i for i, row in enumerate(rows) if since in row["jetpack"])
            rows = rows[first:]
    return tuple(_jetpack(row) for row in rows)


def tensorrt_of_jetpack(board: Target | str, jetpack: str) -> str:
    """Returns the TensorRT release that JetPack ``jetpack`` ("6.2", "6.2.0") brings to a board.

    Raises:
        UsageError: The board has no such JetPack (code ``jetpack.unknown``), or its TensorRT is
            not publicly known (code ``jetpack.tensorrt``); there is no such board.
    """
    target = get(board) if isinstance(board, str) else board
    known = jetpacks(target)
    wanted = _plain(jetpack)
    for release in known:
        if wanted not in {_plain(version) for version in release.versions}:
            continue
        if not release.tensorrt:
            raise UsageError(
                f"the TensorRT version of JetPack {jetpack} is unknown",
                code="jetpack.tensorrt",
                where=target.name,
                hint="read it on the board and give it with --tensorrt",
            )
        return release.tensorrt
    listed = ", ".join(version for release in known for version in release.versions)
    raise UsageError(
        f"JetPack {jetpack!r} does not exist for this board",
        code="jetpack.unknown",
        where=target.name,
        hint=f"this board's JetPacks are {listed}"
        if listed
        else "this board has no JetPack: use --tensorrt",
    )


def jetpack_of_l4t(l4t: str) -> str | None:
    """Returns the JetPack with Jetson Linux ``l4t`` ("36.4.3"): "6.0", or "6.1 to 6.2.3".

    Several JetPacks share a TensorRT and a row of ``targets/_jetpack.yaml``; which of them has
    which L4T is not stated there. None where no row has it.
    """
    wanted = _plain(l4t)
    for row in _table(data_folder("targets")):
        if wanted in {_plain(version) for version in row.get("l4t") or ()}:
            versions = _jetpack(row).versions
            return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
    return None


def tensorrt_releases() -> tuple[str, ...]:
    """Returns the minor releases of TensorRT that exist, oldest first: "8.4", ..., "11.5"."""
    return tuple(_file(data_folder("targets"))["tensorrt_releases"])


def newest_jetpack() -> JetPack:
    """Returns the newest JetPack of all boards."""
    return _jetpack(_table(data_folder("targets"))[-1])


def _table(folder: Path) -> list[dict[str, Any]]:
    return _file(folder)["releases"]  # type: ignore[no-any-return]


@lru_cache(maxsize=2)
def _file(folder: Path) -> dict[str, Any]:
    return read_yaml(folder / "_jetpack.yaml")


def _jetpack(row: Mapping[str, Any]) -> JetPack:
    versions = row["jetpack"]
    return JetPack(
        versions=tuple([versions] if isinstance(versions, str) else versions),
        l4t=tuple(row.get("l4t") or ()),
        tensorrt=row["tensorrt"] or "",
        note=row.get("note", ""),
        also=tuple(row.get("also", ())),
        up_to=row.get("up_to", ""),
    )


def _plain(version: str) -> str:
    """The version without "JetPack" in front and without zeros at the end: "6.2.0" is "6.2"."""
    text = version.strip().lower().removeprefix(_PREFIX).strip()
    while text.count(".") > 1 and text.endswith(".0"):
        text = text[:-2]
    return text
