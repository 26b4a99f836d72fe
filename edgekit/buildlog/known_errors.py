"""The known errors of logs (``trt/log_errors.yaml``): how to find each, its cause and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter

from edgekit.knowledge import Source, data_folder, read_facts, tensorrt_sources
from edgekit.targets.releases import parse_version
from edgekit_device.protocol.codec import document

_SCHEMA = "edgekit.log-errors/1"
# of a version that Python prints as a tuple
_COMMA = re.compile(r"(?<=\d), ?(?=\d+(?:, ?\d+)*$)")
# a sentence about the DLA is the builder's, not the parser's
_DLA = re.compile(r"\bDLA\b")
# as TensorRT's code raises errors, whoever prints them; the code is TensorRT's own
RAISED = re.compile(
    r"\[\w+\.(?:cpp|h)::[^\]]{1,200}\] Error Code \d{1,2}: |\bI[A-Z]\w+::\w+: Error Code \d{1,2}: "
)


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
        sources: Where it was seen.
        seen: Releases that it was seen in, such as "TensorRT 8.4" or "L4T 36.4".
        stops: What it ends ("The engine cannot be loaded"); empty if the run may go on.
        follows: Whether it only follows from such an end that stands before it.
        general: Whether it names no cause, so that any other end counts before it.
        says: What the named groups of its pattern mean, as format strings.
        lower: What to do instead in a build that allows FP16 or INT8; empty for the same.
    """

    id: str
    pattern: re.Pattern[str]
    cause: str
    remedy: str
    releases: tuple[Remedy, ...]
    rules: tuple[str, ...]
    sources: tuple[Source, ...]
    seen: tuple[str, ...]
    stops: str = ""
    follows: bool = False
    says: tuple[str, ...] = ()
    lower: str = ""
    general: bool = False

    def remedy_for(self, tensorrt: str, *, lower: bool = False) -> str:
        """Returns what to do on a release ("" for an unknown one).

        Args:
            tensorrt: The release.
            lower: Whether the build allows FP16 or INT8.
        """
        if lower and self.lower:
            return self.lower
        if tensorrt:
            for one in self.releases:
                if one.fits(tensorrt):
                    return one.text
        return self.remedy


@dataclass(frozen=True, slots=True)
class Found:
    """The row of a line.

    Attributes:
        known: The row.
        about: What the line names: its status by name, versions, sizes; may be empty.
        operator: The operator that the line names, or "".
        version: The version of the operator that the line asks for, or "".
    """

    known: KnownError
    about: str = ""
    operator: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class StatusNames:
    """Names of the numbers that a library's calls return, and how programs print them."""

    pattern: re.Pattern[str]
    names: Mapping[int, str]


@dataclass(frozen=True)
class KnownErrors:
    """All rows.

    Attributes:
        rows: Errors that a line or an assertion names, in the order to try them.
        outside: The same without the parser's, for a line about the DLA.
        crashes: Ends of a process that no program reports itself.
        refused: What the parser's refusals without a row of their own are.
        consequences: Lines that only repeat that an earlier line failed.
        failures: Those of them that say that the run as a whole failed.
        statuses: Names of the numbers that lines have.
    """

    rows: tuple[KnownError, ...]
    outside: tuple[KnownError, ...]
    crashes: tuple[KnownError, ...]
    refused: KnownError
    consequences: re.Pattern[str]
    failures: re.Pattern[str]
    statuses: tuple[StatusNames, ...]

    def find(self, text: str) -> Found | None:
        """Returns the row of a line, or None."""
        number, name = self._status(RAISED.sub("", text))
        named = f"{text} ({name})" if name else text
        for row in self.outside if _DLA.search(text) else self.rows:
            if match := row.pattern.search(named):
                words = {
                    key: _COMMA.sub(".", value) for key, value in match.groupdict().items() if value
                }
                said = (one.format(**words) for one in row.says if _groups(one) <= words.keys())
                status = f"status {number}, {name}" if name else ""
                return Found(
                    row, next(said, status), words.get("operator", ""), words.get("version", "")
                )
        return None

    def crash(self, text: str) -> KnownError | None:
        """Returns the row of a line that says how a process ended, or None."""
        return next((row for row in self.crashes if row.pattern.search(text)), None)

    def _status(self, text: str) -> tuple[str, str]:
        """A status in a line and its name, "no name" for an unknown one; empty without or for 0."""
        for one in self.statuses:
            if match := one.pattern.search(text):
                number = int(match["status"], 0) if match["status"].strip("0") else 0
                known = (each.names.get(number) for each in (one, *self.statuses))
                return match["status"], next(filter(None, known), "no name") if number else ""
        return "", ""


def _groups(form: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(form) if name}


@document(frozen=True)
class _RemedyRow:
    remedy: str
    since: str = ""
    until: str = ""


@document(frozen=True)
class _Row:
    id: str
    pattern: str
    cause: str
    remedy: str
    source: tuple[str, ...]
    releases: tuple[_RemedyRow, ...] = ()
    rules: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    stops: str = ""
    follows: bool = False
    says: tuple[str, ...] = ()
    lower: str = ""
    general: bool = False


@document(frozen=True)
class _StatusRow:
    pattern: str
    names: Mapping[int, str]


@document(frozen=True)
class _LogErrorsFile:
    """``trt/log_errors.yaml``."""

    stops: Mapping[str, str]
    statuses: Mapping[str, _StatusRow]
    dla: tuple[_Row, ...]
    parser: tuple[_Row, ...]
    errors: tuple[_Row, ...]
    crashes: tuple[_Row, ...]
    refused: _Row
    failures: tuple[str, ...]
    consequences: tuple[str, ...]


@lru_cache(maxsize=1)
def known_errors() -> KnownErrors:
    """Reads the file once.

    Raises:
        DataError: It is not YAML (code "data.yaml"), or a key or value is wrong.
    """
    file = read_facts(_LogErrorsFile, data_folder("trt") / "log_errors.yaml", _SCHEMA)

    def known(rows: Iterable[_Row]) -> tuple[KnownError, ...]:
        return tuple(_known(row, file.stops) for row in rows)

    # the first row that matches counts, so what is special comes before what is general
    return KnownErrors(
        known((*file.dla, *file.parser, *file.errors)),
        known((*file.dla, *file.errors)),
        known(file.crashes),
        _known(file.refused, file.stops),
        re.compile("|".join([*file.consequences, *file.failures])),
        re.compile("|".join(file.failures)),
        tuple(StatusNames(re.compile(one.pattern), one.names) for one in file.statuses.values()),
    )


def _known(row: _Row, ends: Mapping[str, str]) -> KnownError:
    return KnownError(
        row.id,
        re.compile(row.pattern),
        row.cause,
        row.remedy,
        tuple(Remedy(one.remedy, one.since, one.until) for one in row.releases),
        row.rules,
        tuple(tensorrt_sources()[key] for key in row.source),
        row.seen,
        ends[row.stops] if row.stops else "",
        row.follows,
        row.says,
        row.lower,
        row.general,
    )
