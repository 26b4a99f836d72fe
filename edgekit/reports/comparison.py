"""A report's comparison with a baseline run, one ``edgekit.compare/1`` a metric, and its gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.errors import DataError, EdgekitError
from edgekit.reports import text
from edgekit.results.comparison import compare, objections
from edgekit.results.store import Result
from edgekit.text import percent

_FIRST, _MORE = "latency.median", ("latency.p99", "throughput", "energy")
_METRIC_NAMES = {
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

    For measurements that may not be compared see :func:`without_comparison`.
    """
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
    return document_with_baseline(document, found, not worse)


def without_comparison(
    document: Mapping[str, Any], error: EdgekitError, reasons: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns a report that says why it was not compared; its gate is not judged.

    Args:
        document: An ``edgekit.report/1``.
        error: Why; goes into "refused" of its "baseline": "code", "reasons", "where".
        reasons: Instead of the error's message, where there are several.
    """
    messages = list(reasons) or [error.message, *error.details]
    refused = {"code": error.code, "reasons": messages, "where": error.where}
    return document_with_baseline(document, {"refused": refused}, None)


def refused_words(baseline: Mapping[str, Any]) -> str:
    """Returns "not compared, because ..." for a person; "" if it was compared."""
    refused = baseline.get("refused")
    if not isinstance(refused, Mapping):
        return ""
    where = f" ({refused['where']})" if refused.get("where") else ""
    return f"not compared: {'; '.join(map(str, refused['reasons']))}{where}"


def metric_name(metric: str) -> str:
    """Returns what people call a comparison's metric."""
    return _METRIC_NAMES.get(metric, metric)


def compared_metrics(baseline: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the ``edgekit.compare/1`` of each metric, that of the median latency first."""
    return [baseline, *(baseline.get("more") or ())]


def compared_words(baseline: Mapping[str, Any]) -> list[str]:
    """Returns a line a metric: both values and the answer; none where it was refused."""
    if refused_words(baseline):
        return []
    return [
        f"{metric_name(one['metric'])}: {' -> '.join(compared_values(one))}, {headline(one)}"
        for one in compared_metrics(baseline)
    ]


def regression_words(baseline: Mapping[str, Any]) -> str:
    """Returns which metrics are worse past the threshold; "" if none is."""
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


def document_with_baseline(
    document: Mapping[str, Any], baseline: Mapping[str, Any], passed: bool | None
) -> dict[str, Any]:
    verdict = document.get("verdict", {})
    gates = [gate for gate in verdict.get("gates", ()) if gate["gate"] != "baseline"]
    gate: dict[str, Any] = {"gate": "baseline", "passed": passed, "found": None, "limit": None}
    if worse := regression_words(baseline):
        gate["told"] = worse
    gates.append(gate)
    return {**document, "baseline": dict(baseline), "verdict": {**verdict, "gates": gates}}


def headline(document: Mapping[str, Any]) -> str:
    """Returns the answer with its interval."""
    verdict = document["verdict"]
    text = f"{verdict}, {ratio_words(document)}"
    limit = percent(document["threshold"])
    if document["regression"]:
        return f"{text}: a regression of more than {limit}"
    if document["regression_possible"]:
        return f"{text}; a regression of more than {limit} cannot be ruled out"
    return text


def ratio_words(document: Mapping[str, Any]) -> str:
    """Returns by how much B's value is another than A's: "+3.1 % (+2.9 to +3.4 %, 95 %)"."""
    ratio = document["ratio"]
    middle = text.change(100 * (ratio["estimate"] - 1))
    if ratio["low"] is None:
        return f"{middle} (how sure is not known)"
    low, high = (text.change(100 * (ratio[end] - 1)) for end in ("low", "high"))
    return f"{middle} ({low} to {high}, {100 * ratio['confidence']:.4g} % confidence)"


def compared_values(document: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the two sides' values with their unit."""
    return tuple(value_words(document[side]["value"], document["unit"]) for side in "ab")  # type: ignore[return-value]


def value_words(value: float, unit: str) -> str:
    """Returns a metric's value with its unit."""
    if unit == "ms":
        return text.measured(value)
    if unit == "uJ":
        return text.energy(value)
    return f"{text.significant(value)} {unit}"
