"""The traceback of a Python program: the exception that ends it, and the code that raised it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BEGINS = "Traceback (most recent call last"
# Python prints this before the traceback of a destructor, after which the program goes on
_IGNORED = "Exception ignored in"
# "ValueError: words", "pkg.module.Fail: words", "AssertionError"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]{0,200}(?:: |:?$)")
# of them what no line of code looks like, indented or not
_ERROR = re.compile(r"^(?:\w{1,80}\.){0,9}\w{1,80}(?:Error|Exception|Exit|Interrupt)(?:: |:?$)")
# ended by the user, or on purpose
_WANTED = re.compile(r"^(?:KeyboardInterrupt|SystemExit)\b")
_FILE = re.compile(r"^File \"[^\"]{0,1000}\", line \d{1,9}")
_TENSORRT = re.compile(r"(?i)\b_?tensorrt|\btrt\b|\w_cuda_engine\b")
# Python shortens what is longer
_MOST = 2000


@dataclass(frozen=True, slots=True)
class Raised:
    """The end of a traceback.

    Attributes:
        words: The exception with its message.
        code: The line of code that raised it, empty where the traceback shows none.
        tensorrt: Whether a line of the traceback names TensorRT.
    """

    words: str
    code: str
    tensorrt: bool


class TracebackReader:
    """Takes lines with and without their prefix, and returns what ends a program."""

    def __init__(self) -> None:
        self._ignored = False
        self._reset()

    def _reset(self) -> None:
        self._lines = 0
        self._code = ""
        self._file = self._tensorrt = False

    @property
    def open(self) -> bool:
        """Whether the next line may belong to a traceback."""
        return self._lines > 0

    def begins(self, line: str) -> bool:
        """Takes a line outside of a traceback; returns whether one begins with it."""
        if _IGNORED in line:
            self._ignored = True
        if _BEGINS not in line:
            return False
        self._lines = 1
        return True

    def feed(self, line: str, text: str) -> tuple[bool, Raised | None]:
        """Takes the next line; returns whether it belongs to the traceback, and what it ends with.

        Args:
            line: As the log has it.
            text: The same without its prefix.
        """
        self._lines += 1
        self._tensorrt = self._tensorrt or bool(_TENSORRT.search(text))
        if not self._file and (
            _ERROR.match(text) or (line.startswith(text) and _EXCEPTION.match(text))
        ):
            raised = Raised(text, self._code, self._tensorrt)
            wanted = self._ignored or bool(_WANTED.match(text))
            self._ignored = False
            self._reset()
            return True, None if wanted else raised
        if _FILE.match(text):
            self._file = True
        elif self._file or not any(char.isalnum() for char in text):
            # lines that only mark a place in the code have no letter
            self._code = text if self._file else self._code
            self._file = False
        elif self._lines > _MOST or line.startswith(text):
            self._reset()
            return False, None
        return True, None
