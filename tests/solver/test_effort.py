"""Work that is counted, not timed."""

from __future__ import annotations

import time

import pytest

from edgekit.errors import GateError
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Effort, Goal
from edgekit.solver.throughput import mix_plans
from tests.solver.cases import pooled_problem


def test_a_part_spends_of_the_whole() -> None:
    whole = Effort(10.0)
    part = whole.part(4.0)
    part.part(100.0).spend(3.0)
    assert (whole.left, part.left, whole.part(9.0).left) == (7.0, 1.0, 7.0)
    part.spend(1.0)
    assert part.over
    assert not whole.over
    assert not whole.clocked


def test_the_clock_is_the_last_resort_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Effort(1.0)
    part = whole.part(1.0)
    late = time.monotonic() + 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: late)
    assert part.over
    assert whole.clocked
    assert whole.left == 1.0


def test_the_clock_ends_what_was_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Effort(15.0, seconds=15.0)
    part = whole.part(10.0)
    assert part.seconds <= 15.0
    late = time.monotonic() + 15.0
    monkeypatch.setattr(time, "monotonic", lambda: late)
    assert part.over
    assert whole.clocked


@pytest.mark.parametrize("objective", ["period", "latency"])
def test_a_search_cut_off_ends_at_the_same_place(objective: str) -> None:
    problem = pooled_problem(5, 14, 45.0, 4)
    goal = Goal.of(problem, objective)
    found = []
    for _ in range(2):
        effort = Effort(0.2)
        found.append((minimise(problem, goal, effort=effort), effort.left))
    assert found[0] == found[1]
    assert not found[0][0].clocked


def test_progress_knows_value_and_bound() -> None:
    problem = pooled_problem(3, 14, 45.0, 3)
    reported: list[tuple[float, float]] = []
    found = minimise(
        problem, Goal.of(problem, "period"), progress=lambda *both: reported.append(both)
    )
    assert found.placing is not None
    assert reported
    assert all(bound <= value for value, bound in reported)
    assert all(value >= found.placing.value * (1 - 1e-9) for value, _ in reported)


def test_a_mix_that_was_not_searched_is_not_called_impossible() -> None:
    problem = pooled_problem(5, 26, 45.0, 4)
    least = minimise(problem, Goal.of(problem, "latency")).placing
    assert least is not None
    with pytest.raises(GateError) as error:
        mix_plans(problem, {"latency_us": least.value * 1.0001}, seconds=0.0)
    assert error.value.code == "plan.limit"
