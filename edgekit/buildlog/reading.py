"""Finds, decodes and streams a log file by lines in bounded memory."""

from __future__ import annotations

import codecs
import io
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from edgekit.buildlog.diagnosis import Diagnosis, LogDoctor
from edgekit.buildlog.facts import BuildLog
from edgekit.buildlog.parser import LogParser, parse_log
from edgekit.buildlog.summary import Summary, is_summary, parse_summary
from edgekit.buildlog.timings import TimingParser, Timings
from edgekit.errors import UsageError
from edgekit.files import open_stream
from edgekit.network.source import foreign_format

_CHUNK = 1 << 20
# bytes without a TensorRT line after which a text is no build log; a build's lines begin early
_MOST_UNKNOWN = 2 << 20
# fraction of control characters in a file's first bytes that text never has
_MOST_CONTROL = 0.05
_CONTROL = bytes({*range(32), 127} - set(b"\t\n\v\f\r\b\x1b"))
_ONNX = re.compile(rb"\x08[\x01-\x20][\x12\x1a\x22\x2a\x32\x3a\x42]")
_MOST_SUMMARY = 1000
# a longer line is not the builder's; its beginning is enough
_LONGEST = 1 << 16
_MOST_LINE = 64 << 20  # a file without line ends is no log
# replacements by pages in pasted text
_PAGE = (
    ("\u00a0", " "),
    ("\u2018", "'"),
    ("\u2019", "'"),
    ("\u201c", '"'),
    ("\u201d", '"'),
    ("&#39;", "'"),
    ("&#x27;", "'"),
    ("&quot;", '"'),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&amp;", "&"),
)
LOOKED_FOR = (
    '[TRT], "&&&& RUNNING TensorRT", lists of DLA and GPU layers, Ultralytics\' "export with '
    'TensorRT", DeepStream\'s "NvDsInfer" and known errors'
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_log(path: str | Path) -> BuildLog:
    """Reads a build log of trtexec, TensorRT's Python API or DeepStream.

    Accepts UTF-8 and UTF-16 (with or without a byte order mark), any line ends and any size: cost
    is linear and memory does not grow with the file. Unknown lines are skipped. A binary file is
    refused by its first bytes, and a text by its first 2 MiB.

    Raises:
        UsageError: The file is missing or unreadable (``log.missing``, ``log.unreadable``), empty
            (``log.empty``), or without a line of TensorRT (``log.unknown``).
    """
    return _read(path, parse_log)


def read_timings(path: str | Path) -> tuple[BuildLog, Timings]:
    """Reads a verbose build log, or trtexec's output of a run, with its times.

    Memory grows with the measurements, not with the file. A log without times has an empty result;
    refusals are the same as in :func:`read_log`.

    Raises:
        UsageError: As :func:`read_log`.
    """
    times = TimingParser()
    return _read(path, lambda lines: _with_times(lines, LogParser(), times)), times.result()


def _with_times(
    lines: Iterable[str],
    log: LogParser,
    times: TimingParser,
    recognised: Callable[[], int] = int,
) -> BuildLog:
    size = 0
    for line in lines:
        log.feed(line)
        times.feed(line)
        size += len(line)
        # a large text of another program is refused without reading it to its end
        if size > _MOST_UNKNOWN and not (log.recognised or recognised()):
            break
    found, timed = log.result(), times.result()
    # only TensorRT prints such times: a log of nothing else is one, too
    count = len(timed.table) + len(timed.units)
    return replace(found, recognised=found.recognised + count)


@dataclass(frozen=True)
class WholeLog:
    """All facts of a log.

    Attributes:
        log: Layers, loadables, refusals.
        timings: Times of layers in a verbose log.
        summary: trtexec's measurements of the whole run.
        diagnosis: The program that wrote it, and its errors with causes.
        reason_lines: Numbers of the lines with the reason of a refusal (the build may continue).
    """

    log: BuildLog
    timings: Timings
    summary: Summary
    diagnosis: Diagnosis
    reason_lines: frozenset[int]


def read_whole(path: str | Path) -> WholeLog:
    """Reads all facts of a log of trtexec, Ultralytics, DeepStream or TensorRT's API.

    A log with only known errors is also read.

    Raises:
        UsageError: As :func:`read_log`.
    """
    parser, times, doctor = LogParser(), TimingParser(), LogDoctor()
    ends: list[str] = []

    def examine_lines(lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            doctor.feed(line)
            if len(ends) < _MOST_SUMMARY and is_summary(line):
                ends.append(line)
            yield line

    def take(lines: Iterable[str]) -> BuildLog:
        found = _with_times(examine_lines(lines), parser, times, lambda: doctor.recognised)
        return replace(found, recognised=found.recognised + doctor.recognised)

    log = _read(path, take)
    return WholeLog(log, times.result(), parse_summary(ends), doctor.result(), parser.reason_lines)


def _read(path: str | Path, take: Callable[[Iterable[str]], BuildLog]) -> BuildLog:
    path = Path(path)
    try:
        # a pipe such as <(trtexec ...) is read; a device such as /dev/zero has no end
        if not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISFIFO(mode)):
            raise UsageError(
                "not a file", code="log.unreadable", where=str(path), hint="give a build log"
            )
        with open_stream(path) as file:
            head = file.read(_CHUNK)
            if what := _binary_format(path, head):
                raise _not_a_log(path, *what)
            log = take(_lines(file, head))
    except FileNotFoundError as error:
        raise UsageError(
            "the build log does not exist",
            code="log.missing",
            where=str(path),
            hint="give the output of trtexec --verbose",
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the build log: {getattr(error, 'strerror', None) or error}",
            code="log.unreadable",
            where=str(path),
            hint="check the path and its permissions",
        ) from error
    if not log.lines:
        raise UsageError(
            "the build log is empty",
            code="log.empty",
            where=str(path),
            hint="save standard output and standard error: trtexec ... > build.log 2>&1",
        )
    if not log.recognised:
        raise _not_a_log(path, *(_foreign_format(path) or ("", "")))
    return log


def _not_a_log(path: Path, what: str = "", hint: str = "") -> UsageError:
    """Returns the error for a file that is no log, with the file's format if known."""
    looked = f"give the output of trtexec --verbose; edgekit looks for {LOOKED_FOR}"
    return UsageError(
        f"not a TensorRT build log: this is {what}"
        if what
        else "not a TensorRT build log: no line comes from TensorRT",
        code="log.unknown",
        where=str(path),
        hint=f"{hint}; or {looked}" if hint else looked,
    )


def _binary_format(path: Path, head: bytes) -> tuple[str, str] | None:
    """Returns the format of a binary file and a hint; None for text."""
    start = head[:4096]
    found = None
    if _ONNX.match(start) and b"\0" in start:
        found = "an ONNX model", f"to look at the model: edgekit check {quote(str(path))}"
    # Ultralytics writes a length and its metadata in JSON before the engine
    elif start[4:6] == b'{"' and b"ftrt" in head:
        found = "an engine of `yolo export`", "give the output of the program that built it"
    elif start.startswith((b"ftrt", b"ptrt")):
        found = "a TensorRT engine", "give the output of the program that built it"
    elif start[4:8] == b"NVDA":
        found = "a DLA loadable", "give the output of the program that built it"
    control = len(start) - len(start.translate(None, _CONTROL))
    # every other byte of UTF-16 is a zero, which counts as a control character
    text = control <= _MOST_CONTROL * len(start) or _encoding(start) != "utf-8"
    if found is None and text:
        return None
    return (
        found
        or _foreign_format(path)
        or ("an ONNX model" if _ONNX.match(start) else "a binary file", "")
    )


def _foreign_format(path: Path) -> tuple[str, str] | None:
    """Returns the name of a file's known format; None for others and for pipes."""
    try:
        # a pipe was already read and cannot be opened again
        found = foreign_format(path) if path.is_file() else None
    except OSError:
        return None
    return (found[0], "") if found else None


def _lines(file: BinaryIO, head: bytes) -> Iterator[str]:
    # it holds back a "\r" at the end of a chunk: the next chunk may begin with its "\n"
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(_encoding(head))(errors="replace"), translate=True
    )
    rest = ""
    data = head
    size = 0  # length of the unfinished line
    while data:
        text = rest + decoder.decode(data).lstrip("\ufeff")
        for made, was in _PAGE:
            text = text.replace(made, was)
        pieces = text.split("\n")
        size = len(pieces[-1]) + (0 if pieces[1:] else size)
        if size > _MOST_LINE:
            raise ValueError(f"a line is longer than {_MOST_LINE >> 20} MiB")
        rest = pieces.pop()[:_LONGEST]
        for piece in pieces:
            yield piece[:_LONGEST]
        data = file.read(_CHUNK)
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest.removesuffix("\n")


def _encoding(head: bytes) -> str:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    sample = head[:4096]
    half = len(sample) // 2
    # UTF-16 text without a byte order mark: every other byte is zero
    if half and sample[1::2].count(0) > 0.7 * half:
        return "utf-16-le"
    if half and sample[0::2].count(0) > 0.7 * half:
        return "utf-16-be"
    return "utf-8"
