"""The program that wrote a log, and its errors with cause and remedy (``trt/log_errors.yaml``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edgekit.buildlog.known_errors import RAISED, KnownError, known_errors
from edgekit.buildlog.lines import strip
from edgekit.buildlog.parser_errors import OPENINGS, ParserErrorReader, RefusedNode
from edgekit.buildlog.tracebacks import TracebackReader

# words that identify the program of a line
_PROGRAMS = (
    ("DeepStream", ("NvDsInfer", "nvinfer gst", "nvdsinfer")),
    ("Ultralytics", ("Ultralytics ", "TensorRT: starting export")),
    ("trtexec", ("&&&& RUNNING TensorRT.trtexec", "trtexec --", "=== Build Options ===")),
    ("ONNX Runtime", (":onnxruntime:", "tensorrt_execution_provider")),
    ("Torch-TensorRT", ("[Torch-TensorRT",)),
    (
        "cuDLA",
        (
            "CUDLA ERR",
            "cudla_context",
            "cudlaModule",
            "cudlaCreateDevice",
            "cudlaSubmitTask",
            "cudlaMem",
            "cudlaImport",
        ),
    ),
)
# a line of the kernel's ring buffer, as printed by `dmesg` or the journal
_KERNEL = re.compile(
    r"^(?:<\d{1,3}>)?\[(?: *\d{1,9}(?:\.\d{1,6})?|\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\]"
    r"|(?:^| )kernel(?:\[\d+\])?: "
    r"|^(?:[\w-]{1,20} )?[0-9a-f]{6,9}\.(?:nvdla|pva|host1x|iommu|gpu)\w*:"
)
# kernel drivers that a DLA needs, and the words of their failures
_DRIVERS = re.compile(
    r"\b(?:t19x-)?(nvdla|pva|nvmap|arm-smmu|host1x|nvhost|nvgpu|mc-err|tegra-mc|cma_alloc)"
)
_DEVICE = re.compile(r"\.(nvdla\d|pva\d)\b")
_FAULT = re.compile(r"(?i)\bfail|\berr(?:or)?\b|\bfault\b|timed? ?out|violation")
_PROGRAM_WORDS = tuple(word for _, words in _PROGRAMS for word in words)
# a line without any of these words is no error
_KEYS = ("[E]", "[F]", "[W]", "ERROR", "WARN", "rror", "ailed", "FAILED", "CUDLA", "cudla", "cuDLA",
         "Cudla", "Unexpected call", "libnvdla", "NVMEDIA", "NvMedia", "nvdla", "NvDla", "(DLA)",
         "pva", "nvmap", "NVMAP", "NvMap", "agic", "MAGIC_TAG", "ersion tag", "ssertion", "nullptr",
         "ind plugin", "IPluginCreator", "o importer", "etwork must", "etwork has no", "ymmetric",
         "ero zero", "library version", "inked ", "ompiled against", "ncompatible", "annot open",
         "ismatch", "CUDA ", "Cuda ", "cuda ", "No module named", "kernel image", "llegal memory",
         "aunch failure", "smmu", "mc-err", "tegra-mc", "cma_alloc", "host1x", "nvhost", "nvgpu",
         "NvRm", "yelin", "nsufficient", "empty memory", "nable to open library",
         "ndefined symbol", "supported formats", "scratch space", *OPENINGS)  # fmt: skip
# a framework prints the TensorRT it was linked with, then on the next line the loaded version
_LINKED = re.compile(r"Linked TensorRT (?:version)?:? ?\(?\d")
# a line without any of these words does not report a process's end
_ENDS = ("terminate called", "what():", "egmentation fault", "SIGSEGV", "borted", "core dumped",
         "Killed", "killed", "Bus error", "SIGBUS", "Illegal instruction", "exit code", "SIGKILL",
         "SIGABRT", "exit status", "bad_alloc", "exited with code", "stack smashing",
         "double free", "corrupted", "free(): ", "Access violation", "access violation",
         "0xC0000005", "returned non-zero", "Fatal Python error")  # fmt: skip
_KILLED = re.compile(r"Kill(?:ed)? process \d{1,9},? \(([^)]{1,64})\)")
_END = re.compile(r"&&&& (PASSED|FAILED) |TensorRT: export (success|failure)")
_MOST = 20
_MOST_LINES = 2000
# characters at a line's start that contain its severity
_HEAD = 80
_LONGEST = 2000
# characters of an error that another error's cause quotes
_QUOTED = 200


@dataclass(frozen=True, slots=True)
class LogError:
    """A known error in a log.

    Attributes:
        known: The row of the known error.
        words: The first line with the error.
        line: Its number, from 1.
        count: Number of lines with the error.
        detail: Its subject, for example "Resize at node 17"; may be empty.
        node: The node that the ONNX parser refused, or None.
        operator: The unknown operator or plugin, or "".
        version: The operator's requested version, or "".
        lines: Numbers of the lines with the error, at most some thousand.
    """

    known: KnownError
    words: str
    line: int
    count: int = 1
    detail: str = ""
    node: RefusedNode | None = None
    operator: str = ""
    version: str = ""
    lines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Crash:
    """The end of a process that did not report it itself.

    Attributes:
        words: The line that reports the end.
        line: Its number, from 1.
        after: The last line before it, empty if it is the first.
        after_line: The number of that line.
        killed: Name of the process that the kernel's OOM killer ended; empty for any other end.
    """

    words: str
    line: int
    after: str
    after_line: int
    killed: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The errors in a log.

    Attributes:
        program: "trtexec", "Ultralytics", "DeepStream", ..., or "" for TensorRT's own logger.
        passed: True if trtexec or Ultralytics reports success, False after a crash or an exception
            that ends a Python program; None if the log shows neither.
        errors: Known errors in the order of the log.
        unknown: Errors (severity E or F) without a known cause that repeat no other error: their
            words with the number of the first line; at most twenty.
        crash: The process's crash, or None.
        devices: Devices in a kernel's log, such as "nvdla0"; else empty.
    """

    program: str = ""
    passed: bool | None = None
    errors: tuple[LogError, ...] = ()
    unknown: Mapping[str, int] = field(default_factory=dict)
    crash: Crash | None = None
    devices: tuple[str, ...] = ()

    @property
    def end(self) -> LogError | None:
        """The first error that ends the run and names a cause, else the first error; or None."""
        ends = [error for error in self.errors if error.known.stops]
        return next((error for error in ends if not error.known.general), next(iter(ends), None))


