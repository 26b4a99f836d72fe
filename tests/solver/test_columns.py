"""Pools that limit loadables, against every placement and every set of small graphs."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest

from edgekit.solver import optimiser
from edgekit.solver.columns import Pricing
from edgekit.solver.loadables import Reach
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Border, Cost, Goal, PlacementProblem
from tests.solver.brute import disagreement
from tests.solver.cases import Case, pooled_problem

DLA = 1


def dear_gpu(seed: int, count: int, limit: float, slots: int) -> PlacementProblem:
    """Returns a graph of few edges that wants full loadables, which then wait for each other."""
    rng = random.Random(seed)
    costs = tuple(
        (
            Cost((rng.uniform(200, 900), 0, 0)),
            Cost((0, rng.uniform(10, 60), 0)) if rng.random() < 0.85 else None,
        )
        for _ in range(count)
    )
    before = [[u for u in range(v) if rng.random() < 1.2 / (v + 1)] for v in range(count)]
    borders = tuple(
        Border(u, users)
        for u in range(count)
        if (users := tuple(v for v in range(count) if u in before[v]))
    )
    return replace(pooled_problem(seed, count, limit, slots), costs=costs, borders=borders)


@pytest.mark.few(2)
@pytest.mark.parametrize("objective", ["latency", "gpu_time"])
@pytest.mark.parametrize("make", [pooled_problem, dear_gpu])
def test_loadables_of_a_tight_pool_agree_with_trying_everything(
    make: object, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # such small pools are else decided before a loadable becomes a column
    monkeypatch.setattr(optimiser, "SKETCH_ROUNDS", 0)
    assert callable(make)
    for seed in range(9):
        problem = make(seed, *[(9, 40.0, 3), (10, 30.0, 4), (9, 45.0, 2)][seed % 3])
        case = Case(problem, Goal.of(problem, objective), objective, ())
        assert not disagreement(case), seed


@pytest.mark.parametrize("seed", range(4))
def test_every_set_that_gains_enough_is_found_and_convex(seed: int) -> None:
    problem = pooled_problem(seed, 9, 60.0, 3)
    rng = random.Random(seed)
    gain = {v: rng.uniform(-5, 10) for v in range(9)}
    reach = Reach(problem)
    wanted = set()
    for size in range(1, 10):
        for nodes in combinations(range(9), size):
            mask = sum(1 << v for v in nodes)
            between = [
                w for w in range(9)
                if not mask >> w & 1 and reach.up[w] & mask and reach.down[w] & mask
            ]  # fmt: skip
            full = sum(problem.pools[0].needs[v] for v in nodes) > 60
            if not between and not full and sum(gain[v] for v in nodes) >= 3.0:
                wanted.add(nodes)
    pricing = Pricing(problem, 0, range(9))
    assert set(pricing.every(gain, 3.0, 1000) or ()) == wanted
    found, most = pricing.best(gain, 3.0)
    top = max((sum(gain[v] for v in nodes) for nodes in wanted), default=3.0)
    assert most == pytest.approx(top)
    assert set(found) <= wanted
    assert not found or sum(gain[v] for v in found[0]) == pytest.approx(top)
    few = pricing.every(gain, 3.0, max(0, len(wanted) - 1))
    assert few is None or not wanted


def test_as_many_loadables_as_fit_of_a_tight_pool_are_proved() -> None:
    problem = pooled_problem(1, 28, 40.0, 8)
    found = minimise(problem, Goal.of(problem, "latency"), seconds=30.0)
    assert found.placing is not None
    assert found.placing.value - found.bound <= 1e-4 * found.placing.value
    loadables = [step for step in found.placing.steps if step.device == DLA]
    assert len(loadables) <= 8
    needs = problem.pools[0].needs
    assert all(sum(needs[v] for v in step.nodes) <= 40 for step in loadables)
