"""The exact optimiser: one mixed-integer programme, with cuts where two cores need an order.

With one core the number of loadables is the largest number of entries into it along any path, so
the programme states it linearly (a level per kernel, raised on every entry, without big constants)
and is nearly a minimum cut: HiGHS proves networks of a few hundred kernels in a second. With two
cores the paths of one core bound its loadables from below, but the loadables of both need a common
order as well. That is added where a solution lacks it, as a combinatorial Benders cut over the few
kernels that force it (Hooker and Ottosson, 2003), until a solution stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgekit.placement._goal import Goal, Placing, evaluate, settle
from edgekit.placement._highs import INFINITY
from edgekit.placement._loadables import run_in_order, sequences
from edgekit.placement._model import Model
from edgekit.placement._problem import Problem

__all__ = ["Optimum", "minimise"]

ROUNDS = 40  # cuts before the answer is given with its gap
EXACT_GAP = 1e-7
TIE_SLACK = 2e-5
PERIOD_GAP = 5e-5  # of a min-max problem: proven means 1e-4
NODES = 200_000
PERIOD_WORK = 20_000  # nodes times kernels for a min-max problem: a large one keeps a gap
SECONDS = 90.0  # last resort; the node limits come first and are the same everywhere


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best placement found and a proven lower bound of the goal, infinite when none exists."""

    placing: Placing | None
    bound: float


def minimise(problem: Problem, goal: Goal, starts: Sequence[Placing] = ()) -> Optimum:
    """Returns the placement with the least goal; ``starts`` are placements to begin from."""
    if not problem.cores:
        alone = settle(problem, (0,) * len(problem.times), (), goal)
        return Optimum(alone, alone.value if alone else INFINITY)
    if goal.weights is not None and len(problem.cores) > 1 and problem.twins:
        return _as_one_core(problem, goal)
    known = [evaluate(problem, placing.devices, goal) for placing in starts]
    best = min((p for p in known if p), key=lambda p: p.value, default=None)
    found = _search(problem, goal, best, Model(problem, goal))
    if goal.weights and found.placing and found.bound < found.placing.value * (1 - TIE_SLACK):
        # the costs that decide ties weigh too much beside so small a value: settle it without them
        plain = Model(problem, goal, ties=False)
        exact = _search(problem, goal, found.placing, plain, -EXACT_GAP)
        return Optimum(exact.placing, max(found.bound, exact.bound))
    return found


def _search(
    problem: Problem, goal: Goal, best: Placing | None, model: Model, margin: float = EXACT_GAP
) -> Optimum:
    """Solves the model, adding cuts until its placement can be run as it says.

    A placement replaces one that is at most ``margin`` better: the model settles ties.
    """
    if goal.weights:
        gap, nodes = EXACT_GAP, NODES
    else:
        gap, nodes = PERIOD_GAP, max(20, PERIOD_WORK // len(problem.times))
    bound = 0.0
    for _ in range(ROUNDS):
        devices, proven = model.solve(
            gap=gap, nodes=nodes, seconds=SECONDS, start=best.devices if best else None
        )
        bound = max(bound, proven)
        if devices is None:
            break
        found = evaluate(problem, devices, goal)
        if found and (best is None or found.value <= best.value * (1 + margin)):
            best = found
        if not _cut(problem, model, devices):
            break
    if best is None:
        return Optimum(None, bound)
    return Optimum(best, min(bound, best.value))


def _cut(problem: Problem, model: Model, devices: Sequence[int]) -> bool:
    """Adds a cut when the placement needs more loadables than the paths of each core say."""
    if len(set(devices) - {0}) < 2:
        return False
    total = min(len(order) for order in sequences(problem, devices))
    if total <= sum(_longest_entries(problem, devices, core) for core in problem.cores):
        return False
    wild: list[int] = []
    for v in range(len(devices)):  # keep only the kernels without which fewer would do
        trial = sequences(problem, devices, (*wild, v))
        if min(len(order) for order in trial) == total:
            wild.append(v)
    forcing = [v for v in range(len(devices)) if v not in wild]
    model.require_loadables(devices, forcing, total)
    if problem.twins and len(problem.cores) == 2:
        swapped = [3 - d if d else 0 for d in devices]
        model.require_loadables(swapped, forcing, total)
    return True


def _longest_entries(problem: Problem, devices: Sequence[int], core: int) -> int:
    """Returns the largest number of entries into a core along any path."""
    levels: list[int] = []
    for v, before in enumerate(problem.predecessors):
        inside = devices[v] == core
        entered = [levels[u] + (inside and devices[u] != core) for u in before]
        levels.append(max(entered, default=int(inside)))
    return max(levels, default=0)


def _as_one_core(problem: Problem, goal: Goal) -> Optimum:
    """Identical cores that run one after the other are one core with the slots of all."""
    weights = goal.weights
    assert weights is not None
    many = replace(problem.only(1), max_loadables=problem.max_loadables * len(problem.cores))
    best = minimise(many, replace(goal, weights=weights[:2]))
    if best.placing is None:
        return best
    devices = list(best.placing.devices)
    sequence: list[int] = []
    for step in run_in_order(many, devices, best.placing.sequence):
        if step.device:
            sequence.append(1 + len(sequence) // problem.max_loadables)
            for v in step.kernels:
                devices[v] = sequence[-1]
    return Optimum(settle(problem, devices, sequence, goal), best.bound)
