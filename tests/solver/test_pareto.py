"""Fronts against every plan there is."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from edgekit.errors import UsageError
from edgekit.solver.optimiser import pareto
from edgekit.solver.problem import Goal, PlacementProblem
from tests.solver.plans import every_plan
from tests.solver.test_mix import branching

PLACES = {"latency_us": 0, "energy_uj": 1, "gpu_us": 2, "period_us": 3}


def front_of(
    problem: PlacementProblem, names: tuple[str, str], bounds: dict[str, float]
) -> list[Any]:
    """Returns what no plan beats in both metrics."""
    goal = Goal(Goal.of(problem, "latency").weights, bounds=bounds)
    found = set()
    for plan in every_plan(problem, goal):
        *loads, energy = plan.loads
        have = (sum(loads), energy, loads[0], max(loads[:-1]))
        one, other = (float(have[PLACES[name]]) for name in names)
        found.add((round(one, 8), round(other, 8)))
    retained: list[tuple[float, float]] = []
    for point in sorted(found):
        if not retained or point[1] < retained[-1][1] - 1e-4 * abs(retained[-1][1]):
            retained.append(point)
    return retained


def problem_of(seed: int) -> PlacementProblem:
    rng = random.Random(seed)
    problem = branching(rng, 5, 1 + seed % 2, twins=seed % 4 < 2, slots=2)
    costs = tuple(  # energy of its own, so that it is at odds with the time
        tuple(
            cost and replace(cost, energy_uj=rng.uniform(1, 30) * (1 if m else 3))
            for m, cost in enumerate(row)
        )
        for row in problem.costs
    )
    return replace(problem, costs=costs)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("seed", "names"),
    [
        (1, ("latency_us", "energy_uj")),
        (2, ("latency_us", "energy_uj")),
        (3, ("energy_uj", "gpu_us")),
        (4, ("latency_us", "gpu_us")),
        (5, ("latency_us", "period_us")),
    ],
)
def test_front_agrees_with_all_plans(seed: int, names: tuple[str, str]) -> None:
    problem = problem_of(seed)
    expected = front_of(problem, names, {})
    found = pareto(problem, names, limit=100)
    assert found is not None
    assert found.complete
    assert found.resolution == (0.0, 0.0)
    assert [p.first for p in found.points] == pytest.approx([e[0] for e in expected], rel=1e-5)
    assert [p.second for p in found.points] == pytest.approx([e[1] for e in expected], rel=1e-5)
    assert all(point.optimal for point in found.points)


def test_a_front_is_thinned_and_says_how_far() -> None:
    problem = problem_of(2)
    names = ("latency_us", "energy_uj")
    expected = front_of(problem, names, {})
    found = pareto(problem, names, limit=4)
    assert found is not None
    assert len(expected) > len(found.points) >= 4
    assert not found.complete
    assert 0 < max(found.resolution) < 1
    points = [(point.first, point.second) for point in found.points]
    for point in points:
        assert any(point == pytest.approx(other, rel=1e-5) for other in expected)
    width, height = points[-1][0] - points[0][0], points[0][1] - points[-1][1]
    for first, second in expected:  # what is missing is as near as it says
        near = [p for p in points if p[0] <= first * (1 + 1e-5)][-1]
        assert first - near[0] <= found.resolution[0] * width + 1e-3
        assert near[1] - second <= found.resolution[1] * height + 1e-3


def test_bounds_hold_and_can_be_too_tight() -> None:
    problem = problem_of(2)
    names = ("latency_us", "energy_uj")
    free = front_of(problem, names, {})
    bound = {"gpu_us": 20.0, "energy_uj": free[0][1] * 0.8}
    expected = front_of(problem, names, bound)
    found = pareto(problem, names, bounds=bound)
    assert found is not None
    assert [p.first for p in found.points] == pytest.approx([e[0] for e in expected], rel=1e-5)
    assert pareto(problem, names, bounds={"latency_us": 0.1}) is None


def test_what_is_no_front_is_refused() -> None:
    problem = problem_of(1)
    for names in (("latency_us",), ("latency_us",) * 2, ("latency_us", "joy"), ()):
        with pytest.raises(UsageError, match="two different metrics"):
            pareto(problem, names)
    with pytest.raises(UsageError, match="at least two"):
        pareto(problem, limit=1)
