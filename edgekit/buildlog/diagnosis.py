"""Who wrote a log, and its errors with cause and remedy (``trt/log_errors.yaml``)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from edgekit.buildlog.known_errors import KnownError, known_errors
from edgekit.buildlog.lines import strip
from edgekit.buildlog.parser_errors import OPENINGS, ParserErrorReader, RefusedNode

# by the program that a line with these words is from
_PROGRAMS = (
    ("DeepStream", ("NvDsInfer", "nvinfer gst", "nvdsinfer")),
    ("Ultralytics", ("Ultralytics ", "TensorRT: starting export")),
    ("trtexec", ("&&&& RUNNING TensorRT.trtexec", "trtexec --", "=== Build Options ===")),
    ("ONNX Runtime", (":onnxruntime:", "tensorrt_execution_provider")),
    ("Torch-TensorRT", ("[Torch-TensorRT", )),
    ("cuDLA", ("CUDLA ERR", "cudla_context")),
    ("kernel", (".nvdla0:", ".nvdla1:", ".pva0:", ".pva1:")),
)  # fmt: skip
# a line without any of these is no error
_KEYS = ("[E]", "[F]", "[W]", "ERROR", "WARN", "rror:", "rror[", "FAILED", "CUDLA", "cudla",
         "Error ", "Unexpected call", "libnvdla", "NVMEDIA", "NvMedia", "nvdla", "NvDla",
         "(DLA)", "pva", "nvmap", "NVMAP", "NvMap", "agic tag", "agicTag", "MAGIC_TAG",
         "ersion tag", "ssertion", "annot find plugin", *OPENINGS)  # fmt: skip
# a line without any of these says nothing of how a process ended
_ENDS = ("terminate called", "what():", "egmentation fault", "SIGSEGV", "borted", "core dumped",
         "Killed", "killed", "Bus error", "SIGBUS", "Illegal instruction", "exit code", "SIGKILL",
         "SIGABRT", "exit status", "bad_alloc", "exited with code", "stack smashing",
         "double free", "corrupted", "free(): ", "Access violation", "access violation",
         "0xC0000005", "returned non-zero", "Fatal Python error")  # fmt: skip
# as TensorRT's code raises them, whoever prints them
_RAISED = re.compile(
    r"\[\w+\.(?:cpp|h)::[^\]]{1,200}\] Error Code \d{1,2}: |^I[A-Z]\w+::\w+: Error Code \d{1,2}: "
)
_END = re.compile(r"&&&& (PASSED|FAILED) |TensorRT: export (success|failure)")
_MOST = 20
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class LogError:
    """A known error in a log.

    Attributes:
        known: What it is.
        words: The first line that says so.
        line: Its number, from 1.
        count: Lines that say so.
        detail: What it is about, for example "Resize at node 17"; may be empty.
        node: The node that the ONNX parser refused, or None.
    """

    known: KnownError
    words: str
    line: int
    count: int = 1
    detail: str = ""
    node: RefusedNode | None = None

    def to_json(self, tensorrt: str = "") -> dict[str, Any]:
        """Returns plain values, with the remedy for a release."""
        known, node = self.known, self.node
        found = {
            "id": known.id,
            "cause": f"{self.detail}: {known.cause}" if self.detail else known.cause,
            "remedy": known.remedy_for(tensorrt),
            "rules": list(known.rules),
            "source": "; ".join(source["title"] for source in known.sources),
            "sources": [dict(source) for source in known.sources],
            "words": self.words,
            "line": self.line,
            "count": self.count,
        }
        if known.seen:
            found["seen"] = list(known.seen)
        if node is not None:
            found["node"] = {
                "operator": node.operator or None, "number": node.number,
                "output": node.output or None, "assertion": node.assertion or None,
            }  # fmt: skip
        return found


@dataclass(frozen=True, slots=True)
class Crash:
    """A process that ended without a report of its own.

    Attributes:
        words: The line that says how it ended.
        line: Its number, from 1.
        after: The last line before it, empty if it is the first.
        after_line: The number of that line.
    """

    words: str
    line: int
    after: str
    after_line: int


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong according to a log.

    Attributes:
        program: "trtexec", "Ultralytics", "DeepStream", ..., or "" for TensorRT's own logger.
        passed: Whether trtexec or Ultralytics says that it passed, False after a crash; None
            where the log says neither.
        errors: Known errors, in the order of the log.
        unknown: Lines of severity E or F with no known cause that repeat no other error; at most
            twenty.
        crash: How the process crashed, or None.
    """

    program: str = ""
    passed: bool | None = None
    errors: tuple[LogError, ...] = ()
    unknown: tuple[str, ...] = field(default=())
    crash: Crash | None = None


