"""Timetables of several networks against every assignment and order, and against what they must
keep."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from edgekit.schedule.contention import simulate, stretch_times, under_contention
from edgekit.schedule.timetable import (
    SearchLimit,
    alone_us,
    find_best_places,
    frame_tasks,
    solve_timetable,
    steady_state,
)
from tests.solver.several_chains import assignments, chain, check_timetable, orders, workload


def slow(device, others):
    """GPU and DLA slow each other by a quarter, two cores by a twentieth."""
    return (
        1
        + 0.25 * ((device == 0) != (0 in others)) * bool(others)
        + 0.05 * (len(others - {0}) > 1 or (device > 0 and bool(others - {0})))
    )


@pytest.mark.parametrize("seed", range(4))
def test_makespan_is_that_of_the_best_order(seed):
    rng = random.Random(seed)
    load = workload([chain(rng, "a", 3, 2), chain(rng, "b", 3, 2)], max_loadables=2 + seed % 2)
    best = min(max(ends.values()) for places in assignments(load) for ends in orders(load, places))
    found = solve_timetable(load, "makespan")
    check_timetable(load, found)
    assert found.value == pytest.approx(best, rel=1e-5)
    assert found.bound <= best <= found.bound * (1 + 1e-4)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_the_largest_share_of_a_deadline_is_least(seed):
    rng = random.Random(seed)
    a = chain(rng, "a", 2, 3, rate=1000, deadline_us=900.0)
    load = workload([a, chain(rng, "b", 2, 3, rate=2000)], devices=3, one_core=True)
    assert load.frames == (1, 2)
    shares = [
        max((ends[i, k] - load.arrival_us(i, k)) / load.chains[i].deadline_us for i, k in ends)
        for places in assignments(load)
        for ends in orders(load, places)
        if max(ends.values()) <= 1000
    ]
    best = min(shares)
    found = solve_timetable(load, "latency")
    if best > 1 + 1e-6:
        assert found is None
        return
    check_timetable(load, found)
    assert found.value == pytest.approx(best, rel=1e-5)
    assert found.bound <= best * (1 + 1e-9)
    ran = simulate(load, found)
    check_timetable(load, ran)
    assert max(ran.latency_us(load, i) / load.chains[i].deadline_us for i in range(2)) <= (
        found.value * (1 + 1e-6)
    )


def test_energy_and_load_are_least_over_all_assignments():
    rng = random.Random(7)
    load = workload([chain(rng, "a", 3, 2), chain(rng, "b", 3, 2)], max_loadables=2)
    every = list(assignments(load))
    assert solve_timetable(load, "energy").value == pytest.approx(min(map(load.energy_uj, every)))
    gpu = min(load.loads_us(places)[0] for places in every)
    assert solve_timetable(load, "gpu_time").value == pytest.approx(gpu, abs=0.01)
    _, value, bound = find_best_places(load)
    assert value == pytest.approx(min(max(load.loads_us(places)) for places in every))
    assert bound <= value


def test_frames_overlap_when_a_deadline_is_longer_than_the_period():
    rng = random.Random(3)
    own = chain(rng, "a", 4, 2)
    load = workload([own])
    places, period, _ = find_best_places(load)
    assert period < alone_us(load, 0)  # both devices must work on different frames
    rate = 1e6 / (period * 1.05)
    again = chain(random.Random(3), "a", 4, 2, rate=f"{rate:.3f}", deadline_us=4 * period)
    load = workload([again])
    found = solve_timetable(load, "latency")
    check_timetable(load, found)
    assert found.latency_us(load, 0) > float(again.period_us)
    ran = simulate(load, found)
    check_timetable(load, ran)
    assert places is not None


def test_a_steady_state_takes_a_frame_of_each_network_every_period():
    rng = random.Random(5)
    load = workload([chain(rng, "a", 4, 3), chain(rng, "b", 5, 3)], devices=3)
    places, period, _ = find_best_places(load)
    table = steady_state(load, places, period)
    chains = [
        own.__class__(own.name, own.times_us, own.hands_us, own.energy_uj, Fraction(period))
        for own in load.chains
    ]
    check_timetable(workload(chains, devices=3), table, slack=1e-5)


def test_contention_never_makes_anything_faster_and_keeps_the_order():
    rng = random.Random(11)
    rates = [("a", 600), ("b", 300), ("c", 150)]
    load = workload(
        [chain(rng, name, 4, 3, rate=rate) for name, rate in rates], devices=3, one_core=True
    )
    lower = solve_timetable(load, "latency", limit=SearchLimit.of(3, 30))
    upper = under_contention(load, "latency", lower, slow, SearchLimit.of(3, 30))
    check_timetable(load, upper)
    # no timetable beats the first network alone on the board, and one is as good; OR-Tools 9.15
    # calls 0.372 optimal here when all of its presolve runs
    first = replace(load, chains=load.chains[:1])
    alone = min(sum(t.work_us for t in frame_tasks(first, 0, row)) for (row,) in assignments(first))
    assert lower.value == pytest.approx(alone / first.chains[0].deadline_us, rel=1e-6)
    assert lower.bound <= upper.value <= 1
    assert upper.value <= stretched_value(load, lower)


def stretched_value(load, lower):
    """Everything slower by the worst factor in the optimum's own order: no run is worse."""
    ran = simulate(stretch_times(load, [1.3, 1.3, 1.3]), lower)
    return max(ran.latency_us(load, i) / own.deadline_us for i, own in enumerate(load.chains))


def test_too_little_time_is_proved():
    rng = random.Random(2)
    load = workload([chain(rng, "a", 3, 2, rate=1000, deadline_us=200.0)])
    assert alone_us(load, 0) > 200
    assert solve_timetable(load, "latency") is None


def test_rates_that_are_no_whole_microseconds_meet_again() -> None:
    """30 and 25 frames a second: six and five of them fill 200 ms."""
    periods = Fraction(1_000_000, 30), Fraction(1_000_000, 25)
    rng = random.Random(0)
    load = workload([chain(rng, "a", 2, 2), chain(rng, "b", 2, 2)])
    chains = tuple(replace(c, period_us=p) for c, p in zip(load.chains, periods, strict=True))
    load = replace(load, chains=chains)
    assert (load.hyperperiod_us, load.frames) == (200_000, (6, 5))
    single = [replace(load, chains=(replace(c, period_us=None),)) for c in chains]
    a, b = (one.energy_uj([(0, 0)]) for one in single)
    assert load.energy_uj([(0, 0), (0, 0)]) == pytest.approx(6 * a + 5 * b)
