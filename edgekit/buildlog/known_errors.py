"""The known errors of logs (``trt/log_errors.yaml``): how to find each, its cause and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit.knowledge import data_folder, read_knowledge
from edgekit.targets.releases import parse_version

_SCHEMA = "edgekit.log-errors/1"
# the first row that matches counts, so what is special comes before what is general
_SECTIONS = ("dla", "parser", "errors")


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do on some releases.

    Attributes:
        text: What to do.
        since: The first release, empty for all older ones too.
        until: The first release that needs something else, empty for none.
    """

    text: str
    since: str = ""
    until: str = ""

    def fits(self, tensorrt: str) -> bool:
        """Says whether it is for a release."""
        version = parse_version(tensorrt)
        return not (
            (self.since and version < parse_version(self.since))
            or (self.until and version >= parse_version(self.until))
        )


@dataclass(frozen=True, slots=True)
class KnownError:
    """A row of ``trt/log_errors.yaml``.

    Attributes:
        id: Its name.
        pattern: What to search in a line without its prefix, or in an assertion of the parser.
        cause: What is wrong.
        remedy: What to do.
        releases: What to do instead on some releases, the first that fits counts.
        rules: Ids of rules of the DLA that are about the same.
        sources: Where it was seen, each as {"title", "where"}.
        seen: Releases that it was seen in, such as "TensorRT 8.4" or "L4T 36.4".
        refuses: Whether the DLA refuses the whole build with it.
    """

    id: str
    pattern: re.Pattern[str]
    cause: str
    remedy: str
    releases: tuple[Remedy, ...]
    rules: tuple[str, ...]
    sources: tuple[Mapping[str, str], ...]
    seen: tuple[str, ...]
    refuses: bool

    def remedy_for(self, tensorrt: str) -> str:
        """Returns what to do on a release; an empty one is an unknown one."""
        if tensorrt:
            for one in self.releases:
                if one.fits(tensorrt):
                    return one.text
        return self.remedy


@dataclass(frozen=True)
class KnownErrors:
    """All rows.

    Attributes:
        rows: Errors that a line or an assertion names, in the order to try them.
        crashes: Ends of a process that no program reports itself.
        refused: What the parser's refusals without a row of their own are.
        consequences: Lines that only repeat that an earlier line failed.
    """

    rows: tuple[KnownError, ...]
    crashes: tuple[KnownError, ...]
    refused: KnownError
    consequences: re.Pattern[str]

    def find(self, text: str) -> tuple[KnownError, re.Match[str]] | None:
        """Returns the row of a line with its match, or None."""
        return _first(self.rows, text)

    def crash(self, text: str) -> KnownError | None:
        """Returns the row of a line that says how a process ended, or None."""
        found = _first(self.crashes, text)
        return found and found[0]


def _first(rows: Iterable[KnownError], text: str) -> tuple[KnownError, re.Match[str]] | None:
    for row in rows:
        if match := row.pattern.search(text):
            return row, match
    return None


@lru_cache(maxsize=1)
def known_errors() -> KnownErrors:
    """Reads the file once.

    Raises:
        ValueError: The file is of another schema: edgekit's own data are wrong.
        DataError: It is not YAML (code "data.yaml").
    """
    folder = data_folder("trt")
    document = read_knowledge(folder / "log_errors.yaml")
    if document.get("schema") != _SCHEMA:
        raise ValueError(f"{folder / 'log_errors.yaml'} is not a file of schema {_SCHEMA}")
    sources = read_knowledge(folder / "_sources.yaml")["sources"]
    return KnownErrors(
        tuple(_row(row, sources) for section in _SECTIONS for row in document[section]),
        tuple(_row(row, sources) for row in document["crashes"]),
        _row(document["refused"], sources),
        re.compile("|".join(document["consequences"])),
    )


def _row(row: Mapping[str, Any], sources: Mapping[str, Mapping[str, str]]) -> KnownError:
    return KnownError(
        row["id"],
        re.compile(row["pattern"]),
        row["cause"],
        row["remedy"],
        tuple(
            Remedy(one["remedy"], str(one.get("since", "")), str(one.get("until", "")))
            for one in row.get("releases", ())
        ),
        tuple(row.get("rules", ())),
        tuple(sources[key] for key in row["source"]),
        tuple(row.get("seen", ())),
        bool(row.get("refuses")),
    )
