"""Mixed plans against a linear programme over every plan there is."""

from __future__ import annotations

import itertools

import pytest

from edgekit.placement._highs import Program
from edgekit.placement._problem import Problem
from edgekit.placement._throughput import mix_plans
from tests.placement.placement_brute import _counts, _loads, _within, random_problem


def every_plan(problem: Problem, bounds: dict[str, float]) -> list[list[float]]:
    found = []
    for core in problem.cores or (0,):
        spots = [[d for d in (0, core) if row[d] is not None] for row in problem.times]
        for devices in itertools.product(*(sorted(set(s)) for s in spots)):
            for counts in _counts(problem, devices):
                load = _loads(problem, devices, counts)
                slots = max(counts.values(), default=0) <= problem.max_loadables
                if slots and _within(problem, load, bounds):
                    found.append(load)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_mix_agrees_with_all_plans(seed: int) -> None:
    problem = random_problem(4000 + seed, kernels=7, cores=1 + seed % 2, twins=seed % 4 != 3)
    bounds: dict[str, float] = {}
    if seed % 3 == 0:
        fastest = min((sum(load) for load in every_plan(problem, {})), default=1.0)
        bounds = {"latency_us": 1.15 * fastest}
    plans = every_plan(problem, bounds)
    found = mix_plans(problem, bounds)
    if not plans:
        assert found is None
        return
    program = Program()
    rates = [program.variable(cost=-1.0) for _ in plans]
    for device in range(len(problem.devices)):
        program.row({f: load[device] for f, load in zip(rates, plans, strict=True)}, high=1.0)
    best = -1e6 * program.solve().value
    assert found is not None
    assert found.qps == pytest.approx(best, rel=1e-5)
    assert best * (1 - 1e-6) <= found.bound <= best * (1 + 1e-4)
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    for device in range(len(problem.devices)):
        busy = sum(found.qps * p.share * p.placing.load[device] for p in found.parts)
        assert busy <= 1e6 * (1 + 1e-6)
    for part in found.parts:
        assert len(set(part.placing.devices) - {0}) <= 1


def test_identical_cores_get_mirrored_plans() -> None:
    problem = random_problem(4001, kernels=7, cores=2)
    found = mix_plans(problem, {})
    assert found is not None
    by_core = dict.fromkeys(problem.cores, 0.0)
    for part in found.parts:
        for core in set(part.placing.devices) - {0}:
            by_core[core] += part.share
    assert by_core[1] == pytest.approx(by_core[2])
    assert by_core[1] > 0
