"""Running orders and what a placement costs, on graphs small enough to see the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgekit.solver.evaluation import evaluate, settle
from edgekit.solver.problem import (
    OUTSIDE,
    Border,
    Cost,
    ExecutionStep,
    Goal,
    MemoryPool,
    Mode,
    PlacementProblem,
    Transfer,
)

GPU, DLA = 0, 1


def chain(edges: list[tuple[int, int]], nodes: int, launch: float = 1.0) -> PlacementProblem:
    """Nodes of 10 us on either device; a transfer to the GPU takes 3 us, or 2 us of delay."""
    ways = (Cost((3.0, 0.0, 0.0), 1.0), Cost((0.0, 0.0, 2.0), 5.0))
    away = Transfer(frozenset({(GPU, DLA), (DLA, GPU)}), ways)
    borders = [Border(OUTSIDE, (0,))]
    for v in range(nodes):
        users = tuple(b for a, b in edges if a == v)
        borders.append(Border(v, users, (away,), output=not users))
    return PlacementProblem(
        ("GPU", "DLA0"),
        (Mode(GPU), Mode(DLA)),
        ((Cost((10.0, 0.0, 0.0), 4.0), Cost((0.0, 10.0, 0.0), 1.0)),) * nodes,
        tuple(borders),
        (None, Cost((0.0, launch, 0.0))),
        max_loadables=4,
    )


DIAMOND = chain([(0, 1), (0, 2), (1, 3), (2, 3)], 4)


def test_parallel_branches_share_a_loadable() -> None:
    found = evaluate(DIAMOND, (GPU, DLA, DLA, GPU), Goal.of(DIAMOND, "latency"))
    assert found is not None
    assert [step.nodes for step in found.steps] == [(0,), (1, 2), (3,)]
    # one transfer for both consumers of node 0, one for each result; each by the quicker way
    assert found.load_us == (20.0, 21.0, 6.0)
    assert found.value == 47.0


def test_a_path_through_the_gpu_splits_a_loadable() -> None:
    found = evaluate(DIAMOND, (DLA, GPU, DLA, DLA), Goal.of(DIAMOND, "latency"))
    assert found is not None
    assert [step.device for step in found.steps] == [DLA, GPU, DLA]


def test_the_goal_and_its_bounds_choose_the_way() -> None:
    modes = (GPU, DLA, DLA, GPU)
    assert evaluate(DIAMOND, modes, Goal.of(DIAMOND, "energy")).load_us[2] == 0.0  # type: ignore[union-attr]
    few = Goal.of(DIAMOND, "latency", {"energy_uj": 10.0 + 3 * 1.0 + 4.0})  # one delay at most
    assert evaluate(DIAMOND, modes, few).load_us == (26.0, 21.0, 2.0)  # type: ignore[union-attr]
    none = Goal.of(DIAMOND, "latency", {"energy_uj": 12.0})
    assert evaluate(DIAMOND, modes, none) is None


def test_a_pool_splits_what_could_run_together() -> None:
    weights = MemoryPool("weights", 5.0, (3.0, 3.0, 2.0, 2.0))
    problem = replace(DIAMOND, pools=(weights,))
    found = evaluate(problem, (DLA,) * 4, Goal.of(problem, "latency"))
    assert found is not None
    assert [step.nodes for step in found.steps] == [(0, 2), (1, 3)]


def test_what_does_not_fit_together_is_split() -> None:
    problem = replace(DIAMOND, fits=lambda nodes: not {1, 2} <= nodes)
    found = evaluate(problem, (DLA,) * 4, Goal.of(problem, "latency"))
    assert found is not None
    assert len(found.steps) == 2


def test_a_least_size_takes_a_node_from_another_loadable() -> None:
    """Nodes 0 to 2 could run at once, but then node 4 would be left alone behind the GPU."""
    problem = replace(chain([(0, 1), (0, 3), (3, 4), (0, 2)], 5), min_size=2)
    modes = (DLA, DLA, DLA, GPU, DLA)
    found = evaluate(problem, modes, Goal.of(problem, "latency"))
    assert found is not None
    assert sorted(len(step.nodes) for step in found.steps if step.device == DLA) == [2, 2]


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"max_loadables": 2}, True),
        ({"max_loadables": 1}, False),
        ({"max_transitions": 2}, True),
        ({"max_transitions": 1}, False),
        ({"min_size": 2}, False),
    ],
)
def test_limits_refuse_a_placement(change: dict[str, object], allowed: bool) -> None:
    problem = replace(DIAMOND, **change)  # type: ignore[arg-type]
    found = evaluate(problem, (DLA, GPU, GPU, DLA), Goal.of(problem, "latency"))
    assert (found is not None) == allowed


@pytest.mark.parametrize(("limit", "allowed"), [(2, True), (1, False)])
def test_steps_beyond_the_slots_are_no_placement(limit: int, allowed: bool) -> None:
    problem = replace(DIAMOND, max_loadables=limit)
    steps = [ExecutionStep(DLA, (0, 1, 2)), ExecutionStep(DLA, (3,))]
    found = settle(problem, (DLA,) * 4, steps, Goal.of(problem, "latency"))
    assert (found is not None) == allowed
