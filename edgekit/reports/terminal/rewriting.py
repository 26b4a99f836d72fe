"""What rewrites did, which ones there are, and whether their proofs still hold, as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType, group

from edgekit.reports import text
from edgekit.reports.terminal.layout import paragraph, table
from edgekit.reports.text import WIDTH
from edgekit.text import ABSENT, counted, sentence

_SHOWN = 3
_HEAD = ("rewrite", "times", "largest error", "nodes")


@group()
def rewrite_text(document: Mapping[str, Any], *, width: int = WIDTH) -> Iterator[RenderableType]:
    """Returns an ``edgekit.rewrite/1`` document as text: what was applied, before and after."""
    applied = document["rewrites"]
    if applied:
        yield table(_HEAD, [_kind(rows, width) for rows in _by_kind(applied)], "lrrl")
        yield paragraph(
            f"Each was proved on {counted(applied[0]['runs'], 'random input')} (seed "
            f"{applied[0]['seed']}); errors are relative to the largest output.",
            style="dim",
        )
        yield ""
    else:
        yield paragraph("nothing to rewrite")
    for item in document["approximations"]:
        yield paragraph(item["note"], style="yellow")
    rows: list[Sequence[str]] = [_layers(document)]
    for key in ("loadables", "transitions"):
        rows.append((key, *(str(document[part][key]) for part in ("before", "after"))))
    rows.append(("predicted latency", *(_latency(document[p]) for p in ("before", "after"))))
    yield table(("", "before", "after"), rows, "lrr")
    for note in document["notes"]:
        yield paragraph(f"note: {sentence(note)}", style="yellow")


@group()
def rewrite_list_text(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Returns an ``edgekit.rewrite-list/1`` document as text: every rewrite and its reason."""
    for number, approximate in enumerate((False, True)):
        rows = [row for row in document["rewrites"] if row["approximate"] is approximate]
        if not rows:
            continue
        if number:
            yield ""
        title = "approximate: off unless allowed with --allow-approx" if approximate else "exact"
        yield paragraph(title, style="dim")
        for row in rows:
            yield paragraph(row["name"], style="bold")
            yield paragraph(row["reason"], indent=4)


@group()
def verified_text(document: Mapping[str, Any], *, width: int = WIDTH) -> Iterator[RenderableType]:
    """Returns an ``edgekit.verified/1`` document as text."""
    applied = document["rewrites"]
    if applied:
        yield table(_HEAD, [_kind(rows, width) for rows in _by_kind(applied)], "lrrl")
    held = sum(row["holds"] for row in applied)
    yield paragraph(
        f"{held} of {len(applied)} proofs passed on "
        f"{counted(document['runs'], 'random input')} (seed {document['seed']}); "
        f"recorded errors differ by at most {document['largest_change']:.1e}",
    )
    network = document["network"]
    limit = "no limit" if network["limit"] is None else f"at most {network['limit']:g} is allowed"
    yield paragraph(
        f"whole network, FP32: error {_error(network['max_error'])} relative to the largest "
        f"output ({limit})",
    )
    same = "the recorded network" if document["same"] else "a different network than recorded"
    yield paragraph(f"the rewrites make {same} ({document['rewritten'][:12]})")


def _by_kind(applied: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in applied:
        kinds.setdefault(row["rewrite"], []).append(row)
    return list(kinds.values())


def _kind(rows: Sequence[Mapping[str, Any]], width: int) -> tuple[str, str, str, str]:
    errors = [row["max_error"] for row in rows]
    worst = None if None in errors else max(errors)
    nodes = list(dict.fromkeys(name for row in rows for name in row["nodes"]))
    # names are never broken, so that a table stays one: fewer of them where they are long
    limit = max(width - 50, 20)
    shown: list[str] = []
    for name in nodes[:_SHOWN]:
        if shown and len(", ".join([*shown, name])) > limit:
            break
        shown.append(name)
    more = len(nodes) - len(shown)
    names = ", ".join(shown) + (f" and {more} more" if more else "")
    return rows[0]["rewrite"], str(len(rows)), _error(worst), names


def _error(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1e}"


def _layers(document: Mapping[str, Any]) -> tuple[str, str, str]:
    cells = [
        f"{document[part]['dla_layers']} of {document[part]['layers']}"
        for part in ("before", "after")
    ]
    return "layers on the DLA", cells[0], cells[1]


def _latency(part: Mapping[str, Any]) -> str:
    predicted = part["predicted"]
    return ABSENT if predicted is None else text.microseconds(predicted["auto_us"])
