"""``edgekit explain``: a rule, a family of rules or an operator, offline."""

from __future__ import annotations

from edgekit.cli import _options as o
from edgekit.cli._commands import argument

__all__ = ["command"]


@o.command(
    "explain",
    "edgekit explain convolution.cbuf\nedgekit explain pooling\nedgekit explain Gather",
)
@argument("rule", "A rule's id, as check prints it, a family of rules, or an ONNX operator.")
@o.json
@o.debug
def command(rule: str, json: bool) -> None:
    from edgekit.dla import explain

    found = explain(rule)
    if json:
        kinds = {"id": "rule", "operator": "operator"}
        kind = next((kind for key, kind in kinds.items() if key in found), "family")
        schema = f"edgekit.{kind}/1"
        o.print_json({"schema": schema, **found})
        return
    from edgekit.report import rule_text

    width, colour = o.paper()
    o.say_page(rule_text(found, width=min(width or 80, 80), colour=colour))
