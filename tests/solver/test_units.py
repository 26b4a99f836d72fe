"""Times of any size: scaled before a solver sees them, and back without a change."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from edgekit.solver.cpsat.makespan import schedule_once
from edgekit.solver.cpsat.running_order import IntegerScale, solve_steps
from edgekit.solver.document import solve_document
from edgekit.solver.evaluation import evaluate
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Cost, Goal, Mode, PlacementProblem, Units

SLOW = {"GPU": 883984372.0779822, "DLA": 848745474.8090291}
FAST = {"GPU": 792762117.8946736, "DLA": 591048963.0431808}
APART: dict[str, Any] = {
    "schema": "edgekit.problem/1",
    "devices": ["GPU", "DLA0"],
    "networks": [
        {
            "name": "a",
            "nodes": [{"name": "n0", "time_us": SLOW}, {"name": "n1", "time_us": FAST}],
            "edges": [],
        }
    ],
    "objective": "period",
}
BEST = 848745474.8090291  # n0 on the DLA, n1 on the GPU


@pytest.mark.parametrize("objective", ["period", "makespan"])
@pytest.mark.parametrize("by", [1.0, 2.0**-70, 1e-8, 1000.0])
def test_huge_and_tiny_times_are_proved_right(objective: str, by: float) -> None:
    document = copy.deepcopy(APART) | {"objective": objective}
    for node in document["networks"][0]["nodes"]:
        node["time_us"] = {device: us * by for device, us in node["time_us"].items()}
    answer = solve_document(document)
    assert answer["optimal"]
    assert answer["value"] == pytest.approx(BEST * by, rel=1e-6)
    assert answer["bound"] <= BEST * by * (1 + 1e-12)


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
    bounds = {"latency_us": 14.5 * 2.0**exponent}
    found = schedule_once(other, bounds=bounds, seconds=300)
    assert found.value == found.bound == 10.0 * 2.0**exponent
    assert Units.of(plain, Goal.of(plain, "period")).load == 0


def test_numbers_with_decimals_are_not_taken_for_whole_ones() -> None:
    odd = IntegerScale([883984372.0779822, 591048963.0431808], 2, 1e9)
    assert odd.slack > 0
    assert abs(odd.bound(odd(883984372.0779822)) - 883984372.0779822) < 1e-6 * 1e9
    assert IntegerScale([12.25, 3.5], 2, 15.0).slack == 0
    assert IntegerScale([3 * 2.0**-20, 5 * 2.0**-20], 2, 1e-5).slack == 0


def test_nodes_of_no_time_keep_their_order() -> None:
    nodes = [
        {"name": f"n{i}", "time_us": {"GPU": gpu, "DLA": 7 - gpu}}
        for i, gpu in enumerate((7, 0, 7))
    ]
    answer = solve_document(
        {**APART, "networks": [{"name": "N", "nodes": nodes}], "objective": "makespan"}
    )
    assert answer["value"] == 0
    held = answer["loadable_of"]["N"]
    assert held["n0"] != held["n2"]  # n1 runs on the GPU between them


def test_slots_without_a_core_limit_nothing() -> None:
    nodes = [{"name": "n0", "time_us": {"GPU": 3}}]
    document = {**APART, "devices": ["GPU"], "networks": [{"name": "N", "nodes": nodes}]}
    answer = solve_document(document | {"objective": "makespan", "loadable": {"max": 2}})
    assert answer["value"] == 3


def test_a_bound_is_scaled_as_what_it_bounds() -> None:
    goal = Goal((1.0, 1.0), 0.5, {"energy_uj": 8.0, "latency_us": 8.0})
    scaled = Units(load=3, energy=-5, value=3).goal(goal)
    assert scaled.bounds == {"energy_uj": 0.25, "latency_us": 64.0}
    assert (scaled.weights, scaled.energy) == ((1.0, 1.0), 128.0)
