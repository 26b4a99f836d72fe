"""The step model in CP-SAT against the brute force, and what it proves of larger graphs."""

import math
from dataclasses import replace

import pytest

from edgekit.solver.cpsat.running_order import solve_steps
from edgekit.solver.problem import Goal
from tests.solver.brute import brute
from tests.solver.cases import KINDS, OBJECTIVES, faults, random_case


@pytest.mark.few(8)
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_every_kind_and_objective_agrees_with_brute_force(kind):
    for seed in range(kind * len(OBJECTIVES), (kind + 1) * len(OBJECTIVES)):
        case = random_case(seed, nodes=6)
        least = brute(case.problem, case.goal)
        found = solve_steps(case.problem, case.goal, seconds=300)
        if found.placing is None:
            assert found.bound == least == math.inf, seed
            continue
        assert faults(case.problem, case.goal, found.placing) == [], seed
        assert found.placing.value == pytest.approx(least, rel=1e-6), seed
        assert least * (1 - 1e-5) <= found.bound <= least * (1 + 1e-9), seed


def test_a_start_and_a_bound_do_not_change_the_optimum_and_answers_repeat():
    case = random_case(12, nodes=8)
    first = solve_steps(case.problem, case.goal, seconds=300)
    again = solve_steps(case.problem, case.goal, seconds=300)
    assert first == again
    assert first.placing is not None
    warm = solve_steps(
        case.problem, case.goal, start=first.placing, lower=first.bound * 0.9, seconds=10
    )
    assert warm.placing is not None
    assert warm.placing.value == first.placing.value
    assert warm.bound == pytest.approx(first.bound)
    none = solve_steps(case.problem, case.goal, start=first.placing, seconds=0)
    assert none.placing == first.placing
    assert none.bound == 0


def test_large_and_small_costs_keep_their_digits():
    case = random_case(0, nodes=6)
    values = []
    for factor in (1e-4, 1.0, 1e6):
        problem = replace(
            case.problem,
            costs=tuple(
                tuple(
                    cost and replace(cost, load_us=tuple(us * factor for us in cost.load_us))
                    for cost in row
                )
                for row in case.problem.costs
            ),
            borders=tuple(replace(border, transfers=()) for border in case.problem.borders),
            launch=tuple(
                cost and replace(cost, load_us=tuple(us * factor for us in cost.load_us))
                for cost in case.problem.launch
            ),
        )
        found = solve_steps(problem, Goal.of(problem, "latency"), seconds=300)
        assert found.placing is not None
        assert found.bound == pytest.approx(found.placing.value, rel=2e-6)
        values.append(found.placing.value / factor)
    assert values == pytest.approx([values[1]] * 3)
