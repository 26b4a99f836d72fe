"""The document `edgekit.compare/1`: compares measurements B with measurements A, and explains
whether the comparison is fair and how sure the result is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from edgekit.documents import ClockName, Count, Document, Figure, Fraction
from edgekit.errors import DataError, UsageError
from edgekit.results.differences import (
    FEWEST_RUNS,
    Difference,
    Measure,
    Metric,
    Repeating,
    Spread,
    difference,
    find_metric,
    measure,
    parts,
    ratio_interval,
    spread_between_runs,
)
from edgekit.results.store import Result, history_row, is_same_measurement
from edgekit.text import percent
from edgekit_device.protocol.codec import write

# measurements that differ in these cannot be compared
_SAME: tuple[tuple[str, Callable[[Result], Any]], ...] = (
    ("clock", lambda result: result.document.clock),
    ("board", lambda result: result.board or None),
    ("machine", lambda result: result.host or None),
    ("power mode", lambda result: result.power_mode),
    ("target", lambda result: result.document.target),
)
# often the subject of the comparison, so a difference here is no objection
_MAY_DIFFER: tuple[tuple[str, Callable[[Result], Any]], ...] = (
    ("configuration", lambda result: result.name),
    ("bundle", lambda result: result.bundle and result.bundle[:12]),
    ("commit", lambda result: result.git and result.git.commit[:12] + "+" * result.git.dirty),
    ("precision", lambda result: result.document.precision),
    ("backend", lambda result: result.document.backend),
)
_DRIFT = 0.02  # of a run's median, from its first third to its last
_SAMPLES_FOR_DRIFT = 30
_LONGER = 2  # earlier runs count if they have at most this many times the frames
# noise alone exceeds this drift once in a hundred runs; each comparison tests two runs or more
_SURE = 0.99
SCHEMA: Final = "edgekit.compare/1"


Direction = Literal["better", "worse", "same", "unknown"]


class ComparedRun(Document):
    """A run of a side.

    Attributes:
        id: The result's number in the history.
        at: Time of the measurement, in seconds of Unix time.
        value: Value of the metric, in the metric's unit.
        samples: Number of single values.
    """

    label: str
    id: Count | None
    at: Figure | None
    name: str
    value: Figure
    samples: Count
    clock: ClockName | None
    verdict: str | None
    board: str
    power_mode: str | None
    bundle: str | None
    commit: str | None
    dirty: bool | None


class Side(Document):
    """The runs of a side, and the median of their values.

    Attributes:
        value: Median of the runs, in the metric's unit.
    """

    label: str
    value: Figure
    runs: list[ComparedRun]


class Ratio(Document):
    """The ratio B / A with its confidence interval; the ends are null if it cannot be computed.

    Attributes:
        estimate: B over A.
        low: Lower end of the interval.
        high: Upper end of the interval.
        confidence: Confidence of the interval, 0 to 1.
    """

    estimate: Figure
    low: Figure | None
    high: Figure | None
    confidence: Fraction


class Method(Document):
    """How the interval was computed."""

    name: Repeating = Field(
        description="the repeated unit: the runs, earlier runs of one release in the history, the "
        "eighths of one run a side (documents of former versions), or none"
    )


class Other(Document):
    """Another difference between the sides, with its values as text."""

    what: str
    a: str
    b: str


class Comparison(Document):
    """B, the new measurements, compared with A."""

    schema_: Literal["edgekit.compare/1"] = Field(alias="schema")
    metric: str
    unit: str
    better: Literal["lower", "higher"]
    threshold: Figure = Field(description="the fraction by which B may be worse")
    a: Side
    b: Side
    ratio: Ratio
    method: Method
    verdict: str
    direction: Direction
    regression: bool = Field(description="the whole interval is worse than the threshold")
    regression_possible: bool = Field(description="a part of the interval is worse")
    differences: list[Other]
    forced: list[str] = Field(description="why they should not be compared")
    notes: list[str]


def describe_value(value: Any) -> str:
    """Returns a value as text: "on" for true, "1.5" for 1.5, "a, b" for a list, "" if unset."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        pairs = ((key, describe_value(item)) for key, item in value.items())
        return ", ".join(f"{key} {text}" for key, text in pairs if text)
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(describe_value, value)))
    return str(value)


