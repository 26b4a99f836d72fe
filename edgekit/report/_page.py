"""Plain text of so many columns, with colours where a terminal shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from edgekit.report._text import clean

__all__ = ["Page"]

WIDTH = 80
# SGR codes of ECMA-48; the names are those that rich has for the same
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


class Page:
    """Collects lines, wrapped at ``width`` columns; names from a model are made harmless.

    Args:
        width: Columns.
        colour: Whether styles become escape sequences.
    """

    def __init__(self, width: int = WIDTH, *, colour: bool = False) -> None:
        self._width = max(width, 20)
        self._colour = colour
        self._lines: list[str] = []

    def add(self, text: str = "", *, indent: int = 0, hang: int = 0, style: str = "") -> None:
        """Adds a paragraph; its further lines stand ``hang`` columns deeper."""
        first, rest = " " * indent, " " * (indent + hang)
        lines = textwrap.wrap(
            clean(text), self._width, initial_indent=first, subsequent_indent=rest,
            break_on_hyphens=False,
        )  # fmt: skip
        self._lines += [self._styled(line, style) for line in lines or [""]]

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> None:
        """Adds a table; ``right`` has an "r" for each column that is aligned right.

        Lines are never wrapped: the caller gives cells that fit. A row of one cell has a line of
        its own and no say in the columns' widths.
        """
        cells = [list(head), *([clean(cell) for cell in row] for row in rows)]
        whole = [row for row in cells if len(row) == len(head)]
        widths = [max(len(row[i]) for row in whole) for i in range(len(head))]
        for number, row in enumerate(cells):
            if len(row) == 1 < len(head):
                self._lines.append(row[0])
                continue
            padded = [
                cell.rjust(width) if right[i : i + 1] == "r" else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            line = "  ".join(padded).rstrip()
            self._lines.append(self._styled(line, "" if number else "dim"))

    def _styled(self, line: str, style: str) -> str:
        if not self._colour or not style or not line:
            return line
        codes = ";".join(_CODES[name] for name in style.split())
        body = line.lstrip(" ")
        return f"{line[: len(line) - len(body)]}\x1b[{codes}m{body}\x1b[0m"

    def __str__(self) -> str:
        return "\n".join(self._lines)
