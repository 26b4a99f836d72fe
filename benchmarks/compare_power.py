"""False alarms and power of `edgekit compare`, by simulation.

    python benchmarks/compare_power.py [--pairs 1000]

A run is one value: samples within a run share its accidents. Runs of one release differ by the
noise of a row: normal or exponential, or every tenth run is 15 % slower. One run a side is compared
with the help of so many earlier runs of one release; several runs a side need none. "told apart,
equal" are false alarms, "10 %" and "30 %" is how often such a difference is found.

With 1,000 pairs, confidence 95 %, on 2026-11-30:

    noise                 runs  earlier   equal    10 %    30 %
    normal, 1 %              1        4    2.5%   91.8%  100.0%
    normal, 1 %              1        8    1.3%   99.4%  100.0%
    normal, 1 %              1       20    0.7%   99.9%  100.0%
    normal, 1 %              2        -    4.5%   97.7%  100.0%
    normal, 1 %              3        -    0.6%  100.0%  100.0%
    normal, 1 %              5        -    2.9%  100.0%  100.0%
    normal, 1 %             10        -    5.1%  100.0%  100.0%
    normal, 3 %              1        4    2.5%   20.6%   85.4%
    normal, 3 %              1        8    1.4%   18.5%   97.9%
    normal, 3 %              1       20    0.7%   19.5%   99.3%
    normal, 3 %              2        -    4.6%   38.3%   94.7%
    normal, 3 %              3        -    0.6%   37.4%   99.7%
    normal, 3 %              5        -    2.9%   97.5%  100.0%
    normal, 3 %             10        -    5.1%  100.0%  100.0%
    exponential, 5 %         1        4    5.9%   17.5%   62.9%
    exponential, 5 %         1        8    3.5%   13.2%   71.8%
    exponential, 5 %         1       20    1.8%    8.1%   75.0%
    exponential, 5 %         2        -    3.3%   28.0%   76.1%
    exponential, 5 %         3        -    0.9%   22.4%   83.9%
    exponential, 5 %         5        -    3.3%   70.7%   99.7%
    exponential, 5 %        10        -    4.7%   98.6%  100.0%
    a tenth 15 % slower      1        4    9.8%   30.7%   65.2%
    a tenth 15 % slower      1        8    7.6%   21.3%   61.0%
    a tenth 15 % slower      1       20    1.8%    9.9%   71.3%
    a tenth 15 % slower      2        -    4.3%   40.6%   73.9%
    a tenth 15 % slower      3        -    0.1%   37.4%   77.4%
    a tenth 15 % slower      5        -    2.3%   59.9%  100.0%
    a tenth 15 % slower     10        -    4.0%   94.5%  100.0%
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable

from edgekit.results.differences import Measure, difference, spread_between_runs

NOISE: dict[str, Callable[[random.Random], float]] = {
    "normal, 1 %": lambda source: 1 + source.gauss(0, 0.01),
    "normal, 3 %": lambda source: 1 + source.gauss(0, 0.03),
    "exponential, 5 %": lambda source: 1 + source.expovariate(20),
    "a tenth 15 % slower": lambda source: (
        (1 + source.gauss(0, 0.02)) * (1.15 if source.random() < 0.1 else 1)
    ),
}
SIDES = ((1, 4), (1, 8), (1, 20), (2, 0), (3, 0), (5, 0), (10, 0))
"""Runs a side, and earlier runs of one release."""


def share_distinguished(
    noise: Callable[[random.Random], float], runs: int, earlier: int, ratio: float, pairs: int
) -> float:
    """Returns the share of simulated pairs that are called faster or slower."""
    source, found = random.Random(1), 0
    for _ in range(pairs):
        spread = spread_between_runs([[noise(source) for _ in range(earlier)]])
        a = [Measure(noise(source)) for _ in range(runs)]
        b = [Measure(noise(source) * ratio) for _ in range(runs)]
        interval = difference(a, b, 0.95, spread)
        found += (
            interval.low is not None
            and interval.high is not None
            and not interval.low <= 1 <= interval.high
        )
    return found / pairs


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    pairs = parser.parse_args().pairs
    print(f"{'noise':<20} {'runs':>5} {'earlier':>8} {'equal':>7} {'10 %':>7} {'30 %':>7}")
    for name, noise in NOISE.items():
        for runs, earlier in SIDES:
            shares = [
                share_distinguished(noise, runs, earlier, ratio, pairs) for ratio in (1, 1.1, 1.3)
            ]
            cells = " ".join(f"{share:>7.1%}" for share in shares)
            print(f"{name:<20} {runs:>5} {earlier or '-':>8} {cells}", flush=True)


if __name__ == "__main__":
    main()
