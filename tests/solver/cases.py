"""Small random branching problems of every kind, and what is wrong with a placement of one."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from edgekit.solver.problem import (
    OUTSIDE,
    Border,
    Cost,
    Goal,
    MemoryPool,
    Mode,
    PlacementProblem,
    Placing,
    Transfer,
    metrics,
)

OBJECTIVES = ("latency", "period", "energy", "gpu_time")
KINDS = (
    "pins",
    "bounds",
    "slots",
    "launch",
    "pools",
    "fits",
    "min_size",
    "max_transitions",
    "formats",
    "twins",
    "two cores",
    "ways",
    "delay",
    "no gpu",
)
ASSIGNMENTS = 120_000  # of the largest problem


@dataclass(frozen=True)
class Case:
    """A random problem, its goal, and the kinds of constraints in it."""

    problem: PlacementProblem
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


def _problem(rng: random.Random, kinds: set[str], most: int) -> PlacementProblem:
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
    borders = _borders(rng, kinds, modes, devices, costs, draw)
    pools = ()
    if "pools" in kinds:
        limit = draw(6, 20)
        pools = (MemoryPool("weights", limit, tuple(draw(0, 8) for _ in range(size))),)
    allowed = None
    if "fits" in kinds:
        apart = [frozenset(rng.sample(range(size), min(size, 2))) for _ in range(size // 2)]
        allowed = _Apart(tuple(apart))
    launch = draw(1, 6) if "launch" in kinds or rng.random() < 0.5 else 0.0
    return PlacementProblem(
        devices,
        tuple(modes),
        tuple(costs),
        borders,
        tuple(
            None if name == "GPU" else load(d, launch, launch / 2) for d, name in enumerate(devices)
        ),
        rng.randint(1, 3) if "slots" in kinds else 16,
        pools,
        allowed,
        rng.randint(2, 3) if "min_size" in kinds else 0,
        tuple(rng.randint(1, 3) for _ in range(size)) if rng.random() < 0.3 else (),
        0,
        rng.randint(0, 3) if "max_transitions" in kinds else None,
    )


@dataclass(frozen=True)
class _Apart:
    """Nodes that cannot share a loadable."""

    pairs: tuple[frozenset[int], ...]

    def __call__(self, nodes: frozenset[int]) -> bool:
        return not any(len(pair) > 1 and pair <= nodes for pair in self.pairs)


def _borders(rng, kinds, modes, devices, costs, draw):  # type: ignore[no-untyped-def]
    size = len(costs)
    borders = []
    for producer in (OUTSIDE, *range(size)):
        if producer == OUTSIDE:
            users, output = [0], False
        else:
            users = [
                v
                for v in range(producer + 1, size)
                if rng.random() < (0.75 if v == producer + 1 else 0.2)
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


def _bounded(rng: random.Random, problem: PlacementProblem, goal: Goal) -> Goal:
    """Bounds that a random assignment nearly keeps, sometimes ones that nothing can keep."""
    loads, energy = [0.0] * (len(problem.devices) + 1), 0.0
    for row in problem.costs:
        cost = rng.choice([c for c in row if c is not None])
        loads = [a + b for a, b in zip(loads, cost.load_us, strict=True)]
        energy += cost.energy_uj
    bounds = {
        "latency_us": sum(loads) * rng.uniform(0.8, 1.6),
        "energy_uj": energy * rng.uniform(0.8, 1.6),
        "period_us": max(loads) * rng.uniform(0.8, 1.6),
    }
    if problem.devices[0] == "GPU":
        bounds["gpu_us"] = loads[0] * rng.uniform(0.9, 2.0) + 2.0
    names = sorted(rng.sample(sorted(bounds), rng.randint(1, 2)))
    return replace(goal, bounds={name: bounds[name] for name in names})


def faults(problem: PlacementProblem, goal: Goal, placing: Placing) -> list[str]:
    """Returns what is wrong with a placement: its steps, its loads, its value."""
    device = [problem.modes[m].device for m in placing.modes]
    found = []
    if sorted(v for step in placing.steps for v in step.nodes) != list(range(len(device))):
        found.append("steps do not hold every node once")
    done: set[int] = set()
    order: list[int] = []
    used = dict.fromkeys(problem.cores, 0)
    for step in placing.steps:
        if any(device[v] != step.device for v in step.nodes):
            found.append("a step on another device")
        if not done.issuperset(
            u for v in step.nodes for u in problem.predecessors[v] if u not in step.nodes
        ):
            found.append("a step before its inputs")
        done.update(step.nodes)
        order.append(step.device)
        if step.device in problem.cores:
            used[step.device] += 1
            if any(sum(p.needs[v] for v in step.nodes) > p.limit + 1e-6 for p in problem.pools):
                found.append("a pool overflows")
            if problem.fits and not problem.fits(frozenset(step.nodes)):
                found.append("a loadable does not fit")
            size = sum(problem.sizes[v] if problem.sizes else 1 for v in step.nodes)
            if size < problem.min_size:
                found.append("a loadable is too small")
    if problem.max_loadables is not None and max(used.values(), default=0) > problem.max_loadables:
        found.append("too many loadables")
    runs = [d for d, _ in itertools.groupby(order)]
    if problem.max_transitions is not None and len(runs) - 1 > problem.max_transitions:
        found.append("too many transitions")
    return found + _wrong_sums(problem, goal, placing)


def _wrong_sums(problem: PlacementProblem, goal: Goal, placing: Placing) -> list[str]:
    costs = [row[m] for row, m in zip(problem.costs, placing.modes, strict=True)]
    costs += [problem.launch[s.device] for s in placing.steps if s.device in problem.cores]
    ways = {(b, t): w for b, t, w in placing.ways}
    found = []
    for b, border in enumerate(problem.borders):
        ends = [placing.modes[v] for v in border.consumers]
        ends += [problem.outside] * border.output
        source = problem.outside if border.producer == OUTSIDE else placing.modes[border.producer]
        for t, transfer in enumerate(border.transfers):
            if any((source, end) in transfer.pairs for end in ends) != ((b, t) in ways):
                found.append("a transfer that is not needed, or one that is missing")
            elif (b, t) in ways:
                costs.append(transfer.ways[ways[b, t]])
    loads = [sum(c.load_us[r] for c in costs if c) for r in range(len(placing.load_us))]
    energy = sum(c.energy_uj for c in costs if c)
    if None in costs or any(abs(a - b) > 1e-6 for a, b in zip(loads, placing.load_us, strict=True)):
        found.append("wrong loads")
    if (
        abs(energy - placing.energy_uj) > 1e-6
        or abs(goal.value(loads, energy) - placing.value) > 1e-6
    ):
        found.append("wrong energy or value")
    have = metrics(problem, loads, energy)
    found += [
        f"{name} out of bounds"
        for name, limit in goal.bounds.items()
        if have[name] > limit * (1 + 1e-5)
    ]
    return found


def pooled_problem(seed: int, count: int, limit: float, slots: int) -> PlacementProblem:
    """Returns a graph for a GPU and a core with a pool of ``limit`` a loadable."""
    rng = random.Random(seed)
    costs = [
        (Cost((rng.uniform(20, 400), 0, 0)), Cost((0, rng.uniform(10, 300), 0)))
        for _ in range(count)
    ]
    before = [[u for u in range(v) if rng.random() < 2.5 / (v + 1)] for v in range(count)]
    borders = tuple(
        Border(u, users)
        for u in range(count)
        if (users := tuple(v for v in range(count) if u in before[v]))
    )
    needs = tuple(float(rng.randint(1, 30)) for _ in range(count))
    return PlacementProblem(
        devices=("GPU", "DLA0"),
        modes=(Mode(0), Mode(1)),
        costs=tuple(costs),
        borders=borders,
        launch=(None, Cost((0, 20, 0))),
        max_loadables=slots,
        pools=(MemoryPool("weights", limit, needs),),
    )
