"""Chains: the optimum is that of trying everything, and long ones are proved quickly."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace

import pytest

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
)
from tests.solver.brute import brute, disagreement
from tests.solver.cases import Case

LIMITS = ("none", "slots", "pool", "fits", "min_size", "transitions", "all")


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
        max_transitions=rng.randint(0, 3) if limit == "transitions" or every else None,
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
        assert found.placing.value == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert found.placing.value >= found.bound >= found.placing.value * (1 - 1e-4) - 1e-9
    assert impossible < 12


def test_bounds_periods_and_what_is_almost_a_chain() -> None:
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


def test_six_hundred_nodes_with_sixteen_loadables_on_two_cores() -> None:
    rng = random.Random(5)
    chain = random_chain(rng, 600, 2, 1, "none")
    weights = MemoryPool("weights", 600.0, tuple(float(rng.randint(1, 9)) for _ in chain.costs))
    chain = replace(chain, max_loadables=16, pools=(weights,))
    chain = replace(
        chain,
        costs=tuple((row[0] or Cost((9.0, 0.0, 0.0, 0.0)), *row[1:]) for row in chain.costs),
    )
    begin = time.process_time()
    found = minimise(chain, Goal.of(chain, "latency"))
    assert time.process_time() - begin < 10
    assert found.placing is not None
    used = [step.device for step in found.placing.steps]
    assert max(used.count(core) for core in chain.cores) <= 16 < len(used)
    assert found.placing.value - found.bound <= 1e-4 * found.placing.value
