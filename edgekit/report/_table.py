"""Tables whose first column holds names that a user pastes: they are never cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.report._page import Page

__all__ = ["names_in_columns"]

_LEAST = 12  # columns that a name shares a line with the others in
_GAP = 2


def names_in_columns(
    page: Page,
    head: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    *,
    width: int | None = None,
    spared: Sequence[str] = (),
    right: Sequence[str] = (),
) -> None:
    """Adds a table to a page; names that do not fit stand on a line of their own.

    Args:
        page: The page.
        head: The columns; the first one holds the names.
        rows: Cells by column.
        width: Columns of the terminal; None where lines may be of any length.
        spared: What is left out first where the names do not fit.
        right: Columns that are aligned right.
    """
    wide = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in head}
    columns = list(head)
    for name in spared:
        if width is None or _needed(columns, wide) <= width:
            break
        columns.remove(name)
    room = None
    if width is not None and _needed(columns, wide) > width:
        room = max(width - _needed(columns[1:], wide) - _GAP, _LEAST)
    cells: list[list[str]] = []
    for row in rows:
        line = [row[name] for name in columns]
        if room is not None and len(line[0]) > room:
            cells.append([line[0]])
            line[0] = ""
        cells.append(line)
    sides = "".join("r" if name in right else "l" for name in columns)
    page.table(columns, cells, sides)


def _needed(columns: Sequence[str], wide: Mapping[str, int]) -> int:
    return sum(wide[name] for name in columns) + _GAP * (len(columns) - 1)
