"""Why a layer is where it is, as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.report import _text as text
from edgekit.report._page import Page
from edgekit.report._plan_answers import UNITS

__all__ = ["why_text"]


def why_text(document: Mapping[str, Any], *, width: int = 80, colour: bool = False) -> str:
    """Returns an ``edgekit.why/1`` as text."""
    page = Page(width, colour=colour)
    value = UNITS[document["unit"]](document["value"])
    page.add(f"{document['layer']} runs on {document['device']}", style="bold")
    page.add(f"{document['kind']}, {document['target']} {document['power_mode']}, "
             f"{document['precision'].upper()}; objective {document['objective']} {value} "
             "(predicted)", style="dim")  # fmt: skip
    if len(document["shares"]) > 1:
        parts = (f"{text.percent(s)} on {device}" for device, s in document["shares"].items())
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
    page.add(f"{text.counted(other['loadables'], 'loadable')}, "
             f"{text.counted(other['transitions'], 'device change')}, "
             f"{text.counted(len(other['moved']), 'layer')} elsewhere", indent=2)  # fmt: skip
