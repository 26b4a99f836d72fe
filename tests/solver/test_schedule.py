"""Makespans: every schedule checked by itself, small ones against all assignments and orders."""

import itertools
import math
import random
from dataclasses import replace

import pytest

from edgekit.solver.cpsat.makespan import schedule_once
from edgekit.solver.document import solve_document
from edgekit.solver.problem import Border, Cost, MemoryPool, Mode, PlacementProblem, Transfer

DEVICES = ("GPU", "DLA0", "DLA1")


def load(device: int, us: float, uj: float = 0.0) -> Cost:
    return Cost(tuple(us * (r == device) for r in range(len(DEVICES) + 1)), uj)


def networks(seed: int, sizes: tuple[int, ...], *, delay: bool = False, launch: float = 0.0):
    """Chains with some shortcuts; DLA times drawn apart from the GPU's."""
    rng = random.Random(seed)
    costs, borders, network_of = [], [], []
    for network, size in enumerate(sizes):
        base = len(costs)
        for i in range(size):
            v = base + i
            gpu, dla = rng.randint(1, 20), rng.randint(1, 25)
            costs.append((load(0, gpu, 2 * gpu), load(1, dla, dla), load(2, dla, dla)))
            network_of.append(network)
            users = tuple(w for w in range(v + 1, base + size) if w == v + 1 or rng.random() < 0.3)
            where = 3 if delay else 0
            kinds = [((0, 1), (0, 2)), ((1, 0), (2, 0)), ((1, 2), (2, 1))]
            sent = tuple(
                Transfer(frozenset(pairs), (load(where, rng.randint(0, 6)),)) for pairs in kinds
            )
            borders.append(Border(v, users, sent, output=not users))
    count = len(sizes)
    start = load(1, launch), load(2, launch)
    return PlacementProblem(
        DEVICES,
        tuple(Mode(d) for d in range(3)),
        tuple(costs),
        tuple(borders),
        (None, *start),
        network_of=tuple(network_of),
        max_transitions=(None,) * count,
        contiguous=(False,) * count,
    )


def wrong(problem: PlacementProblem, found) -> list[str]:  # noqa: PLR0912 (one fault after the other)
    """Returns what a schedule breaks; reads nothing but the problem and its answer."""
    placing, slack = found.placing, 1e-6
    at = {item.node: item for item in found.items}
    faults = [] if sorted(at) == list(range(len(problem.costs))) else ["not every node once"]
    busy: dict[int, list[tuple[float, float]]] = {d: [] for d in range(len(problem.devices))}
    unit: dict[int, tuple[float, float]] = {}
    for step in placing.steps:
        parts = [step.nodes] if step.device in problem.cores else [(v,) for v in step.nodes]
        for nodes in parts:
            spent = [problem.costs[v][placing.modes[v]].load_us[step.device] for v in nodes]
            launch = problem.launch[step.device]
            first = at[min(nodes, key=lambda v: at[v].start_us)].start_us
            first -= launch.load_us[step.device] if launch else 0
            last = max(at[v].end_us for v in nodes)
            if (
                abs(last - first - sum(spent) - (launch.load_us[step.device] if launch else 0))
                > slack
            ):
                faults.append(f"{nodes} broken")
            busy[step.device].append((first, last))
            unit |= dict.fromkeys(nodes, (first, last))
            if any(at[v].device != step.device for v in nodes):
                faults.append(f"{nodes} elsewhere")
            inside = set(nodes)
            faults += [
                f"{u} after {v}"
                for v in nodes
                for u in problem.predecessors[v]
                if u not in inside and at[u].end_us > first + slack
            ]
            for pool in problem.pools:
                if step.device in problem.cores and sum(pool.needs[v] for v in nodes) > pool.limit:
                    faults.append(f"{nodes} too large")
    sent = {(s.border, s.transfer): s for s in found.transfers}
    for b, border in enumerate(problem.borders):
        for t, transfer in enumerate(border.transfers):
            writes = placing.modes[border.producer]
            needing = [v for v in border.consumers if (writes, placing.modes[v]) in transfer.pairs]
            outside = border.output and (writes, problem.outside) in transfer.pairs
            if not needing and not outside:
                continue
            s = sent.pop((b, t))
            way = transfer.ways[s.way]
            if s.start_us < unit[border.producer][1] - slack:
                faults.append(f"transfer {b} early")
            if abs(s.end_us - s.start_us - sum(way.load_us)) > slack:
                faults.append(f"transfer {b} has the wrong length")
            if s.device is not None:
                busy[s.device].append((s.start_us, s.end_us))
            faults += [f"{v} before its tensor" for v in needing if unit[v][0] < s.end_us - slack]
    faults += [f"transfer {key} for nobody" for key in sent]
    for spans in busy.values():
        spans.sort()
        faults += ["overlap" for a, b in itertools.pairwise(spans) if b[0] < a[1] - slack]
    if problem.max_loadables is not None:
        for core in problem.cores:
            if sum(s.device == core for s in placing.steps) > problem.max_loadables:
                faults.append("too many loadables")
    end = max(s.end_us for s in (*found.items, *found.transfers))
    if abs(end - found.value) > slack or abs(placing.value - found.value) > slack:
        faults.append("value is not the end")
    return faults


