"""The comparison of a verdict with a build log, as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from edgekit.reports.text import POOLS, clean
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.buildlog.comparison import (
        LayerComparison,
        LoadableComparison,
        LogComparison,
    )


_WIDTH = 80
_MOST = 10
_MIB = 1 << 20
_PLACES = {
    "DLA": "DLA",
    "GPU": "GPU",
    "slots": "GPU, although the DLA could run it",
    "capable": "not refused",
    "": "not in the log",
}


def render_comparison(comparison: LogComparison, *, verbose: bool = False) -> str:
    """Returns plain text of at most 80 columns, disagreements first.

    Args:
        comparison: From ``edgekit.buildlog.comparison.compare``.
        verbose: Every line; otherwise at most ten of each kind, and the rest is counted.
    """
    most = None if verbose else _MOST
    return "\n".join(line.rstrip() for line in _sections(comparison, most))


def _sections(comparison: LogComparison, most: int | None) -> Iterator[str]:
    yield from _headline(comparison)
    for warning in comparison.warnings:
        yield from _wrapped(f"warning: {clean(warning)}", indent="  ")
    yield from _layers("Prediction and builder disagree", comparison.disagreements, most)
    slots = [layer for layer in comparison.layers if layer.status == "slots"]
    yield from _layers("Both allow the DLA, and differ in which subgraphs fit", slots, most)
    yield from _loadables(comparison.loadables, most)
    other = [layer for layer in comparison.layers if layer.reasons in ("other", "unknown")]
    agreed = [layer for layer in other if layer.status == "agree"]
    yield from _layers("Same device, other reason", agreed, most)
    unseen = [layer.layer for layer in comparison.layers if layer.status == "unseen"]
    if comparison.evidence != "none":
        yield from _names("Not in the log", unseen, most)
    yield from _names("Only in the log", [o.name for o in comparison.only_builder], most)
    if comparison.absorbed:
        count = counted(len(comparison.absorbed), "refusal")
        yield from _wrapped(
            f"{count} of constants and shuffles that the importer made, each with the layer that "
            "it became part of:"
        )
        names = [f"{o.name} -> {o.into or 'unknown'}" for o in comparison.absorbed]
        yield from _first_lines((_line(f"  {clean(name)}") for name in names), len(names), most)


def _headline(comparison: LogComparison) -> Iterator[str]:
    counts = comparison.counts
    total = len(comparison.layers)
    seen = total - counts["unseen"]
    release = f" of TensorRT {comparison.tensorrt}" if comparison.tensorrt else ""
    if not seen:
        yield from _wrapped(f"The log{release} places none of the {counted(total, 'layer')}.")
        return
    yield from _wrapped(
        f"The builder's log{release} and the prediction agree on {counts['agree']:,} of "
        f"{counted(seen, 'layer')}"
        + (f"; they disagree on {counts['disagree']}" if counts["disagree"] else "")
        + (
            f"; they differ on {counts['slots']} because of the slot limit"
            if counts["slots"]
            else ""
        )
        + (f"; not in the log: {counts['unseen']}" if counts["unseen"] else "")
        + "."
    )


def _layers(title: str, layers: Sequence[LayerComparison], most: int | None) -> Iterator[str]:
    if not layers:
        return
    yield f"{title}:"
    shown = layers[:most]
    for layer in shown:
        yield _line(f"  {clean(layer.layer)} ({layer.kind})")
        ours = _PLACES[layer.predicted]
        if layer.certainty == "disputed":
            ours += ", disputed"
        yield from _wrapped(_with_details(f"predicted: {ours}", layer.rules), indent="    ")
        yield from _wrapped(
            _with_details(f"builder:   {_PLACES[layer.builder or '']}", layer.words), indent="    "
        )
    yield from _more_line(len(layers) - len(shown))


def _loadables(loadables: Sequence[LoadableComparison], most: int | None) -> Iterator[str]:
    if not loadables:
        return
    same = sum(loadable.same for loadable in loadables)
    pools = [pool.verdict for loadable in loadables for pool in loadable.pools]
    right = f"; {pools.count('right')} of {len(pools)} pools right" if pools else ""
    yield f"Loadables: {same} of {len(loadables)} the same, layer by layer{right}"
    # False sorts first: loadables that differ lead
    worst = sorted(loadables, key=lambda loadable: loadable.same)
    shown = worst[:most]
    for loadable in shown:
        ours, theirs = loadable.predicted, loadable.builder
        name = loadable.name or f"predicted only: {ours.first if ours else ''} ..."
        yield _line(f"  {clean(name)}")
        text = counted(theirs.layers if theirs else 0, "layer")
        if not loadable.same:
            text += f", predicted {ours.layers if ours else 0}"
            for label, only in (
                ("only predicted", loadable.only_predicted),
                ("only built", loadable.only_builder),
            ):
                if only:
                    text += f"; {label}: {clean(only[0])}"
                    text += f" and {len(only) - 1} more" if len(only) > 1 else ""
        yield from _wrapped(text, indent="    ")
        if loadable.pools:
            sizes = ", ".join(
                f"{POOLS[pool.pool]} {pool.predicted / _MIB:g}/{pool.builder / _MIB:g}"
                + ("" if pool.verdict == "right" else f" ({pool.verdict})")
                for pool in loadable.pools
            )
            yield from _wrapped(f"MiB predicted/built: {sizes}", indent="    ")
    yield from _more_line(len(loadables) - len(shown))


def _names(title: str, names: Sequence[str], most: int | None) -> Iterator[str]:
    if names:
        yield f"{title}:"
        yield from _first_lines((_line(f"  {clean(name)}") for name in names), len(names), most)


def _first_lines(lines: Iterable[str], count: int, most: int | None) -> Iterator[str]:
    for index, line in enumerate(lines):
        if most is not None and index >= most:
            break
        yield line
    if most is not None:
        yield from _more_line(count - most)


def _more_line(count: int) -> Iterator[str]:
    if count > 0:
        yield f"  ... and {count} more"


def _with_details(text: str, details: Sequence[str]) -> str:
    return f"{text}; {'; '.join(clean(detail) for detail in details)}" if details else text


def _line(text: str) -> str:
    """Returns one line; a long name loses its middle, in which a network's names are most alike."""
    if len(text) <= _WIDTH:
        return text
    half = (_WIDTH - 3) // 2
    return f"{text[: _WIDTH - 3 - half]}...{text[-half:]}"


def _wrapped(text: str, indent: str = "") -> list[str]:
    # words longer than a line are cut
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")
