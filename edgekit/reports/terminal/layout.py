"""Paragraphs and tables for rich; names from a model or a board are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from edgekit.reports.text import WIDTH, clean
from edgekit.text import ABSENT


def paragraph(text: str, *, indent: int = 0, style: str = "") -> Constrain:
    """Returns a text of at most 80 columns, all lines indented by ``indent`` columns."""
    return Constrain(
        Padding(Text(clean(text), style=style), (0, 0, 0, indent), expand=False), WIDTH
    )


def command(text: str, *, indent: int = 0) -> Text:
    """Returns a line that is never broken, so that a command in it can be copied."""
    return Text(" " * indent + clean(text), no_wrap=True, overflow="ignore")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> Table:
    """Returns a table without lines; ``right`` has an "r" for each column that is aligned right.

    A cell without a value has a dash, except in columns without a name and in the first column,
    in which an empty cell continues the row above.

    If a terminal is too narrow, the last column is wrapped; no word is broken.
    """
    found = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    cells = [
        [
            Text(clean(cell) or (ABSENT if number and name else ""))
            for number, (name, cell) in enumerate(zip(head, row, strict=True))
        ]
        for row in rows
    ]
    for number, name in enumerate(head):
        side: JustifyMethod = "right" if right[number : number + 1] == "r" else "left"
        texts = [name, *(row[number].plain for row in cells)]
        # only the last column may wrap, at its words
        unbroken = texts if number + 1 < len(head) else [*" ".join(texts).split(), ""]
        least = max(map(cell_len, unbroken))
        found.add_column(name, justify=side, overflow="fold", min_width=least)
    for row in cells:
        found.add_row(*row)
    return found


def name_value_table(rows: Iterable[tuple[str, str]], style: str = "") -> Table:
    """Returns a table of names and values."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(clean(name)), Text(clean(value)), style=style)
    return grid
