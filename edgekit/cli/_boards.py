"""What commands that take configurations and hosts share: options, and boards that are away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from edgekit._plain import plain as harmless
from edgekit.cli import _options as o
from edgekit.cli._commands import argument

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from edgekit.pipeline._asking import Answered

__all__ = [
    "app_option",
    "failing",
    "last_error",
    "plain",
    "reach",
    "show",
    "table",
    "tell",
    "tell_each",
    "wheres",
]

# ids and times are copied from tables: whatever else a terminal has no room for, they stay whole
_WHOLE = {
    "release": 19, "serves": 19, "previous": 19, "since": 20, "last deployment": 20,
}  # fmt: skip
_WIDE = 1 << 16

wheres = argument(
    "wheres",
    "YAML configurations, USER@HOST:PORT or aliases of ~/.ssh/config.",
    metavar="WHERE...",
    nargs=-1,
    required=True,
)
app_option = click.option("--app", help="The application; a configuration's own by default.")
#: How boards are reached, as ``root``, ``python`` and ``accept_host_key``.
reach = o.all_of(
    click.option("--root", default="~/.edgekit", help="Folder on the board, for a HOST."),
    click.option("--python", default="python3", help="Python on the board, for a HOST."),
    o.accept_host_key,
)


def tell(document: dict[str, Any], answered: Sequence[Answered], json: bool) -> None:
    """Prints the document where it is wanted, and fails as the first board did that failed."""
    if json:
        o.print_json(document)
    lost = [one.error for one in answered if one.error is not None]
    if lost:
        raise o.printed(lost[0])


def tell_each(
    document: dict[str, Any],
    answered: Sequence[Answered],
    json: bool,
    text: Callable[[dict[str, Any]], str],
) -> None:
    """Prints a line for each board, or the document, and fails as the first that failed.

    Args:
        document: With "boards".
        answered: The same boards, in the same order.
        json: Whether the document is wanted.
        text: What is said of a board that did not fail.
    """
    told = False
    for board, one in zip(document["boards"], answered, strict=True):
        if json or (one.error is not None and not told):
            # the error that the command ends with is told then
            told = told or one.error is not None
            continue
        o.say(f"{one.board}: {text(board) if one.error is None else one.error.message}")
    tell(document, answered, json)


def failing(board: Mapping[str, Any], boards: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Returns how a board failed, and why unless the command's end says it: that of the first."""
    first = next(one for one in boards if one["error"] is not None)
    how = "failed" if board["reachable"] else "not reached"
    return how, "-" if board is first else str(board["error"]["message"])


def table(*columns: str) -> Table:
    """Returns a table as the other commands have them; nothing in it is cut."""
    from rich.table import Column, Table

    made = [Column(name, overflow="fold", min_width=_WHOLE.get(name)) for name in columns]
    return Table(*made, box=None, pad_edge=False)


def show(rows: Table, notes: Sequence[str] = ()) -> None:
    """Prints a table and lines below it.

    A row is one line where stdout is no terminal, or one that is too narrow for a word a column.
    """
    from rich.measure import Measurement

    screen = o.console(width=None if o.paper()[0] else _WIDE)
    options = screen.options.update(width=_WIDE)  # or nothing is wider than the terminal
    if Measurement.get(screen, options, rows).minimum > screen.width:
        screen = o.console(width=_WIDE)
    screen.print(rows)
    for note in notes:
        screen.print(plain(note), soft_wrap=True)


def last_error(serving: Mapping[str, Any]) -> str:
    """Returns what a server's last error was, empty without one."""
    found = serving.get("last_error")
    if not isinstance(found, Mapping):
        return str(found or "")
    at, code = (str(found.get(name) or "") for name in ("at", "code"))
    return f"{f'{at} ' if at else ''}{found.get('message')}{f' ({code})' if code else ''}"


def plain(value: object) -> Text:
    """Returns text of a board's, which says nothing to the terminal but itself."""
    from rich.text import Text

    # in a table a line stays one
    return Text(harmless("" if value is None else str(value)).replace("\n", " "))
