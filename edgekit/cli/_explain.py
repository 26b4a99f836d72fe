"""``edgekit explain``: a rule or an error code, offline."""

from __future__ import annotations

from edgekit.cli import _options as o
from edgekit.cli._commands import argument

__all__ = ["command"]


@o.command("explain", "Example: edgekit explain convolution.cbuf")
@argument("rule", "A rule's id, as check prints it.")
@o.json
@o.debug
def command(rule: str, json: bool) -> None:
    from edgekit.dla import explain as lookup

    found = lookup(rule)
    if json:
        o.print_json({"schema": "edgekit.rule/1", **found})
        return
    for key, value in found.items():
        if value not in (None, "", [], {}):
            print(f"{key:<12} {value}")