def refuse_predictions(results: Sequence[Result]) -> None:
    """Refuses predictions.

    Raises:
        DataError: A result is a prediction, or its source is not recorded.
    """
    for result in results:
        lacking = [
            name for name in ("clock", "latency_ms") if name not in result.document.model_fields_set
        ]
        if lacking:
            raise DataError(
                f"the bench document has no {' and no '.join(lacking)}: it is cut off, or not "
                "from edgekit bench",
                code="compare.form",
                where=result.label,
                hint="give a bench.json from edgekit bench",
            )
        if result.document.clock == "predicted" or not result.document.latency_ms:
            raise DataError(
                "it is a prediction, but only measurements can be compared",
                code="compare.predicted",
                where=result.label,
                hint="measure with edgekit bench, or compare predictions with edgekit plan",
            )


def objections(a: Sequence[Result], b: Sequence[Result]) -> list[str]:
    """Returns reasons against a comparison of the sides, which --force overrides."""
    found = []
    for result in [*a, *b]:
        if result.verdict == "INVALID":
            reasons = result.document.verdict.reasons if result.document.verdict else ()
            codes = ", ".join(reason.code for reason in reasons)
            found.append(f"{result.label} is INVALID" + (f" ({codes})" if codes else ""))
    for what, value in _SAME:
        values = _values([*a, *b], value)
        if len(values) > 1:
            found.append(f"the {what} differs: {', '.join(values)}")
    return found


def other_differences(a: Sequence[Result], b: Sequence[Result]) -> list[Other]:
    """Returns the other differences between the sides.

    A fact that one side does not record is no difference: :func:`unknown_facts`.
    """
    return [
        Other(what=what, a=", ".join(one), b=", ".join(other))
        for what, one, other in _side_facts(a, b)
        if one and other and sorted(one) != sorted(other)
    ]


def unknown_facts(a: Sequence[Result], b: Sequence[Result]) -> list[str]:
    """Returns notes on facts that only one side records."""
    found: dict[str, list[str]] = {"A": [], "B": []}
    for what, one, other in _side_facts(a, b):
        if bool(one) != bool(other):
            found["B" if one else "A"].append(what)
    return [f"not known for {side}: {', '.join(names)}" for side, names in found.items() if names]


