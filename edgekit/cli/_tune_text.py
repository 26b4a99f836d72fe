"""What ``edgekit tune`` prints: the outcome first, then what was learnt, then what was tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgekit._listed import counted

__all__ = ["tune_text"]

_KINDS = 12
_NAMES = 3


def tune_text(document: Mapping[str, Any], *, verbose: bool = False) -> Iterator[str]:
    """Yields the lines of an ``edgekit.tune/1``.

    Args:
        document: The document.
        verbose: All kinds of layers and all layers by name.
    """
    from edgekit.pipeline._tune_values import spoken

    unit, start, winner = document["unit"], document["start"], document["winner"]
    more = document["objective"] == "throughput"
    yield f"{document['clock']}: {document['note']}"
    if not document["changed"]:
        yield (
            f"The starting plan stays: {spoken(start['measured'], unit)} over "
            f"{counted(start['runs'], 'run')}."
        )
    else:
        turns = document["turns"] or {}
        if document["proven"] and turns.get("turns"):
            sure = (
                f"{turns['fraction']:.1%} {'less time a frame' if more else 'less'} in "
                f"{turns['turns']} turns (95 %: {turns['low']:.1%} to {turns['high']:.1%})"
            )
        else:
            sure = "not proven: the turns beside the starting plan were not measured"
        yield (
            f"plan {winner['number']} is better: {spoken(winner['measured'], unit)}, the starting "
            f"plan {spoken(start['measured'], unit)}; {sure}."
        )
    bound = document["bound"]
    yield (
        f"Ended after {document['seconds']:.0f} s, {counted(len(document['trials']), 'plan')}: "
        + (document["why"] or document["status"])
        + (f"; nothing left is likely beyond {spoken(bound['value'], unit)}." if bound else ".")
    )
    yield from _changes(document, verbose=verbose)
    yield from _learnt(document, verbose=verbose)
    yield from _trials(document)
    for note in document["notes"]:
        yield f"note: {note}"
    yield f"profile  {document['files']['profile']}"
    yield f"config   {document['files']['snippet']}"


def _changes(document: Mapping[str, Any], *, verbose: bool) -> Iterator[str]:
    for one in document["changes"]:
        names = one["layers"] if verbose else one["layers"][:_NAMES]
        left = len(one["layers"]) - len(names)
        told = ", ".join(names) + (f" and {left} more" if left else "")
        yield f"  {one['from']} -> {one['to']}: {told}: {one['why']}"


def _learnt(document: Mapping[str, Any], *, verbose: bool) -> Iterator[str]:
    from edgekit.pipeline._tune_values import spoken
    from edgekit.report._text import significant

    learnt = document["learnt"]
    if not learnt["by_kind"]:
        return
    yield "Predicted (of the board) against measured, by device and kind of layer:"
    rows = sorted(learnt["by_kind"], key=lambda row: -row["measured_us"])
    for row in rows if verbose else rows[:_KINDS]:
        yield (
            f"  {row['device']:<4} {row['kind']:<16} {counted(row['layers'], 'layer'):>12} "
            f"{spoken(row['predicted_us']):>9} {spoken(row['measured_us']):>9}"
            f"  x {significant(row['factor'])}"
        )
    for row in learnt["worst"][:3]:
        names = ", ".join(row["layers"][:_NAMES]) + (", ..." if len(row["layers"]) > _NAMES else "")
        yield (
            f"  most off: {names} on the {row['device']}: predicted "
            f"{spoken(row['predicted_us'])}, measured {spoken(row['measured_us'])}"
        )


def _trials(document: Mapping[str, Any]) -> Iterator[str]:
    from edgekit.pipeline._tune_values import spoken

    unit = document["unit"]
    yield "Tried:"
    for one in document["trials"]:
        value = "" if one["measured"] is None else f"{spoken(one['measured'], unit)}, "
        what = (
            f"{counted(one['layers_on_dla'], 'layer')} on the DLA in "
            f"{counted(one['loadables'], 'loadable')}"
        )
        state = "" if one["status"] == "measured" else f"; {one['status']}: {one['reason']}"
        yield f"  plan {one['number']:<3} {value}{what}; {one['why']}{state}"
