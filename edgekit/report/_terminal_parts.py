"""Small summaries for ``edgekit plan`` and ``edgekit check`` on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.report import _text as text
from edgekit.report._document import comparison
from edgekit.report._terminal import POOLS, prediction_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edgekit.placement import Plan

__all__ = ["summary_check", "summary_plan"]


def summary_plan(plan: Plan) -> RenderableType:
    """Returns the placement in short: devices, loadables, pools, predictions beside baselines."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("device", header_style="dim")
    for name in ("layers", "segments", "busy (predicted)"):
        table.add_column(name, justify="right", header_style="dim")
    for device in sorted({layer.device for layer in plan.layers}, key=lambda d: (d != "GPU", d)):
        own = [layer for layer in plan.layers if layer.device == device]
        table.add_row(
            device, text.count(len(own)), text.count(len({layer.segment for layer in own})),
            text.microseconds(sum(layer.predicted_us for layer in own)),
        )  # fmt: skip
    head = f"{plan.target} {plan.power_mode}, {plan.precision.upper()}, TensorRT {plan.tensorrt}"
    proof = "proved optimal" if plan.optimal else f"gap {text.percent(plan.gap, 2)}"
    told = [
        f"objective {plan.objective}, {proof}; {text.plural(plan.transitions, 'device change')}"
    ]
    if plan.loadables:
        by_core: dict[int, int] = {}
        for loadable in plan.loadables:
            by_core[loadable.core] = by_core.get(loadable.core, 0) + 1
        cores = ", ".join(f"{n} on DLA{core}" for core, n in sorted(by_core.items()))
        pools = ", ".join(
            f"{POOLS.get(name, name)} {text.size(size)}" for name, size in plan.pools.items()
        )
        told.append(f"loadables: {cores}" + (f"; pools: {pools}" if pools else ""))
    if len(plan.plans) > 1:
        shares = ", ".join(text.percent(share.share) for share in plan.plans)
        told.append(f"{len(plan.plans)} plans share the frames: {shares}")
    return Group(
        Text(text.clean(head), style="bold"),
        Text("\n".join(told)),
        Text(),
        table,
        Text(),
        prediction_table(list(comparison(plan))),
        *(Text(f"note: {text.clean(note)}", style="yellow") for note in plan.notes),
    )


def _groups(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the reasons by rule with the number of layers and the first layer as an example."""
    groups: dict[str, dict[str, Any]] = {}
    for layer in document["layers"]:
        if layer["dla"]["ok"]:
            continue
        for rule, reason in {r["rule"]: r for r in layer["dla"]["reasons"]}.items():
            group = groups.setdefault(rule, {"rule": rule, "count": 0, "layer": layer, **reason})
            group["count"] += 1
    return sorted(groups.values(), key=lambda group: (-group["count"], group["rule"]))


def summary_check(document: Mapping[str, Any]) -> RenderableType:
    """Returns the verdict of an ``edgekit.check/1`` document, and the reasons grouped by rule.

    Each rule has its count, one example with what was found, and the fix.
    """
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    summary = document["summary"]
    head = f"{document['target']}, {document['precision'].upper()}, TensorRT {document['tensorrt']}"
    on_dla, layers = summary["dla_layers"], summary["layers"]
    verdict = (
        f"{text.count(on_dla)} of {text.plural(layers, 'layer')} and "
        f"{text.percent(summary['dla_macs_fraction'])} of the MACs go to the DLA, in "
        f"{text.plural(document['loadables'], 'loadable')}"
    )
    if document["candidates"] != document["loadables"]:
        verdict += f" (of {text.plural(document['candidates'], 'candidate')})"
    style = "bold green" if on_dla == layers else "bold yellow" if on_dla else "bold red"
    parts: list[RenderableType] = [Text(text.clean(head)), Text(verdict, style=style)]
    disputed = sum(layer["dla"]["certainty"] == "disputed" for layer in document["layers"])
    if disputed:
        parts.append(Text(f"{text.plural(disputed, 'verdict')} disputed between sources"))
    groups = _groups(document)
    if groups:
        parts += [Text(), Text("Why not on the DLA", style="bold")]
    for group in groups:
        layer = group["layer"]
        title = Text(text.clean(group["rule"]), style="bold")
        title.append(f"  {text.plural(group['count'], 'layer')}", style="not bold")
        parts.append(Padding(title, (0, 0, 0, 2)))
        # an inserted layer has no node of its own; its origin is what the user knows
        node = (layer["nodes"] or layer["from"] or [layer["name"]])[0]
        lines = [f"{text.clean(node)}: {text.clean(group['message'])}"]
        if group["fix"]:
            lines.append(f"fix: {text.clean(group['fix'])}")
        parts += [Padding(Text(line), (0, 0, 0, 4)) for line in lines]
    return Group(*parts)
