"""What names in an Nsight Systems export mean (``targets/_nsys.yaml``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge

__all__ = ["DlaWords", "RangeWords", "copy_names", "dla_words", "range_words"]


@dataclass(frozen=True)
class DlaWords:
    """Spellings of a DLA's events, most of them guesses; see the file."""

    classes: dict[int, int]
    begin: re.Pattern[str]
    end: re.Pattern[str]
    phase: tuple[str, ...]
    starts: tuple[str, ...]
    ends: tuple[str, ...]
    durations: tuple[str, ...]
    cores: tuple[str, ...]
    tasks: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class RangeWords:
    """NVTX domains of TensorRT, and how those of its ranges begin that are no layer."""

    domains: frozenset[str]
    not_layers: tuple[str, ...]


@lru_cache(maxsize=1)
def dla_words() -> DlaWords:
    """Returns the spellings of a DLA's events."""
    rows = {name: row["value"] for name, row in _file()["dla"].items()}
    classes = {int(number): int(core) for number, core in rows.pop("classes").items()}
    begin, end = _suffix(rows.pop("begin")), _suffix(rows.pop("end"))
    return DlaWords(classes, begin, end, **{name: tuple(words) for name, words in rows.items()})


@lru_cache(maxsize=1)
def range_words() -> RangeWords:
    """Returns what tells a layer's range."""
    rows = _file()["ranges"]
    return RangeWords(frozenset(rows["domain"]["value"]), tuple(rows["not_layers"]["value"]))


@lru_cache(maxsize=1)
def copy_names() -> dict[int, str]:
    """Returns a copy's name by its kind."""
    return {int(kind): name for kind, name in _file()["copies"]["value"].items()}


def _suffix(words: list[str]) -> re.Pattern[str]:
    return re.compile(rf"[_ :.-]?(?:{'|'.join(map(re.escape, words))})$", re.IGNORECASE)


def _file() -> dict[str, Any]:
    found: dict[str, Any] = read_knowledge(data_folder("targets") / "_nsys.yaml")
    return found