def brute(problem: PlacementProblem, *, most: float = math.inf) -> float:
    """Returns the least makespan over all assignments, loadables and orders."""
    best = math.inf
    nodes = range(len(problem.costs))
    for modes in itertools.product(range(3), repeat=len(problem.costs)):
        if sum(problem.costs[v][modes[v]].energy_uj for v in nodes) > most:
            continue
        for units in loadables(problem, modes):
            best = min(best, _serial(*jobs_of(problem, modes, units), best))
    return best


def loadables(problem: PlacementProblem, modes):
    """Yields every division of the nodes into units: nodes on the GPU, loadables on the cores."""
    if not any(any(launch.load_us) for launch in problem.launch if launch) and not problem.pools:
        yield [[v] for v in range(len(modes))]  # more loadables are for nothing
        return
    for units in partitions(problem, modes, len(modes)):
        counts = [sum(modes[unit[0]] == core for unit in units) for core in problem.cores]
        if problem.max_loadables is None or max(counts) <= problem.max_loadables:
            yield units


def partitions(problem: PlacementProblem, modes, count: int):
    if not count:
        yield []
        return
    v = count - 1
    for units in partitions(problem, modes, v):
        yield [*units, [v]]
        for i, unit in enumerate(units):
            alike = modes[unit[0]] == modes[v] != 0
            if alike and problem.network_of[unit[0]] == problem.network_of[v]:
                grown = [*unit, v]
                if all(sum(p.needs[w] for w in grown) <= p.limit for p in problem.pools):
                    yield [*units[:i], grown, *units[i + 1 :]]


def jobs_of(problem: PlacementProblem, modes, units):
    """Returns (device, time on it, delay) of units and transfers, and what comes before each."""
    of = {v: i for i, unit in enumerate(units) for v in unit}
    jobs = []
    for unit in units:
        device = modes[unit[0]]
        launch = problem.launch[device]
        us = sum(problem.costs[v][modes[v]].load_us[device] for v in unit)
        jobs.append((device, us + (launch.load_us[device] if launch else 0.0), 0.0))
    before = [{of[u] for v in unit for u in problem.predecessors[v]} - {i}
              for i, unit in enumerate(units)]  # fmt: skip
    for border in problem.borders:
        for transfer in border.transfers:
            writes = modes[border.producer]
            needing = [v for v in border.consumers if (writes, modes[v]) in transfer.pairs]
            if needing or (border.output and (writes, 0) in transfer.pairs):
                way = transfer.ways[0]
                for v in needing:
                    before[of[v]].add(len(jobs))
                jobs.append((0, way.load_us[0], way.load_us[-1]))
                before.append({of[border.producer]})
    return jobs, before


def _serial(jobs, before, best: float) -> float:
    """Tries every order in which the jobs can be put one by one as early as possible."""
    done: dict[int, float] = {}
    seen: dict[tuple, list[tuple[float, ...]]] = {}

    def extend(free: tuple[float, ...], best: float) -> float:
        if len(done) == len(jobs):
            return min(best, max(done.values()))
        key = tuple(sorted(done))
        state = (*free, *(done[j] for j in key))
        known = seen.setdefault(key, [])
        if any(all(a <= b for a, b in zip(old, state, strict=True)) for old in known):
            return best
        known.append(state)
        for j, (device, us, delay) in enumerate(jobs):
            if j in done or not before[j] <= done.keys():
                continue
            ready = max((done[i] for i in before[j]), default=0.0)
            start = max(ready, free[device]) if us else ready
            if start + us + delay >= best:
                continue
            done[j] = start + us + delay
            now = list(free)
            if us:
                now[device] = start + us
            best = extend(tuple(now), best)
            del done[j]
        return best

    return extend((0.0,) * len(DEVICES), best)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(12))
