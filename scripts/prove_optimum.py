"""Compares the optimiser with a brute force on small random problems of every kind.

scripts/prove_optimum.py --count 500            500 problems of up to 12 nodes
scripts/prove_optimum.py --first 100 --count 1  problem 100 alone

A problem agrees when the optimiser's placement keeps every constraint, has the reported cost, is at
most 0.01 % above the least value over all assignments and running orders, and is proven. Prints
the problems that do not, and a table of objectives and kinds of constraints; exit status 1 when
there are any.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.solver.brute import disagreement
from tests.solver.cases import KINDS, OBJECTIVES, random_case


def main() -> int:
    """Compares and prints."""
    parser = argparse.ArgumentParser(description="The optimiser against a brute force.")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=12)
    given = parser.parse_args()
    agreed: Counter[tuple[str, str]] = Counter()
    tried: Counter[tuple[str, str]] = Counter()
    failed = 0
    began = time.monotonic()
    for seed in range(given.first, given.first + given.count):
        case = random_case(seed, given.nodes)
        wrong = disagreement(case)
        if wrong:
            failed += 1
            print(f"{seed}: {case.objective}, {', '.join(case.kinds)}: {wrong}")
        for kind in (*case.kinds, "all"):
            tried[kind, case.objective] += 1
            agreed[kind, case.objective] += not wrong
    print(f"{'':16}" + "".join(f"{name:>12}" for name in OBJECTIVES))
    for kind in (*KINDS, "all"):
        cells = (f"{agreed[kind, name]}/{tried[kind, name]}" for name in OBJECTIVES)
        print(f"{kind:16}" + "".join(f"{cell:>12}" for cell in cells))
    print(f"{given.count - failed} of {given.count} agree; {time.monotonic() - began:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
