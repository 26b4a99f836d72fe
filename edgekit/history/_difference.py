"""Whether two sides differ: the interval of the ratio of their values, with runs as what repeats.

One run a side: the resamples' errors (`_bootstrap`), Student's t with as many degrees of freedom as
Welch and Satterthwaite's formula has for the blocks. Several runs: samples within one run share its
accidents (memory layout, clocks, temperature at its start), so they are no repetitions of it; what
repeats is the run, and the interval is Welch's for the means of the runs' logarithms (Kalibera and
Jones, "Rigorous benchmarking in reasonable time", ISMM 2013, section 6). A side with one run is
taken to vary between runs as the other does. A run that is too short for resamples has its lowest
and its highest time as the ends of its median: too wide, but ten times as slow is beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.history._metrics import Measure

__all__ = ["Difference", "difference"]


@dataclass(frozen=True)
class Difference:
    """The ratio of B to A.

    Attributes:
        ratio: Of the values.
        low: Lower end of its interval; None where nothing says how sure it is.
        high: Upper end.
        method: "block-bootstrap", "welch", "range" or "none".
        freedom: Degrees of freedom of Student's t.
        rank_p: Of the Mann-Whitney test on the runs; None with fewer than four a side.
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    method: str = "none"
    freedom: float | None = None
    rank_p: float | None = None


@dataclass(frozen=True)
class _Side:
    log: float
    variance: float | None
    freedom: float


def difference(a: Sequence[Measure], b: Sequence[Measure], confidence: float) -> Difference:
    """Returns how B's values relate to A's.

    Args:
        a: The runs of A, at least one.
        b: Those of B.
        confidence: Of the interval, 0 to 1.
    """
    from scipy.special import stdtrit

    several = len(a) > 1 or len(b) > 1
    sides = (_runs(a), _runs(b)) if several else (_run(a[0]), _run(b[0]))
    if several and 1 in (len(a), len(b)):
        sides = _lend(sides, len(a), len(b))
    log = sides[1].log - sides[0].log
    first, second = (side.variance for side in sides)
    if first is None or second is None:
        return Difference(math.exp(log)) if several else _ranges(a[0], b[0], confidence)
    total = first + second
    freedom = (
        total**2 / (first**2 / sides[0].freedom + second**2 / sides[1].freedom)
        if total > 0
        else max(sides[0].freedom, sides[1].freedom)
    )
    if several and 1 in (len(a), len(b)):
        freedom = max(len(a), len(b)) - 1.0
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * math.sqrt(total)
    return Difference(
        math.exp(log), math.exp(log - reach), math.exp(log + reach),
        "welch" if several else "block-bootstrap", freedom, _rank_test(a, b),
    )  # fmt: skip


def _ranges(a: Measure, b: Measure, confidence: float) -> Difference:
    """The widest ratio of one run's ends to the other's."""
    one, other = _ends(a, confidence), _ends(b, confidence)
    ratio = b.value / a.value
    if one is None or other is None:
        return Difference(ratio)
    return Difference(ratio, other[0] / one[1], other[1] / one[0], "range")


def _ends(measure: Measure, confidence: float) -> tuple[float, float] | None:
    from scipy.special import stdtrit

    if measure.spread is None:
        return measure.ends
    freedom = max(measure.spread.blocks - 1, 1)
    reach = math.exp(float(stdtrit(freedom, (1 + confidence) / 2)) * measure.spread.error)
    return measure.value / reach, measure.value * reach


def _run(measure: Measure) -> _Side:
    if measure.spread is None:
        return _Side(math.log(measure.value), None, 1)
    return _Side(
        math.log(measure.value), measure.spread.error**2, max(measure.spread.blocks - 1, 1)
    )


def _runs(measures: Sequence[Measure]) -> _Side:
    """The mean of the runs; two that agree by chance are no surer than each is by itself."""
    import statistics

    logs = [math.log(measure.value) for measure in measures]
    count, within = len(logs), _within(measures)
    if count == 1:
        return _Side(logs[0], within or None, 1)
    between = statistics.variance(logs)
    return _Side(statistics.fmean(logs), max(between, within) / count, count - 1)


def _within(measures: Sequence[Measure]) -> float:
    """The mean variance of a run's value, as far as the runs themselves tell."""
    known = [measure.spread.error**2 for measure in measures if measure.spread is not None]
    return sum(known) / len(known) if known else 0.0


def _lend(sides: tuple[_Side, _Side], a: int, b: int) -> tuple[_Side, _Side]:
    """Gives the side with one run the other's variance between runs."""
    known, count = (sides[1], b) if a == 1 else (sides[0], a)
    one = sides[0] if a == 1 else sides[1]
    between = (known.variance or 0.0) * count
    lent = _Side(one.log, max(between, one.variance or 0.0), known.freedom)
    return (lent, known) if a == 1 else (known, lent)


def _rank_test(a: Sequence[Measure], b: Sequence[Measure]) -> float | None:
    if min(len(a), len(b)) < 4:  # with fewer no outcome is rarer than 1 in 20
        return None
    from scipy.stats import mannwhitneyu

    one, other = ([measure.value for measure in side] for side in (a, b))
    return float(mannwhitneyu(one, other, alternative="two-sided").pvalue)
