"""The error block of TensorRT's ONNX parser: several lines that report a refused node.

A block names the node, may print it, and ends with the failed assertion::

    ModelImporter.cpp:726: While parsing node number 17 [Resize -> "up"]:
    ModelImporter.cpp:727: --- Begin node ---
    op_type: "Resize"
    ModelImporter.cpp:729: --- End node ---
    ModelImporter.cpp:732: ERROR: builtin_op_importers.cpp:3608 In function importResize:
    [8] Assertion failed: scales.is_weights() && "Resize scales must be an initializer!"

Programs that print ``parser.get_error(i)`` have the same on a single line (``In node 17 ...``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# words of lines that begin a block; other lines are read only inside a block
OPENINGS = ("While parsing node number", "In function ", "In node ")
_NODE = re.compile(
    r"While parsing node number (\d{1,9})(?: \[([\w.:]{1,200})(?: -> \"([^\"]*)\")?)?"
)
_FUNCTION = re.compile(
    r"(?:ERROR: )?\b[\w./\\-]{1,200}\.(?:cpp|hpp|h):\d{1,6} In function (\w{1,200}):?\s*(.*)$"
)
_SENTENCE = re.compile(
    r"In node (-?\d{1,9})(?: with name: (.*?) and operator: (\w[\w.:]{0,200}))?"
    r" \((\w{1,200})\): ([A-Z_]{3,40}): ?(.*)$"
)
_ASSERTION = re.compile(r"^\[(\d{1,2})\] (.+)$")
_OPERATOR = re.compile(r"op_type: \"([^\"]{1,200})\"")
_IMPORTER = re.compile(r"^import([A-Z]\w*)$")
_WORDS = re.compile(r"&& \"(.+?)\"\s*\.?$")
# a printed node is longer only if it has constants
_MOST = 400
# the message on the line after "[6] Invalid Node - NAME"
_UNSAID = re.compile(r"^Invalid Node - (.*)$")


@dataclass(frozen=True, slots=True)
class RefusedNode:
    """A node that the parser refused.

    Attributes:
        operator: ONNX operator, empty if no line names it.
        number: Its position in the graph, None if no line names it.
        output: Its first output or its name, empty if no line names it.
        function: The parser's function.
        assertion: The failed assertion as printed, without "Assertion failed: "; may be empty.
    """

    operator: str
    number: int | None
    output: str
    function: str
    assertion: str

    @property
    def message(self) -> str:
        """The assertion's message, or else its expression."""
        words = _WORDS.search(self.assertion)
        return words[1] if words else self.assertion


class ParserErrorReader:
    """Reads lines without their prefix, and returns a node when its block is complete."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._operator = self._output = self._function = self._assertion = ""
        self._number: int | None = None
        self._open = self._printing = False
        self._lines = 0

    @property
    def open(self) -> bool:
        """True if the next line may belong to a block."""
        return self._open

    def feed(self, text: str) -> tuple[bool, RefusedNode | None]:
        """Reads a line; returns (True if it belongs to a block, the completed node or None)."""
        if match := _NODE.search(text):
            done = self.end()
            self._open, self._number = True, int(match[1])
            self._operator, self._output = match[2] or "", match[3] or ""
            return True, done
        if "In node " in text and (match := _SENTENCE.search(text)):
            done = self._read_sentence(match)
            return True, done
        if "In function " in text and (match := _FUNCTION.search(text)):
            # a second function belongs to the next node
            done = self.end() if self._function else None
            self._open, self._printing, self._function = True, False, match[1]
            return True, done or self._read_assertion(match[2].strip())
        if not self._open:
            return False, None
        return self._read_block_line(text)

    def end(self) -> RefusedNode | None:
        """Returns the node of a truncated block, or None."""
        if not self._open:
            return None
        operator = self._operator
        if not operator and (match := _IMPORTER.match(self._function)):
            operator = match[1]
        node = RefusedNode(operator, self._number, self._output, self._function, self._assertion)
        self._reset()
        return node

    def _read_sentence(self, match: re.Match[str]) -> RefusedNode | None:
        number = int(match[1])
        if self._open and self._number not in (None, number):
            self._reset()
        self._open = True
        self._number = number if number >= 0 else self._number
        self._output = self._output or match[2] or ""
        self._operator, self._function = match[3] or self._operator, match[4]
        self._assertion = _strip_prefix(match[6])
        return self.end()

    def _read_block_line(self, text: str) -> tuple[bool, RefusedNode | None]:
        self._lines += 1
        if "--- Begin node ---" in text:
            self._printing = True
            return True, None
        if "--- End node ---" in text:
            self._printing = False
            return True, None
        if self._printing and self._lines < _MOST:
            if match := _OPERATOR.search(text):
                self._operator = match[1]
            return True, None
        if match := _ASSERTION.match(text):
            return True, self._read_assertion(match[0])
        if self._assertion:
            # the reason of an invalid node is on the next line
            self._assertion = f"{self._assertion}: {text}"
            return True, self.end()
        return False, self.end()

    def _read_assertion(self, text: str) -> RefusedNode | None:
        if match := _ASSERTION.match(text):
            self._assertion = _strip_prefix(match[2])
            return None if _UNSAID.match(self._assertion) else self.end()
        return None


def _strip_prefix(text: str) -> str:
    return text.strip().removeprefix("Assertion failed: ").strip()
