"""``edgekit explain``: a rule or an error code, offline."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli import _options as o

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("explain", epilog="Example: edgekit explain convolution.cbuf")(explain)


def explain(
    rule: Annotated[str, typer.Argument(help="A rule's id, as check prints it.")],
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Print a DLA rule with its limit, its source and what to do about it."""
    from edgekit.dla import explain as lookup

    found = lookup(rule)
    if json:
        o.print_json({"schema": "edgekit.rule/1", **found})
        return
    for key, value in found.items():
        if value not in (None, "", [], {}):
            print(f"{key:<12} {value}")
