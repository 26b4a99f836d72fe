"""Times of any size: scaled before a solver sees them, and back without a change."""

from __future__ import annotations

import pytest

from edgekit.solver.cpsat.running_order import IntegerScale, solve_steps
from edgekit.solver.evaluation import evaluate
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Cost, Goal, Mode, PlacementProblem, Units

SLOW = 883984372.0779822, 848745474.8090291
FAST = 792762117.8946736, 591048963.0431808
BEST = 848745474.8090291  # the slow node on the DLA, the fast one on the GPU


@pytest.mark.parametrize("by", [1.0, 2.0**-70, 1e-8, 1000.0])
def test_huge_and_tiny_times_are_proved_right(by: float) -> None:
    costs = tuple(
        (Cost((gpu * by, 0.0, 0.0)), Cost((0.0, dla * by, 0.0))) for gpu, dla in (SLOW, FAST)
    )
    nothing = Cost((0.0, 0.0, 0.0))
    apart = PlacementProblem(("GPU", "DLA0"), (Mode(0), Mode(1)), costs, (), (None, nothing))
    found = minimise(apart, Goal.of(apart, "period"))
    assert found.placing is not None
    assert found.placing.value == pytest.approx(BEST * by, rel=1e-6)
    assert found.placing.value - found.bound <= 1e-4 * found.placing.value
    assert found.bound <= BEST * by * (1 + 1e-12)


def _problem(by: float) -> PlacementProblem:
    rows = [tuple(Cost((us * by, 0.0, 0.0), 3e12) for us in (5.0,)) for _ in range(3)]
    costs = [(row[0], Cost((0.0, 4.0 * by * (i + 1), 0.0), 1e12)) for i, row in enumerate(rows)]
    nothing = Cost((0.0, 0.0, 0.0))
    return PlacementProblem(("GPU", "DLA0"), (Mode(0), Mode(1)), tuple(costs), (), (None, nothing))


@pytest.mark.parametrize("exponent", [-60, 40])
def test_units_change_nothing_but_the_size(exponent: int) -> None:
    plain, other = _problem(1.0), _problem(2.0**exponent)
    for objective in ("period", "latency", "energy"):
        goal = Goal.of(plain, objective)
        one, two = minimise(plain, goal), minimise(other, goal)
        assert one.placing is not None
        assert two.placing is not None
        assert two.placing.modes == one.placing.modes
        assert two.placing.load_us == tuple(us * 2.0**exponent for us in one.placing.load_us)
        assert two.placing == evaluate(other, two.placing.modes, goal)
        steps = solve_steps(other, goal, seconds=300)
        assert steps.placing is not None
        assert steps.placing.value == pytest.approx(two.placing.value)
    assert Units.of(plain, Goal.of(plain, "period")).load == 0


def test_numbers_with_decimals_are_not_taken_for_whole_ones() -> None:
    odd = IntegerScale([883984372.0779822, 591048963.0431808], 2, 1e9)
    assert odd.slack > 0
    assert abs(odd.bound(odd(883984372.0779822)) - 883984372.0779822) < 1e-6 * 1e9
    assert IntegerScale([12.25, 3.5], 2, 15.0).slack == 0
    assert IntegerScale([3 * 2.0**-20, 5 * 2.0**-20], 2, 1e-5).slack == 0


def test_a_bound_is_scaled_as_what_it_bounds() -> None:
    goal = Goal((1.0, 1.0), 0.5, {"energy_uj": 8.0, "latency_us": 8.0})
    scaled = Units(load=3, energy=-5, value=3).goal(goal)
    assert scaled.bounds == {"energy_uj": 0.25, "latency_us": 64.0}
    assert (scaled.weights, scaled.energy) == ((1.0, 1.0), 128.0)
