"""Who wrote a log, and its errors with cause and remedy (``trt/log_errors.yaml``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from edgekit.buildlog.lines import strip
from edgekit.knowledge import data_folder, read_knowledge

_SCHEMA = "edgekit.log-errors/1"
# by the program that a line with these words is from
_PROGRAMS = (
    ("DeepStream", ("NvDsInfer", "nvinfer gst", "nvdsinfer")),
    ("Ultralytics", ("Ultralytics ", "TensorRT: starting export")),
    ("trtexec", ("&&&& RUNNING TensorRT.trtexec", "trtexec --", "=== Build Options ===")),
)
# a line without any of these is no error
_KEYS = ("[E]", "[F]", "[W]", "ERROR", "WARN", "rror:", "rror[", "FAILED", "CUDLA",
         "Error Code",         "Unexpected call", "libnvdla")  # fmt: skip
# as TensorRT's code raises them, whoever prints them
_RAISED = re.compile(
    r"\[\w+\.(?:cpp|h)::[^\]]{1,200}\] Error Code \d{1,2}: |^I[A-Z]\w+::\w+: Error Code \d{1,2}: "
)
_END = re.compile(r"&&&& (PASSED|FAILED) |TensorRT: export (success|failure)")
_MOST = 20
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class KnownError:
    """A row of ``trt/log_errors.yaml``.

    Attributes:
        id: Its name.
        pattern: What to search in a line without its prefix.
        cause: What is wrong.
        remedy: What to do.
        rules: Ids of rules of the DLA that are about the same.
        sources: Where it was seen, each as {"title", "where"}.
    """

    id: str
    pattern: re.Pattern[str]
    cause: str
    remedy: str
    rules: tuple[str, ...]
    sources: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class LogError:
    """A known error in a log.

    Attributes:
        known: What it is.
        words: The first line that says so.
        line: Its number, from 1.
        count: Lines that say so.
    """

    known: KnownError
    words: str
    line: int
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        known = self.known
        return {
            "id": known.id,
            "cause": known.cause,
            "remedy": known.remedy,
            "rules": list(known.rules),
            "source": "; ".join(source["title"] for source in known.sources),
            "sources": [dict(source) for source in known.sources],
            "words": self.words,
            "line": self.line,
            "count": self.count,
        }


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong according to a log.

    Attributes:
        program: "trtexec", "Ultralytics", "DeepStream", or "" for TensorRT's own logger.
        passed: Whether trtexec or Ultralytics says that it passed; None where it says neither.
        errors: Known errors, in the order of the log.
        unknown: Lines of severity E or F with no known cause that repeat no other error; at most
            twenty.
    """

    program: str = ""
    passed: bool | None = None
    errors: tuple[LogError, ...] = ()
    unknown: tuple[str, ...] = field(default=())


class LogDoctor:
    """Takes a log line by line; ``recognised`` counts what only TensorRT and its users write."""

    def __init__(self) -> None:
        self.recognised = 0
        self._known, self._consequences = _known_errors()
        self._program = ""
        self._passed: bool | None = None
        self._errors: dict[str, LogError] = {}
        self._unknown: dict[str, None] = {}
        self._number = 0

    def feed(self, line: str) -> None:
        """Takes one line."""
        self._number += 1
        for program, words in _PROGRAMS:
            if any(word in line for word in words):
                # DeepStream and Ultralytics may name trtexec, too
                self._program = self._program or program
                self.recognised += 1
        if ("&&&& " in line or "TensorRT: export" in line) and (end := _END.search(line)):
            self._passed = "PASSED" in end[0] or "success" in end[0]
        if not any(key in line for key in _KEYS):
            return
        severity, text, _ = strip(line)
        text = text[:_LONGEST]
        if severity in ("V", "I") or not text:
            return
        for known in self._known:
            if known.pattern.search(text):
                self.recognised += 1
                old = self._errors.get(known.id)
                self._errors[known.id] = (
                    replace(old, count=old.count + 1)
                    if old
                    else LogError(known, text, self._number)
                )
                return
        raised = bool(_RAISED.search(text))
        self.recognised += raised
        fatal = severity in ("E", "F") or (raised and not severity)
        if fatal and not self._consequences.search(text) and len(self._unknown) < _MOST:
            self._unknown.setdefault(text)

    def result(self) -> Diagnosis:
        """Returns what the lines said."""
        return Diagnosis(
            self._program, self._passed, tuple(self._errors.values()), tuple(self._unknown)
        )


@lru_cache(maxsize=1)
def _known_errors() -> tuple[tuple[KnownError, ...], re.Pattern[str]]:
    folder = data_folder("trt")
    document = read_knowledge(folder / "log_errors.yaml")
    if document.get("schema") != _SCHEMA:
        raise ValueError(f"{folder / 'log_errors.yaml'} is not a file of schema {_SCHEMA}")
    sources = read_knowledge(folder / "_sources.yaml")["sources"]
    errors = tuple(
        KnownError(
            row["id"], re.compile(row["pattern"]), row["cause"], row["remedy"],
            tuple(row.get("rules", ())), tuple(sources[key] for key in row["source"]),
        )
        for row in document["errors"]
    )  # fmt: skip
    return errors, re.compile("|".join(document["consequences"]))
