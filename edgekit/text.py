"""Text for people: lists, counts and shares within sentences, tables in Markdown, and printing
that keeps control characters of models, boards and file names from changing the terminal.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO, cast

from edgekit.errors import UsageError
from edgekit.expansion import redact
from edgekit_device import errors

ABSENT = "-"
#: The device of a module that is left out of a network.
PYTORCH = "PyTorch"
#: A number with its noun: "1 board", "2,000 boards"; as the board writes it.
counted = errors.counted
#: The first texts and the number of the others: "a, b and 3 more"; as the board writes it.
listed = errors.listed
_WORD = re.compile(r"[a-z]+(?=[ ,;'-]|$)")
_SIZES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_FIRST = {
    "a", "all", "an", "at", "both", "by", "different", "each", "every", "fewer", "for", "from",
    "in", "it", "no", "none", "not", "of", "on", "one", "only", "some", "the", "these", "this",
    "to", "when", "where", "with", "without",
}  # fmt: skip
# characters that may be other than a letter, a sign or a space: C0, C1, direction marks,
# surrogates, ...
_SUSPECT = re.compile(r"[^\n\t -~]")
# SGR of ECMA-48, the colours of a page
_COLOUR = re.compile("(\x1b\\[[0-9;]*m)")
# edgekit's own characters beyond ASCII, for terminals that only have ASCII
_ASCII = str.maketrans({"µ": "u", "–": "-", "…": "~"})


def yaml_list(names: Iterable[str]) -> str:
    """Returns names as a list in YAML, to be copied: '["a", "b"]'."""
    return f"[{', '.join(json.dumps(name, ensure_ascii=False) for name in names)}]"


def yaml_line(section: Mapping[str, object]) -> str:
    """Returns the line of a configuration with a section, such as "model: {outputs: [a, b]}"."""
    import yaml

    flow: str = yaml.safe_dump(dict(section), default_flow_style=True, width=math.inf)
    return flow.strip()[1:-1]


def first_line(error: Exception, otherwise: str = "no reason given") -> str:
    """Returns the first line of an exception's text, or ``otherwise`` if it has none."""
    return next(iter(str(error).strip().splitlines()), otherwise)


def count_all(number: int, noun: str) -> str:
    """Returns "the only layer", "both layers", "all 3 layers"."""
    few = {1: f"the only {noun}", 2: f"both {noun}s"}
    return few.get(number, f"all {counted(number, noun)}")


def sentence(text: str) -> str:
    """Returns a note with a capital letter first, unless it may begin with a name or a key."""
    word = _WORD.match(text)
    return text if word is None or word[0] not in _FIRST else text[0].upper() + text[1:]


def percent(fraction: float | None, digits: int = 1) -> str:
    """Formats a fraction as a percentage; values near 0 and 1 are not rounded to 0 and 100."""
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    step = 10.0**-digits
    if 0 < 100 * fraction < step / 2:
        return f"<{step:.{digits}f} %"
    if 100 - step / 2 <= 100 * fraction < 100:
        return f">{100 - step:.{digits}f} %"
    return f"{100 * fraction:.{digits}f} %"


def table_head(heads: Sequence[str]) -> list[str]:
    """Returns the two lines that begin a table in Markdown."""
    return [table_row(heads), f"|{'---|' * len(heads)}"]


def table_row(cells: Iterable[str]) -> str:
    """Returns a line of a table in Markdown; a bar within a cell becomes a slash."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def align(rows: Sequence[Sequence[str]], right: Sequence[bool] = ()) -> list[str]:
    """Returns the lines of a table in plain text.

    Args:
        rows: Its cells, including the head.
        right: True for each column that is aligned right; by default none is.
    """
    sides = [str.rjust if aligned else str.ljust for aligned in right] or [str.ljust] * len(rows[0])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def printable(text: str, most: int | None = None, *, lines: bool = True) -> str:
    r"""Returns the text with control, format and direction characters as escapes (``\x1b``).

    They are Python's escapes: text that was quoted with ``repr`` looks the same.

    The output boundary: text from others cannot change the terminal that shows it.

    Boards, models, configurations, file names and the environment put text into messages. It is
    escaped here, where it leaves the program, and not at each of its sources.

    Args:
        text: A board's, a file's or a user's.
        most: Longer texts are cut here.
        lines: True if ends of lines and tabs are kept.
    """
    short = text if most is None or len(text) <= most else text[:most] + "..."
    if short.isprintable():
        return short
    if lines:
        # characters that end lines on other systems do so here
        return _SUSPECT.sub(lambda found: _visible(found[0]), short.replace("\r\n", "\n"))
    return "".join(map(_visible, short))


def _visible(char: str) -> str:
    # a space of another width is a space
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode("ascii")


class _PrintableStream:
    """A text stream that writes printable characters, and the rest as escapes.

    It has no ``buffer``: a library that looks for it would bypass the escapes.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.unfiltered, name)

    def write(self, text: str) -> int:
        self.unfiltered.write(_encodable(printable(redact(text)), self.unfiltered))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def write_page(self, text: str) -> None:
        """Writes text whose colours are edgekit's own; other sequences are escaped."""
        parts = _COLOUR.split(redact(text))
        # the split keeps the colours, at the odd places
        parts[::2] = map(printable, parts[::2])
        self.unfiltered.write(_encodable("".join(parts), self.unfiltered))


def _encodable(text: str, stream: TextIO) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if text.isascii():
        return text
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    return text


def unfiltered(stream: TextIO) -> TextIO:
    """Returns the stream below the boundary, for a writer that filters its own text."""
    return stream.unfiltered if isinstance(stream, _PrintableStream) else stream


def write_page(text: str) -> None:
    """Writes a page to stdout; its colours are kept."""
    _PrintableStream(unfiltered(sys.stdout)).write_page(text)


@contextlib.contextmanager
def printable_output() -> Iterator[None]:
    """Escapes control characters in stdout and stderr while the block runs."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, _PrintableStream(unfiltered(sys.stdout)))
    sys.stderr = cast(TextIO, _PrintableStream(unfiltered(sys.stderr)))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def read_size(text: str) -> int:
    """Returns the number of bytes in "64MiB", "4096" or "1 GiB".

    Raises:
        UsageError: The text has another form.
    """
    # the letters of all units
    number = text.strip().lower().rstrip("bikmg ")
    unit = text.strip().lower()[len(number) :].strip()
    try:
        size = float(number) * _SIZES[unit]
        if not size.is_integer():
            raise ValueError
    except (ValueError, KeyError, OverflowError):
        raise UsageError(
            f"{text!r} is not a size", hint="write 64MiB, 512KiB or a number of bytes"
        ) from None
    return int(size)
