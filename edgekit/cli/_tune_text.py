"""What ``edgekit tune`` prints: the outcome first, then what was learnt, then what was tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgekit._listed import counted

__all__ = ["tune_text"]

_QUANTITIES = {"latency": "latency", "throughput": "throughput", "period": "period",
               "energy": "energy a frame", "gpu_time": "GPU time"}  # fmt: skip
_KINDS = 12
_NAMES = 3


def tune_text(document: Mapping[str, Any], *, verbose: bool = False) -> Iterator[str]:
    """Yields the lines of an ``edgekit.tune/1``.

    Args:
        document: The document.
        verbose: All kinds of layers and all layers by name.
    """
    from edgekit.pipeline._tune_values import spoken

    unit, start = document["unit"], document["start"]
    yield f"{document['clock']}: {document['note']}"
    if not document["changed"]:
        yield (
            f"The starting plan stays: {_quantity(document)} "
            f"{spoken(start['measured'], unit)} over {counted(start['runs'], 'run')}."
        )
    else:
        yield _better(document, unit)
    if len(document["networks"]) > 1:
        yield f"Both networks were tried, rewritten and as it came; this is {_network(document)}."
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


def _better(document: Mapping[str, Any], unit: str) -> str:
    """Returns by how much the winner is better: the figures are what the percentage is of."""
    from edgekit.pipeline._tune_values import spoken

    winner, turns = document["winner"], document["turns"] or {}
    better = f"plan {winner['number']} is better in {_quantity(document)}"
    if not (document["proven"] and turns.get("turns")):
        return (
            f"{better}: {spoken(winner['measured'], unit)}, the starting plan "
            f"{spoken(document['start']['measured'], unit)}; not proven: the turns beside the "
            "starting plan were not measured."
        )
    less = "less time a frame" if document["objective"] == "throughput" else "less"
    return (
        f"{better}: {spoken(turns['ours'], unit)}, the starting plan "
        f"{spoken(turns['theirs'], unit)}, medians of {turns['turns']} turns; "
        f"{turns['fraction']:.1%} {less} (95 %: {turns['low']:.1%} to {turns['high']:.1%})."
    )


def _quantity(document: Mapping[str, Any]) -> str:
    return _QUANTITIES[document["objective"]]


def _network(document: Mapping[str, Any]) -> str:
    return "the rewritten one" if document["network"] == "rewritten" else "the one as it came"


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
    yield (
        "Predicted (of the board) and learnt (with one standard deviation), by device and kind "
        "of layer:"
    )
    rows = sorted(learnt["by_kind"], key=lambda row: -row["learnt_us"])
    for row in rows if verbose else rows[:_KINDS]:
        yield (
            f"  {row['device']:<4} {row['kind']:<16} {counted(row['layers'], 'layer'):>12} "
            f"{spoken(row['predicted_us']):>9} {spoken(row['learnt_us']):>9} "
            f"+/- {spoken(row['learnt_sd_us']):<9} x {significant(row['factor'])}"
            + ("" if row["measured_us"] is None else f"; measured {spoken(row['measured_us'])}")
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
    yield f"Tried, {_quantity(document)} measured:"
    for one in document["trials"]:
        value = "" if one["measured"] is None else f"{spoken(one['measured'], unit)}, "
        what = (
            f"{counted(one['layers_on_dla'], 'layer')} on the DLA in "
            f"{counted(one['loadables'], 'loadable')}"
        )
        of = f" ({one['network']})" if one["network"] and len(document["networks"]) > 1 else ""
        state = "" if one["status"] == "measured" else f"; {one['status']}: {one['reason']}"
        yield f"  plan {one['number']:<3} {value}{what}{of}; {one['why']}{state}"
