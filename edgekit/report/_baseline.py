"""A report's comparison with a baseline run, one ``edgekit.compare/1`` a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError

if TYPE_CHECKING:
    from edgekit.errors import EdgekitError
    from edgekit.history import Result

__all__ = ["refused_words", "with_baseline", "without_comparison"]

_FIRST, _MORE = "latency.median", ("latency.p99", "throughput", "energy")


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


def refused_words(baseline: Mapping[str, Any]) -> str:
    """Returns "not compared, because ..." for a person; "" where it was compared."""
    refused = baseline.get("refused")
    if not isinstance(refused, Mapping):
        return ""
    where = f" ({refused['where']})" if refused.get("where") else ""
    return f"not compared, because {'; '.join(map(str, refused['reasons']))}{where}"


def _with(
    document: Mapping[str, Any], baseline: Mapping[str, Any], passed: bool | None
) -> dict[str, Any]:
    told = document.get("verdict", {})
    gates = [gate for gate in told.get("gates", ()) if gate["gate"] != "baseline"]
    gates.append({"gate": "baseline", "passed": passed, "found": None, "limit": None})
    return {**document, "baseline": dict(baseline), "verdict": {**told, "gates": gates}}
