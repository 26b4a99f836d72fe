"""A report's comparison with a baseline run, one ``edgekit.compare/1`` a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit._files import regular
from edgekit.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from edgekit.errors import EdgekitError
    from edgekit.history import Result

__all__ = [
    "compared_metrics",
    "compared_notes",
    "compared_words",
    "metric_name",
    "refused_words",
    "regression_words",
    "with_baseline",
    "with_kept_comparison",
    "without_comparison",
]

_FIRST, _MORE = "latency.median", ("latency.p99", "throughput", "energy")
_NAMES = {
    "latency.median": "Latency, median", "latency.mean": "Latency, mean",
    "latency.p99": "Latency, p99", "throughput": "Throughput", "energy": "Energy",
}  # fmt: skip


def with_baseline(
    document: Mapping[str, Any], baseline: Sequence[Result], own: Sequence[Result]
) -> dict[str, Any]:
    """Returns a report with its comparison, and with the gate that comes of it.

    ``baseline`` of the document is the comparison of the median latencies; its "more" holds those
    of further metrics that both sides have.

    Args:
        document: An ``edgekit.report/1``.
        baseline: Measurements to compare with.
        own: The report's own measurement.

    Measurements that may not be compared are told: :func:`without_comparison`.
    """
    from edgekit.history import compare, objections

    try:
        found: dict[str, Any] = compare(baseline, own, metric=_FIRST)
    except DataError as error:
        against = objections(baseline, own) if error.code == "compare.not-alike" else ()
        return without_comparison(document, error, against)
    found["more"] = []
    for metric in _MORE:
        try:
            found["more"].append(compare(baseline, own, metric=metric))
        except DataError as error:
            if error.code != "compare.no-metric":
                raise
    worse = any(one["regression"] for one in (found, *found["more"]))
    return _with(document, found, not worse)


def without_comparison(
    document: Mapping[str, Any], error: EdgekitError, reasons: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns a report that says why it was not compared; its gate is not judged.

    Args:
        document: An ``edgekit.report/1``.
        error: Why; goes into "refused" of its "baseline": "code", "reasons", "where".
        reasons: Instead of the error's message, where there are several.
    """
    told = list(reasons) or [error.message, *error.details]
    refused = {"code": error.code, "reasons": told, "where": error.where}
    return _with(document, {"refused": refused}, None)


def with_kept_comparison(document: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Returns a report with the comparison that was made of the same measurement before.

    Args:
        document: An ``edgekit.report/1`` that was not compared.
        path: The ``report.json`` that it replaces; one that is absent or damaged has none.
    """
    import json

    from edgekit.report._view_baseline import baseline_view

    try:
        before = json.loads(regular(path).read_text(encoding="utf-8"))
        compared = before["baseline"]
        # as the file has it: tuples are lists there
        same = before["bench"] == json.loads(json.dumps(document["bench"]))
        if not same or not compared or refused_words(compared):
            return dict(document)
        baseline_view(compared)  # a damaged one cannot be shown
        return _with(document, compared, not regression_words(compared))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return dict(document)


def refused_words(baseline: Mapping[str, Any]) -> str:
    """Returns "not compared, because ..." for a person; "" where it was compared."""
    refused = baseline.get("refused")
    if not isinstance(refused, Mapping):
        return ""
    where = f" ({refused['where']})" if refused.get("where") else ""
    return f"not compared, because {'; '.join(map(str, refused['reasons']))}{where}"


def metric_name(metric: str) -> str:
    """Returns what people call a comparison's metric."""
    return _NAMES.get(metric, metric)


def compared_metrics(baseline: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the ``edgekit.compare/1`` of each metric, that of the median latency first."""
    return [baseline, *(baseline.get("more") or ())]


def compared_words(baseline: Mapping[str, Any]) -> list[str]:
    """Returns a line a metric: both values and the answer; none where it was refused."""
    from edgekit.report._history import compared_values, headline

    if refused_words(baseline):
        return []
    return [
        f"{metric_name(one['metric'])}: {' -> '.join(compared_values(one))}, {headline(one)}"
        for one in compared_metrics(baseline)
    ]


def regression_words(baseline: Mapping[str, Any]) -> str:
    """Returns which metrics are worse past the threshold; "" where none is."""
    from edgekit.report._history import ratio_words

    if refused_words(baseline):
        return ""
    worse = [
        f"{metric_name(one['metric']).lower()} {ratio_words(one)}"
        for one in compared_metrics(baseline)
        if one.get("regression")
    ]
    if not worse:
        return ""
    limit = f"{100 * baseline['threshold']:.3g} %"
    return f"worse than the baseline by more than {limit}: {'; '.join(worse)}"


def compared_notes(baseline: Mapping[str, Any]) -> list[str]:
    """Returns the notes of all metrics, each once, and with the metric's name where it has one.

    What holds of every run is not said of each.
    """
    every = compared_metrics(baseline)
    labels = [run["label"] for side in "ab" for run in (baseline[side]["runs"] or ())]
    found: dict[str, None] = {}
    for one in every:
        notes = list(one.get("notes") or ())
        for note in notes:
            bare = next((n for label in labels if (n := _bare(note, label))), "")
            if bare and all(f"{label}: {bare}" in notes for label in labels):
                found[f"{metric_name(one['metric'])}: {bare}"] = None
            elif all(note in (other.get("notes") or ()) for other in every):
                found[note] = None
            else:
                found[f"{metric_name(one['metric'])}: {note}"] = None
    return list(found)


def _bare(note: str, label: str) -> str:
    start = f"{label}: "
    return note.removeprefix(start) if note.startswith(start) else ""


def _with(
    document: Mapping[str, Any], baseline: Mapping[str, Any], passed: bool | None
) -> dict[str, Any]:
    told = document.get("verdict", {})
    gates = [gate for gate in told.get("gates", ()) if gate["gate"] != "baseline"]
    gate: dict[str, Any] = {"gate": "baseline", "passed": passed, "found": None, "limit": None}
    if worse := regression_words(baseline):
        gate["told"] = worse
    gates.append(gate)
    return {**document, "baseline": dict(baseline), "verdict": {**told, "gates": gates}}
