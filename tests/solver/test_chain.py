"""The dynamic programme over chains agrees with trying everything, and is quick."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace

import pytest

from edgekit.solver import optimiser
from edgekit.solver.evaluation import settle
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import (
    OUTSIDE,
    Border,
    Cost,
    Goal,
    MemoryPool,
    Mode,
    PlacementProblem,
    Transfer,
    metrics,
)
from tests.solver.brute import brute, disagreement
from tests.solver.cases import Case

LIMITS = ("none", "slots", "pool", "fits", "min_size", "transitions", "contiguous", "all")


def random_chain(
    rng: random.Random, count: int, cores: int, formats: int, limit: str
) -> PlacementProblem:
    """Returns a chain of nodes on a GPU and cores, where a core has its modes by format."""
    devices = ("GPU", *(f"DLA{core}" for core in range(cores)))
    modes = (Mode(0), *(Mode(1 + c, str(f), str(f)) for c in range(cores) for f in range(formats)))

    def cost(resource: int, us: float) -> Cost:
        load = [0.0] * (len(devices) + 1)
        load[resource] = us
        return Cost(tuple(load), round(rng.uniform(0, 9), 1))

    def transfer(pairs: set[tuple[int, int]]) -> Transfer:
        ways = (cost(rng.choice([0, len(devices)]), rng.uniform(0, 4)) for _ in range(2))
        return Transfer(frozenset(pairs), tuple(ways))

    on_core = range(1, len(modes))
    costs = tuple(
        tuple(
            None if rng.random() < 0.15 else cost(mode.device, rng.uniform(1, 9)) for mode in modes
        )
        for _ in range(count)
    )
    borders = [Border(OUTSIDE, (0,), (transfer({(0, m) for m in on_core}),))]
    for v in range(count):
        transfers = [transfer({(0, m) for m in on_core}), transfer({(m, 0) for m in on_core})]
        if len(modes) > 2:
            odd = {(a, b) for a in on_core for b in on_core if a != b and rng.random() < 0.8}
            transfers.append(transfer(odd))
        last = v == count - 1
        borders.append(
            Border(v, () if last else (v + 1,), tuple(transfers), last or rng.random() < 0.2)
        )
    every = limit == "all"
    needs = tuple(float(rng.randint(1, 9)) for _ in range(count))
    wide = rng.randint(2, 4)
    return PlacementProblem(
        devices,
        modes,
        costs,
        tuple(borders),
        (None, *(cost(1 + c, rng.choice([0.0, 1.5])) for c in range(cores))),
        max_loadables=rng.randint(0, 2) if limit == "slots" or every else None,
        pools=(MemoryPool("weights", 14.0, needs),) if limit == "pool" or every else (),
        fits=(lambda s: max(s) - min(s) < wide) if limit == "fits" or every else None,
        min_size=rng.randint(1, 3) if limit == "min_size" or every else 0,
        sizes=tuple(rng.randint(1, 2) for _ in range(count)) if limit == "min_size" else (),
        max_transitions=(rng.randint(0, 3) if limit == "transitions" or every else None,),
        contiguous=(limit == "contiguous",),
    )


@pytest.mark.parametrize("limit", LIMITS)
def test_agrees_with_trying_everything(limit: str) -> None:
    rng = random.Random(f"chain {limit}")
    impossible = 0
    for number in range(14):
        cores = 1 + number % 2
        formats = 2 if cores == 1 and number % 4 == 0 else 1
        problem = random_chain(rng, rng.randint(1, 6), cores, formats, limit)
        goal = Goal.of(problem, rng.choice(["latency", "energy", "gpu_time"]))
        found = minimise(problem, goal)
        expected = brute(problem, goal)
        if expected == math.inf:
            impossible += 1
            assert found.placing is None
            assert found.bound == float("inf")
            continue
        assert found.placing is not None
        assert found.placing.value == pytest.approx(expected, abs=1e-6)
        assert found.placing.value >= found.bound >= expected * (1 - 1e-6) - 1e-9
    assert impossible < 12


def test_what_no_programme_over_a_chain_carries_is_solved_all_the_same() -> None:
    chain = random_chain(random.Random(1), 4, 1, 1, "none")
    latency = Goal.of(chain, "latency")
    energy = minimise(chain, Goal.of(chain, "energy")).placing
    assert energy is not None
    for problem, goal in (
        (chain, Goal.of(chain, "period")),
        (chain, Goal.of(chain, "latency", {"energy_uj": energy.energy_uj * 1.1})),
        (replace(chain, borders=(*chain.borders, Border(0, (2,)))), latency),
        (replace(chain, borders=chain.borders[:2]), latency),
    ):
        assert not disagreement(Case(problem, goal, "", ()))
    assert minimise(chain, latency) == minimise(chain, latency)


def test_equal_values_prefer_fewer_transitions() -> None:
    one, zero = Cost((1.0, 0.0, 0.0)), Cost((0.0, 1.0, 0.0))
    borders = tuple(Border(v, (v + 1,)) for v in range(4))
    chain = PlacementProblem(
        ("GPU", "DLA0"), (Mode(0), Mode(1)), ((one, zero),) * 5, borders, (None, Cost((0.0,) * 3))
    )
    found = minimise(chain, Goal.of(chain, "latency"))
    assert found.placing is not None
    assert len(found.placing.steps) == 1


def test_two_thousand_nodes_with_sixteen_loadables_on_two_cores() -> None:
    rng = random.Random(5)
    chain = random_chain(rng, 2000, 2, 1, "none")
    weights = MemoryPool("weights", 2000.0, tuple(float(rng.randint(1, 9)) for _ in chain.costs))
    chain = replace(chain, max_loadables=16, pools=(weights,))
    for row in chain.costs:  # every node has a device
        assert row
    chain = replace(
        chain,
        costs=tuple((row[0] or Cost((9.0, 0.0, 0.0, 0.0)), *row[1:]) for row in chain.costs),
    )
    begin = time.process_time()
    found = minimise(chain, Goal.of(chain, "latency"))
    assert time.process_time() - begin < 5
    assert found.placing is not None
    used = [step.device for step in found.placing.steps]
    assert max(used.count(core) for core in chain.cores) <= 16 < len(used)
    assert found.placing.value - found.bound <= 1e-6 * found.placing.value


def test_priced_bounds_leave_a_sound_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    # as of a chain so long that a gap is left
    monkeypatch.setattr(optimiser, "LONG_CHAIN", 0)
    monkeypatch.setattr(optimiser, "LONG_CHAIN_GAP", math.inf)
    placed = exact = 0
    for seed in range(24):
        rng = random.Random(f"bounds {seed}")
        chain = random_chain(rng, rng.randint(3, 6), 1 + seed % 2, 1, rng.choice(LIMITS))
        latency = minimise(chain, Goal.of(chain, "latency"))
        if latency.placing is None:
            continue
        have = metrics(chain, latency.placing.load_us, latency.placing.energy_uj)
        names = rng.sample(sorted(have), 1 + seed % 2)
        bounds = {name: have[name] * rng.uniform(0.8, 1.4) + 0.1 for name in names}
        goal = Goal.of(chain, ("period", "energy", "latency")[seed % 3], bounds)
        found = minimise(chain, goal)
        best = brute(chain, goal)
        assert found.bound <= best * (1 + 1e-6) + 1e-6
        if found.placing is not None:
            again = settle(
                chain, found.placing.modes, found.placing.steps, goal, found.placing.ways
            )
            assert again is not None  # it keeps the bounds
            assert again.value == pytest.approx(found.placing.value, abs=1e-9)
            assert found.placing.value >= best * (1 - 1e-6) - 1e-6
            placed += 1
            exact += found.placing.value <= best + 1e-5
    assert placed > 10
    assert exact > placed / 2


@pytest.mark.whole
def test_a_long_chain_under_a_bound_ends_with_a_small_gap() -> None:
    chain = random_chain(random.Random(6), 900, 2, 1, "none")
    costs = tuple((row[0] or Cost((9.0, 0.0, 0.0, 0.0)), *row[1:]) for row in chain.costs)
    chain = replace(chain, max_loadables=16, costs=costs)
    least = minimise(chain, Goal.of(chain, "energy"))
    assert least.placing is not None
    begin = time.process_time()
    found = minimise(chain, Goal.of(chain, "latency", {"energy_uj": least.placing.energy_uj * 1.2}))
    assert time.process_time() - begin < 8
    assert found.placing is not None
    assert found.placing.energy_uj <= least.placing.energy_uj * 1.2 * (1 + 1e-8)
    assert found.placing.value - found.bound <= 0.01 * found.placing.value
