"""Networks that may run by whole plans instead of part by part, against every choice and order."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from edgekit.schedule.contention import simulate, stretch_times
from edgekit.schedule.timetable import alone_us, find_best_places, solve_timetable
from tests.solver.several_chains import (
    assignments,
    chain,
    check_timetable,
    orders,
    route,
    workload,
)


def loads(seed, **limits):
    rng = random.Random(seed)
    routes = tuple(route(rng, 3, core) for core in (1, 2, 1))
    a = replace(chain(rng, "a", 2, 3), routes=routes)
    # the second has no parts at all
    b = replace(chain(rng, "b", 0, 3), times_us=(), hands_us=(), energy_uj=(), routes=routes[:2])
    return workload([a, b], devices=3, **limits)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_parts_and_whole_plans_is_found(seed):
    load = loads(seed, one_core=seed % 2 == 0, max_loadables=1 + seed % 3)
    every = list(assignments(load))
    best = min(max(ends.values()) for places in every for ends in orders(load, places))
    found = solve_timetable(load, "makespan")
    check_timetable(load, found)
    assert found.value == pytest.approx(best, rel=1e-5)
    assert found.bound <= best <= found.bound * (1 + 1e-4)
    assert found.places in every
    ran = simulate(load, found)
    check_timetable(load, ran)
    assert solve_timetable(load, "energy").value == pytest.approx(min(map(load.energy_uj, every)))
    gpu = min(load.loads_us(places)[0] for places in every)
    assert solve_timetable(load, "gpu_time").value == pytest.approx(gpu, abs=0.01)
    _, value, bound = find_best_places(load)
    assert value == pytest.approx(min(max(load.loads_us(places)) for places in every))
    assert bound <= value


def test_a_plan_of_the_whole_network_counts_for_what_it_needs_alone_and_stretched():
    load = loads(1)
    own = min(sum(task.work_us for task in r.tasks) for r in load.chains[1].routes)
    assert alone_us(load, 1) == pytest.approx(own)
    slow = stretch_times(load, [2.0, 2.0, 2.0])
    assert alone_us(slow, 1) == pytest.approx(2 * own)


def test_frames_of_whole_plans_repeat():
    load = loads(2)
    periods = (Fraction(2000), Fraction(1000))
    chains = [
        replace(own, period_us=period, deadline_us=float(period))
        for own, period in zip(load.chains, periods, strict=True)
    ]
    load = workload(chains, devices=3)
    shares = [
        max((ends[i, k] - load.arrival_us(i, k)) / load.chains[i].deadline_us for i, k in ends)
        for places in assignments(load)
        for ends in orders(load, places)
    ]
    found = solve_timetable(load, "latency")
    check_timetable(load, found)
    assert found.value == pytest.approx(min(shares), rel=1e-5)
