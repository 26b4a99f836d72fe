"""The optimiser against a brute force, and what it promises beside the least value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgekit.solver.evaluation import evaluate
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Cost, Goal, Mode, PlacementProblem
from tests.solver.brute import disagreement
from tests.solver.cases import KINDS, OBJECTIVES, faults, random_case
from tests.solver.layered import layered

PAIRS = len(KINDS) * len(OBJECTIVES)  # seeds after which every objective has met every kind


@pytest.mark.few(8)
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_brute_force_agrees(kind: int) -> None:
    """For every objective, twice: a small problem with this kind of constraint."""
    seeds = [
        turn * PAIRS + kind * len(OBJECTIVES) + objective
        for turn in (0, 8)
        for objective in range(len(OBJECTIVES))
    ]
    wrong = {seed: disagreement(random_case(seed, nodes=8)) for seed in seeds}
    assert not any(wrong.values()), wrong


@pytest.mark.parametrize("objective", ["latency", "energy"])
@pytest.mark.parametrize("cores", [1, 2])
def test_a_pool_and_sixteen_loadables_are_proved_on_fifty_nodes(objective: str, cores: int) -> None:
    problem = layered(2, 50, cores=cores, pool=True)
    goal = Goal.of(problem, objective)
    found = minimise(problem, goal)
    assert found.placing is not None
    assert faults(problem, goal, found.placing) == []
    assert found.placing.value - found.bound <= 1e-4 * found.placing.value


def test_five_hundred_nodes_are_proved_without_pools() -> None:
    problem = layered(1, 500, cores=2)
    goal = Goal.of(problem, "latency")
    found = minimise(problem, goal)
    assert found.placing is not None
    assert faults(problem, goal, found.placing) == []
    assert found.placing.value - found.bound <= 1e-4 * found.placing.value


def test_the_same_problem_has_the_same_answer() -> None:
    problem = layered(3, 60, cores=2)
    goal = Goal.of(problem, "energy")
    assert minimise(problem, goal) == minimise(problem, goal)


def test_a_start_is_never_made_worse() -> None:
    problem = layered(4, 40)
    goal = Goal.of(problem, "period")
    start = evaluate(problem, (0,) * 40, goal)
    assert start is not None
    found = minimise(problem, goal, starts=[start], seconds=0.1)
    assert found.placing is not None
    assert found.placing.value <= start.value


def test_equal_values_go_to_fewer_transitions() -> None:
    """Three nodes in a row, as quick on either device, and nothing to move: stay where it began."""
    cost = [Cost((5.0, 0.0, 0.0), 1.0), Cost((0.0, 5.0, 0.0), 1.0)]
    problem = layered(1, 3)
    problem = replace(
        problem,
        costs=(tuple(cost), (None, cost[1]), tuple(cost)),
        borders=tuple(replace(border, transfers=()) for border in problem.borders),
        launch=(None, Cost((0.0, 0.0, 0.0))),
    )
    found = minimise(problem, Goal.of(problem, "latency"))
    assert found.placing is not None
    assert found.placing.modes == (1, 1, 1)
    assert len(found.placing.steps) == 1


def test_a_node_without_a_mode_or_a_loadable_has_no_placement() -> None:
    problem = layered(1, 10)
    nowhere = replace(problem, costs=((None, None), *problem.costs[1:]))
    goal = Goal.of(problem, "latency")
    assert minimise(nowhere, goal).bound == float("inf")
    alone = replace(
        problem, costs=((None, Cost((0.0, 1.0, 0.0))), *problem.costs[1:]), fits=lambda nodes: False
    )
    assert minimise(alone, goal).placing is None
    assert minimise(alone, goal).bound == float("inf")


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        ({"latency_us": 15.0, "gpu_us": 3.0}, True),
        ({"latency_us": 15.0, "gpu_us": 2.9}, False),
        ({"latency_us": 14.9, "gpu_us": 3.0}, False),
        ({"period_us": 5.0, "energy_uj": 11.0}, True),
        ({"period_us": 4.9, "energy_uj": 11.0}, False),
        ({"period_us": 5.0, "energy_uj": 10.9}, False),
    ],
)
def test_every_bound_is_kept(bounds: dict[str, float], kept: bool) -> None:
    """One node on either device: 3 us and 5 us, with 7 us of delay, and 11 uJ."""
    both = (Cost((3.0, 0.0, 7.0), 5.0), Cost((0.0, 5.0, 0.0), 6.0))
    modes = (Mode(0), Mode(1))
    problem = PlacementProblem(
        ("GPU", "DLA0"), modes, ((both[0], None), (None, both[1])), (), (None, Cost((0.0,) * 3))
    )
    found = evaluate(problem, (0, 1), Goal.of(problem, "latency", bounds))
    assert (found is not None) == kept


def test_an_interrupt_ends_the_search() -> None:
    problem = layered(5, 300, cores=2)

    def interrupted(value: float, bound: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        minimise(problem, Goal.of(problem, "period"), progress=interrupted)


def test_one_device_needs_no_loadables() -> None:
    cost = Cost((2.0, 0.0), 3.0)
    problem = PlacementProblem(("GPU",), (Mode(0),), ((cost,), (cost,)), (), (None,))
    found = minimise(problem, Goal.of(problem, "energy"))
    assert found.placing is not None
    assert (found.placing.value, found.bound) == (6.0, 6.0)


@pytest.mark.parametrize(
    ("objective", "value"),
    [("latency", 3.0 + 5.0 + 7.0), ("period", 5.0), ("gpu_time", 3.0), ("energy", 11.0)],
)
def test_what_each_objective_counts(objective: str, value: float) -> None:
    """The delay, the last of the loads, is nobody's work: it is part of the latency alone."""
    nothing = Cost((0.0, 0.0, 0.0))
    problem = PlacementProblem(
        ("GPU", "DLA0"), (Mode(0), Mode(1)), ((nothing, nothing),), (), (None, nothing)
    )
    assert Goal.of(problem, objective).value((3.0, 5.0, 7.0), 11.0) == value