class LogDoctor:
    """Reads a log by lines; ``recognised`` counts lines that only TensorRT and its users write."""

    def __init__(self) -> None:
        self.recognised = 0
        self._known = known_errors()
        self._program = ""
        self._passed: bool | None = None
        self._errors: dict[tuple[str, str], LogError] = {}
        self._unknown: dict[str, int] = {}
        self._parser = ParserErrorReader()
        self._traceback = TracebackReader()
        self._block = ("", 0)
        self._crash: Crash | None = None
        self._last = ("", 0)
        self._number = 0
        self._devices: dict[str, None] = {}
        self._linked = ""
        # the last error with a known cause, else the last error without
        self._before = ("", 0)

    def feed(self, line: str) -> None:
        """Reads a line."""
        self._number += 1
        if _contains_any(line, _PROGRAM_WORDS):
            for program, words in _PROGRAMS:
                if _contains_any(line, words):
                    # DeepStream and Ultralytics may also name trtexec
                    self._program = self._program or program
                    self.recognised += 1
        if ("&&&& " in line or "TensorRT: export" in line) and (end := _END.search(line)):
            self._passed = "PASSED" in end[0] or "success" in end[0]
        if _contains_any(line, _ENDS) and self._read_end(line):
            return
        if "TensorRT" in line and self._read_linked_version(line):
            return
        if line and not line.isspace():
            self._last = (line, self._number)
        if self._read_traceback(line):
            return
        if _is_verbose(line) or not (self._parser.open or _contains_any(line, _KEYS)):
            return
        severity, text, _ = strip(line)
        text = text[:_LONGEST]
        if severity in ("V", "I") or not text:
            return
        if _KERNEL.search(line, 0, _LONGEST) and _DRIVERS.search(text):
            self._program = self._program or "kernel"
            self.recognised += 1
            self._devices.update(dict.fromkeys(_DEVICE.findall(text)))
            self._error("E" if _FAULT.search(text) else "", text)
            return
        if (self._parser.open or any(key in text for key in OPENINGS)) and self._read_parser_line(
            text
        ):
            return
        self._error(severity, text)

    def result(self) -> Diagnosis:
        """Returns the diagnosis of the lines read so far."""
        if (node := self._parser.end()) is not None:
            self._record_refused_node(node)
        return Diagnosis(
            self._program,
            self._passed,
            tuple(self._errors.values()),
            dict(self._unknown),
            self._crash,
            tuple(sorted(self._devices)),
        )

    def _read_linked_version(self, line: str) -> bool:
        """Reads a line about a framework's linked or loaded TensorRT; returns True if it is
        such a line.
        """
        loaded = "oaded " in line
        if not loaded and (match := _LINKED.search(line)):
            self._linked = line[match.start() :].strip()[:_LONGEST]
            return True
        if self._linked and loaded:
            self._error("W", f"{self._linked} {line.strip()[:_LONGEST]}")
            self._linked = ""
            return True
        return False

    def _read_traceback(self, line: str) -> bool:
        """Reads a line; returns True if it belongs to a Python traceback."""
        if not self._traceback.open:
            return self._traceback.begins(line)
        severity, text, own = strip(line)
        if own or severity:
            # TensorRT's output may interrupt another program's lines
            return False
        belongs, raised = self._traceback.feed(line, text[:_LONGEST])
        if raised is not None:
            self._passed = False
            self.recognised += raised.tensorrt
            self._error("E", raised.words, raised.code)
        return belongs

    def _error(self, severity: str, text: str, code: str = "") -> None:
        if found := self._known.find(f"{text} [{code}]" if code else text):
            self.recognised += 1
            if self._is_follow_up(found.known):
                return
            operator = found.operator
            detail = f"{operator} version {found.version}" if found.version else operator
            # an exception that only follows: the user needs the error before it
            if code and found.known.follows and self._before[1]:
                words, line = self._before
                detail = f"after the error of line {line} ({words[:_QUOTED]})"
            error = LogError(
                found.known,
                text,
                self._number,
                detail=detail or found.about,
                operator=operator,
                version=found.version,
            )
            self._record(found.known, operator or found.about, error)
            if severity in ("E", "F"):
                self._before = (text, self._number)
            return
        raised = bool(RAISED.search(text))
        self.recognised += raised
        # TensorRT's error in another program's words has no severity
        fatal = severity in ("E", "F") or (raised and not severity)
        repeats = self._known.consequences.search(text)
        if repeats and self._known.failures.search(text):
            self._passed = False
        if fatal and not repeats and len(self._unknown) < _MOST:
            self._unknown.setdefault(text, self._number)
            if not self._errors:
                self._before = (text, self._number)

    def _is_follow_up(self, known: KnownError) -> bool:
        """Returns True if an error only follows from an earlier error that ended the run."""
        return known.follows and any(error.known.stops for error in self._errors.values())

    def _record(self, known: KnownError, about: str, error: LogError) -> None:
        key = (known.id, about)
        if not about:  # a line without a subject repeats the last line with a subject
            key = next((old for old in reversed(self._errors) if old[0] == known.id), key)
        if (old := self._errors.get(key)) is None:
            if len(self._errors) < _MOST * 5:
                self._errors[key] = replace(error, lines=(error.line,))
            return
        lines = (*old.lines, error.line) if len(old.lines) < _MOST_LINES else old.lines
        node = old.node or error.node
        # the parser's block names the node, an earlier line may not
        detail = error.detail if error.node and not old.node else old.detail
        self._errors[key] = replace(old, count=old.count + 1, node=node, detail=detail, lines=lines)

    def _read_parser_line(self, text: str) -> bool:
        """Reads a line; returns True if it belongs to the parser's error block."""
        first = not self._parser.open
        belongs, node = self._parser.feed(text)
        if node is not None:
            if first:
                self._block = (text, self._number)
            self._record_refused_node(node)
            if self._parser.open:
                self._block = (text, self._number)
        elif first and belongs:
            self._block = (text, self._number)
        return belongs

    def _record_refused_node(self, node: RefusedNode) -> None:
        self.recognised += 1
        words, line = self._block
        found = self._known.find(node.assertion) if node.assertion else None
        known = found.known if found else self._known.refused
        old = self._errors.get((known.id, node.operator))
        # an earlier line may have named the operator, with its version
        before = old.detail if old else ""
        operator = node.operator or (found.operator if found else "")
        what = before or operator or "a part of the model"
        where = f" at node {node.number}" if node.number is not None else ""
        says = found.about if found else node.message
        says = f" ({says})" if says else ""
        detail = f"the ONNX parser refuses {what}{where}{says}"
        words = f"{words} {node.assertion}".strip() if node.assertion else words
        error = LogError(known, words[:_LONGEST], line, 1, detail, node, operator)
        self._record(known, node.operator or node.assertion, error)

    def _read_end(self, line: str) -> bool:
        """Reads a line; returns True if it reports the process's end."""
        _, text, _ = strip(line)
        known = self._known.crash(text[:_LONGEST])
        # no other line came since the crash
        same = self._crash is not None and self._last[1] < self._crash.line
        if known is None:
            return same and "what(): " in text
        if same:
            return True  # the same crash, reported by the shell
        self._passed = False
        _, after, _ = strip(self._last[0])
        killed = match[1] if (match := _KILLED.search(text)) else ""
        if killed and _KERNEL.search(line, 0, _LONGEST):
            self._program = self._program or "kernel"
            self.recognised += killed == "trtexec"
        self._crash = Crash(text[:_LONGEST], self._number, after[:_LONGEST], self._last[1], killed)
        if not self._is_follow_up(known):
            self._record(known, "", LogError(known, text[:_LONGEST], self._number))
        return True


def _is_verbose(line: str) -> bool:
    """Returns True if a line has severity V or I, like most lines of a verbose build."""
    head = line[:_HEAD]
    quiet = "[V]" in head or "[I]" in head
    return quiet and not ("[E]" in head or "[W]" in head or "[F]" in head)


def _contains_any(line: str, words: tuple[str, ...]) -> bool:
    # a loop takes half the time of any(), and most lines of a log are tried with every word
    for word in words:  # noqa: SIM110
        if word in line:
            return True
    return False
