"""What commands that take configurations and hosts share: options, and boards that are away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from edgekit._plain import plain as harmless
from edgekit.cli import _options as o
from edgekit.cli._commands import argument

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from edgekit.pipeline._asking import Answered

__all__ = ["app_option", "plain", "reach", "table", "tell", "wheres"]

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


def table(*columns: str) -> Table:
    """Returns a table as the other commands have them."""
    from rich.table import Table

    return Table(*columns, box=None, pad_edge=False)


def plain(value: object) -> Text:
    """Returns text of a board's, which says nothing to the terminal but itself."""
    from rich.text import Text

    # in a table a line stays one
    return Text(harmless("" if value is None else str(value)).replace("\n", " "))
