"""A small summary for ``edgekit plan`` on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.report import _text as text
from edgekit.report._document import comparison
from edgekit.report._terminal import prediction_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from edgekit.placement import Plan

__all__ = ["summary_plan"]


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
            f"{text.POOLS.get(name, name)} {text.size(size)}" for name, size in plan.pools.items()
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
