"""The ``edgekit.compare/1`` document: B beside A, and whether that is a difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgekit.errors import DataError
from edgekit.history._alike import differing, objections, refuse_predictions, untold
from edgekit.history._bootstrap import RESAMPLES
from edgekit.history._difference import Difference, difference
from edgekit.history._metrics import Measure, Metric, measure, metric_of
from edgekit.history._remarks import remarks
from edgekit.history._types import Result

__all__ = ["SCHEMA", "compare"]

SCHEMA = "edgekit.compare/1"


def compare(
    a: Sequence[Result],
    b: Sequence[Result],
    *,
    metric: str = "latency.median",
    threshold: float = 0.05,
    confidence: float = 0.95,
    force: bool = False,
) -> dict[str, Any]:
    """Compares measurements: B, the new ones, with A.

    Args:
        a: One or several runs.
        b: One or several runs.
        metric: A name of ``METRICS``.
        threshold: By how much of itself B may be worse, 0.05 for 5 %.
        confidence: Of the interval.
        force: Compare also what is INVALID or of another board, power mode or clock.

    Returns:
        An ``edgekit.compare/1``. "ratio" is B over A with its interval. "verdict" is "faster" or
        "slower" ("less energy", "more energy") where the interval leaves 1 out; "no difference"
        where it holds 1 and stays within the threshold; otherwise "cannot tell". "direction" says
        the same for any metric: "better", "worse", "same" or "unknown". "regression" is true where
        the whole interval is worse than the threshold, "regression_possible" where a part is.

    Raises:
        DataError: Something was predicted; something may not be compared (``compare.not-alike``,
            without ``force``); or a run lacks the metric.
        UsageError: There is no such metric.
    """
    chosen = metric_of(metric)
    refuse_predictions([*a, *b])
    against = objections(a, b)
    if against and not force:
        raise _not_alike(against)
    sides = [[_measured(result, chosen) for result in side] for side in (a, b)]
    found = difference(sides[0], sides[1], confidence)
    judged = _judge(found, chosen, threshold)
    return {
        "schema": SCHEMA,
        "metric": chosen.name,
        "unit": chosen.unit,
        "better": "lower" if chosen.lower else "higher",
        "threshold": threshold,
        "a": _side(a, sides[0]),
        "b": _side(b, sides[1]),
        "ratio": {
            "estimate": found.ratio, "low": found.low, "high": found.high, "confidence": confidence,
        },
        "method": {
            "name": found.method, "degrees_of_freedom": found.freedom,
            "resamples": RESAMPLES if found.method == "block-bootstrap" else None,
            "mann_whitney_p": found.rank_p,
        },
        **judged,
        "differences": differing(a, b),
        "forced": against,
        "notes": [*remarks(a, b, sides), *untold(a, b)],
    }  # fmt: skip


def _not_alike(against: Sequence[str]) -> DataError:
    error = DataError(
        f"these measurements are not to be compared: {against[0]}",
        code="compare.not-alike",
        hint="measure again under the same conditions; edgekit compare --force does it anyway",
    )  # fmt: skip
    error.details = tuple(against[1:])
    error.extra = {"reasons": list(against)}
    return error


def _measured(result: Result, metric: Metric) -> Measure:
    found = measure(result, metric)
    if found is None:
        raise DataError(
            f"the measurement has no {metric.name}", code="compare.no-metric",
            where=result.label, hint="energy needs a board whose rails are measured"
            if metric.name == "energy" else "measure again with edgekit bench",
        )  # fmt: skip
    return found


def _judge(found: Difference, metric: Metric, threshold: float) -> dict[str, Any]:
    better, worse = metric.words
    if found.low is None or found.high is None:
        return {"verdict": "cannot tell", "direction": "unknown", "regression": False,
                "regression_possible": True}  # fmt: skip
    # how much worse B is, as a ratio above 1
    low, high = (found.low, found.high) if metric.lower else (1 / found.high, 1 / found.low)
    limit = 1 + threshold
    if low > 1:
        answer = (worse, "worse")
    elif high < 1:
        answer = (better, "better")
    elif high <= limit and low >= 1 / limit:
        answer = ("no difference", "same")
    else:
        answer = ("cannot tell", "unknown")
    return {"verdict": answer[0], "direction": answer[1], "regression": low > limit,
            "regression_possible": high > limit}  # fmt: skip


def _side(results: Sequence[Result], measures: Sequence[Measure]) -> dict[str, Any]:
    import math

    runs = [
        {
            "label": result.label, "id": result.id, "at": result.at, "name": result.name,
            "value": found.value, "samples": len(result.samples), "clock": result.clock,
            "verdict": result.verdict, "board": result.board, "power_mode": result.power_mode,
            "bundle": result.bundle, "commit": result.git.commit if result.git else None,
            "dirty": result.git.dirty if result.git else None,
            "block": found.spread.block if found.spread else None,
        }
        for result, found in zip(results, measures, strict=True)
    ]  # fmt: skip
    mean = math.exp(sum(math.log(found.value) for found in measures) / len(measures))
    return {"label": ", ".join(result.label for result in results), "value": mean, "runs": runs}