class LogDoctor:
    """Takes a log line by line; ``recognised`` counts what only TensorRT and its users write."""

    def __init__(self) -> None:
        self.recognised = 0
        self._known = known_errors()
        self._program = ""
        self._passed: bool | None = None
        self._errors: dict[tuple[str, str], LogError] = {}
        self._unknown: dict[str, None] = {}
        self._parser = ParserErrorReader()
        self._block = ("", 0)
        self._crash: Crash | None = None
        self._last = ("", 0)
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
        if any(key in line for key in _ENDS) and self._ended(line):
            return
        if line and not line.isspace():
            self._last = (line, self._number)
        if not (self._parser.open or any(key in line for key in _KEYS)):
            return
        severity, text, _ = strip(line)
        text = text[:_LONGEST]
        if severity in ("V", "I") or not text:
            return
        if (self._parser.open or any(key in text for key in OPENINGS)) and self._refused(text):
            return
        self._error(severity, text)

    def result(self) -> Diagnosis:
        """Returns what the lines said."""
        if (node := self._parser.end()) is not None:
            self._of_parser(node)
        return Diagnosis(
            self._program, self._passed, tuple(self._errors.values()), tuple(self._unknown),
            self._crash,
        )  # fmt: skip

    def _error(self, severity: str, text: str) -> None:
        if found := self._known.find(text):
            known, match = found
            names = match.groupdict()
            operator = names.get("operator") or ""
            detail = f"{operator} version {names['version']}" if names.get("version") else operator
            self.recognised += 1
            self._note(known, operator, LogError(known, text, self._number, detail=detail))
            return
        raised = bool(_RAISED.search(text))
        self.recognised += raised
        fatal = severity in ("E", "F") or (raised and not severity)
        repeats = self._known.consequences.search(text)
        if fatal and not repeats and len(self._unknown) < _MOST:
            self._unknown.setdefault(text)

    def _note(self, known: KnownError, about: str, error: LogError) -> None:
        key = (known.id, about)
        if (old := self._errors.get(key)) is None:
            if len(self._errors) < _MOST * 5:
                self._errors[key] = error
            return
        node = old.node or error.node
        # the block of the parser names the node that an earlier line does not
        detail = error.detail if error.node and not old.node else old.detail
        self._errors[key] = replace(old, count=old.count + 1, node=node, detail=detail)

    def _refused(self, text: str) -> bool:
        """Takes a line of the parser's error block; whether it was one."""
        first = not self._parser.open
        belongs, node = self._parser.feed(text)
        if node is not None:
            if first:
                self._block = (text, self._number)
            self._of_parser(node)
            if self._parser.open:
                self._block = (text, self._number)
        elif first and belongs:
            self._block = (text, self._number)
        return belongs

    def _of_parser(self, node: RefusedNode) -> None:
        self.recognised += 1
        words, line = self._block
        found = self._known.find(node.assertion) if node.assertion else None
        known = found[0] if found else self._known.refused
        old = self._errors.get((known.id, node.operator))
        before = old.detail if old else ""
        what = before or node.operator or "a part of the model"
        where = f" at node {node.number}" if node.number is not None else ""
        says = f" ({node.message})" if node.message and not found else ""
        detail = f"the ONNX parser refuses {what}{where}{says}"
        words = f"{words} {node.assertion}".strip() if node.assertion else words
        error = LogError(known, words[:_LONGEST], line, 1, detail, node)
        self._note(known, node.operator or node.assertion, error)

    def _ended(self, line: str) -> bool:
        """Takes a line that may say how the process ended; whether it does."""
        _, text, _ = strip(line)
        known = self._known.crash(text[:_LONGEST])
        told = self._crash is not None and self._last[1] < self._crash.line
        if known is None:
            return told and "what(): " in text
        if told:
            return True  # the same crash, told by the shell
        self._passed = False
        _, after, _ = strip(self._last[0])
        self._crash = Crash(text[:_LONGEST], self._number, after[:_LONGEST], self._last[1])
        self._note(known, "", LogError(known, text[:_LONGEST], self._number))
        return True