def _side_facts(
    a: Sequence[Result], b: Sequence[Result]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields each fact's name with its values on side A and on side B."""
    for what, value in _MAY_DIFFER:
        yield what, _values(a, value), _values(b, value)
    for what in ("settings", "runtime", "fingerprint"):
        sides = [[_flatten(_facts(result, what)) for result in side] for side in (a, b)]
        for key in sorted({key for side in sides for flat in side for key in flat}):
            one, other = (
                list(dict.fromkeys(flat[key] for flat in side if key in flat)) for side in sides
            )
            yield f"{what}: {key}", one, other


def _facts(result: Result, what: str) -> Mapping[str, object]:
    """Returns settings, each requested value replaced by the runtime's effective flag."""
    if what == "fingerprint":
        return result.fingerprint
    if what == "runtime":
        return dict(write(result.runtime))
    flags = result.runtime.flags or {}
    # a requested setting that the runtime did not apply would show a difference that is none
    return {key: value for key, value in write(result.settings).items() if key not in flags}


def _values(results: Sequence[Result], value: Callable[[Result], Any]) -> list[str]:
    found = (value(result) for result in results)
    return list(dict.fromkeys(str(name) for name in found if name is not None))


def _flatten(mapping: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Returns the leaves of a document by their path, without notes."""
    found: dict[str, str] = {}
    for key, value in mapping.items():
        # notes are for people, and their wording changes
        if key == "notes":
            continue
        if isinstance(value, Mapping):
            found |= _flatten(value, f"{prefix}{key}.")
        elif value is not None:
            found[f"{prefix}{key}"] = describe_value(value)
    return found


def remarks(a: Sequence[Result], b: Sequence[Result], spread: Spread | None) -> list[str]:
    """Returns notes for people.

    Args:
        a: The runs of A.
        b: The runs of B.
        spread: Spread of earlier runs of one release, used if each side has one run.
    """
    distinct = {result.label: result for result in [*a, *b]}.values()
    drifting = filter(None, map(_drift_note, distinct))
    return [*_run_notes(a, b, spread), *_shared_note(a, b), *drifting]


def drift(samples: Sequence[float]) -> float | None:
    """Returns the change of the median from the first third of a run to its last.

    Returns None if the change is less than a fiftieth, or within the noise of the thirds.

    Args:
        samples: Times in ms, in the order of their measurement.
    """
    third = len(samples) // 3
    if len(samples) < _SAMPLES_FOR_DRIFT or min(samples) <= 0:
        return None
    first, last = samples[:third], samples[-third:]
    ends = ratio_interval(parts(first, 50), parts(last, 50), _SURE)
    change = statistics.median(last) / statistics.median(first) - 1
    if ends is None or ends[0] <= 1 <= ends[1] or abs(change) <= _DRIFT:
        return None
    return change


def _drift_note(result: Result) -> str:
    found = drift(result.samples)
    if found is None:
        return ""
    why = (
        "it was not warmed up, or something else was busy at the start; try a longer warm-up"
        if found < 0
        else "it got hot, its clocks fell, or something else became busy; a longer warm-up "
        "shows the long-term latency"
    )
    return (
        f"{result.label}: the latency drifts by {100 * found:+.1f} % from the first to "
        f"the last third of the run, more than its noise: {why}"
    )


def _run_notes(a: Sequence[Result], b: Sequence[Result], spread: Spread | None) -> list[str]:
    notes = []
    if len(a) == len(b) == 1:
        if is_same_measurement(a[0], b[0]):
            pass  # the verdict already reports it
        elif spread is None:
            notes.append(
                "only one run on each side, and the history has fewer than four runs of one "
                "release here, which would show how much runs differ: measure each side several "
                "times, and compare all of its runs"
            )
        else:
            notes.append(
                f"only one run on each side: the interval is how far {spread.runs} earlier runs "
                f"of one release were apart here, up to {percent(spread.largest - 1)}"
            )
    elif len(a) + len(b) < FEWEST_RUNS:
        notes.append("three runs are too few for an interval: compare two or more on each side")
    elif min(len(a), len(b)) == 1:
        notes.append(
            "one side has only one run: it is assumed to vary between runs like the other side"
        )
    return notes


def _shared_note(a: Sequence[Result], b: Sequence[Result]) -> list[str]:
    """Returns a note on results that are on both sides, possibly under different names."""
    shared = [run for run in b if any(is_same_measurement(run, other) for other in a)]
    if not shared:
        return []
    if len(shared) == len(b) == len(a):
        return ["A and B are the same measurement"]
    return [f"both sides contain {', '.join(sorted({run.label for run in shared}))}"]


def compare(
    a: Sequence[Result],
    b: Sequence[Result],
    *,
    metric: str = "latency.median",
    threshold: float = 0.05,
    confidence: float = 0.95,
    force: bool = False,
    past: Sequence[Result] = (),
) -> Comparison:
    """Compares measurements: B, the new ones, with A.

    Args:
        a: One or several runs.
        b: One or several runs.
        metric: A name of ``METRICS``.
        threshold: Allowed deterioration of B, as a fraction: 0.05 for 5 %.
        confidence: Confidence of the interval, 0 to 1.
        force: Also compare INVALID results and results of other boards, power modes or clocks.
        past: Results of the history. If each side has one run, the spread between earlier runs of
            one release with the same settings gives the interval.

    Returns:
        ``ratio`` is B / A with its interval. ``verdict`` is "faster" or "slower" ("less energy",
        "more energy") if the interval excludes 1; "no difference" if it includes 1 and is within
        the threshold; otherwise "cannot tell". ``direction`` is the verdict in words for any
        metric. ``regression`` is true if the whole interval is worse than the threshold,
        ``regression_possible`` if a part is.

    Raises:
        DataError: A result is a prediction, the sides may not be compared
            (``compare.not-alike``, without ``force``), or a run lacks the metric.
        UsageError: The metric is unknown, or threshold or confidence is out of range.
    """
    if not 0 <= threshold < 1:
        raise UsageError(
            f"the threshold {threshold:g} is not a fraction from 0 to 1",
            code="compare.threshold",
            where="threshold",
            hint="0.05 is 5 %",
        )
    if not 0.5 <= confidence <= 0.9999:
        raise UsageError(
            f"the confidence {confidence:g} is not between 0.5 and 0.9999",
            code="compare.confidence",
            where="confidence",
            hint="the usual one is 0.95",
        )
    chosen = find_metric(metric)
    refuse_predictions([*a, *b])
    against = objections(a, b)
    if against and not force:
        raise _objection_error(against)
    sides = [[_require_measure(result, chosen) for result in side] for side in (a, b)]
    single = len(a) == len(b) == 1
    spread = _past_spread(a[0], b[0], past, chosen) if single else None
    found = difference(sides[0], sides[1], confidence, spread)
    if single and is_same_measurement(a[0], b[0]):
        # a measurement compared with itself: the ratio is exact
        found = Difference(found.ratio, found.ratio, found.ratio)
    verdict, direction = _verdict(found, chosen, threshold)
    worst = _worse_by(found, chosen)
    limit = 1 + threshold
    return Comparison(
        schema=SCHEMA,
        metric=chosen.name,
        unit=chosen.unit,
        better="lower" if chosen.lower else "higher",
        threshold=threshold,
        a=_side(a, sides[0]),
        b=_side(b, sides[1]),
        ratio=Ratio(estimate=found.ratio, low=found.low, high=found.high, confidence=confidence),
        method=Method(name=found.method),
        verdict=verdict,
        direction=direction,
        regression=worst is not None and worst[0] > limit,
        regression_possible=worst is None or worst[1] > limit,
        differences=other_differences(a, b),
        forced=against,
        notes=[*remarks(a, b, spread), *unknown_facts(a, b)],
    )


def _past_spread(a: Result, b: Result, past: Sequence[Result], metric: Metric) -> Spread | None:
    """Returns the spread between runs of one release with the settings of A and B."""
    names, frames = {a.name, b.name}, min(_frames(a), _frames(b))
    releases: dict[tuple[object, ...], list[float]] = {}
    for earlier in past:
        alike = (
            earlier.name in names
            and earlier.bundle is not None
            and earlier.verdict != "INVALID"
            # longer runs vary less
            and _frames(earlier) <= _LONGER * frames
            and not any(is_same_measurement(earlier, other) for other in (a, b))
            and all(len(_values([a, earlier], value)) < 2 for _, value in _SAME)
        )
        found = measure(earlier, metric) if alike else None
        if found is not None:
            # runs of one release vary only by chance if their settings and machine are the same
            key = earlier.name, earlier.bundle, str(write(earlier.settings)), earlier.host
            releases.setdefault(key, []).append(found.value)
    return spread_between_runs([*releases.values()])


def _frames(result: Result) -> int:
    return len(result.samples) or result.document.iterations or 0


def _objection_error(against: Sequence[str]) -> DataError:
    error = DataError(
        f"these measurements cannot be compared: {against[0]}",
        code="compare.not-alike",
        hint="measure again under the same conditions, or compare anyway with edgekit "
        "compare --force",
    )
    error.details = tuple(against[1:])
    error.extra = {"reasons": list(against)}
    return error


def _require_measure(result: Result, metric: Metric) -> Measure:
    found = measure(result, metric)
    if found is None:
        raise DataError(
            f"the measurement has no {metric.name}",
            code="compare.no-metric",
            where=result.label,
            hint="energy needs a board with power rails"
            if metric.name == "energy"
            else "measure again with edgekit bench",
        )
    return found


def _worse_by(found: Difference, metric: Metric) -> tuple[float, float] | None:
    """Returns the least and the largest deterioration of B, as ratios above 1; None if unknown."""
    if found.low is None or found.high is None:
        return None
    # of a rate a lower ratio is worse
    return (found.low, found.high) if metric.lower else (1 / found.high, 1 / found.low)


def _verdict(found: Difference, metric: Metric, threshold: float) -> tuple[str, Direction]:
    better, worse = metric.words
    between = _worse_by(found, metric)
    if between is None:
        return "cannot tell", "unknown"
    low, high = between
    if low > 1:
        return worse, "worse"
    if high < 1:
        return better, "better"
    # as ratios both ends are equally far from 1
    if high <= 1 + threshold and low >= 1 / (1 + threshold):
        return "no difference", "same"
    return "cannot tell", "unknown"


def _side(results: Sequence[Result], measures: Sequence[Measure]) -> Side:
    runs = []
    for result, found in zip(results, measures, strict=True):
        row = history_row(result)
        runs.append(
            ComparedRun(
                label=result.label,
                id=row.id,
                at=row.at,
                name=row.name,
                value=found.value,
                samples=row.samples,
                clock=row.clock,
                verdict=row.verdict,
                board=row.board,
                power_mode=row.power_mode,
                bundle=row.bundle,
                commit=row.commit,
                dirty=row.dirty,
            )
        )
    middle = statistics.median(found.value for found in measures)
    return Side(label=", ".join(result.label for result in results), value=middle, runs=runs)
