"""The tree of PyTorch modules as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.network.module_tree import HEAD, RIGHT, tree_rows
from edgekit.reports.text import WIDTH, Page, names_in_columns

if TYPE_CHECKING:
    from edgekit.network.module_tree import ModuleTotals


def modules_text(modules: Sequence[ModuleTotals], *, width: int | None = None) -> str:
    """Returns the tree of modules as a table; ``width`` as of ``add_modules``."""
    page = Page(width or WIDTH)
    add_modules(page, modules, width=width)
    return str(page)


def add_modules(
    page: Page,
    modules: Sequence[ModuleTotals],
    most: int | None = None,
    *,
    width: int | None = None,
) -> None:
    """Adds the tree of modules to a page as a table.

    Args:
        page: The page.
        modules: From ``edgekit.network.module_tree.tree_rows``.
        most: Lines at most; None opens every module whose layers differ.
        width: Columns; if narrow, the classes are left out. None for any width.
    """
    rows = tree_rows(modules, most)
    names_in_columns(page, HEAD, rows, width=width, spared=("class",), right=RIGHT)
