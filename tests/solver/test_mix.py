"""Mixed plans against a linear programme over every plan there is."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest

from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import Border, Cost, Goal, Mode, PlacementProblem, Transfer
from edgekit.solver.program import Expression, Program
from edgekit.solver.throughput import Mix, mix_plans
from tests.solver.plans import Plan, every_plan


def branching(
    rng: random.Random, count: int, cores: int, *, twins: bool, slots: int | None = None
) -> PlacementProblem:
    """Returns a branching graph on a GPU and cores; its transfers run on the GPU."""
    devices = ("GPU", *(f"DLA{core}" for core in range(cores)))

    def cost(resource: int, us: float) -> Cost:
        return Cost(tuple(us * (r == resource) for r in range(len(devices) + 1)), us * 3)

    rows = []
    for _ in range(count):
        gpu, dla = rng.uniform(2, 10), rng.uniform(2, 14)
        able = rng.random() < 0.85
        rows.append(
            (
                cost(0, gpu),
                *(
                    cost(1 + c, dla * (1 if twins else rng.uniform(0.8, 1.2))) if able else None
                    for c in range(cores)
                ),
            )
        )
    on_core = range(1, cores + 1)
    borders = []
    for v in range(count):
        users = tuple(w for w in range(v + 1, count) if rng.random() < (0.8 if w == v + 1 else 0.2))
        ways = (cost(0, rng.uniform(0.2, 1.5)), cost(0, rng.uniform(0.2, 1.5)))
        there = Transfer(frozenset((0, m) for m in on_core), ways[:1])
        back = Transfer(frozenset((m, 0) for m in on_core), ways[1:])
        borders.append(Border(v, users, (there, back), output=not users))
    return PlacementProblem(
        devices,
        tuple(Mode(d) for d in range(len(devices))),
        tuple(rows),
        tuple(borders),
        (None, *(cost(1 + c, 0.5) for c in range(cores))),
        max_loadables=slots,
    )


def most(problem: PlacementProblem, plans: list[Plan]) -> float:
    """Returns the most frames a second over plans that have all slots of their core each."""
    program = Program()
    rates = [program.real(cost=-1.0) for _ in plans]
    for device in range(len(problem.devices)):
        load = {f: plan.loads[device] for f, plan in zip(rates, plans, strict=True)}
        program.row(Expression(load), high=1.0)
    return -1e6 * program.solve().value


def verify(problem: PlacementProblem, found: Mix) -> None:
    """Asserts that shares, loads and slots of a mix are right."""
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    for device in range(len(problem.devices)):
        busy = sum(found.qps * part.share * part.placing.load_us[device] for part in found.parts)
        assert busy <= 1e6 * (1 + 1e-6)
    slots = dict.fromkeys(problem.cores, 0)
    for part in found.parts:
        used = {step.device for step in part.placing.steps} & set(problem.cores)
        assert len(used) <= 1
        for step in part.placing.steps:
            if step.device in slots:
                slots[step.device] += 1
    assert problem.max_loadables is None or max(slots.values()) <= problem.max_loadables


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(12))
def test_mix_agrees_with_all_plans(seed: int) -> None:
    rng = random.Random(4000 + seed)
    problem = branching(rng, 5, 1 + seed % 2, twins=seed % 4 != 3)
    free = Goal.of(problem, "latency")
    bounds = {}
    if seed % 3 == 0:
        bounds = {"latency_us": 1.15 * min(sum(p.loads[:-1]) for p in every_plan(problem, free))}
    plans = [
        plan
        for plan in every_plan(problem, replace(free, bounds=bounds))
        if len(set(plan.devices) - {0}) <= 1
    ]
    start = minimise(problem, free).placing
    found = mix_plans(problem, bounds, [start] if start else [])
    assert found is not None
    best = most(problem, plans)
    assert found.qps == pytest.approx(best, rel=1e-5)
    assert best * (1 - 1e-6) <= found.bound <= best * (1 + 1e-4)
    assert len(found.parts) <= len(problem.devices) + (seed % 2)
    verify(problem, found)


def test_nothing_keeps_the_bounds() -> None:
    problem = branching(random.Random(1), 4, 1, twins=True)
    assert mix_plans(problem, {"latency_us": 1.0}) is None


def test_identical_cores_get_mirrored_plans() -> None:
    problem = branching(random.Random(4001), 5, 2, twins=True)
    found = mix_plans(problem, {})
    assert found is not None
    share = dict.fromkeys(problem.cores, 0.0)
    for part in found.parts:
        for core in {step.device for step in part.placing.steps} & set(problem.cores):
            share[core] += part.share
    assert share[1] == pytest.approx(share[2])
    assert share[1] > 0


def _best_pair(plans: list[Plan], slots: int) -> float:
    """Returns the most frames a second of two plans that share one core's slots."""
    best = 0.0
    for one, other in itertools.combinations_with_replacement(plans, 2):
        if one != other and sum(one.counts) + sum(other.counts) > slots:
            continue
        (a, c), (b, d) = one.loads[:2], other.loads[:2]
        best = max(best, 1 / max(a, c), 1 / max(b, d))
        if not math.isclose(a * d, b * c):
            x, y = (d - b) / (a * d - b * c), (a - c) / (a * d - b * c)
            if x > 0 and y > 0:
                best = max(best, x + y)
    return 1e6 * best


