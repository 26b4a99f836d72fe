"""Brute force over every assignment and every running order, written apart from the optimiser.

Numpy gives a lower bound for each assignment (its loads with one launch per core in use and the
cheapest ways); in ascending order of it, all legal partitions into loadables are tried until the
bound passes the best value. ``random_case`` draws small branching problems of every kind.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from edgekit.solver import OUTSIDE, Border, Cost, Goal, Mode, Pool, Problem, Transfer

OBJECTIVES = ("latency", "period", "energy", "gpu_time")
KINDS = (
    "pins", "bounds", "slots", "launch", "pools", "fits", "min_size", "max_transitions",
    "contiguous", "formats", "two networks", "twins", "two cores", "ways", "delay", "no gpu",
)  # fmt: skip
ASSIGNMENTS = 120_000  # of the largest problem
Counts = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A random problem, its goal, and the kinds of constraints in it."""

    problem: Problem
    goal: Goal
    objective: str
    kinds: tuple[str, ...]


def random_case(seed: int, nodes: int = 12) -> Case:
    """Draws a case: objectives and kinds take turns, so that few seeds cover them all."""
    rng = random.Random(seed)
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    kinds = {KINDS[seed // len(OBJECTIVES) % len(KINDS)]}
    kinds |= {kind for kind in KINDS[:-1] if rng.random() < 0.12}
    if "no gpu" in kinds:
        kinds -= {"formats"}
        if kinds.isdisjoint({"two cores", "twins"}):
            kinds.add("two cores")
    if "twins" in kinds:
        kinds.discard("two cores")
    problem = _problem(rng, kinds, nodes)
    goal = Goal.of(problem, objective)
    if "bounds" in kinds:
        goal = _bounded(rng, problem, goal)
    return Case(problem, goal, objective, tuple(kind for kind in KINDS if kind in kinds))


def _problem(rng: random.Random, kinds: set[str], most: int) -> Problem:
    cores = 2 if kinds & {"two cores", "twins"} else 1
    gpu = "no gpu" not in kinds
    devices = (*(["GPU"] if gpu else []), *(f"DLA{i}" for i in range(cores)))
    modes = [Mode(d) for d in range(len(devices))]
    if "formats" in kinds:
        modes = [Mode(0, "a", "a"), Mode(0, "b", "b"), *(Mode(d, "b", "b") for d in (1, 2)[:cores])]
        if rng.random() < 0.4:
            modes.append(Mode(0, "a", "b"))
    size = rng.randint(2, most)
    while len(modes) ** size > ASSIGNMENTS:
        size -= 1
    whole = rng.random() < 0.4  # whole numbers make ties
    draw = (lambda a, b: float(rng.randint(a, b))) if whole else rng.uniform
    twins = "twins" in kinds
    factor = [1.0] * len(devices) if twins else [rng.uniform(0.7, 1.4) for _ in devices]

    def load(device: int, us: float, uj: float) -> Cost:
        return Cost(tuple(us * (r == device) for r in range(len(devices) + 1)), uj)

    costs: list[tuple[Cost | None, ...]] = []
    for _ in range(size):
        on_gpu, on_dla = draw(1, 20), draw(1, 20)
        spent = draw(1, 20), draw(1, 20)
        kind = rng.random() if "pins" in kinds and gpu else 1.0
        row: list[Cost | None] = []
        for mode in modes:
            dla = mode.device > 0 or not gpu
            us = on_dla * factor[mode.device] if dla else on_gpu * rng.choice((1.0, 1.0, 1.2))
            able = (kind > 0.2 or not dla) and (kind <= 0.8 or dla or "pins" not in kinds)
            row.append(load(mode.device, us, spent[dla] * factor[mode.device]) if able else None)
        costs.append(tuple(row))
    network_of: tuple[int, ...] = ()
    if "two networks" in kinds and size > 1:
        cut = rng.randint(1, size - 1)
        network_of = tuple(int(v >= cut) for v in range(size))
    networks = max(network_of, default=0) + 1
    borders = _borders(rng, kinds, modes, devices, costs, network_of, draw)
    pools = ()
    if "pools" in kinds:
        limit = draw(6, 20)
        pools = (Pool("weights", limit, tuple(draw(0, 8) for _ in range(size))),)
    allowed = None
    if "fits" in kinds:
        apart = [frozenset(rng.sample(range(size), min(size, 2))) for _ in range(size // 2)]
        allowed = _Apart(tuple(apart))
    launch = draw(1, 6) if "launch" in kinds or rng.random() < 0.5 else 0.0
    return Problem(
        devices,
        tuple(modes),
        tuple(costs),
        borders,
        tuple(None if name == "GPU" else load(d, launch, launch / 2)
              for d, name in enumerate(devices)),
        rng.randint(1, 3) if "slots" in kinds else 16,
        pools,
        allowed,
        rng.randint(2, 3) if "min_size" in kinds else 0,
        tuple(rng.randint(1, 3) for _ in range(size)) if rng.random() < 0.3 else (),
        0,
        network_of,
        tuple(
            rng.randint(0, 3) if "max_transitions" in kinds else None for _ in range(networks)
        ),
        ("contiguous" in kinds,) * networks,
    )  # fmt: skip


@dataclass(frozen=True)
class _Apart:
    """Nodes that cannot share a loadable."""

    pairs: tuple[frozenset[int], ...]

    def __call__(self, nodes: frozenset[int]) -> bool:
        return not any(len(pair) > 1 and pair <= nodes for pair in self.pairs)


def _borders(rng, kinds, modes, devices, costs, network_of, draw):  # type: ignore[no-untyped-def]
    size = len(costs)
    borders = []
    for producer in (*([OUTSIDE] * (max(network_of, default=0) + 1)), *range(size)):
        if producer == OUTSIDE:
            first = len(borders) and network_of.index(1)
            users, output = [first], False
        else:
            users = [
                v
                for v in range(producer + 1, size)
                if (not network_of or network_of[v] == network_of[producer])
                and rng.random() < (0.75 if v == producer + 1 else 0.2)
            ]
            output = not users or rng.random() < 0.1
        borders.append(
            Border(producer, tuple(users), _transfers(rng, kinds, modes, devices, draw), output)
        )
    return tuple(borders)


def _transfers(rng, kinds, modes, devices, draw):  # type: ignore[no-untyped-def]
    """One transfer per pair of kinds of modes; the kind is the device and its format."""
    twins = "twins" in kinds
    known: dict[object, tuple[Cost, ...]] = {}
    pairs: dict[object, set[tuple[int, int]]] = {}
    together = rng.random() < 0.5  # a tensor brought to one core is there for the other, too
    for (i, a), (j, b) in itertools.product(enumerate(modes), repeat=2):
        if (a.device, a.writes) == (b.device, b.reads):
            continue
        if a.device != b.device and "GPU" not in (devices[a.device], devices[b.device]):
            key: object = (
                "DLA",
                frozenset((a.device, b.device)) if twins else (a.device, b.device),
            )
        elif together or twins:
            key = (devices[a.device][:3], a.writes, devices[b.device][:3], b.reads)
        else:
            key = (a.device, a.writes, b.device, b.reads)
        pairs.setdefault(key, set()).add((i, j))
        if key not in known:
            known[key] = tuple(
                _way(rng, kinds, devices, draw) for _ in range(2 if "ways" in kinds else 1)
            )
    return tuple(Transfer(frozenset(pairs[key]), known[key]) for key in known)


def _way(rng, kinds, devices, draw):  # type: ignore[no-untyped-def]
    loads = [0.0] * (len(devices) + 1)
    place = len(devices) if "delay" in kinds and rng.random() < 0.6 else 0
    if "ways" in kinds and rng.random() < 0.5 and "twins" not in kinds:
        place = rng.randrange(len(devices))
    if "twins" in kinds and devices[0] != "GPU":
        place = len(devices)
    loads[place] = draw(0, 6)
    return Cost(tuple(loads), draw(0, 4))


def _bounded(rng: random.Random, problem: Problem, goal: Goal) -> Goal:
    """Bounds that a random assignment nearly keeps, sometimes ones that nothing can keep."""
    loads, energy = np.zeros(len(problem.devices) + 1), 0.0
    for row in problem.costs:
        cost = rng.choice([c for c in row if c is not None])
        loads += cost.load_us
        energy += cost.energy_uj
    bounds = {
        "latency_us": float(loads.sum()) * rng.uniform(0.8, 1.6),
        "energy_uj": energy * rng.uniform(0.8, 1.6),
        "period_us": float(loads.max()) * rng.uniform(0.8, 1.6),
    }
    if problem.devices[0] == "GPU":
        bounds["gpu_us"] = float(loads[0]) * rng.uniform(0.9, 2.0) + 2.0
    names = sorted(rng.sample(sorted(bounds), rng.randint(1, 2)))
    return replace(goal, bounds={name: bounds[name] for name in names})


def brute(problem: Problem, goal: Goal) -> float:
    """Returns the least value, infinite when nothing is allowed."""
    spots = [[m for m, cost in enumerate(row) if cost is not None] for row in problem.costs]
    choices = np.array(list(itertools.product(*spots)), dtype=np.int16)
    loads, options = _loads(problem, choices)
    device = np.array([mode.device for mode in problem.modes])[choices]
    low = loads.copy()
    for one in options:
        for paid, costs in one:
            low[paid] += costs.min(axis=0)
    for core in problem.cores:
        for nodes in problem.networks:
            if nodes:
                used = (device[:, nodes] == core).any(axis=1)
                low[used] += _vector(problem.launch[core])
    bound = _value(goal, low)
    bound[~_keeps(problem, goal, low)] = np.inf
    best = np.inf
    for i in np.argsort(bound, kind="stable"):
        if bound[i] >= best - 1e-9:
            break
        ways = [costs for one in options for paid, costs in one if paid[i]]
        best = min(best, _least(problem, goal, device[i].tolist(), loads[i], ways, best))
    return float(best)


def _vector(cost: Cost | None) -> np.ndarray:
    assert cost is not None
    return np.array([*cost.load_us, cost.energy_uj])


def _loads(problem: Problem, choices: np.ndarray):  # type: ignore[no-untyped-def]
    """Returns what the nodes take, and by border (where paid, its ways) of its transfers."""
    loads = np.zeros((len(choices), len(problem.devices) + 2))
    for v, row in enumerate(problem.costs):
        table = np.array(
            [np.zeros(loads.shape[1]) if cost is None else _vector(cost) for cost in row]
        )
        loads += table[choices[:, v]]
    options = []
    for border in problem.borders:
        one = []
        outside = np.full(len(choices), problem.outside)
        source = outside if border.producer == OUTSIDE else choices[:, border.producer]
        ends = [choices[:, v] for v in border.consumers] + ([outside] if border.output else [])
        for transfer in border.transfers:
            table = np.zeros((len(problem.modes),) * 2, dtype=bool)
            for a, b in transfer.pairs:
                table[a, b] = True
            paid = np.zeros(len(choices), dtype=bool)
            for end in ends:
                paid |= table[source, end]
            one.append((paid, np.array([_vector(way) for way in transfer.ways])))
        options.append(one)
    return loads, options


def _value(goal: Goal, loads: np.ndarray) -> np.ndarray:
    if goal.weights is None:
        return loads[:, :-2].max(axis=1)
    return loads[:, :-1] @ np.array(goal.weights) + goal.energy * loads[:, -1]


def _keeps(problem: Problem, goal: Goal, loads: np.ndarray) -> np.ndarray:
    gpu = [d for d, name in enumerate(problem.devices) if name == "GPU"]
    have = {
        "latency_us": loads[:, :-1].sum(axis=1),
        "energy_uj": loads[:, -1],
        "gpu_us": loads[:, gpu].sum(axis=1),
        "period_us": loads[:, :-2].max(axis=1),
    }
    kept = np.ones(len(loads), dtype=bool)
    for name, limit in goal.bounds.items():
        kept &= have[name] <= limit * (1 + 1e-9)
    return kept


def _least(problem, goal, devices, loads, ways, best):  # type: ignore[no-untyped-def]
    every = np.array(
        [
            sum((np.asarray(c) for c in chosen), np.zeros_like(loads))
            for chosen in itertools.product(*ways)
        ]
    ) if len(ways) else np.zeros((1, len(loads)))  # fmt: skip
    every = np.unique(every, axis=0)
    for counts in _counts(problem, devices):
        launched = sum(
            n * _vector(problem.launch[core]) for core, n in zip(problem.cores, counts, strict=True)
        )
        whole = loads + launched + every
        kept = _keeps(problem, goal, whole)
        if kept.any():
            best = min(best, _value(goal, whole[kept]).min())
    return best


def _counts(problem: Problem, devices: list[int]) -> Iterator[Counts]:
    """Yields loadables by core of all networks together, of every legal running order."""
    zero = (0,) * len(problem.cores)
    found = {zero}
    for network in range(len(problem.networks)):
        mine = _Orders(problem, network, devices).counts()
        found = {
            tuple(a + b for a, b in zip(one, two, strict=True)) for one in found for two in mine
        }
    for counts in sorted(found):
        if problem.max_loadables is None or max(counts, default=0) <= problem.max_loadables:
            yield counts


class _Orders:
    """Walks through the running orders of one network, one step (or GPU node) after the other."""

    def __init__(self, problem: Problem, network: int, devices: list[int]) -> None:
        self.problem, self.devices = problem, devices
        self.nodes = frozenset(problem.networks[network])
        self.limit = problem.max_transitions[network]
        self.single = problem.contiguous[network]
        self.tracks = self.limit is not None or self.single
        self.known: dict[object, set[tuple[Counts, int]]] = {}

    def counts(self) -> set[Counts]:
        ends = self._from(frozenset(), None, frozenset())
        return {c for c, changes in ends if self.limit is None or changes <= self.limit}

    def _from(self, done, last, closed):  # type: ignore[no-untyped-def]
        key = (done, last, closed)
        if key not in self.known:
            found = set()
            if done == self.nodes:
                found.add(((0,) * len(self.problem.cores), 0))
            for device, step in self._steps(done):
                if self.single and device in closed:
                    continue
                change = self.tracks and last is not None and device != last
                gone = closed | {last} if change and self.single else closed
                rest = self._from(done | step, device if self.tracks else None, gone)
                for counts, changes in rest:
                    more = tuple(
                        n + (core == device)
                        for core, n in zip(self.problem.cores, counts, strict=True)
                    )
                    found.add((more, changes + change))
            self.known[key] = {
                (c, t)
                for c, t in found
                if not any(
                    (d, u) != (c, t) and u <= t and all(a <= b for a, b in zip(d, c, strict=True))
                    for d, u in found
                )
            }
        return self.known[key]

    def _steps(self, done):  # type: ignore[no-untyped-def]
        """Yields every next step: closed sets of a core's nodes, single nodes elsewhere."""
        before = self.problem.predecessors
        free = sorted(
            v for v in self.nodes - done
            if self.devices[v] not in self.problem.cores and done.issuperset(before[v])
        )  # fmt: skip
        if free:
            yield self.devices[free[0]], frozenset(free[:1])
            if not self.tracks:  # what takes no loadable may as well run first
                return
            for v in free[1:]:
                yield self.devices[v], frozenset((v,))
        for core in self.problem.cores:
            sets = {frozenset[int]()}
            for v in sorted(self.nodes - done):
                if self.devices[v] == core:
                    sets |= {s | {v} for s in sets if (done | s).issuperset(before[v])}
            for chosen in sets - {frozenset()}:
                if self._legal(chosen):
                    yield core, chosen

    def _legal(self, chosen: frozenset[int]) -> bool:
        problem = self.problem
        size = sum(problem.sizes[v] if problem.sizes else 1 for v in chosen)
        return (
            size >= problem.min_size
            and all(sum(p.needs[v] for v in chosen) <= p.limit * (1 + 1e-9) for p in problem.pools)
            and (problem.fits is None or problem.fits(chosen))
        )
