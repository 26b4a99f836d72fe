"""Throughput: the best mix of plans, each on the GPU and at most one DLA core.

Frames may use different plans, so the steady state is a linear programme over plans: maximise the
sum of their rates such that no device works more than a second a second. Its columns are found as
they are needed (Dantzig and Wolfe, 1960): the prices of the devices weigh their loads in the exact
optimiser, which returns the plan that is worth most, or proves that none is missing. Identical
cores are one resource with their number as capacity; each plan is then mirrored over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.placement._goal import Goal, Placing, settle
from edgekit.placement._highs import INFINITY, Program
from edgekit.placement._optimum import minimise
from edgekit.placement._problem import Problem

__all__ = ["Mix", "Part", "mix_plans"]

ENOUGH = 1e-6  # relative distance to the bound at which no further plan is looked for
ROUNDS = 60
NOTHING = 1e-9  # a share below this is rounding


@dataclass(frozen=True, slots=True)
class Part:
    """A plan of a mix: its share of the frames and its placement over all devices."""

    share: float
    placing: Placing


@dataclass(frozen=True, slots=True)
class Mix:
    """Plans with shares that add up to 1, frames a second, and a proven upper bound of that."""

    parts: tuple[Part, ...]
    qps: float
    bound: float


@dataclass(frozen=True, slots=True)
class _Lane:
    """Cores that are alike: the problem with one of them, and how many there are."""

    problem: Problem
    cores: tuple[int, ...]


_Column = tuple[int, Placing]  # a lane and a plan in it


def mix_plans(
    problem: Problem, bounds: Mapping[str, float], known: Sequence[Placing] = ()
) -> Mix | None:
    """Returns the mix with the most frames a second, or None when no plan keeps the bounds.

    Args:
        problem: GPU and the cores in use.
        bounds: Limits that every plan of the mix keeps.
        known: Placements over ``problem`` to begin with, on at most one core each.
    """
    lanes = _lanes(problem)
    mix = _generate(problem, lanes, bounds, known)
    if mix is None:
        return None
    slots = max((_slots(mix, core) for core in problem.cores), default=0)
    if slots <= problem.max_loadables:
        return mix
    # Both plans of a core stay loaded and share its slots: a basic solution has two at most.
    fewer = replace(problem, max_loadables=problem.max_loadables // 2)
    fitting = _generate(fewer, _lanes(fewer), bounds, ())
    return Mix(fitting.parts, fitting.qps, mix.bound) if fitting else None


def _lanes(problem: Problem) -> list[_Lane]:
    if not problem.cores:
        return [_Lane(problem, ())]
    if problem.twins:
        return [_Lane(problem.only(1), problem.cores)]
    return [_Lane(problem.only(core), (core,)) for core in problem.cores]


def _slots(mix: Mix, core: int) -> int:
    return sum(part.placing.sequence.count(core) for part in mix.parts)


def _generate(
    problem: Problem,
    lanes: Sequence[_Lane],
    bounds: Mapping[str, float],
    known: Sequence[Placing],
) -> Mix | None:
    columns: list[_Column] = []
    for number, lane in enumerate(lanes):
        ones = (1.0,) * len(lane.problem.devices)
        found = minimise(lane.problem, Goal(ones, bounds)).placing
        if found:
            columns.append((number, found))
        columns += [(number, own) for own in (_in_lane(lane, bounds, p) for p in known) if own]
    if not columns:
        return None
    bound = INFINITY
    rates: list[float] = []
    for _ in range(ROUNDS):
        rates, prices = _master(lanes, columns)
        fresh, least = [], INFINITY
        for number, lane in enumerate(lanes):
            weights = (prices[0], prices[1 + number])[: len(lane.problem.devices)]
            best = minimise(lane.problem, Goal(weights, bounds))
            least = min(least, best.bound)
            if best.placing:
                fresh.append((number, best.placing))
        if least > 0:
            paid = prices[0] + sum(
                len(lane.cores) * price for lane, price in zip(lanes, prices[1:], strict=True)
            )
            bound = min(bound, paid / least)
        new = [column for column in fresh if column not in columns]
        if sum(rates) >= bound * (1 - ENOUGH) or not new:
            break
        columns += new
    return _mirrored(problem, lanes, columns, rates, bound)


def _in_lane(lane: _Lane, bounds: Mapping[str, float], placing: Placing) -> Placing | None:
    """Returns a placement seen from a lane, or None when it uses other cores than one of it."""
    used = set(placing.devices) - {0}
    if len(used) > 1 or not used <= set(lane.cores):
        return None
    devices = [int(d != 0) for d in placing.devices]
    return settle(lane.problem, devices, [1] * len(placing.sequence), Goal(None, bounds))


def _master(
    lanes: Sequence[_Lane], columns: Sequence[_Column]
) -> tuple[list[float], tuple[float, ...]]:
    """Solves the programme over the known plans: rates (frames a microsecond) and prices."""
    unit = sum(columns[0][1].load)  # rates near 1: the solver's tolerances are absolute
    program = Program()
    rates = [program.variable(cost=-1.0) for _ in columns]
    program.row({f: p.load[0] / unit for f, (_, p) in zip(rates, columns, strict=True)}, high=1.0)
    for number, lane in enumerate(lanes):
        used = {
            f: placing.load[1] / unit
            for f, (own, placing) in zip(rates, columns, strict=True)
            if own == number and lane.cores
        }
        program.row(used, high=float(len(lane.cores)))
    solved = program.solve()
    assert solved.values is not None
    prices = tuple(max(0.0, -dual / unit) for dual in solved.row_duals)
    return [value / unit for value in solved.values], prices


def _mirrored(
    problem: Problem,
    lanes: Sequence[_Lane],
    columns: Sequence[_Column],
    rates: Sequence[float],
    bound: float,
) -> Mix:
    total = sum(rates)
    shares: dict[tuple[int, ...], tuple[float, Placing]] = {}
    for (number, placing), rate in zip(columns, rates, strict=True):
        if rate <= NOTHING * total:
            continue
        cores = lanes[number].cores if any(placing.devices) else (0,)
        for core in cores:
            devices = tuple(core * d for d in placing.devices)
            sequence = (core,) * len(placing.sequence)
            load = [0.0] * len(problem.devices)
            for device, us in zip((0, core), placing.load, strict=False):
                load[device] += us
            whole = Placing(devices, sequence, tuple(load), max(load))
            before = shares.get(devices, (0.0, whole))[0]
            shares[devices] = (before + rate / len(cores), whole)
    kept = sum(rate for rate, _ in shares.values())
    parts = [Part(rate / kept, placing) for rate, placing in shares.values()]
    parts.sort(key=lambda part: (-round(part.share, 9), part.placing.devices))
    return Mix(tuple(parts), 1e6 * total, 1e6 * max(bound, total))