def test_small_schedules_agree_with_every_assignment_and_order(seed):
    problem = networks(seed, (3, 2) if seed % 3 else (2, 2, 1), delay=seed % 2 == 1)
    most = math.inf
    bounds = {}
    if seed % 4 == 3:
        most = 0.7 * sum(row[0].energy_uj for row in problem.costs)
        bounds = {"energy_uj": most}
    found = schedule_once(problem, bounds=bounds, seconds=300)
    least = brute(problem, most=most)
    if least == math.inf:
        assert found.placing is None
        assert found.bound == math.inf
        return
    assert wrong(problem, found) == []
    assert found.value == pytest.approx(least)
    assert found.bound == pytest.approx(least, rel=1e-5)


def limited(seed: int) -> PlacementProblem:
    """Launches, few slots or a pool; paths and networks with shortcuts."""
    rng = random.Random(seed)
    problem = networks(seed, (3, 2) if seed % 2 else (4,), launch=rng.choice([1.0, 4.0]))
    if seed % 3 == 0:  # paths
        users = [(v + 1,) if border.consumers else () for v, border in enumerate(problem.borders)]
        borders = zip(problem.borders, users, strict=True)
        problem = replace(problem, borders=tuple(replace(b, consumers=u) for b, u in borders))
    count = len(problem.costs)
    pool = MemoryPool("weights", 5.0, tuple(float(rng.randint(1, 4)) for _ in range(count)))
    return replace(
        problem,
        max_loadables=rng.choice([None, 1, 2]),
        pools=(pool,) if rng.random() < 0.5 else (),
    )


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 106, 124])
def test_small_schedules_of_loadables_agree_with_every_division_and_order(seed):
    problem = limited(seed)
    found = schedule_once(problem, seconds=300)
    least = brute(problem)
    assert wrong(problem, found) == []
    assert found.value == pytest.approx(least)
    assert found.bound == pytest.approx(least, rel=1e-5)


@pytest.mark.parametrize("kind", ["launch", "slots", "pools", "transitions", "contiguous", "fits"])
def test_limits_hold_and_never_help(kind):
    for seed in range(3):
        free = networks(seed, (4, 3), launch=3.0 if kind == "launch" else 0.0)
        change = {
            "launch": {},
            "slots": {"max_loadables": 1},
            "pools": {"pools": (MemoryPool("weights", 4.0, (2.0,) * 7),)},
            "transitions": {"max_transitions": (1, 1)},
            "contiguous": {"contiguous": (True, True)},
            "fits": {"fits": lambda nodes: len(nodes) < 3},
        }[kind]
        found = schedule_once(replace(free, **change), seconds=300)
        problem = replace(free, **change)
        assert wrong(problem, found) == []
        if kind == "fits":
            assert all(len(s.nodes) < 3 for s in found.placing.steps if s.device)
        launchless = replace(free, launch=networks(seed, (1,)).launch)
        lowest = schedule_once(launchless, seconds=300)
        assert found.value >= lowest.value - 1e-6
        assert found.bound == pytest.approx(found.value, rel=1e-5)
        if kind == "launch":
            assert found.value <= sum(row[0].load_us[0] for row in problem.costs)


def test_networks_of_ten_groups_are_proved_and_answers_repeat():
    problem = networks(1, (10, 10))
    found = schedule_once(problem, seconds=300)
    assert wrong(problem, found) == []
    assert found.value - found.bound <= 1e-4 * found.value
    assert schedule_once(problem, seconds=300) == found


def test_what_cannot_be_done_is_infinite_and_what_has_no_sense_is_refused():
    problem = networks(0, (2,))
    found = schedule_once(problem, bounds={"energy_uj": 0.5}, seconds=300)
    assert (found.placing, found.value, found.bound) == (None, math.inf, math.inf)
    both = Cost((1.0, 1.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="one device"):
        schedule_once(replace(problem, costs=((both, None, None),) * 2), seconds=300)


def test_precedences_of_optional_nodes_lose_no_schedule() -> None:
    # CP-SAT's precedences of a device's optional intervals proved 37 us
    times = ((20, 16), (15, 3), (12, 5), (5, 18), (5, None))
    out = ({"GPU>DLA": 5, "DLA>GPU": 3, "DLA>DLA": 2}, {}, {}, {"GPU>DLA": 4, "DLA>DLA": 4}, {})
    nodes = [
        {
            "name": f"n{i}",
            "time_us": {"GPU": gpu} | ({} if dla is None else {"DLA": dla}),
            "out_us": out[i],
        }
        for i, (gpu, dla) in enumerate(times)
    ]
    network = {"name": "n", "nodes": nodes, "edges": [[0, 1], [0, 3], [1, 3], [1, 4]]}
    answer = solve_document(
        {
            "schema": "edgekit.problem/1",
            "devices": ["GPU", "DLA0", "DLA1"],
            "networks": [network],
            "transfer_on": "delay",
            "objective": "makespan",
        }
    )
    assert answer["value"] == 29
