"""The texts of ``edgekit plan``: the answers about a plan (what-if, Pareto front), the reasons for
a layer's device, and several networks on one board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.console import RenderableType, group
from rich.text import Text

from edgekit.network.module_tree import HEAD, RIGHT, tree_rows
from edgekit.placement.explanation import Why
from edgekit.placement.module_reasons import WhyModules
from edgekit.placement.placing import Pareto, PlanProof
from edgekit.placement.plan import PlanSummary, WhatIf, qualify_proof
from edgekit.placement.table import PlanTable
from edgekit.reports import text
from edgekit.reports.plans import GOALS, plans_headline, plans_rows, value_text
from edgekit.reports.terminal.layout import paragraph, table
from edgekit.reports.text import WIDTH
from edgekit.schedule.plans import Plans, TimelineEntry
from edgekit.text import ABSENT, counted, percent, sentence

METRICS = {
    "latency_us": ("latency", text.microseconds),
    "throughput_qps": ("per second", text.significant),
    "energy_uj": ("energy", text.energy),
    "gpu_us": ("GPU time", text.microseconds),
    "period_us": ("period", text.microseconds),
}
UNITS: dict[str, Callable[[float | None], str]] = {
    "us": text.microseconds,
    "uj": text.energy,
    "qps": lambda value: f"{text.significant(value)} per second",
}
SHOWN = 12  # layers listed before "and N more"


def proof(plan: PlanSummary) -> str:
    """Returns "proved optimal", or the bound and the gap; "no proof" for unknown costs."""
    if plan.value is None:
        return "no proof"
    proved = qualify_proof(plan.optimal, plan.extrapolated, plan.unknown_cost)
    if proved and plan.slack and plan.slack.given_up:
        return f"{percent(plan.slack.given_up, 2)} from the optimum ({proved})"
    if proved:
        return proved
    bound = text.significant(plan.bound, 4)
    return f"not proved optimal: bound {bound}, gap {percent(plan.gap, 2)}"


@group()
def what_if_text(document: WhatIf) -> Iterator[RenderableType]:
    """Returns an ``edgekit.whatif/1`` as text: two plans side by side."""
    before, after = document.before, document.after
    old_figures, new_figures = before.predicted.to_json(), after.predicted.to_json()
    yield paragraph(f"What if: {'; '.join(document.changes)}", style="bold")
    yield paragraph("predicted, not measured", style="dim")
    yield ""
    rows = []
    for key in ("latency_us", "throughput_qps", "energy_uj", "gpu_us"):
        label, show = METRICS[key]
        if key == "energy_uj":
            label = text.energy_words(before.rate_hz)
            if before.rate_hz != after.rate_hz:
                label = f"{label}; then {text.rate_words(after.rate_hz)}"
        by = document.difference[key].percent
        change = ABSENT if by is None else text.change(by)
        rows.append([label, show(old_figures[key]), show(new_figures[key]), change])
    counts = [
        ("loadables", before.loadables, after.loadables),
        ("device changes", before.transitions, after.transitions),
    ]
    for device in sorted({*before.layers, *after.layers}, key=lambda d: (d != "GPU", d)):
        counts.append(
            (f"layers on {device}", before.layers.get(device, 0), after.layers.get(device, 0))
        )
    rows += [[label, f"{old:,}", f"{new:,}", f"{new - old:+d}"] for label, old, new in counts]
    yield table(["", "now", "then", "change"], rows, "lrrr")
    yield ""
    for label, plan in (("now", before), ("then", after)):
        yield paragraph(
            f"{label}: objective {plan.objective} {UNITS[plan.unit](plan.value)}, {proof(plan)}; "
            f"{plan.target} {plan.power_mode}, {plan.precision.upper()}"
        )
    moved = document.moved
    yield ""
    yield paragraph(f"{counted(len(moved), 'layer')} would move" + (":" if moved else ""))
    for row in moved[:SHOWN]:
        yield paragraph(f"{row.layer}  {row.source} -> {row.goal}", indent=2)
    if len(moved) > SHOWN:
        yield paragraph(f"and {len(moved) - SHOWN} more; --json lists them", indent=2)


@group()
def plan_table_text(document: PlanTable) -> Iterator[RenderableType]:
    """Returns an ``edgekit.plan-table/1`` as text."""
    aim = document.objective
    whose = f"plans for {aim}" if aim else "each row is one plan"
    energy = text.energy_words(document.rate_hz)
    yield paragraph(f"Predicted, not measured; {whose}; {energy}", style="bold")
    rows: list[list[str]] = []
    errors: list[str] = []
    several = len({row.target for row in document.rows}) > 1
    for row in document.rows:
        name = f"{row.target} {row.power_mode}" if several else row.power_mode
        if row.error:
            errors.append(f"{name}: {row.error.message}")
            continue
        (plan,) = row.plans.values()
        rows.append(
            [
                name,
                *([] if aim else [row.objective]),
                text.microseconds(row.latency_us),
                text.significant(row.throughput_qps),
                text.energy(row.energy_uj),
                ABSENT if row.latency_us is None else percent(plan.dla_share, 0),
                _proof_word(plan, row.latency_us),
            ]
        )
    head = [
        "board and mode" if several else "mode",
        *([] if aim else ["plan for"]),
        "latency",
        "per second",
        "energy",
        "on DLA",
        "proof",
    ]
    yield table(head, rows, "lrrrrl" if aim else "llrrrrl")
    yield from map(paragraph, errors)
    yield ""
    yield paragraph(
        "on DLA: share of the devices' working time for a frame. optimal: proved for "
        "the predicted times.",
        style="dim",
    )
    for note in dict.fromkeys(note for row in document.rows for note in row.notes):
        yield paragraph(f"note: {sentence(note)}", style="yellow")


def _proof_word(plan: PlanProof, latency_us: float | None) -> str:
    """Returns "optimal" with its restrictions, or the gap.

    "cost unknown" if no layer has a known time.
    """
    if latency_us is None:
        return "cost unknown"
    proved = qualify_proof(plan.optimal, plan.extrapolated, plan.unknown_cost, words="optimal")
    return proved or f"gap {percent(plan.gap, 2)}"


@group()
def pareto_text(document: Pareto) -> Iterator[RenderableType]:
    """Returns an ``edgekit.pareto/1`` as text."""
    first, second = document.metrics
    names = f"{METRICS[first][0]} against {METRICS[second][0]}"
    energy = text.energy_words(document.rate_hz)
    yield paragraph(f"{names}, predicted, not measured; {energy}", style="bold")
    figures = [point.figures() for point in document.points]
    others = [key for key in METRICS if key not in (first, second)]
    keys = [first, second, *(k for k in others if all(k in point for point in figures))]
    yield table(
        [*(METRICS[key][0] for key in keys), "on DLA", "loadables", "proof"],
        [
            [
                *(METRICS[key][1](shown[key]) for key in keys),
                f"{point.dla_layers:,}",
                f"{point.loadables:,}",
                _proof_word(point, point.latency_us),
            ]
            for point, shown in zip(document.points, figures, strict=True)
        ],
        "r" * (len(keys) + 2) + "l",
    )
    yield ""
    count = counted(len(document.points), "point")
    if document.complete:
        yield paragraph(
            f"{count}: the whole front for predicted times; every other placement is worse "
            "in one metric and no better in the other"
        )
    else:
        yield paragraph(f"{count} of a longer front: {document.note}")


@group()
def why_text(document: Why) -> Iterator[RenderableType]:
    """Returns an ``edgekit.why/1`` as text."""
    value = UNITS[document.unit](document.value)
    yield paragraph(f"{document.layer} runs on {document.device}", style="bold")
    yield paragraph(
        f"{document.kind}, {document.target} {document.power_mode}, "
        f"{document.precision.upper()}; objective {document.objective} {value} (predicted)",
        style="dim",
    )
    if len(document.shares) > 1:
        parts = (f"{percent(s)} on {device}" for device, s in document.shares.items())
        yield paragraph(f"frames use several plans: {', '.join(parts)}")
    yield ""
    for reason in document.because:
        yield paragraph(f"- {reason}")
    dla = document.dla
    yield ""
    unsure = f" ({why})" if (why := text.uncertainty(dla)) else ""
    yield paragraph(f"verdict: {'can' if dla.ok else 'cannot'} run on a DLA{unsure}")
    for broken in dla.reasons:
        yield paragraph(f"{broken.rule}: {broken.message}", indent=2)
        if broken.fix:
            yield paragraph(f"fix: {broken.fix}", indent=4)
    others = [name for name in document.kernel if name != document.layer]
    if others:
        yield paragraph(f"runs as one kernel with {', '.join(others)}")
    yield ""
    yield from _costs(document)
    yield from _binding_limits(document)
    yield from _alternative(document)


@group()
def why_modules_text(document: WhyModules) -> Iterator[RenderableType]:
    """Returns an ``edgekit.why-modules/1`` as text."""
    whole = document.modules[0]
    where = ", ".join(f"{counted(n, 'layer')} on {name}" for name, n in whole.devices.items())
    yield paragraph(f"{document.name}: {where}", style="bold")
    value = UNITS[document.unit](document.value)
    yield paragraph(
        f"{document.target} {document.power_mode}, {document.precision.upper()}; objective "
        f"{document.objective} {value} (predicted)",
        style="dim",
    )
    yield ""
    rows = [list(row.values()) for row in tree_rows(document.modules)]
    yield table(HEAD, rows, "".join("r" if name in RIGHT else "l" for name in HEAD))
    for reason in document.reasons:
        yield ""
        yield paragraph(f"{reason.rule}  {counted(reason.count, 'layer')}", style="bold")
        first = reason.layers[0]
        yield paragraph(f"{first.name}: {first.message}", indent=2)
        for fix in reason.fixes[:1]:
            yield paragraph(f"fix: {fix}", indent=2)
    if not document.reasons:
        yield ""
        yield paragraph("No layer is on the GPU: no rule and no cost keeps one there.")
    yield ""
    yield paragraph("--why LAYER compares the devices for one layer")


def _costs(document: Why) -> Iterator[RenderableType]:
    yield paragraph("Its kernel alone", style="bold")
    yield table(
        ["device", "precision", "format", "time", "", "energy (predicted)"],
        [
            [
                row.device,
                row.precision,
                row.format,
                text.microseconds(row.us),
                row.clock,
                text.energy(row.uj),
            ]
            for row in document.costs
        ],
        "lllrlr",
    )
    if document.costs and document.costs[0].us and not document.planned_us:
        yield paragraph(
            "in this plan it takes no extra time: a neighbouring layer's kernel computes "
            "it, and that layer has the whole time (predicted)"
        )
    if document.launch_us and any(row.device != "GPU" for row in document.costs):
        yield paragraph(
            f"starting a loadable takes {text.microseconds(document.launch_us)} (predicted)"
        )
    rows = [row for row in document.borders if row.us or row.otherwise_us]
    if rows:
        yield ""
        yield paragraph("Reformats at its inputs and outputs (predicted)", style="bold")
        yield table(
            [document.device, f"on {document.otherwise.device}", "neighbours", "tensor"],
            [
                [
                    text.microseconds(row.us),
                    text.microseconds(row.otherwise_us),
                    ", ".join(row.neighbours),
                    f"{row.direction} {row.tensor}",
                ]
                for row in rows
            ],
            "rrll",
        )


def _binding_limits(document: Why) -> Iterator[RenderableType]:
    yield ""
    if not document.binds:
        yield paragraph("No constraint matters: the plan would be no better without them.")
        return
    yield paragraph("What binds", style="bold")
    show = UNITS[document.unit]
    for bind in document.binds:
        if bind.value is None:
            yield paragraph(f"- {bind.text}")
            continue
        device = "the GPU" if bind.device == "GPU" else bind.device
        where = f"it would be on {device}" if bind.moves else "it would stay here"
        yield paragraph(
            f"- {bind.text}: without it, {where}, {document.objective} {show(bind.value)} "
            "(predicted)"
        )


def _alternative(document: Why) -> Iterator[RenderableType]:
    other = document.otherwise
    yield ""
    if other.difference is None:
        device = other.device or "a DLA"
        yield paragraph(f"Alternative: not possible on {device}, {other.reason}")
        return
    show = UNITS[document.unit]
    change = "" if other.percent is None else f" ({text.change(other.percent)})"
    sign = "+" if other.difference >= 0 else "-"
    yield paragraph(
        f"Alternative on {other.device}: {document.objective} {show(other.value)}, "
        f"{sign}{show(abs(other.difference))}{change}, predicted",
        style="bold",
    )
    yield paragraph(
        f"{counted(other.loadables or 0, 'loadable')}, "
        f"{counted(other.transitions or 0, 'device change')}, "
        f"{counted(len(other.moved), 'layer')} elsewhere",
        indent=2,
    )


@group()
def plans_text(document: Plans, *, width: int = WIDTH) -> Iterator[RenderableType]:
    """Returns an ``edgekit.plans/1`` as text, with a timeline of ``width`` columns."""
    yield paragraph(plans_headline(document), style="bold")
    yield paragraph(
        f"{document.target} {document.power_mode}, TensorRT {document.tensorrt}; "
        "everything is predicted",
        style="dim",
    )
    lower, upper = document.lower, document.upper
    proof = qualify_proof(lower.optimal, lower.extrapolated, lower.unknown_cost) or (
        f"not proved optimal: bound {value_text(document, lower.bound)}, gap "
        f"{percent(lower.gap, 2)}"
    )
    yield paragraph(
        f"{GOALS[document.objective]}: {value_text(document, lower.value)} without "
        f"contention ({proof}), {value_text(document, upper.value)} with it",
    )
    yield ""
    yield table(
        ("network", "rate", "deadline", "latency without", "with", "devices", "loadables"),
        [
            (
                r["name"],
                r["rate"],
                r["deadline"],
                r["lower"],
                r["upper"],
                r["devices"],
                r["loadables"],
            )
            for r in plans_rows(document)
        ],
        "lrrrrlr",
    )
    yield ""
    cores = document.loadables.cores
    yield table(
        ("device", "busy without", "with", "loadables"),
        [
            (
                name,
                percent(busy.lower),
                percent(busy.upper),
                f"{cores[name]} of {document.loadables.most}" if name in cores else "",
            )
            for name, busy in document.utilisation.items()
        ],
        "lrrr",
    )
    yield ""
    yield Text("\n".join(_lanes(document, max(width, 40))), no_wrap=True, overflow="ignore")
    yield ""
    for note in document.notes:
        yield paragraph(f"note: {sentence(note)}", style="yellow")


def _lanes(document: Plans, width: int) -> list[str]:
    """Returns a row of letters for each device, and their meanings."""
    names = [network.name for network in document.networks]
    letters = dict(zip(names, "ABCDEFGHIJKLMNOP", strict=False))
    label = max(map(len, document.utilisation)) + 2
    columns = width - label - 2
    cycle = document.cycle_us
    lines = []
    for device in document.utilisation:
        share: list[dict[str, float]] = [{} for _ in range(columns)]
        for slot in document.timeline:
            if slot.device == device and cycle:
                _spread(share, slot, cycle)
        # a column shows the network with most of its time
        row = "".join(letters[max(cell, key=lambda n: cell[n])] if cell else "." for cell in share)
        lines.append(f"{device:<{label}}|{row}|")
    end = text.microseconds(cycle)
    lines.append(f"{'':<{label}} 0{end:>{columns - 1}}")
    meaning = ", ".join(f"{letter} {text.clean(name)}" for name, letter in letters.items())
    lines.append(f"{'':<{label}} {meaning}")
    return lines


def _spread(share: list[dict[str, float]], slot: TimelineEntry, cycle: float) -> None:
    """Adds a slot's time to the columns that it covers, and wraps around at the cycle's end."""
    columns, name = len(share), slot.network
    step = cycle / columns
    first, last = slot.start_us / step, slot.end_us / step
    for column in range(int(first), int(last) + 1):
        part = min(last, column + 1) - max(first, column)
        if part > 0:
            cell = share[column % columns]
            cell[name] = cell.get(name, 0.0) + part
