"""Pools that limit loadables, against every placement of small graphs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

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
    make: object, objective: str
) -> None:
    assert callable(make)
    for seed in range(9):
        problem = make(seed, *[(9, 40.0, 3), (10, 30.0, 4), (9, 45.0, 2)][seed % 3])
        case = Case(problem, Goal.of(problem, objective), objective, ())
        assert not disagreement(case), seed


@pytest.mark.whole
def test_as_many_loadables_as_fit_of_a_tight_pool_are_proved() -> None:
    problem = pooled_problem(1, 28, 40.0, 8)
    found = minimise(problem, Goal.of(problem, "latency"), seconds=30.0)
    assert found.placing is not None
    assert found.placing.value - found.bound <= 1e-4 * found.placing.value
    loadables = [step for step in found.placing.steps if step.device == DLA]
    assert len(loadables) <= 8
    needs = problem.pools[0].needs
    assert all(sum(needs[v] for v in step.nodes) <= 40 for step in loadables)
