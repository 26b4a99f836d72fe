"""Loadables as columns, against every set and every order of small graphs."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from edgekit.solver.columns import Columns, Pricing, ordered, ordering_cuts
from edgekit.solver.loadables import Reach
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import (
    Border,
    Cost,
    Effort,
    ExecutionStep,
    Goal,
    MemoryPool,
    Mode,
    PlacementProblem,
)
from edgekit.solver.program import INFINITY

GPU, DLA = 0, 1


def _random(seed: int, count: int, limit: float, slots: int) -> PlacementProblem:
    rng = random.Random(seed)
    costs = [
        (Cost((rng.uniform(20, 400), 0, 0)), Cost((0, rng.uniform(10, 300), 0)))
        for _ in range(count)
    ]
    before = [[u for u in range(v) if rng.random() < 2.5 / (v + 1)] for v in range(count)]
    borders = tuple(
        Border(u, users)
        for u in range(count)
        if (users := tuple(v for v in range(count) if u in before[v]))
    )
    needs = tuple(float(rng.randint(1, 30)) for _ in range(count))
    return PlacementProblem(
        devices=("GPU", "DLA0"),
        modes=(Mode(GPU), Mode(DLA)),
        costs=tuple(costs),
        borders=borders,
        launch=(None, Cost((0, 20, 0))),
        max_loadables=slots,
        pools=(MemoryPool("weights", limit, needs),),
    )


@pytest.mark.parametrize("seed", range(4))
def test_every_set_that_gains_enough_is_found_and_convex(seed: int) -> None:
    problem = _random(seed, 9, 60.0, 3)
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


def test_loadables_in_a_circle_are_cut_and_divided() -> None:
    nothing = Cost((0, 0, 0))
    problem = PlacementProblem(
        devices=("GPU", "DLA0"),
        modes=(Mode(GPU), Mode(DLA)),
        costs=((nothing, nothing),) * 4,
        borders=(Border(0, (1,)), Border(2, (3,))),
        launch=(None, nothing),
    )
    crossing = [ExecutionStep(0, DLA, (0, 3)), ExecutionStep(0, DLA, (1, 2))]
    assert ordered(problem, (1, 1, 1, 1), crossing) is None
    cuts = ordering_cuts(Reach(problem), [step.nodes for step in crossing])
    assert {frozenset(cut) for cut in cuts} == {frozenset({frozenset({0, 3}), frozenset({1, 2})})}
    divided = ordered(problem, (1, 1, 1, 1), crossing, split=True) or []
    assert sorted(v for step in divided for v in step.nodes) == [0, 1, 2, 3]
    assert len(divided) == 3
    straight = [ExecutionStep(0, DLA, (0, 2)), ExecutionStep(0, DLA, (1, 3))]
    assert [s.nodes for s in ordered(problem, (1, 1, 1, 1), straight[::-1]) or ()] == [
        (0, 2),
        (1, 3),
    ]


def test_as_many_loadables_as_fit_of_a_tight_pool_are_proved() -> None:
    problem = _random(1, 28, 40.0, 8)
    found = minimise(problem, Goal.of(problem, "latency"), seconds=30.0)
    assert found.placing is not None
    assert found.placing.value - found.bound <= 1e-4 * found.placing.value
    loadables = [step for step in found.placing.steps if step.device == DLA]
    assert len(loadables) <= 8
    needs = problem.pools[0].needs
    assert all(sum(needs[v] for v in step.nodes) <= 40 for step in loadables)


def test_the_programme_alone_agrees_with_the_search() -> None:
    problem = _random(3, 10, 45.0, 2)
    for objective in ("latency", "period"):
        goal = Goal.of(problem, objective)
        columns = Columns(problem, goal, None, Effort(30.0))
        columns.run()
        assert columns.best is not None
        assert -INFINITY < columns.bound <= columns.best.value * (1 + 1e-9)
        best = minimise(problem, goal).placing
        assert best is not None
        assert columns.bound <= best.value * (1 + 1e-9) <= columns.best.value * (1 + 2e-9)
