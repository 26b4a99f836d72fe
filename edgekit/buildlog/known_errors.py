"""The known errors of logs (``trt/log_errors.yaml``): pattern, cause and remedy of each."""

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
# a version that Python prints as a tuple
_COMMA = re.compile(r"(?<=\d), ?(?=\d+(?:, ?\d+)*$)")
# a sentence about the DLA comes from the builder, not the parser
_DLA = re.compile(r"\bDLA\b")
# TensorRT's format of errors in any program's output; the code is TensorRT's own
RAISED = re.compile(
    r"\[\w+\.(?:cpp|h)::[^\]]{1,200}\] Error Code \d{1,2}: |\bI[A-Z]\w+::\w+: Error Code \d{1,2}: "
)


@dataclass(frozen=True, slots=True)
class Remedy:
    """A remedy for some releases.

    Attributes:
        text: The remedy.
        since: The first release; empty if it also applies to all older releases.
        until: The first release with another remedy, empty if there is none.
    """

    text: str
    since: str = ""
    until: str = ""

    def fits(self, tensorrt: str) -> bool:
        """Returns True if it applies to a release."""
        version = parse_version(tensorrt)
        return not (
            (self.since and version < parse_version(self.since))
            or (self.until and version >= parse_version(self.until))
        )


@dataclass(frozen=True, slots=True)
class KnownError:
    """A row of ``trt/log_errors.yaml``.

    Attributes:
        id: The row's id.
        pattern: Regular expression for a line without its prefix, or for a parser assertion.
        cause: The cause of the error.
        remedy: The remedy.
        releases: Other remedies for some releases; the first match counts.
        rules: Ids of DLA rules about the same restriction.
        sources: Logs and documents that contain it.
        seen: Releases in which it was seen, such as "TensorRT 8.4" or "L4T 36.4".
        stops: The consequence that ends the run ("The engine cannot be loaded"); empty if the run
            may continue.
        follows: True if it is only a consequence of an earlier error that ended the run.
        general: True if it names no cause, so that any other ending error takes precedence.
        says: Descriptions of the pattern's named groups, as format strings.
        lower: The remedy in a build that allows FP16 or INT8; empty if it is the same.
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
        """Returns the remedy for a release ("" if unknown).

        Args:
            tensorrt: The release.
            lower: True if the build allows FP16 or INT8.
        """
        if lower and self.lower:
            return self.lower
        if tensorrt:
            for release in self.releases:
                if release.fits(tensorrt):
                    return release.text
        return self.remedy


@dataclass(frozen=True, slots=True)
class Found:
    """The known error of a line.

    Attributes:
        known: The row.
        about: Details in the line: status name, versions, sizes; may be empty.
        operator: The operator in the line, or "".
        version: The operator's requested version, or "".
    """

    known: KnownError
    about: str = ""
    operator: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class StatusNames:
    """Names of a library's status numbers, and patterns of their printed forms."""

    pattern: re.Pattern[str]
    names: Mapping[int, str]


@dataclass(frozen=True)
class KnownErrors:
    """All rows.

    Attributes:
        rows: Errors of a line or an assertion, in the order to try them.
        outside: The same without parser errors, for a line about the DLA.
        crashes: Ends of a process that the program itself does not report.
        refused: The error for parser refusals without their own row.
        consequences: Lines that only repeat an earlier failure.
        failures: The consequences that report that the whole run failed.
        statuses: Names of status numbers in lines.
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
        # TensorRT's "Error Code 7" is no status of cuDLA or CUDA
        number, name = self._status(RAISED.sub("", text))
        # patterns match a status by its name, also if the line has only its number
        named = f"{text} ({name})" if name else text
        for row in self.outside if _DLA.search(text) else self.rows:
            if match := row.pattern.search(named):
                words = {
                    key: _COMMA.sub(".", value) for key, value in match.groupdict().items() if value
                }
                said = (
                    form.format(**words) for form in row.says if _field_names(form) <= words.keys()
                )
                status = f"status {number}, {name}" if name else ""
                return Found(
                    row, next(said, status), words.get("operator", ""), words.get("version", "")
                )
        return None

    def crash(self, text: str) -> KnownError | None:
        """Returns the known error of a line that reports a process's end, or None."""
        return next((row for row in self.crashes if row.pattern.search(text)), None)

    def _status(self, text: str) -> tuple[str, str]:
        """Returns a line's status and its name ("no name" if unknown); empty if absent or 0."""
        for status in self.statuses:
            if match := status.pattern.search(text):
                number = int(match["status"], 0) if match["status"].strip("0") else 0
                known = (each.names.get(number) for each in (status, *self.statuses))
                return match["status"], next(filter(None, known), "no name") if number else ""
        return "", ""


def _field_names(form: str) -> set[str]:
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
        DataError: The file is not YAML (code "data.yaml"), or a key or value is wrong.
    """
    file = read_facts(_LogErrorsFile, data_folder("trt") / "log_errors.yaml", _SCHEMA)

    def known(rows: Iterable[_Row]) -> tuple[KnownError, ...]:
        return tuple(_read_row(row, file.stops) for row in rows)

    # the first matching row counts, so special rows come before general rows
    return KnownErrors(
        known((*file.dla, *file.parser, *file.errors)),
        known((*file.dla, *file.errors)),
        known(file.crashes),
        _read_row(file.refused, file.stops),
        re.compile("|".join([*file.consequences, *file.failures])),
        re.compile("|".join(file.failures)),
        tuple(
            StatusNames(re.compile(status.pattern), status.names)
            for status in file.statuses.values()
        ),
    )


def _read_row(row: _Row, ends: Mapping[str, str]) -> KnownError:
    return KnownError(
        row.id,
        re.compile(row.pattern),
        row.cause,
        row.remedy,
        tuple(Remedy(release.remedy, release.since, release.until) for release in row.releases),
        row.rules,
        tuple(tensorrt_sources()[key] for key in row.source),
        row.seen,
        ends[row.stops] if row.stops else "",
        row.follows,
        row.says,
        row.lower,
        row.general,
    )
