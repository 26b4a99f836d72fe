"""A placement problem in integers, as the CP-SAT worker takes it (see ``_steps_task``)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from edgekit.solver._problem import OUTSIDE, Border, Cost, Goal, Placing, Problem, Transfer

__all__ = ["Row", "Scale", "clauses", "measures", "positions", "steps_request", "twins"]

DIGITS = 7
"""Decimal digits of a sum that survive the rounding to integers."""
LARGEST = 1e13
"""Of a sum, in units: CP-SAT's linear programmes work in doubles."""


FACTORS = (*(10.0**digits for digits in range(7)), *(2.0**bits for bits in range(4, 41, 4)))
"""At which numbers may be whole: of few decimals, or those divided by a power of two."""


class Scale:
    """Integers of a measure: ``factor`` units each, ``slack`` units of rounding in any sum.

    Numbers of few decimals are kept exactly; then there is no slack.
    """

    def __init__(self, values: Iterable[float], terms: int, total: float) -> None:
        numbers = [abs(value) for value in values if value]
        self.factor = 1.0
        self.slack = 0
        most = max(numbers, default=0.0) * max(1, terms)
        for self.factor in FACTORS:
            if most * self.factor <= LARGEST and all(_whole(v * self.factor) for v in numbers):
                return
        self.slack = math.ceil(terms / 2)
        wanted = math.ceil(math.log10(max(1, self.slack) / max(total, 1e-9)) + DIGITS)
        sound = math.floor(math.log10(LARGEST / most))
        self.factor = 10.0 ** min(wanted, sound)

    def __call__(self, value: float) -> int:
        """Returns the nearest integer."""
        return round(value * self.factor)

    def below(self, value: float) -> int:
        """Returns what a sum of at least ``value`` is not below."""
        return math.floor(value * self.factor * (1 - 1e-12)) - self.slack

    def limit(self, value: float, strict: bool) -> int:
        """Returns the limit of a sum of at most ``value``: let through in doubt, or not."""
        exact = math.floor(value * self.factor * (1 + 1e-12))
        return exact - self.slack if strict else exact + self.slack

    def bound(self, value: float) -> float:
        """Returns what the sum itself cannot be below when its integers are not below ``value``."""
        return (value - self.slack) / self.factor


def _whole(value: float) -> bool:
    """Whether a value is whole but for its rounding as a double."""
    return abs(value - round(value)) <= max(1e-9, 4 * math.ulp(value))


def measures(problem: Problem, goal: Goal) -> tuple[list[tuple[Any, float | None]], int]:
    """Returns the sums that matter with their limits; the first ones are the objective's.

    Each is a function of a cost; the second result says how many form the objective.
    """
    found: list[tuple[Any, float | None]] = []
    if goal.weights is None:
        found += [(_weighted((*row, 0.0), 0.0), None) for row in problem.shares]
    else:
        found.append((_weighted(goal.weights, goal.energy), None))
    objective = len(found)
    for name, limit in sorted(goal.bounds.items()):
        if name == "latency_us":
            found.append((lambda cost: sum(cost.load_us), limit))
        elif name == "energy_uj":
            found.append((lambda cost: cost.energy_uj, limit))
        elif name == "period_us":
            found += [(_weighted((*row, 0.0), 0.0), limit) for row in problem.shares]
        else:
            gpus = [d for d, device in enumerate(problem.devices) if device == "GPU"]
            found.append((lambda cost, gpus=gpus: sum(cost.load_us[d] for d in gpus), limit))
    return found, objective


def _weighted(weights: tuple[float, ...], energy: float) -> Any:
    def value(cost: Cost) -> float:
        total = sum(w * us for w, us in zip(weights, cost.load_us, strict=True))
        return total + energy * cost.energy_uj

    return value


def clauses(problem: Problem, border: Border, transfer: Transfer) -> list[list[Any]]:
    """Returns when a transfer is paid: producer, its modes, consumer, its modes (-1: outside).

    Producer's modes with the same consumer's modes go together, which is tight for a transfer
    between two kinds of device.
    """
    readers: dict[int, set[int]] = {}
    for writing, reading in transfer.pairs:
        readers.setdefault(writing, set()).add(reading)
    groups: dict[frozenset[int], list[int]] = {}
    for mode, needing in sorted(readers.items()):
        groups.setdefault(frozenset(needing), []).append(mode)
    found: list[list[Any]] = []
    for reads, written in groups.items():
        writes = sorted(written)
        if border.producer == OUTSIDE:
            if problem.outside not in writes:
                continue
            writes = []
        for consumer in border.consumers:
            if any(problem.costs[consumer][m] is not None for m in reads):
                found.append([border.producer, writes, consumer, sorted(reads)])
        if border.output and problem.outside in reads and border.producer != OUTSIDE:
            found.append([border.producer, writes, OUTSIDE, []])
    return found