@pytest.mark.whole
def test_plans_of_one_core_share_its_slots() -> None:
    exact = proved = 0
    for seed in range(14):
        problem = branching(random.Random(seed), 6, 1, twins=True, slots=2)
        plans = every_plan(problem, Goal.of(problem, "latency"))
        found = mix_plans(problem, {})
        assert found is not None
        verify(problem, found)
        best = _best_pair(plans, 2)
        assert found.qps <= best * (1 + 1e-6) <= found.bound * (1 + 2e-6)
        exact += found.qps >= best * (1 - 1e-5)
        proved += found.qps >= found.bound * (1 - 1e-4)
    assert exact >= 13
    assert 0 < proved < 14


def _speeds(rng: random.Random, devices: int, *, twins: bool) -> tuple[tuple[float, ...], ...]:
    """Returns the speeds of every set of devices; each further one slows the others down."""
    gpu, core = rng.uniform(0.02, 0.4), rng.uniform(0.02, 0.4)
    among = core / 3 if twins else rng.uniform(0.01, 0.2)
    found = []
    for size in range(1, devices + 1):
        for inside in itertools.combinations(range(devices), size):
            row = [0.0] * devices
            for d in inside:
                cores = sum(e > 0 for e in inside if e != d)
                row[d] = 1 / (1 + (cores * gpu if not d else (0 in inside) * core + cores * among))
            found.append(tuple(row))
    return tuple(found)


def _shared(problem: PlacementProblem, plans: list[Plan]) -> float:
    """Returns the most frames a second when the devices that work at once slow each other down."""
    program = Program()
    rates = [program.real(cost=-1.0) for _ in plans]
    times = [program.real() for _ in problem.together]
    program.row(Expression(dict.fromkeys(times, 1.0)), high=1.0)
    for device in range(len(problem.devices)):
        used = Expression({f: plan.loads[device] for f, plan in zip(rates, plans, strict=True)})
        for time, row in zip(times, problem.together, strict=True):
            used.add(time, -row[device])
        program.row(used, high=0.0)
    return -1e6 * program.solve().value


@pytest.mark.parametrize("seed", range(8))
def test_sharing_memory_is_a_part_of_the_mix_and_its_bound(seed: int) -> None:
    rng = random.Random(5000 + seed)
    alone = branching(rng, 5, 1 + seed % 2, twins=True)
    problem = replace(alone, together=_speeds(rng, len(alone.devices), twins=True))
    free = Goal.of(problem, "latency")
    plans = [p for p in every_plan(problem, free) if len(set(p.devices) - {0}) <= 1]
    found = mix_plans(problem, {})
    assert found is not None
    best = _shared(problem, plans)
    assert found.qps == pytest.approx(best, rel=1e-5)
    assert best * (1 - 1e-6) <= found.bound <= best * (1 + 1e-4)
    without = mix_plans(alone, {})
    assert without is not None
    assert found.qps <= without.qps * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_a_period_is_the_least_time_in_which_shared_devices_do_their_work(seed: int) -> None:
    rng = random.Random(6000 + seed)
    alone = branching(rng, 5, 1 + seed % 2, twins=seed % 3 > 0)
    problem = replace(alone, together=_speeds(rng, len(alone.devices), twins=seed % 3 > 0))
    plans = every_plan(problem, Goal.of(problem, "period"))
    best = min(1e6 / _shared(problem, [plan]) for plan in plans)
    found = minimise(problem, Goal.of(problem, "period"))
    assert found.placing is not None
    assert found.placing.value == pytest.approx(best, rel=1e-5)
    assert found.bound == pytest.approx(best, rel=2e-4)
    # a bound on the period is the same sum
    limited = Goal.of(problem, "energy", {"period_us": best * 1.2})
    cheapest = minimise(problem, limited).placing
    assert cheapest is not None
    assert 1e6 / _shared(problem, [Plan((), {}, cheapest.load_us)]) <= best * 1.2 * (1 + 1e-6)


def test_a_device_that_works_alone_is_not_slowed_down() -> None:
    problem = branching(random.Random(3), 4, 2, twins=True)
    shared = replace(problem, together=_speeds(random.Random(3), 3, twins=True))
    for device in range(3):
        load = [7.0 * (d == device) for d in range(4)]
        assert shared.period_us(load) == pytest.approx(7.0)
    both = shared.period_us([7.0, 7.0, 0.0, 0.0])
    assert problem.period_us([7.0, 7.0, 0.0, 0.0]) == 7.0
    assert 7.0 < both < 14.0


@pytest.mark.parametrize("seed", range(6))
def test_a_mix_within_the_slack_has_a_quicker_slowest_frame(seed: int) -> None:
    problem = branching(random.Random(seed), 6, 1 + seed % 2, twins=True)
    strict, other = (mix_plans(problem, {}, slack=slack) for slack in (0.0, 0.3))
    assert strict is not None
    assert other is not None
    assert (other.parts, other.qps, other.bound) == (strict.parts, strict.qps, strict.bound)
    assert not strict.quick
    if not other.quick:
        return
    slowest = [max(sum(p.placing.load_us) for p in parts) for parts in (other.quick, other.parts)]
    assert slowest[0] < slowest[1]
    assert sum(part.share for part in other.quick) == pytest.approx(1.0)
    busiest = max(
        sum(part.share * part.placing.load_us[d] for part in other.quick)
        for d in range(len(problem.devices))
    )
    assert 1e6 / busiest >= 0.7 * other.qps * (1 - 1e-6)
