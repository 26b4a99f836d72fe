"""How fast the optimiser proves random layered graphs, by size, cores, pool and objective.

    python benchmarks/solver.py [--seeds 2] [--seconds 60] [--only 50-pool|150|400|500]

Prints wall-clock and processor seconds on this machine (they depend on its other work; CP-SAT
works in another process, whose time is not in the second figure), the value, the proven gap, and
the steps on each device. The graphs are those of tests/solver/layered.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Goal, PlacementProblem
from tests.solver.layered import layered

SETS = {
    "50-pool": (50, {"pool": True}),
    "50-formats": (50, {"formats": True}),
    "150": (150, {}),
    "400": (400, {}),
    "400-formats": (400, {"formats": True}),
    "400-unlike": (400, {"twins": False}),
    "500": (500, {}),
}


def measure(name: str, problem: PlacementProblem, objective: str, seconds: float) -> bool:
    """Minimises and prints one line; returns whether it is proven."""
    wall, processor = time.perf_counter(), time.process_time()
    found = minimise(problem, Goal.of(problem, objective), seconds=seconds)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    if found.placing is None:
        print(f"{name:28} {objective:8} {wall:7.2f} s {processor:7.2f} s  no placement")
        return False
    value = found.placing.value
    gap = max(0.0, (value - found.bound) / value)
    steps = Counter(problem.devices[step.device] for step in found.placing.steps)
    used = " ".join(f"{device}:{steps[device]}" for device in problem.devices)
    took = f"{wall:7.2f} s {processor:7.2f} s"
    print(f"{name:28} {objective:8} {took} {value:11.2f} {gap:9.1e}  {used}", flush=True)
    return gap <= 1e-4


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="How fast the optimiser proves random graphs.")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", choices=tuple(SETS))
    given = parser.parse_args()
    proven = tried = 0
    for name, (nodes, kinds) in SETS.items():
        if given.only not in (None, name):
            continue
        for cores in (1, 2):
            for objective in ("latency", "energy", "period"):
                for seed in range(1, given.seeds + 1):
                    problem = layered(seed, nodes, cores=cores, **kinds)
                    title = f"{name} cores {cores} seed {seed}"
                    proven += measure(title, problem, objective, given.seconds)
                    tried += 1
    print(f"{proven} of {tried} proven to a gap of 1e-4")


if __name__ == "__main__":
    main()
