"""The HTML page of several networks on one board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from edgekit.files import write_text
from edgekit.placement.plan import PlacedLayer, qualify_proof
from edgekit.reports import text
from edgekit.reports.charts import COLOURS, busy_window, gantt
from edgekit.reports.html.page import render_template
from edgekit.reports.html.view import View
from edgekit.reports.plans import GOALS, plans_headline, plans_rows, value_text
from edgekit.schedule.plans import NetworkPlan, Plans, TimelineEntry
from edgekit.text import ABSENT, percent, sentence


def render_plans(document: Plans, *, name: str = "") -> str:
    """Returns the page for an ``edgekit.plans/1`` document; it needs no network and no script."""
    return render_template("plans.html.j2", _view(document, name))


def write_plans_report(document: Plans, path: Path, *, name: str = "") -> None:
    """Writes the page to ``path``, whole or not at all.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    write_text(path, render_plans(document, name=name))


def _view(document: Plans, name: str) -> View:
    lower, upper = document.lower, document.upper
    proof = qualify_proof(lower.optimal, lower.extrapolated, lower.unknown_cost) or (
        f"bound {value_text(document, lower.bound)}, gap {percent(lower.gap, 2)}"
    )
    figures = [("One cycle" if document.repeats else "All networks once", gantt(document))]
    busy = busy_window(document)
    # work in a small part of a long cycle cannot be read at the cycle's scale
    if 0 < busy < 0.5 * document.cycle_us:
        figures.insert(
            0, (f"The first frames: {text.microseconds(busy)}", gantt(document, 0, busy))
        )
    cores = document.loadables.cores
    return {
        "title": text.clean(name or ", ".join(network.name for network in document.networks)),
        "facts": [
            text.clean(document.target),
            text.clean(document.power_mode),
            f"TensorRT {document.tensorrt}",
            f"timeline repeats after {text.microseconds(document.cycle_us)}"
            if document.repeats
            else f"ends after {text.microseconds(document.cycle_us)}",
        ],
        "headline": plans_headline(document),
        "goal": GOALS[document.objective],
        "lower": value_text(document, lower.value),
        "upper": value_text(document, upper.value),
        "proof": proof,
        "figures": [(title, Markup(svg)) for title, svg in figures],
        "networks": [
            {**row, "css": f"net{i % COLOURS}"} for i, row in enumerate(plans_rows(document))
        ],
        "devices": [
            {
                "name": device,
                "css": device.lower(),
                "lower": percent(share.lower),
                "upper": percent(share.upper),
                "loadables": f"{cores[device]} of {document.loadables.most}"
                if device in cores
                else ABSENT,
            }
            for device, share in document.utilisation.items()
        ],
        "pools": [
            {"name": text.POOLS.get(pool, pool), "size": text.size(size)}
            for pool, size in document.pools.items()
        ],
        "segments": [_segments(network, document.timeline) for network in document.networks],
        "notes": [sentence(text.clean(note)) for note in document.notes],
        "contention": text.clean(document.contention.source),
    }


@dataclass(frozen=True)
class SegmentRow:
    """A segment's row of the page, as texts; ``css`` is the class of its device."""

    number: int
    device: str
    css: str
    layers: str
    first: str
    last: str
    time: str


@dataclass(frozen=True)
class NetworkSegments:
    """A network's segments; ``reformats`` is the time of separate reformats, "" if none."""

    name: str
    rows: list[SegmentRow]
    reformats: str
    alone: str


def _segments(network: NetworkPlan, timeline: Sequence[TimelineEntry]) -> NetworkSegments:
    """Returns a network's segments; their times are those in its first frame."""
    found: dict[int, list[PlacedLayer]] = {}
    for layer in network.plan.layers:
        found.setdefault(layer.segment, []).append(layer)
    times: dict[int, float] = {}
    for slot in timeline:
        if slot.network == network.name and slot.frame == 0:
            # -1: separate reformats, which belong to no segment
            number = slot.segment if slot.kind == "layers" else -1
            times[number] = times.get(number, 0.0) + slot.alone_us
    return NetworkSegments(
        name=text.clean(network.name),
        rows=[
            SegmentRow(
                number=number,
                device=layers[0].device,
                css=layers[0].device.lower(),
                layers=text.count(len(layers)),
                first=text.clean(layers[0].name),
                last=text.clean(layers[-1].name),
                time=text.microseconds(times.get(number, 0.0)),
            )
            for number, layers in sorted(found.items())
        ],
        reformats=text.microseconds(times[-1]) if -1 in times else "",
        alone=text.microseconds(sum(times.values())),
    )