def twins(problem: Problem, goal: Goal) -> list[list[int]]:
    """Returns pairs of cores that can be exchanged in any placement without a change."""
    found = []
    for first, second in zip(problem.cores, problem.cores[1:], strict=False):
        if _exchangeable(problem, goal, first, second):
            found.append([first, second])
    return found


def _exchangeable(problem: Problem, goal: Goal, first: int, second: int) -> bool:
    """Whether exchanging the two devices (and their modes) leaves the problem as it is."""
    swap = {first: second, second: first}
    named = {(mode.device, mode.reads, mode.writes): m for m, mode in enumerate(problem.modes)}
    image = []
    for mode in problem.modes:
        other = named.get((swap.get(mode.device, mode.device), mode.reads, mode.writes))
        if other is None:
            return False
        image.append(other)
    swapped = {tuple(row[swap.get(d, d)] for d in range(len(row))) for row in problem.shares}
    if swapped != set(problem.shares):
        return False
    weights = goal.weights
    if weights is not None and weights[first] != weights[second]:
        return False
    if len(named) < len(problem.modes) or image[problem.outside] != problem.outside:
        return False

    def turned(cost: Cost | None) -> Cost | None:
        if cost is None:
            return None
        loads = list(cost.load_us)
        loads[first], loads[second] = loads[second], loads[first]
        return Cost(tuple(loads), cost.energy_uj)

    def same_transfer(t: Transfer) -> bool:
        pairs = frozenset((image[a], image[b]) for a, b in t.pairs)
        return pairs == t.pairs and all(turned(way) == way for way in t.ways)

    def same_transfers(border: Border) -> bool:
        kinds = {(t.pairs, t.ways) for t in border.transfers}
        return all(
            same_transfer(t)
            or (
                frozenset((image[a], image[b]) for a, b in t.pairs),
                tuple(turned(way) for way in t.ways),
            )
            in kinds
            for t in border.transfers
        ) and len(kinds) == len(border.transfers)

    return (
        turned(problem.launch[first]) == problem.launch[second]
        and all(
            turned(costs[m]) == costs[image[m]]
            for costs in problem.costs
            for m in range(len(image))
        )
        and all(same_transfers(border) for border in problem.borders)
    )


@dataclass(frozen=True, slots=True)
class Row:
    """The positions of a network.

    Attributes:
        devices: Of each position.
        width: Positions of a level.
        limited: Whether device changes are limited.
        tail: Whether the last position stands for all further levels.
        short: Whether a placement could need further levels.
    """

    devices: list[list[int]]
    width: int
    limited: bool
    tail: bool
    short: bool


def positions(
    problem: Problem, network: int, *, most: int, levels: int, tail: bool, joined: bool = True
) -> Row:
    """Returns a network's positions.

    Args:
        most: Loadables that a placement of interest can have.
        levels: At most so many; ``tail`` says what becomes of further ones that there can be.
        joined: Whether loadables in a row that could be one are worth no positions of their own.
    """
    cores = problem.cores
    others = [d for d in range(len(problem.devices)) if d not in cores]
    limited = problem.contiguous[network] or problem.max_transitions[network] is not None
    runs = [[d] for d in others] if limited else [others] * bool(others)
    level = [*runs, *([core] for core in cores)]
    count = _levels(problem, network, most, len(others), joined)
    short = count > levels
    tail = tail and short
    row = [*(level * min(count, levels)), *runs, *([[*others, *cores]] * tail)]
    return Row(row, len(level), limited, tail, short)


