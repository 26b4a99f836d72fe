"""Stored results and their comparisons as text for a terminal."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise

from edgekit.benchmark.statistics import sparse_percentiles
from edgekit.reports import text
from edgekit.reports.comparison import compared_values, headline
from edgekit.reports.text import Page, names_in_columns
from edgekit.results.comparison import Comparison, describe_value
from edgekit.results.store import Result, is_trial
from edgekit.text import ABSENT, sentence
from edgekit_device.protocol.codec import write

_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 16  # columns of the sparkline
_SHOWN = 8
_WIDE = 10_000  # columns if the output is no terminal
_TRIAL = ("trial of edgekit tune",)
_SPARED = ("commit", "settings", "mode", "per second", "verdict", "when", "over time")


def history_text(results: Sequence[Result], *, width: int | None, colour: bool) -> str:
    """Returns a table of results; the sparkline shows a run's latencies over time."""
    head = (
        "id",
        "when",
        "name",
        "board",
        "mode",
        "clock",
        "median",
        "p99",
        "per second",
        "over time",
        "verdict",
        "settings",
        "commit",
        "marks",
    )

    settings = _settings(results)
    rows = [
        dict(
            zip(
                head,
                (
                    str(result.id),
                    _when(result.at),
                    result.name,
                    _board(result),
                    result.power_mode or "",
                    result.document.clock or "",
                    _ms(result.latency_ms("median")),
                    _tail(result.latency_ms("p99"), "p99", _frames(result)),
                    text.significant(result.document.throughput_qps),
                    sparkline(result.samples),
                    result.verdict or "",
                    own,
                    _commit(result),
                    ", ".join([*result.marks, *_TRIAL[: is_trial(result.name)]]),
                ),
                strict=True,
            )
        )
        for result, own in zip(results, settings, strict=True)
    ]
    cells = [{key: text.clean(value) for key, value in row.items()} for row in rows]
    used = [key for key in head if any(row[key] for row in cells)]
    page = Page(width or _WIDE, colour=colour)
    names_in_columns(
        page,
        used,
        cells,
        width=width,
        spared=[key for key in _SPARED if key in used],
        right=("id", "median", "p99", "per second"),
    )
    return str(page)


def _settings(results: Sequence[Result]) -> list[str]:
    """Returns for each result the settings that are not the same in all results."""
    flat = [
        {key: describe_value(value) or ABSENT for key, value in write(result.settings).items()}
        for result in results
    ]
    keys = dict.fromkeys(key for row in flat for key in row)
    # settings that all rows share do not distinguish them
    other = [key for key in keys if len({row.get(key) for row in flat}) > 1]
    return [", ".join(f"{key} {row[key]}" for key in other if key in row) for row in flat]


def sparkline(samples: Sequence[float]) -> str:
    """Returns the medians of equal parts of a run as bars, scaled from lowest to highest."""
    if len(samples) < 2:
        return ""
    parts = min(_COLUMNS, len(samples))
    edges = [len(samples) * part // parts for part in range(parts + 1)]
    middle = [statistics.median(samples[a:b]) for a, b in pairwise(edges)]
    low, high = min(middle), max(middle)
    # differences of less than a hundredth are drawn flat
    reach = max(high - low, abs(high) / 100)
    if reach <= 0:
        return _BARS[0] * parts
    return "".join(_BARS[min(int((v - low) / reach * len(_BARS)), 7)] for v in middle)


def result_text(result: Result) -> str:
    """Returns a result's facts, one per line."""
    document = result.document
    rows = [
        ("result", f"{result.label} of {result.name}, {_when(result.at)}"),
        ("marks", ", ".join(result.marks)),
        ("clock", document.clock or ""),
        ("verdict", result.verdict or ""),
        *(
            ("", reason.message)
            for reason in (document.verdict.reasons if document.verdict else ())
        ),
        ("board", f"{_board(result)} {result.host}".strip()),
        ("target", f"{document.target or ''} {result.power_mode or ''}".strip()),
        ("precision", document.precision or ""),
        ("latency", _latency(document.latency_ms or {}, _frames(result))),
        ("throughput", f"{text.significant(document.throughput_qps)} per second"),
        ("energy", text.energy(result.energy_uj) if result.energy_uj else ""),
        ("over time", sparkline(result.samples)),
        ("bundle", result.bundle or ""),
        ("release", result.release or ""),
        ("commit", _commit(result, 40)),
        ("settings", describe_value(write(result.settings))),
        ("runtime", describe_value(write(result.runtime))),
        ("fingerprint", describe_value(result.fingerprint)),
    ]
    return "\n".join(f"{name:<12}{text.clean(value)}" for name, value in rows if value)


def compare_text(compared: Comparison, *, every: bool = False) -> str:
    """Returns a comparison: the answer, both sides, other differences."""
    a, b = compared_values(compared)
    lines = [
        f"{compared.metric}: {headline(compared)}",
        f"  A  {a}  {text.clean(compared.a.label)}",
        f"  B  {b}  {text.clean(compared.b.label)}",
    ]
    clocks = {run.clock for side in (compared.a, compared.b) for run in side.runs}
    lines.append(f"  {', '.join(sorted(map(text.clean, clocks)))}")
    rows = [
        f"  {text.clean(row.what)}: {text.clean(row.a) or ABSENT} -> {text.clean(row.b) or ABSENT}"
        for row in compared.differences
    ]
    if rows:
        shown = rows if every else rows[:_SHOWN]
        lines += ["other differences:", *shown]
        if len(rows) > len(shown):
            lines.append(f"  and {len(rows) - len(shown)} more (-v shows all)")
    lines += [f"forced: {text.clean(reason)}" for reason in compared.forced]
    lines += [f"note: {sentence(text.clean(note))}" for note in compared.notes]
    return "\n".join(lines)


def _ms(value: float | None) -> str:
    return text.microseconds(None if value is None else 1000 * value)


def _frames(result: Result) -> int:
    """Returns the number of frames of a result's percentiles; 0 if unknown."""
    count = result.document.iterations
    return len(result.samples) if count is None else count


def _tail(value: float | None, name: str, frames: int) -> str:
    """Returns a percentile, by the rule of all tables: "-" or with a "*" if frames are few."""
    found = sparse_percentiles(frames) if frames else None
    if found is None or value is None:
        return _ms(value)
    return ABSENT if name in found.empty else _ms(value) + "*" * (name in found.few)


def _latency(latency: Mapping[str, float], frames: int) -> str:
    # the median is the p50 by its other name
    values = {k: v for k, v in latency.items() if k != "p50" or "median" not in latency}
    cells = [f"{key} {_tail(value, key, frames)}" for key, value in values.items()]
    few = frames and set(sparse_percentiles(frames).few) & set(values)
    footnote = f" (* fewer than {sparse_percentiles(frames).least} frames beyond)" if few else ""
    return ", ".join(cells) + footnote


def _when(at: float | None) -> str:
    if at is None:
        return ""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    except (OverflowError, ValueError, OSError):
        return "?"  # a damaged file's number is no time


def _board(result: Result) -> str:
    return result.board.partition(":")[2]


def _commit(result: Result, length: int = 8) -> str:
    return f"{result.git.commit[:length]}{'+' if result.git.dirty else ''}" if result.git else ""
