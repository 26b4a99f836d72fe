"""A report's comparison with a baseline run, an ``edgekit.compare/1`` per metric, and its gate."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.errors import DataError, EdgekitError
from edgekit.reports import text
from edgekit.reports.schema import (
    Gate,
    MoreComparison,
    Refused,
    RefusedComparison,
    Report,
)
from edgekit.results.comparison import Comparison, compare, objections
from edgekit.results.store import Result
from edgekit.text import percent

_FIRST, _MORE = "latency.median", ("latency.p99", "throughput", "energy")
_METRIC_NAMES = {
    "latency.median": "Latency, median",
    "latency.mean": "Latency, mean",
    "latency.p99": "Latency, p99",
    "throughput": "Throughput",
    "energy": "Energy",
}


def with_baseline(
    report: Report,
    baseline: Sequence[Result],
    own: Sequence[Result],
    past: Sequence[Result] = (),
) -> Report:
    """Returns a report with its comparison and the comparison's gate.

    ``baseline`` of the report is the comparison of the median latencies; its ``more`` are the
    comparisons of further metrics that both sides have.

    Args:
        report: A run's report.
        baseline: Measurements to compare with.
        own: The report's own measurement.
        past: Results of the history, as for ``compare``.

    For measurements that may not be compared see :func:`without_comparison`.
    """
    try:
        first = compare(baseline, own, metric=_FIRST, past=past)
    except DataError as error:
        against = objections(baseline, own) if error.code == "compare.not-alike" else ()
        return without_comparison(report, error, against)
    more = []
    for metric in _MORE:
        try:
            more.append(compare(baseline, own, metric=metric, past=past))
        except DataError as error:
            # a metric that a side did not measure is left out
            if error.code != "compare.no-metric":
                raise
    found = MoreComparison.model_validate(
        {**first.to_json(), "more": [metric.to_json() for metric in more]}
    )
    return report_with_baseline(
        report, found, not any(metric.regression for metric in compared_metrics(found))
    )


def without_comparison(report: Report, error: EdgekitError, reasons: Sequence[str] = ()) -> Report:
    """Returns a report with the reason why it was not compared; its gate is not judged.

    Args:
        report: A run's report.
        error: The error of the comparison.
        reasons: Reasons that replace the error's message, if there are several.
    """
    messages = list(reasons) or [error.message, *error.details]
    refused = Refused(code=error.code, reasons=messages, where=error.where)
    return report_with_baseline(report, RefusedComparison(refused=refused), None)


def refused_words(baseline: RefusedComparison) -> str:
    """Returns "not compared: ..." as text for the user."""
    refused = baseline.refused
    where = f" ({refused.where})" if refused.where else ""
    return f"not compared: {'; '.join(refused.reasons)}{where}"


def metric_name(metric: str) -> str:
    """Returns the display name of a comparison's metric."""
    return _METRIC_NAMES.get(metric, metric)


def compared_metrics(baseline: MoreComparison) -> list[Comparison]:
    """Returns the comparison of each metric, that of the median latency first."""
    return [baseline, *baseline.more]


def compared_words(baseline: MoreComparison) -> list[str]:
    """Returns a line per metric: both values and the answer."""
    return [
        f"{metric_name(metric.metric)}: {' -> '.join(compared_values(metric))}, {headline(metric)}"
        for metric in compared_metrics(baseline)
    ]


def regression_words(baseline: MoreComparison) -> str:
    """Returns the metrics that are worse by more than the threshold; "" if none."""
    worse = [
        f"{metric_name(metric.metric).lower()} {ratio_words(metric)}"
        for metric in compared_metrics(baseline)
        if metric.regression
    ]
    if not worse:
        return ""
    limit = f"{100 * baseline.threshold:.3g} %"
    return f"worse than the baseline by more than {limit}: {'; '.join(worse)}"


def compared_notes(baseline: MoreComparison) -> list[str]:
    """Returns the notes of all metrics, each once; with the metric's name if not all have it."""
    every = compared_metrics(baseline)
    found: dict[str, None] = {}
    for metric in every:
        for note in metric.notes:
            if all(note in other.notes for other in every):
                found[note] = None
            else:
                found[f"{metric_name(metric.metric)}: {note}"] = None
    return list(found)


def report_with_baseline(
    report: Report, baseline: MoreComparison | RefusedComparison, passed: bool | None
) -> Report:
    """Returns a report with a comparison and its gate."""
    worse = regression_words(baseline) if isinstance(baseline, MoreComparison) else ""
    message = {"message": worse} if worse else {}
    gate = Gate(gate="baseline", passed=passed, found=None, limit=None, **message)
    # a report that is compared again keeps one such gate
    gates = [other for other in report.verdict.gates if other.gate != "baseline"]
    verdict = report.verdict.model_copy(update={"gates": [*gates, gate]})
    return report.model_copy(update={"baseline": baseline, "verdict": verdict})


def headline(compared: Comparison) -> str:
    """Returns the answer with its interval."""
    return f"{compared.verdict}{after_verdict(compared)}"


def after_verdict(compared: Comparison) -> str:
    """Returns the headline's part after the verdict: the interval and the regression."""
    words = f", {ratio_words(compared)}"
    limit = percent(compared.threshold)
    if compared.regression:
        return f"{words}: a regression of more than {limit}"
    if compared.regression_possible:
        return f"{words}; a regression of more than {limit} cannot be ruled out"
    return words


def ratio_words(compared: Comparison) -> str:
    """Returns the change from A's value to B's: "+3.1 % (+2.9 to +3.4 %, 95 %)"."""
    ratio = compared.ratio
    middle = text.change(100 * (ratio.estimate - 1))
    if ratio.low is None or ratio.high is None:
        return f"{middle} (how sure is not known)"
    low, high = (text.change(100 * (end - 1)) for end in (ratio.low, ratio.high))
    return f"{middle} ({low} to {high}, {100 * ratio.confidence:.4g} % confidence)"


def compared_values(compared: Comparison) -> tuple[str, str]:
    """Returns the two sides' values with their unit."""
    unit = compared.unit
    return value_words(compared.a.value, unit), value_words(compared.b.value, unit)


def value_words(value: float, unit: str) -> str:
    """Returns a metric's value with its unit."""
    if unit == "ms":
        return text.measured_time(value)
    if unit == "uJ":
        return text.energy(value)
    return f"{text.significant(value)} {unit}"
