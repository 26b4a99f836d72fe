"""The traceback of a Python program: the exception that ends it, and the code that raised it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BEGINS = "Traceback (most recent call last"
# Python prints this before the traceback of a destructor, after which the program continues
_IGNORED = "Exception ignored in"
# "ValueError: words", "pkg.module.Fail: words", "AssertionError"
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]{0,200}(?:: |:?$)")
# exceptions that cannot be a line of code, indented or not
_ERROR = re.compile(r"^(?:\w{1,80}\.){0,9}\w{1,80}(?:Error|Exception|Exit|Interrupt)(?:: |:?$)")
# ended by the user or deliberately
_WANTED = re.compile(r"^(?:KeyboardInterrupt|SystemExit)\b")
_FILE = re.compile(r"^File \"[^\"]{0,1000}\", line \d{1,9}")
_TENSORRT = re.compile(r"(?i)\b_?tensorrt|\btrt\b|\w_cuda_engine\b")
# Python shortens longer lines
_MOST = 2000


@dataclass(frozen=True, slots=True)
class Raised:
    """The end of a traceback.

    Attributes:
        words: The exception with its message.
        code: The line of code that raised it, empty if not shown.
        tensorrt: True if a line of the traceback names TensorRT.
    """

    words: str
    code: str
    tensorrt: bool


class TracebackReader:
    """Reads lines with and without their prefix, and returns the exception that ends a program."""

    def __init__(self) -> None:
        self._ignored = False
        self._reset()

    def _reset(self) -> None:
        self._lines = 0
        self._code = ""
        self._file = self._tensorrt = False

    @property
    def open(self) -> bool:
        """True if the next line may belong to a traceback."""
        return self._lines > 0

    def begins(self, line: str) -> bool:
        """Reads a line outside a traceback; returns True if it begins a traceback."""
        if _IGNORED in line:
            self._ignored = True
        if _BEGINS not in line:
            return False
        self._lines = 1
        return True

    def feed(self, line: str, text: str) -> tuple[bool, Raised | None]:
        """Reads a line; returns (True if it belongs to the traceback, the end of the traceback or
        None).

        Args:
            line: The line as in the log.
            text: The line without its prefix.
        """
        self._lines += 1
        self._tensorrt = self._tensorrt or bool(_TENSORRT.search(text))
        # an exception's line is not indented. If another program indents all lines, only the usual
        # endings of exceptions' names distinguish it from code
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
            # lines that only mark a position in the code have no letter
            self._code = text if self._file else self._code
            self._file = False
        elif self._lines > _MOST or line.startswith(text):
            self._reset()
            return False, None
        return True, None
