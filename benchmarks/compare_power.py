"""False alarms and power of `edgekit compare`, by simulation.

    python benchmarks/compare_power.py [--pairs 200] [--samples 1000]

Each pair is two runs of the same level (or of one level and one 1 % above) with a spread of 1 %
and a memory: AR(1) of that coefficient, a linear drift of random slope, or a random walk that
forgets in a third of the run, which no single run can tell from a difference.

With 80 pairs of 1,000 samples, spread 1 %, confidence 95 %, on 2026-11-29:

      memory  told apart, equal  told apart, 1 %  half width
           0              5.0%           100.0%      0.13%
         0.5              6.2%           100.0%      0.20%
         0.9              5.0%           100.0%      0.46%
        0.98              7.5%            62.5%      0.83%
       drift              0.0%            77.5%      0.64%
        walk             51.2%            61.3%      0.78%
"""

from __future__ import annotations

import argparse
import random
import statistics

from edgekit.benchmark.document import Bench
from edgekit.results.comparison import compare
from edgekit.results.store import Result


def run(kind: str, count: int, level: float, source: random.Random) -> Result:
    """Returns a simulated run."""
    memory = 0.3 if kind in ("drift", "walk") else float(kind)
    slow, slope = source.gauss(0, 1), source.gauss(0, 2)
    state, samples = source.gauss(0, 1), []
    forget = 1 - 3 / count
    for number in range(count):
        state = memory * state + (1 - memory**2) ** 0.5 * source.gauss(0, 1)
        slow = forget * slow + (1 - forget**2) ** 0.5 * source.gauss(0, 1)
        extra = {"drift": slope * (number / count - 0.5), "walk": slow}.get(kind, 0.0)
        samples.append(level * (1 + 0.01 * (state + extra)))
    latency = {"median": statistics.median(samples)}
    return Result(
        Bench(schema="edgekit.bench/1", clock="board-measured", latency_ms=latency),
        tuple(samples),
        "run",
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--samples", type=int, default=1000)
    given = parser.parse_args()
    print(f"{given.pairs} pairs of {given.samples} samples, spread 1 %, confidence 95 %")
    print(f"{'memory':>8} {'told apart, equal':>18} {'told apart, 1 %':>16} {'half width':>11}")
    for kind in ("0", "0.5", "0.9", "0.98", "drift", "walk"):
        source = random.Random(1)
        shares, widths = [], []
        for ratio in (1.0, 1.01):
            reported = 0
            for _ in range(given.pairs):
                a, b = (run(kind, given.samples, level, source) for level in (2.0, 2.0 * ratio))
                found = compare([a], [b])
                reported += found.direction in ("better", "worse")
                assert found.ratio.low is not None
                assert found.ratio.high is not None
                widths.append((found.ratio.high - found.ratio.low) / 2)
            shares.append(reported / given.pairs)
        print(f"{kind:>8} {shares[0]:>17.1%} {shares[1]:>16.1%} {statistics.median(widths):>10.2%}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
