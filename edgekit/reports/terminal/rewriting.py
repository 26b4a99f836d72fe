"""The applied rewrites, the available rewrites, and the checks of their proofs, as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType, group

from edgekit.reports import text
from edgekit.reports.terminal.layout import paragraph, table
from edgekit.reports.text import WIDTH
from edgekit.text import ABSENT, counted, sentence

if TYPE_CHECKING:
    from edgekit.placement.rewrite_document import Rewriting
    from edgekit.rewriting.catalogue import RewriteList
    from edgekit.rewriting.graph import Applied
    from edgekit.rewriting.provenance.verification import Verified

_SHOWN = 3
_HEAD = ("rewrite", "times", "largest error", "nodes")


@group()
def rewrite_text(document: Rewriting, *, width: int = WIDTH) -> Iterator[RenderableType]:
    """Returns an ``edgekit.rewrite/1`` document as text: applied rewrites, before and after."""
    applied = document.rewrites
    if applied:
        yield table(_HEAD, [_kind_row(rows, width) for rows in _by_kind(applied)], "lrrl")
        yield paragraph(
            f"Each was proved on {counted(applied[0].runs, 'random input')} (seed "
            f"{applied[0].seed}); errors are relative to the largest output.",
            style="dim",
        )
        yield ""
    else:
        yield paragraph("nothing to rewrite")
    for item in document.approximations:
        yield paragraph(item.note, style="yellow")
    both = document.before, document.after
    on_dla = (f"{network.dla_layers} of {network.layers}" for network in both)
    rows: list[Sequence[str]] = [("layers on the DLA", *on_dla)]
    rows.append(("loadables", *(str(network.loadables) for network in both)))
    rows.append(("transitions", *(str(network.transitions) for network in both)))
    predictions = (network.predicted for network in both)
    latencies = (
        ABSENT if prediction is None else text.microseconds(prediction.auto_us)
        for prediction in predictions
    )
    rows.append(("predicted latency", *latencies))
    yield table(("", "before", "after"), rows, "lrr")
    for note in document.notes:
        yield paragraph(f"note: {sentence(note)}", style="yellow")


@group()
def rewrite_list_text(document: RewriteList) -> Iterator[RenderableType]:
    """Returns an ``edgekit.rewrite-list/1`` document as text: every rewrite and its reason."""
    for number, approximate in enumerate((False, True)):
        rows = [row for row in document.rewrites if row.approximate is approximate]
        if not rows:
            continue
        if number:
            yield ""
        title = "approximate: off unless allowed with --allow-approx" if approximate else "exact"
        yield paragraph(title, style="dim")
        for row in rows:
            yield paragraph(row.name, style="bold")
            yield paragraph(row.reason, indent=4)


@group()
def verified_text(document: Verified, *, width: int = WIDTH) -> Iterator[RenderableType]:
    """Returns an ``edgekit.verified/1`` document as text."""
    applied = document.rewrites
    if applied:
        yield table(_HEAD, [_kind_row(rows, width) for rows in _by_kind(applied)], "lrrl")
    held = sum(row.holds for row in applied)
    yield paragraph(
        f"{held} of {len(applied)} proofs passed on "
        f"{counted(document.runs, 'random input')} (seed {document.seed}); "
        f"recorded errors differ by at most {document.largest_change:.1e}",
    )
    network = document.network
    limit = "no limit" if network.limit is None else f"at most {network.limit:g} is allowed"
    yield paragraph(
        f"whole network, FP32: error {_error(network.max_error)} relative to the largest "
        f"output ({limit})",
    )
    same = "the recorded network" if document.same else "a different network than recorded"
    yield paragraph(f"the rewrites make {same} ({document.rewritten[:12]})")


def _by_kind(applied: Iterable[Applied]) -> list[list[Applied]]:
    kinds: dict[str, list[Applied]] = {}
    for row in applied:
        kinds.setdefault(row.rewrite, []).append(row)
    return list(kinds.values())


def _kind_row(rows: Sequence[Applied], width: int) -> tuple[str, str, str, str]:
    errors = [row.max_error for row in rows if row.max_error is not None]
    worst = max(errors) if len(errors) == len(rows) else None
    nodes = list(dict.fromkeys(name for row in rows for name in row.nodes))
    # names are never broken, so that the table keeps its shape: if long, fewer are shown
    limit = max(width - 50, 20)
    shown: list[str] = []
    for name in nodes[:_SHOWN]:
        if shown and len(", ".join([*shown, name])) > limit:
            break
        shown.append(name)
    more = len(nodes) - len(shown)
    names = ", ".join(shown) + (f" and {more} more" if more else "")
    return rows[0].rewrite, str(len(rows)), _error(worst), names


def _error(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1e}"
