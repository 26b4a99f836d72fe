"""The output of ``edgekit tune``: the outcome, then learnt times, then the tried plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgekit.reports.text import significant
from edgekit.text import ABSENT, counted, sentence
from edgekit.tuning.trials import readable_value

if TYPE_CHECKING:
    from edgekit.tuning.document import Tuned

_QUANTITIES = {
    "latency": "latency",
    "throughput": "throughput",
    "period": "period",
    "energy": "energy a frame",
    "gpu_time": "GPU time",
}
_KINDS = 12
_NAMES = 3


def tune_text(document: Tuned, *, verbose: bool = False) -> Iterator[str]:
    """Yields the lines of an ``edgekit.tune/1``.

    Args:
        document: The document.
        verbose: List all kinds of layers and all layers by name.
    """
    unit, start = document.unit, document.start
    yield f"{document.clock}: {document.note}"
    if not document.changed:
        yield (
            f"The starting plan stays: {_quantity(document)} "
            f"{readable_value(start.measured, unit)} over {counted(start.runs, 'run')}."
        )
    else:
        yield _better(document, unit)
    if len(document.networks) > 1:
        network = "the rewritten one" if document.network == "rewritten" else "the original one"
        yield f"The original and the rewritten network were both tried; this is {network}."
    yield (
        f"Ended after {document.seconds:.0f} s, {counted(len(document.trials), 'plan')}: "
        f"{document.why or document.status}{_bound(document)}."
    )
    for change in document.changes:
        names = change.layers if verbose else change.layers[:_NAMES]
        left = len(change.layers) - len(names)
        listed = ", ".join(names) + (f" and {left} more" if left else "")
        yield f"  {change.source} -> {change.goal}: {listed}: {change.why}"
    yield from _learnt(document, verbose=verbose)
    yield from _trials(document)
    for note in document.notes:
        yield f"note: {sentence(note)}"
    yield f"profile  {document.files['profile']}"
    yield f"config   {document.files['snippet']}"


def _better(document: Tuned, unit: str) -> str:
    """Returns the winner's improvement: the two figures and their difference in percent."""
    winner, turns = document.winner, document.turns
    better = f"plan {winner.number} is better in {_quantity(document)}"
    if not document.proven or turns is None or turns.low is None or turns.high is None:
        return (
            f"{better}: {readable_value(winner.measured, unit)}, the starting plan "
            f"{readable_value(document.start.measured, unit)}; not proven: the two "
            "plans were not measured in alternation."
        )
    # turns compare costs: a throughput by the time per frame
    less = "less time per frame" if document.objective == "throughput" else "less"
    return (
        f"{better}: {readable_value(turns.ours, unit)}, the starting plan "
        f"{readable_value(turns.theirs, unit)}, medians of {turns.turns} "
        f"alternating measurements; {100 * turns.fraction:.1f} % {less} (95 %: "
        f"{100 * turns.low:.1f} % to {100 * turns.high:.1f} %)."
    )


def _bound(document: Tuned) -> str:
    """Returns the bound on untried plans as text."""
    if document.bound is None:
        unknown = "; no bound of the untried plans is known"
        return "" if document.status == "converged" else unknown
    value = readable_value(document.bound.value, document.unit)
    if document.status == "converged":
        return f"; no remaining plan is likely to beat {value}"
    return f"; the bound is {value}: an untried plan may be that good"


def _quantity(document: Tuned) -> str:
    return _QUANTITIES[document.objective]


def _learnt(document: Tuned, *, verbose: bool) -> Iterator[str]:
    learnt = document.learnt
    if not learnt.by_kind:
        return
    yield (
        "Predicted times for the board and learned times (with one standard "
        "deviation), by device and kind of layer:"
    )
    rows = sorted(learnt.by_kind, key=lambda row: -row.learnt_us)
    for row in rows if verbose else rows[:_KINDS]:
        yield (
            f"  {row.device:<4} {row.kind:<16} {counted(row.layers, 'layer'):>12} "
            f"{readable_value(row.predicted_us):>9} {readable_value(row.learnt_us):>9} "
            f"+/- {readable_value(row.learnt_sd_us):<9} x {significant(row.factor)}"
            + ("" if row.measured_us is None else f"; measured {readable_value(row.measured_us)}")
        )
    for worst in learnt.worst[:3]:
        names = ", ".join(worst.layers[:_NAMES]) + (", ..." if len(worst.layers) > _NAMES else "")
        yield (
            f"  largest error: {names} on the {worst.device}: predicted "
            f"{readable_value(worst.predicted_us)}, measured "
            f"{readable_value(worst.measured_us)}"
        )


def _trials(document: Tuned) -> Iterator[str]:
    unit = document.unit
    yield f"Plans tried, {_quantity(document)} measured in the search and in the final turns:"
    yield f"  {'plan':<8} {'search':>10} {'turns':>10}"
    for trial in document.trials:
        search, final = (
            ABSENT if value is None else readable_value(value, unit)
            for value in (trial.search, trial.final)
        )
        what = (
            f"{counted(trial.layers_on_dla, 'layer')} on the DLA in "
            f"{counted(trial.loadables, 'loadable')}"
        )
        of = f" ({trial.network})" if trial.network and len(document.networks) > 1 else ""
        state = "" if trial.status == "measured" else f"; {trial.status}: {trial.reason}"
        mark = "*" if trial.number == document.winner.number else ""
        yield (
            f"  {f'plan {trial.number}{mark}':<8} {search:>10} {final:>10}  "
            f"{what}{of}; {trial.why}{state}"
        )
    decided = document.turns is not None and document.turns.turns > 0
    yield "  * advised" + (", by the final turns" if decided else "")