def _levels(problem: Problem, network: int, most: int, others: int, joined: bool) -> int:
    """Returns how many levels any placement, brought into its simplest order, can need."""
    cores = set(problem.cores)
    nodes = problem.networks[network]
    changes, contiguous = problem.max_transitions[network], problem.contiguous[network]
    if others > 1 and (changes is not None or contiguous):
        return len(nodes)
    able = [v for v in nodes if any(problem.device(m) in cores for m in _modes(problem, v))]
    sizes = problem.sizes or (1,) * len(problem.costs)
    bounds = [len(able), most, sum(sizes[v] for v in able) // max(1, problem.min_size)]
    if problem.max_loadables is not None:
        bounds.append(problem.max_loadables * len(cores))
    if joined and not problem.pools and problem.fits is None:  # then loadables in a row can be one
        if len(cores) == 1:
            free = [
                v for v in nodes if not all(problem.device(m) in cores for m in _modes(problem, v))
            ]
            bounds.append(len(free) + 1)
        if changes is not None:
            bounds.append(changes // 2 + 1 if len(cores) == others == 1 else changes + 1)
        if contiguous:
            bounds.append(len(cores))
    return max(0, min(bounds))


def _modes(problem: Problem, v: int) -> list[int]:
    return [m for m, cost in enumerate(problem.costs[v]) if cost is not None]


def _hint(rows: list[Row], problem: Problem, placing: Placing) -> dict[str, Any]:
    """Returns a placing as modes and positions, its steps put at the first position they can."""
    position = [0] * len(problem.costs)
    at = [0] * len(rows)
    for step in placing.steps:
        row = rows[step.network].devices
        while at[step.network] < len(row) - 1 and step.device not in row[at[step.network]]:
            at[step.network] += 1
        for v in step.nodes:
            position[v] = at[step.network]
        if step.device in problem.cores:
            at[step.network] = min(at[step.network] + 1, len(row) - 1)
    return {"mode": list(placing.modes), "position": position}


def steps_request(
    problem: Problem,
    goal: Goal,
    rows: list[Row],
    *,
    start: Placing | None,
    lower: float,
    strict: bool,
) -> tuple[dict[str, Any], Scale]:
    """Returns the worker's request (without forbidden sets) and the objective's scale."""
    found, objective = measures(problem, goal)
    costs = [[(m, c) for m, c in enumerate(cost) if c is not None] for cost in problem.costs]
    transfers = [(b, t) for b in problem.borders for t in b.transfers]
    launch = [
        problem.launch[core] or Cost((0.0,) * (len(problem.devices) + 1)) for core in problem.cores
    ]
    every = [
        *(c for cost in costs for _, c in cost),
        *(w for _, t in transfers for w in t.ways),
        *launch,
    ]
    terms = len(costs) + len(transfers) + sum(len(row.devices) for row in rows)

    def scale_of(rates: list[Any]) -> Scale:
        least = sum(min(sum(rate(c) for rate in rates) for _, c in cost) for cost in costs)
        least /= len(rates)
        total = max(least, lower, 1e-6) if rates[0] is found[0][0] else max(least, 1e-6)
        return Scale((rate(c) for c in every for rate in rates), terms, total)

    scale = scale_of([rate for rate, _ in found[:objective]])
    rows_of = []
    for index, (rate, limit) in enumerate(found):
        own = scale if index < objective else scale_of([rate])
        rows_of.append({
            "modes": [{m: own(rate(c)) for m, c in cost} for cost in costs],
            "ways": [[own(rate(w)) for w in t.ways] for _, t in transfers],
            "launch": [own(rate(c)) for c in launch],
            "limit": None if limit is None else own.limit(limit, strict),
        })  # fmt: skip
    nodes = problem.networks
    request = {
        "allowed": [[m for m, _ in cost] for cost in costs],
        "mode_device": [mode.device for mode in problem.modes],
        "cores": list(problem.cores),
        "twins": twins(problem, goal),
        "networks": [
            {
                "nodes": list(nodes[i]),
                "edges": [[u, v] for v in nodes[i] for u in problem.predecessors[v]],
                "positions": row.devices,
                "width": row.width,
                "limited": row.limited,
                "tail": row.tail,
                "max_transitions": problem.max_transitions[i],
                "contiguous": problem.contiguous[i],
            }
            for i, row in enumerate(rows)
        ],
        "pools": [_pool(pool) for pool in problem.pools],
        "min_size": problem.min_size,
        "sizes": list(problem.sizes or (1,) * len(costs)),
        "max_loadables": problem.max_loadables,
        "transfers": [
            {"ways": len(t.ways), "clauses": clauses(problem, b, t)} for b, t in transfers
        ],
        "measures": rows_of,
        "objective": list(range(objective)),
        "lower": max(0, scale.below(lower)),
        "upper": 2**60 if start is None else scale.limit(start.value, strict=False),
        "hint": None if start is None else _hint(rows, problem, start),
    }
    return request, scale


def _pool(pool: Any) -> dict[str, Any]:
    scale = Scale((*pool.needs, pool.limit), len(pool.needs), pool.limit or 1.0)
    return {"needs": [scale(need) for need in pool.needs], "limit": scale.limit(pool.limit, False)}
