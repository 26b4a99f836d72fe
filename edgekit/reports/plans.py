"""Several networks on one board: the view of an ``edgekit.plans/1``, and its text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.placement.plan import proof_of
from edgekit.reports import text
from edgekit.reports.text import Page
from edgekit.text import ABSENT, counted, percent

GOALS = {
    "latency": "largest share of a deadline", "makespan": "end of the last network",
    "period": "period", "energy": "energy a cycle", "gpu_time": "GPU time a cycle",
}  # fmt: skip


def value_text(document: Mapping[str, Any], value: float) -> str:
    """Returns a value of the objective in its unit."""
    if document["unit"] == "deadline":
        return percent(value)
    return text.energy(value) if document["unit"] == "uj" else text.microseconds(value)


def plans_headline(document: Mapping[str, Any]) -> str:
    """Returns the answer in one sentence."""
    networks = document["networks"]
    cycle = text.microseconds(document["cycle_us"])
    if all(one["deadline_us"] is not None for one in networks):
        worst = max(networks, key=lambda one: one["latency_us"]["upper"] / one["deadline_us"])
        share = worst["latency_us"]["upper"] / worst["deadline_us"]
        return (
            f"All {counted(len(networks), 'network')} keep their deadlines, also with "
            f"contention for memory; {worst['name']} is the tightest with {percent(share)} "
            "of its deadline."
        )
    if document["objective"] == "period":
        return f"All {counted(len(networks), 'network')} take a frame every {cycle}."
    return f"All {counted(len(networks), 'network')} are done after {cycle}."


def plans_rows(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Returns a row for each network, as text."""
    rows = []
    for one in document["networks"]:
        low, high = one["latency_us"]["lower"], one["latency_us"]["upper"]
        devices = dict.fromkeys(layer["device"] for layer in one["plan"]["layers"])
        deadline = one["deadline_us"]
        rows.append(
            {
                "name": text.clean(one["name"]),
                "rate": ABSENT if one["rate_hz"] is None else f"{one['rate_hz']:g} Hz",
                "deadline": text.microseconds(deadline),
                "lower": text.microseconds(low),
                "upper": text.microseconds(high),
                "share": ABSENT if deadline is None else percent(high / deadline),
                "devices": ", ".join(sorted(devices, key=lambda d: (d != "GPU", d))),
                "loadables": text.count(len(one["plan"]["loadables"])),
                "alone": text.microseconds(one["plan"]["predicted"]["latency_us"]),
                "precision": one["plan"]["precision"].upper(),
            }
        )
    return rows


def plans_text(document: Mapping[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Returns an ``edgekit.plans/1`` as text, with a small timeline."""
    page = Page(width, colour=colour)
    page.add(plans_headline(document), style="bold")
    page.add(
        f"{document['target']} {document['power_mode']}, TensorRT {document['tensorrt']}; "
        "everything is predicted", style="dim",
    )  # fmt: skip
    lower, upper = document["lower"], document["upper"]
    proof = proof_of(lower["optimal"], lower.get("extrapolated", ())) or (
        f"not proved optimal: bound {value_text(document, lower['bound'])}, gap "
        f"{percent(lower['gap'], 2)}"
    )  # fmt: skip
    page.add(
        f"{GOALS[document['objective']]}: {value_text(document, lower['value'])} without "
        f"contention ({proof}), {value_text(document, upper['value'])} with it", hang=2,
    )  # fmt: skip
    page.add()
    page.table(
        ("network", "rate", "deadline", "latency without", "with", "devices", "loadables"),
        [
            (r["name"], r["rate"], r["deadline"], r["lower"], r["upper"], r["devices"],
             r["loadables"])
            for r in plans_rows(document)
        ],
        "lrrrrlr",
    )  # fmt: skip
    page.add()
    cores = document["loadables"]["cores"]
    page.table(
        ("device", "busy without", "with", "loadables"),
        [
            (name, percent(busy["lower"]), percent(busy["upper"]),
             f"{cores[name]} of {document['loadables']['max']}" if name in cores else "")
            for name, busy in document["utilisation"].items()
        ],
        "lrrr",
    )  # fmt: skip
    page.add()
    for line in _lanes(document, max(width, 40)):
        page.table((line,), ())
    page.add()
    for note in document["notes"]:
        page.add(f"note: {note}", hang=2, style="yellow")
    return str(page)


def _lanes(document: Mapping[str, Any], width: int) -> list[str]:
    """Returns a row of letters for each device, and what they mean."""
    names = [one["name"] for one in document["networks"]]
    letters = dict(zip(names, "ABCDEFGHIJKLMNOP", strict=False))
    label = max(map(len, document["utilisation"])) + 2
    columns = width - label - 2
    cycle = document["cycle_us"]
    lines = []
    for device in document["utilisation"]:
        share: list[dict[str, float]] = [{} for _ in range(columns)]
        for slot in document["timeline"]:
            if slot["device"] == device and cycle:
                _spread(share, slot, cycle)
        row = "".join(letters[max(cell, key=lambda n: cell[n])] if cell else "." for cell in share)
        lines.append(f"{device:<{label}}|{row}|")
    end = text.microseconds(cycle)
    lines.append(f"{'':<{label}} 0{end:>{columns - 1}}")
    meaning = ", ".join(f"{letter} {text.clean(name)}" for name, letter in letters.items())
    lines.append(f"{'':<{label}} {meaning}")
    return lines


def _spread(share: list[dict[str, float]], slot: Mapping[str, Any], cycle: float) -> None:
    """Adds a slot's time to the columns that it covers; what passes the end goes on in front."""
    columns, name = len(share), slot["network"]
    step = cycle / columns
    first, last = slot["start_us"] / step, slot["end_us"] / step
    for column in range(int(first), int(last) + 1):
        part = min(last, column + 1) - max(first, column)
        if part > 0:
            cell = share[column % columns]
            cell[name] = cell.get(name, 0.0) + part
