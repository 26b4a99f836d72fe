"""Quantiles of Student's t distribution and the p value of the Mann-Whitney test."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import NormalDist

_FEW = 8  # values on one side up to which the distribution of ranks is counted, not approximated
_TINY = 1e-300
_CLOSE = 1e-15
_TERMS = 10_000
_STEPS = 200


def student_quantile(freedom: float, share: float) -> float:
    """Returns the value that a share of Student's t distribution lies below.

    Args:
        freedom: Degrees of freedom, above 0 and not necessarily whole.
        share: Between 0 and 1, both excluded.
    """
    if share < 0.5:
        return -student_quantile(freedom, 1 - share)
    low, high = 0.0, 1.0
    while _above(freedom, high) > 1 - share:
        low, high = high, 2 * high
    value = (low + high) / 2
    for _ in range(_STEPS):
        off = _above(freedom, value) - (1 - share)
        low, high = (value, high) if off > 0 else (low, value)
        following = value + off / _density(freedom, value)
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - value) <= _CLOSE * following:
            return following
        value = following
    return value


def _density(freedom: float, value: float) -> float:
    log = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    log -= (freedom + 1) / 2 * math.log1p(value * value / freedom)
    return math.exp(log) / math.sqrt(freedom * math.pi)


def _above(freedom: float, value: float) -> float:
    """The share of Student's t distribution above a value of at least 0."""
    square = value * value
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square)) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below it only
        return 1 - _incomplete_beta(b, a, 1 - x)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log += a * math.log(x) + b * math.log1p(-x)
    # Lentz's method
    above, below = 1.0, 1 / (1 - (a + b) * x / (a + 1) or _TINY)
    value = below
    for n in range(1, _TERMS):
        odd = -(a + n) * (a + b + n) * x / ((a + 2 * n) * (a + 2 * n + 1))
        even = n * (b - n) * x / ((a + 2 * n - 1) * (a + 2 * n))
        for term in (even, odd):
            below = 1 / (1 + term * below or _TINY)
            above = 1 + term / above or _TINY
            value *= above * below
        if abs(above * below - 1) < _CLOSE:
            break
    return math.exp(log) * value / a


def rank_test(one: Sequence[float], other: Sequence[float]) -> float:
    """Returns the two-sided p value of the Mann-Whitney test.

    With few values and no equal ones it is exact, else by the normal distribution with the
    corrections for ties and continuity.
    """
    n, m = len(one), len(other)
    wins = sum((a > b) + (a == b) / 2 for a in one for b in other)
    more = max(wins, n * m - wins)
    ties = Counter([*one, *other]).values()
    if min(n, m) <= _FEW and max(ties) == 1:
        ways = _rankings(n, m)
        return min(1.0, 2 * sum(ways[int(more) :]) / sum(ways))
    uneven = sum(t**3 - t for t in ties) / ((n + m) * (n + m - 1))
    deviation = math.sqrt(n * m / 12 * (n + m + 1 - uneven))
    if deviation == 0:
        return 1.0
    return min(1.0, 2 * NormalDist().cdf((n * m / 2 + 0.5 - more) / deviation))


def _rankings(n: int, m: int) -> list[int]:
    """By number of pairs in which the first side wins, how many orders of all values have it."""
    ways = [1] + [0] * (n * m)
    for i in range(1, n + 1):  # the Gaussian binomial coefficient, factor by factor
        for k in range(n * m, m + i - 1, -1):
            ways[k] -= ways[k - m - i]
        for k in range(i, n * m + 1):
            ways[k] += ways[k - i]
    return ways
