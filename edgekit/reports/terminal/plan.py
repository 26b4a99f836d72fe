"""``edgekit plan`` for people: the answers about a plan (what-if, Pareto front, solution), and
why a layer is where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edgekit.placement.plan import proof_of
from edgekit.reports import text
from edgekit.reports.text import Page
from edgekit.text import ABSENT, counted, percent

METRICS = {
    "latency_us": ("latency", text.microseconds),
    "throughput_qps": ("per second", text.significant),
    "energy_uj": ("energy", text.energy),
    "gpu_us": ("GPU time", text.microseconds),
    "period_us": ("period", text.microseconds),
}
UNITS: dict[str, Callable[[float | None], str]] = {
    "us": text.microseconds, "uj": text.energy,
    "qps": lambda value: f"{text.significant(value)} per second",
}  # fmt: skip
SHOWN = 12  # layers listed before "and N more"


def proof(document: Mapping[str, Any]) -> str:
    """Returns "optimal under the model", or the bound and the gap."""
    proved = proof_of(document["optimal"], document.get("extrapolated", ()))
    if proved:
        return proved
    bound = text.significant(document["bound"], 4)
    return f"not proved optimal: bound {bound}, gap {percent(document['gap'], 2)}"


def what_if_text(document: Mapping[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Returns an ``edgekit.whatif/1`` as text: two plans side by side."""
    page = Page(width, colour=colour)
    before, after = document["before"], document["after"]
    page.add(f"What if: {'; '.join(document['changes'])}", style="bold")
    page.add("predicted, not measured", style="dim")
    page.add()
    rows = []
    for key in ("latency_us", "throughput_qps", "energy_uj", "gpu_us"):
        label, show = METRICS[key]
        by = document["difference"][key]["percent"]
        change = ABSENT if by is None else text.change(by)
        old, new = before["predicted"][key], after["predicted"][key]
        rows.append([label, show(old), show(new), change])
    for key, label in (("loadables", "loadables"), ("transitions", "device changes")):
        change = f"{after[key] - before[key]:+d}"
        rows.append([label, f"{before[key]:,}", f"{after[key]:,}", change])
    for device in sorted({*before["layers"], *after["layers"]}, key=lambda d: (d != "GPU", d)):
        old, new = before["layers"].get(device, 0), after["layers"].get(device, 0)
        rows.append([f"layers on {device}", f"{old:,}", f"{new:,}", f"{new - old:+d}"])
    page.table(["", "now", "then", "change"], rows, "lrrr")
    page.add()
    for label, plan in (("now", before), ("then", after)):
        page.add(f"{label}: objective {plan['objective']} {UNITS[plan['unit']](plan['value'])}, "
                 f"{proof(plan)}; {plan['target']} {plan['power_mode']}, "
                 f"{plan['precision'].upper()}", hang=2)  # fmt: skip
    moved = document["moved"]
    page.add()
    page.add(f"{counted(len(moved), 'layer')} would move" + (":" if moved else ""))
    for row in moved[:SHOWN]:
        page.add(f"{row['layer']}  {row['from']} -> {row['to']}", indent=2, hang=2)
    if len(moved) > SHOWN:
        page.add(f"and {len(moved) - SHOWN} more; --json lists them", indent=2)
    return str(page)


