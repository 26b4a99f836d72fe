"""The optimiser against brute force over every assignment of small branching graphs."""

from __future__ import annotations

import pytest

from edgekit.placement._goal import Goal
from edgekit.placement._loadables import run_in_order
from edgekit.placement._optimum import minimise
from edgekit.placement._problem import Problem
from tests.placement.placement_brute import brute, random_problem

GOALS = ("latency", "energy", "gpu", "period")


def goal_of(problem: Problem, name: str, bounds: dict[str, float] | None = None) -> Goal:
    ones = (1.0,) * len(problem.devices)
    weights = {"latency": ones, "energy": problem.watts, "gpu": (1.0, 0.0, 0.0)[: len(ones)]}
    return Goal(weights.get(name), bounds or {})


@pytest.mark.parametrize("seed", range(100))
def test_one_core_agrees_with_brute_force(seed: int) -> None:
    problem = random_problem(seed, kernels=8, cores=1, slots=(1, 2, 16)[seed % 3])
    for name in GOALS:
        goal = goal_of(problem, name)
        best, ways = brute(problem, goal.value)
        found = minimise(problem, goal)
        if not ways:
            assert found.placing is None
            continue
        assert found.placing is not None
        assert found.placing.value == pytest.approx(best, rel=2e-5)
        assert found.bound <= best * (1 + 1e-6)
        assert found.bound >= best * (1 - 1e-4)


@pytest.mark.parametrize("seed", range(100))
def test_two_cores_agree_with_brute_force(seed: int) -> None:
    slots = (1, 2, 16)[seed % 3]
    problem = random_problem(1000 + seed, kernels=6, cores=2, twins=seed % 2 == 0, slots=slots)
    for name in GOALS:
        goal = goal_of(problem, name)
        best, ways = brute(problem, goal.value)
        found = minimise(problem, goal)
        if not ways:
            assert found.placing is None
            continue
        assert found.placing is not None
        assert found.placing.value == pytest.approx(best, rel=1e-4)
        assert found.bound <= best * (1 + 1e-6)
        assert found.bound >= best * (1 - 1e-4)


@pytest.mark.parametrize("seed", range(60))
def test_bounds_agree_with_brute_force(seed: int) -> None:
    problem = random_problem(2000 + seed, kernels=7, cores=1 + seed % 2)
    free, _ = brute(problem, sum)
    bounds = {"latency_us": free * (1.02 + 0.1 * (seed % 5))}
    for name in ("gpu", "energy", "period"):
        goal = goal_of(problem, name, bounds)
        best, ways = brute(problem, goal.value, bounds)
        found = minimise(problem, goal)
        assert ways
        assert found.placing is not None
        assert found.placing.value == pytest.approx(best, rel=1e-4)
        assert found.bound >= best * (1 - 1e-4)


def test_a_bound_that_nothing_meets_has_no_placing() -> None:
    problem = random_problem(5, kernels=7, cores=1)
    best, _ = brute(problem, sum)
    assert minimise(problem, goal_of(problem, "gpu", {"latency_us": best * 0.99})).placing is None


@pytest.mark.parametrize("seed", range(80))
def test_ties_go_to_fewer_transitions(seed: int) -> None:
    problem = random_problem(3000 + seed, kernels=6, cores=1)
    goal = goal_of(problem, "latency")
    _, ways = brute(problem, goal.value)
    found = minimise(problem, goal).placing
    if found is None:
        assert not ways
        return

    def changes(devices: tuple[int, ...], sequence: tuple[int, ...]) -> int:
        return len(run_in_order(problem, devices, sequence)) - 1

    fewest = min(changes(d, (1,) * counts.get(1, 0)) for d, counts in ways)
    assert changes(found.devices, found.sequence) == fewest


def test_same_problem_same_answer() -> None:
    problem = random_problem(7, kernels=9, cores=2)
    answers = {minimise(problem, goal_of(problem, name)) for name in ("period",) for _ in range(3)}
    assert len(answers) == 1
