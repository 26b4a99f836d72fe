"""Brute force over every assignment, written apart from the optimiser, for small problems."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from edgekit.placement._problem import OUTSIDE, Border, Problem


def random_problem(
    seed: int, *, kernels: int, cores: int, twins: bool = True, slots: int = 16
) -> Problem:
    """A random branching graph; about one kernel in six is GPU only, one in twelve DLA only."""
    rng = random.Random(seed)
    count = rng.randint(2, kernels)
    whole = rng.random() < 0.4  # whole numbers make ties
    draw = (lambda a, b: float(rng.randint(a, b))) if whole else rng.uniform
    times: list[tuple[float | None, ...]] = []
    for _ in range(count):
        gpu: float | None = draw(1, 20)
        dla = draw(1, 20)
        row: list[float | None] = [dla if twins else dla * rng.uniform(0.8, 1.4)]
        row += [dla if twins else dla * rng.uniform(0.8, 1.4) for _ in range(cores - 1)]
        kind = rng.random()
        if kind < 1 / 6:
            row = [None] * cores
        elif kind < 1 / 4:
            gpu = None
        times.append((gpu, *row))
    borders = []
    for producer in range(OUTSIDE, count):
        later = range(producer + 1, count)
        users = [v for v in later if rng.random() < (0.75 if v == producer + 1 else 0.2)]
        output = producer == count - 1 or rng.random() < 0.1
        if producer == OUTSIDE:
            users, output = [0], False
        borders.append(Border(producer, tuple(users), draw(0, 6), draw(0, 6), output))
    watts = (rng.uniform(2, 4), *([rng.uniform(0.5, 2)] * cores))
    names = ("GPU", "DLA0", "DLA1")[: cores + 1]
    return Problem(names, tuple(times), tuple(borders), draw(0, 5), slots, watts)


def brute(
    problem: Problem,
    value: Callable[[Sequence[float]], float],
    bounds: Mapping[str, float] | None = None,
) -> tuple[float, list[tuple[tuple[int, ...], dict[int, int]]]]:
    """Returns the least value over all assignments, and every way to reach it."""
    spots = [[d for d, us in enumerate(row) if us is not None] for row in problem.times]
    best, ways = float("inf"), []
    for devices in itertools.product(*spots):
        used = {d for d in devices if d}
        cheapest = value(_loads(problem, devices, dict.fromkeys(used, 1)))
        if cheapest > best + 1e-9:
            continue
        for counts in _counts(problem, devices):
            if any(n > problem.max_loadables for n in counts.values()):
                continue
            load = _loads(problem, devices, counts)
            if not _within(problem, load, bounds or {}):
                continue
            found = value(load)
            if found < best - 1e-9:
                best, ways = found, []
            if found <= best + 1e-9:
                ways.append((devices, counts))
    return best, ways


def _within(problem: Problem, load: Sequence[float], bounds: Mapping[str, float]) -> bool:
    have = {
        "latency_us": sum(load),
        "gpu_us": load[0],
        "energy_uj": sum(w * x for w, x in zip(problem.watts, load, strict=True)),
    }
    return all(have[name] <= limit * (1 + 2e-6) for name, limit in bounds.items())


def _loads(problem: Problem, devices: Sequence[int], counts: Mapping[int, int]) -> list[float]:
    load = [0.0] * len(problem.devices)
    for v, d in enumerate(devices):
        load[d] += problem.times[v][d]
    for border in problem.borders:
        source = 0 if border.producer == OUTSIDE else devices[border.producer]
        goals = [devices[v] for v in border.consumers] + ([0] if border.output else [])
        if source == 0:
            load[0] += border.to_dla_us * any(goals)
        else:
            load[0] += border.to_gpu_us * (0 in goals)
    for core, n in counts.items():
        load[core] += n * problem.launch_us
    return load


def _counts(problem: Problem, devices: Sequence[int]) -> list[dict[int, int]]:
    """Every pair of loadable counts over all topological orders of single kernels."""
    n = len(devices)
    needs = [0] * n
    for border in problem.borders:
        if border.producer != OUTSIDE:
            for v in border.consumers:
                needs[v] |= 1 << border.producer

    @cache
    def rest(done: int, current: int) -> frozenset[tuple[int, int]]:
        if done == (1 << n) - 1:
            return frozenset({(0, 0)})
        found = set()
        for v in range(n):
            if not done >> v & 1 and needs[v] & done == needs[v]:
                d = devices[v]
                first, second = (int(d == c and current != c) for c in (1, 2))
                for a, b in rest(done | 1 << v, d):
                    found.add((a + first, b + second))
        return frozenset(
            p for p in found if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in found)
        )

    return [{c: k for c, k in ((1, a), (2, b)) if k} for a, b in rest(0, 0)]