def plan_table_text(document: Mapping[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Returns an ``edgekit.plan-table/1`` as text."""
    page = Page(width, colour=colour)
    aim = document["objective"]
    whose = f"plans for {aim}" if aim else "each row is one plan"
    page.add(f"Predicted, not measured; {whose}", style="bold")
    rows: list[list[str]] = []
    several = len({row["target"] for row in document["rows"]}) > 1
    for row in document["rows"]:
        name = f"{row['target']} {row['power_mode']}" if several else row["power_mode"]
        if row["error"]:
            rows.append([f"{name}: {row['error']['message']}"])
            continue
        (plan,) = row["plans"].values()
        rows.append([
            name, *([] if aim else [row["objective"]]), text.microseconds(row["latency_us"]),
            text.significant(row["throughput_qps"]), text.energy(row["energy_uj"]),
            percent(plan["dla_share"], 0),
            _short(plan["optimal"], [plan]) or f"gap {percent(plan['gap'], 2)}",
        ])  # fmt: skip
    head = ["board and mode" if several else "mode", *([] if aim else ["plan for"]), "latency",
            "per second", "energy", "on DLA", "proof"]  # fmt: skip
    page.table(head, rows, "lrrrrl" if aim else "llrrrrl")
    page.add()
    page.add(
        "on DLA: share of the time that devices work for a frame. optimal: under the model.",
        style="dim",
    )
    for note in dict.fromkeys(note for row in document["rows"] for note in row["notes"]):
        page.add(f"note: {note}", style="yellow", hang=2)
    return str(page)


def _short(optimal: bool, documents: Iterable[Mapping[str, Any]]) -> str:
    """Returns "optimal", with "extrapolated" where a figure has no published time as its source."""
    if not optimal:
        return ""
    extrapolated = any(document.get("extrapolated") for document in documents)
    return "optimal, extrapolated" if extrapolated else "optimal"


def pareto_text(document: Mapping[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Returns an ``edgekit.pareto/1`` as text."""
    page = Page(width, colour=colour)
    first, second = document["metrics"]
    names = f"{METRICS[first][0]} against {METRICS[second][0]}"
    page.add(f"{names}, predicted, not measured", style="bold")
    others = [key for key in METRICS if key not in (first, second)]
    keys = [first, second, *(k for k in others if all(k in p for p in document["points"]))]
    page.table(
        [*(METRICS[key][0] for key in keys), "on DLA", "loadables", "proof"],
        [[*(METRICS[key][1](point[key]) for key in keys), f"{point['dla_layers']:,}",
          f"{point['loadables']:,}", _short(point["optimal"], [point]) or
          f"gap {percent(point['gap'], 2)}"] for point in document["points"]],
        "r" * (len(keys) + 2) + "l",
    )  # fmt: skip
    page.add()
    count = counted(len(document["points"]), "point")
    if document["complete"]:
        page.add(f"{count}: the whole front under the model; every other placement is worse in "
                 "one of the two and no better in the other")  # fmt: skip
    else:
        page.add(f"{count} of a longer front: {document['note']}")
    return str(page)


def solution_text(document: Mapping[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Returns an ``edgekit.solution/1`` as text."""
    page = Page(width, colour=colour)
    unit = UNITS["uj" if document["objective"] == "energy" else "us"]
    page.add(f"{document['objective']} {unit(document['value'])}, {proof(document)}", style="bold")
    page.add()
    rows = [
        [network, node, device, str(document["loadable_of"].get(network, {}).get(node, ""))]
        for network, nodes in document["assignment"].items()
        for node, device in nodes.items()
    ]
    page.table(["network", "node", "device", "loadable"], rows, "lllr")
    return str(page)


def log_plan_text(document: Mapping[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Returns an ``edgekit.logplan/1`` as text."""
    page = Page(width, colour=colour)
    board = ", ".join(filter(None, (document["board"], f"TensorRT {document['tensorrt']}")))
    latency = text.microseconds(document["latency_us"])
    page.add(f"latency {latency}, {percent(document['measured'])} of it measured by the log; "
             f"{proof(document)}", style="bold")  # fmt: skip
    page.add(f"{board}; {text.microseconds(document['dla_us'])} on the DLA, "
             f"{text.microseconds(document['gpu_us'])} on the GPU, without copies from and to the "
             "host", style="dim")  # fmt: skip
    copies = document["host_copies"]
    if copies:
        low, high = (text.microseconds(side) for side in copies["latency_us"])
        page.add(f"with host copies ({copies['clock']}): {low} to {high}", style="dim")
    page.add()
    page.add("Layers and loadables, their best formats together", style="bold")
    for unit in document["units"]:
        page.add(f"{text.microseconds(unit['us']):>8}  {unit['device']}  {unit['name']}", hang=2)
        page.add(f"{', '.join(unit['reads'])} -> {', '.join(unit['writes'])}", indent=10, hang=2,
                 style="dim")  # fmt: skip
    page.add()
    page.add(counted(len(document["reformats"]), "reformat"), style="bold")
    for one in document["reformats"]:
        page.add(f"{text.microseconds(one['us']):>8}  {one['tensor']}: {one['from']} -> "
                 f"{one['to']}, {one['clock']}", hang=2)  # fmt: skip
    agrees = {True: "the builder put in the same reformats",
              False: "the builder put in other reformats"}  # fmt: skip
    if document["agrees_with_builder"] is not None:
        page.add(agrees[document["agrees_with_builder"]])
    for note in document["notes"]:
        page.add(f"note: {note}", style="yellow", hang=2)
    return str(page)


def why_text(document: Mapping[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Returns an ``edgekit.why/1`` as text."""
    page = Page(width, colour=colour)
    value = UNITS[document["unit"]](document["value"])
    page.add(f"{document['layer']} runs on {document['device']}", style="bold")
    page.add(f"{document['kind']}, {document['target']} {document['power_mode']}, "
             f"{document['precision'].upper()}; objective {document['objective']} {value} "
             "(predicted)", style="dim")  # fmt: skip
    if len(document["shares"]) > 1:
        parts = (f"{percent(s)} on {device}" for device, s in document["shares"].items())
        page.add(f"frames use several plans: {', '.join(parts)}")
    page.add()
    for reason in document["because"]:
        page.add(f"- {reason}", hang=2)
    dla = document["dla"]
    page.add()
    disputed = ", disputed between sources" if dla["certainty"] == "disputed" else ""
    page.add(f"verdict: {'can' if dla['ok'] else 'cannot'} run on a DLA{disputed}")
    for reason in dla["reasons"]:
        page.add(f"{reason['rule']}: {reason['message']}", indent=2, hang=2)
        if reason["fix"]:
            page.add(f"fix: {reason['fix']}", indent=4, hang=2)
    others = [name for name in document["kernel"] if name != document["layer"]]
    if others:
        page.add(f"runs as one kernel with {', '.join(others)}", hang=2)
    page.add()
    _costs(page, document)
    _binds(page, document)
    _otherwise(page, document)
    return str(page)


def _costs(page: Page, document: Mapping[str, Any]) -> None:
    page.add("Its kernel alone", style="bold")
    page.table(
        ["device", "precision", "format", "time", "", "energy (predicted)"],
        [[row["device"], row["precision"], row["format"], text.microseconds(row["us"]),
          row["clock"], text.energy(row["uj"])] for row in document["costs"]],
        "lllrlr",
    )  # fmt: skip
    if document["costs"] and document["costs"][0]["us"] and not document["planned_us"]:
        page.add("in this plan it takes no time of its own: a kernel of its neighbour computes it, "
                 "and is booked with the whole time (predicted)", hang=2)  # fmt: skip
    if document["launch_us"] and any(row["device"] != "GPU" for row in document["costs"]):
        page.add(
            f"starting a loadable takes {text.microseconds(document['launch_us'])} (predicted)"
        )
    rows = [row for row in document["borders"] if row["us"] or row["otherwise_us"]]
    if rows:
        page.add()
        page.add("Reformats at its border (predicted)", style="bold")
        other = document["otherwise"]["device"]
        page.table(
            [document["device"], f"on {other}", "neighbours", "tensor"],
            [[text.microseconds(row["us"]), text.microseconds(row["otherwise_us"]),
              ", ".join(row["neighbours"]), f"{row['direction']} {row['tensor']}"] for row in rows],
            "rrll",
        )  # fmt: skip


def _binds(page: Page, document: Mapping[str, Any]) -> None:
    page.add()
    if not document["binds"]:
        page.add("No constraint binds: without any of them the plan would be no better.")
        return
    page.add("What binds", style="bold")
    show = UNITS[document["unit"]]
    for bind in document["binds"]:
        if bind["value"] is None:
            page.add(f"- {bind['text']}", hang=2)
            continue
        device = "the GPU" if bind["device"] == "GPU" else bind["device"]
        where = f"it would be on {device}" if bind["moves"] else "it would stay here"
        page.add(f"- {bind['text']}: without it, {where}, {document['objective']} "
                 f"{show(bind['value'])} (predicted)", hang=2)  # fmt: skip


def _otherwise(page: Page, document: Mapping[str, Any]) -> None:
    other = document["otherwise"]
    page.add()
    if not other["possible"]:
        device = other["device"] or "a DLA"
        page.add(f"The other way: not possible on {device}, {other['reason']}", hang=2)
        return
    show = UNITS[document["unit"]]
    change = "" if other["percent"] is None else f" ({text.change(other['percent'])})"
    sign = "+" if other["difference"] >= 0 else "-"
    page.add(f"The other way, on {other['device']}: {document['objective']} "
             f"{show(other['value'])}, {sign}{show(abs(other['difference']))}{change}, predicted",
             style="bold")  # fmt: skip
    page.add(f"{counted(other['loadables'], 'loadable')}, "
             f"{counted(other['transitions'], 'device change')}, "
             f"{counted(len(other['moved']), 'layer')} elsewhere", indent=2)  # fmt: skip
