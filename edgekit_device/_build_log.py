"""TensorRT's messages while it builds: all of them in the log, the telling ones at hand.

TensorRT takes the logger of the first builder or runtime of a process for all later ones, so one
logger serves a whole process and its readers mark where their part begins.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple

from ._trt_modules import logger

__all__ = ["BuildLog", "last_errors"]

_LETTERS = {"INTERNAL_ERROR": "F", "ERROR": "E", "WARNING": "W", "INFO": "I", "VERBOSE": "V"}
# "[11/21/2026-10:00:00] [E] [TRT] text"; trtexec's own lines lack the [TRT]
_LINE = re.compile(r"(?:\[[^\]]*\] )?\[([VIWEF])\] (?:\[TRT\] ?)?(.*)\Z", re.DOTALL)
# what a person is shown of a failure; the log has the rest
_SHOWN = 8
# a verbose build of a large network writes hundreds of megabytes, nearly all of them about tactics
_MOST_KEPT = 32 << 20
# verbose lines that are kept beyond that: what runs where, and what memory it takes
_TELLING = re.compile(r"\[DlaLayer\]|\[GpuLayer\]|Layers Running on|running on GPU|DLA|offloaded")
#: ``(what the builder is at, pattern of the message that begins it)``, for releases without
#: IProgressMonitor; the texts are TensorRT's own (verbose, 8.5 to 10.3).
STAGES: Tuple[Tuple[str, Any], ...] = (
    ("optimising the graph", re.compile(r"Original: \d+ layers|After .+: \d+ layers")),
    ("placing layers", re.compile(r"-+ Layers [Rr]unning on")),
    ("compiling for the DLA", re.compile(r"DLA Memory Pool Sizes|offloaded to DLA")),
    ("timing tactics", re.compile(r"-+ Timing Runner|\*{3,} Autotuning format combination")),
    ("generating the engine", re.compile(r"Engine generation completed|Formats and tactics sel")),
)


class BuildLog:
    """Receives TensorRT's messages from any thread.

    Attributes:
        logger: A ``trt.ILogger`` of the module that it was made with; None without one.
        crashed: What an own method raised while TensorRT called it: TensorRT swallows that.
    """

    def __init__(self, trt: Any, write: Callable[[str], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._lines: List[str] = []
        self._messages: List[Tuple[str, str]] = []
        self._kept = 0
        self.stage: Optional[Callable[[str], None]] = None
        self.crashed: Optional[BaseException] = None
        self.logger = None if trt is None else logger(trt, self._take)

    def add(self, letter: str, text: str) -> None:
        """Takes one message; ``letter`` is one of V I W E F."""
        # the time and tags of TensorRT's own Python logger
        stamp = time.strftime("%m/%d/%Y-%H:%M:%S")
        self._put(letter, text, "[{}] [TRT] [{}] {}".format(stamp, letter, text))

    def _put(self, letter: str, text: str, line: str) -> None:
        with self._lock:
            keep = letter != "V" or self._kept < _MOST_KEPT or bool(_TELLING.search(text))
            if keep:
                self._lines.append(line)
                self._kept += len(line) + 1
                self._write(line)
            if letter in "WEF":
                self._messages.append((letter, text))
        if self.stage is not None and letter in "VI":
            for name, pattern in STAGES:
                if pattern.search(text):
                    self.stage(name)
                    break

    def raw(self, line: str) -> None:
        """Takes one line as trtexec prints it, time and severity included."""
        match = _LINE.match(line)
        letter, text = (match.group(1), match.group(2)) if match else ("I", line)
        self._put(letter, text, line)

    def _take(self, severity: str, text: str) -> None:
        try:
            self.add(_LETTERS.get(severity, "I"), text)
        except BaseException as error:
            self.crashed = self.crashed or error

    def mark(self) -> int:
        """Where ``since`` may begin later."""
        with self._lock:
            return len(self._messages)

    def since(self, mark: int, letters: str) -> List[str]:
        """Texts of the messages of those severities that came after ``mark``."""
        with self._lock:
            return [text for letter, text in self._messages[mark:] if letter in letters]

    def text(self) -> str:
        """The log so far; of very long ones without the builder's chatter about tactics."""
        with self._lock:
            return "\n".join(self._lines) + "\n" if self._lines else ""


def last_errors(messages: Sequence[str]) -> str:
    """The last errors, each once, in one line."""
    return "; ".join(" ".join(text.split()) for text in list(dict.fromkeys(messages))[-_SHOWN:])
