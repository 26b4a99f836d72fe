"""Networks that are chains: an exact dynamic programme over node, mode, loadables and
transitions (Bellman, 1957). Long chains with bounds on metrics, or with a period to minimise,
are priced (Lagrangian relaxation), and good placements are crossed with each other.
Start with ``chain_optimum`` and ``chain_search``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.solver.problem import (
    OUTSIDE,
    Border,
    Cost,
    Effort,
    ExecutionStep,
    Goal,
    Optimum,
    PlacementProblem,
    Placing,
    Transfer,
)
from edgekit.solver.program import INFINITY, Expression, Program

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]


# A chain's running order is its only one, so a loadable is an interval of nodes, and the best way
# to reach a node depends on the node before alone (Bellman, 1957). What a loadable may hold
# limits how far back it may begin; :class:`ChainWindow` keeps the best of those beginnings.
# Constraints that count along the whole chain (slots, transitions, unbroken runs) enlarge the
# state: they are added only when the optimum without them breaks them.


TIE = 1e-8  # relative to the optimum: what all transitions of a chain together may cost in a tie
CELLS = 20_000_000  # states of all nodes: 160 MB; beyond, another method is quicker
Found = tuple[float, "tuple[int, ...] | None", frozenset[int]]
NO_DEVICE_YET = -1  # the device before the first node
ROUNDS = 40
CLOSE = 5e-5  # relative: where the prices are good enough
PASS = 4e-5  # units of Effort for a chain at given prices, by node and mode
PARENTS = 8  # placements that are crossed
STEEP = 1e4  # most that a microsecond of a bound may cost, in microseconds of the goal
POINTS = 700  # where two placements may be joined; a square of them is looked through
GENERATIONS = 4
BOUND_TOLERANCE = 1e-9  # relative, by which a sum may exceed its limit
Vector = tuple[float, ...]
PaidWay = tuple[int, int, int]  # border, transfer, way


@dataclass(frozen=True)
class WeighedChain:
    """A chain's costs, weighed by a goal.

    Attributes:
        problem: The problem.
        unary: By node and mode: the node itself and what it exchanges with the outside.
        moves: By node and two modes: what passes from the node before (row) to it (column).
        launch: By device: weighed cost of a loadable; 0 for a device without loadables.
        first: By node, the first node of the longest loadable that ends there.
        tie: What a transition costs in addition, to prefer fewer among equals.
    """

    problem: PlacementProblem
    unary: Array
    moves: Array
    launch: tuple[float, ...]
    first: tuple[int, ...]
    tie: float


def chain_optimum(
    problem: PlacementProblem, goal: Goal, *, likely: AbstractSet[str] = frozenset()
) -> Optimum | None:
    """Returns the proven optimum of a chain, or None when this method cannot carry the problem.

    It carries one network in which every node feeds the next one only, a goal that is a weighted
    sum, and every constraint of the problem but bounds on metrics. ``likely`` says which of slots,
    transitions and contiguous are counted at once, because the optimum without breaks them.
    """
    chain = read_chain(problem, goal)
    if chain is None:
        return None
    active = set(likely)
    while True:
        found = best_path(chain, frozenset(active), CELLS)
        if found is None:
            return None
        value, modes, starts = found
        if modes is None:
            return Optimum(None, float("inf"))
        placing = settle_chain(problem, goal, modes, starts)
        broken = full_or_broken(problem, placing)[1] - active
        if not broken:
            # The tie term is part of what was minimised, so this much the value may be above.
            slack = 2 * chain.tie * len(problem.costs)
            return Optimum(placing, min(placing.value, max(value - slack, 0.0)))
        active |= broken


def read_chain(problem: PlacementProblem, goal: Goal) -> WeighedChain | None:
    """Returns a problem as a chain, or None when it is none."""
    count, kinds = len(problem.costs), len(problem.modes)
    if goal.weights is None or goal.bounds or len(problem.max_transitions) != 1 or not count:
        return None
    if any(problem.predecessors[v] != ((v - 1,) if v else ()) for v in range(count)):
        return None
    unary = np.array([[_weigh(goal, c) for c in row] for row in problem.costs], dtype=float)
    moves = np.zeros((count, kinds, kinds))
    for border in problem.borders:
        if not _add(problem, goal, border, unary, moves):
            return None
    finite = np.where(np.isfinite(unary), unary, np.inf).min(axis=1)
    tie = TIE * float(np.where(np.isfinite(finite), finite, 0.0).sum()) / count
    launch = tuple(_weigh(goal, cost) if cost else 0.0 for cost in problem.launch)
    return WeighedChain(problem, unary, moves, launch, _first(problem), tie)


def _add(problem: PlacementProblem, goal: Goal, border: Border, unary: Array, moves: Array) -> bool:
    """Adds what a tensor's transfers cost; returns whether that is a matter of neighbours."""
    if border.producer == OUTSIDE and border.transfers and len(set(border.consumers)) != 1:
        return False
    for transfer in border.transfers:
        cost = min(_weigh(goal, way) for way in transfer.ways)
        for before, after in sorted(transfer.pairs):
            if border.producer == OUTSIDE:
                if before == problem.outside:
                    unary[border.consumers[0], after] += cost
            elif border.consumers and not (
                border.output and (before, problem.outside) in transfer.pairs
            ):
                moves[border.producer + 1, before, after] += cost
        if border.output and border.producer != OUTSIDE:
            for mode in range(len(problem.modes)):
                if (mode, problem.outside) in transfer.pairs:
                    unary[border.producer, mode] += cost
    return True


def _weigh(goal: Goal, cost: Cost | None) -> float:
    return float("inf") if cost is None else goal.value(cost.load_us, cost.energy_uj)


def _first(problem: PlacementProblem) -> tuple[int, ...]:
    """Returns by node the first node of the longest loadable that ends there (v + 1: none)."""
    cores = set(problem.cores)
    able = [
        any(c and problem.modes[m].device in cores for m, c in enumerate(row))
        for row in problem.costs
    ]
    found: list[int] = []
    low, sums, whole = 0, [0.0] * len(problem.pools), False
    for v, on_core in enumerate(able):
        if not on_core:
            low, sums = v + 1, [0.0] * len(problem.pools)
            found.append(low)
            continue
        if not v or not able[v - 1]:
            end = next((w for w in range(v, len(able)) if not able[w]), len(able))
            whole = problem.fits is None or problem.fits(frozenset(range(v, end)))
        sums = [total + pool.needs[v] for total, pool in zip(sums, problem.pools, strict=True)]
        while low <= v and (
            any(total > pool.limit for total, pool in zip(sums, problem.pools, strict=True))
            or not (whole or not problem.fits or problem.fits(frozenset(range(low, v + 1))))
        ):
            low += 1
            # Summed anew: differences of floats drift.
            sums = [sum(pool.needs[low : v + 1]) for pool in problem.pools]
        found.append(low)
    return tuple(found)


def settle_chain(
    problem: PlacementProblem,
    goal: Goal,
    modes: tuple[int, ...],
    starts: frozenset[int],
    chosen: Mapping[tuple[int, int], int] | None = None,
) -> Placing:
    """Returns the placing of a chain's modes with loadables that begin at ``starts``.

    Without ``chosen``, the way by border and transfer, the ways are those that the goal likes best.
    """
    load = [0.0] * (len(problem.devices) + 1)
    energy = 0.0
    paid: list[Cost] = []
    ways: list[tuple[int, int, int]] = []
    groups: list[list[int]] = []
    for v, mode in enumerate(modes):
        cost = problem.costs[v][mode]
        assert cost is not None
        paid.append(cost)
        device = problem.device(mode)
        if v in starts or not v or device != problem.device(modes[v - 1]):
            groups.append([])
            launch = problem.launch[device]
            if launch is not None:
                paid.append(launch)
        groups[-1].append(v)
    for b, border in enumerate(problem.borders):
        before = problem.outside if border.producer == OUTSIDE else modes[border.producer]
        after = [modes[user] for user in border.consumers]
        after += [problem.outside] * border.output
        for t, transfer in enumerate(border.transfers):
            if any((before, mode) in transfer.pairs for mode in after):
                way = chosen[b, t] if chosen else _best_way(goal, transfer)
                ways.append((b, t, way))
                paid.append(transfer.ways[way])
    for cost in paid:
        load = [total + us for total, us in zip(load, cost.load_us, strict=True)]
        energy += cost.energy_uj
    steps = tuple(
        ExecutionStep(0, problem.device(modes[group[0]]), tuple(group)) for group in groups
    )
    return Placing(modes, steps, tuple(ways), tuple(load), energy, goal.value(load, energy))


def _best_way(goal: Goal, transfer: Transfer) -> int:
    return min(range(len(transfer.ways)), key=lambda way: _weigh(goal, transfer.ways[way]))


def full_or_broken(problem: PlacementProblem, placing: Placing) -> tuple[set[str], set[str]]:
    """Returns which constraints that count along the chain are used up, and which are broken."""
    devices = [step.device for step in placing.steps]
    runs = [d for i, d in enumerate(devices) if not i or d != devices[i - 1]]
    most, limit = problem.max_transitions[0], problem.max_loadables
    full, broken = set(), set()
    if limit is not None and problem.cores:
        used = max(devices.count(core) for core in problem.cores)
        full |= {"slots"} if used >= limit else set()
        broken |= {"slots"} if used > limit else set()
    if most is not None:
        full |= {"transitions"} if len(runs) - 1 >= most else set()
        broken |= {"transitions"} if len(runs) - 1 > most else set()
    if problem.contiguous[0]:
        full.add("contiguous")
        broken |= {"contiguous"} if len(set(runs)) < len(runs) else set()
    return full, broken


def best_path(chain: WeighedChain, active: frozenset[str], cells: int) -> Found | None:
    """Returns the least value, the modes (None: there are none) and where loadables begin.

    Args:
        chain: What to place.
        active: The constraints that count along the chain and are to be kept.
        cells: Most states; None is returned beyond.
    """
    labels = Labels(chain.problem, active)
    least = chain.problem.min_size
    size = len(chain.unary) * len(chain.problem.modes) * labels.count * (least + 1)
    return None if size > cells else _PathSearch(chain, labels).run()


class _PathSearch:
    def __init__(self, chain: WeighedChain, labels: Labels) -> None:
        self.np = np
        self.chain = chain
        problem = chain.problem
        self.sizes = problem.sizes or (1,) * len(problem.costs)
        by_device: dict[int, list[int]] = {}
        for mode, what in enumerate(problem.modes):
            if np.isfinite(chain.unary[:, mode]).any():
                by_device.setdefault(what.device, []).append(mode)
        self.modes = {device: np.array(modes) for device, modes in by_device.items()}
        self.cores = set(problem.cores)
        self.labels = labels
        devices = (NO_DEVICE_YET, *self.modes)
        self.sources = {
            (before, device): labels.sources(before, device, device in self.cores)
            for before in devices
            for device in self.modes
        }
        # The label before anything is placed, with a place for moves that do not exist.
        self.nothing = np.full((1, labels.count + 1), np.inf)
        self.nothing[0, 0] = 0.0
        self.moves = {
            (before, device): chain.moves[:, ones][:, :, others] + self._tie(before, device)
            for before, ones in self.modes.items()
            for device, others in self.modes.items()
        }
        self.own = {
            device: chain.unary[:, modes] + chain.launch[device]
            for device, modes in self.modes.items()
        }
        self.inner = {
            device: chain.moves[:, modes][:, :, modes] + chain.unary[:, None, modes]
            for device, modes in self.modes.items()
            if device in self.cores
        }
        self.states: list[dict[int, Array]] = []

    def run(self) -> Found:
        np = self.np
        windows = {
            device: ChainWindow(len(modes), self.labels.count, self.chain.problem.min_size)
            for device, modes in self.modes.items()
            if device in self.cores
        }
        padded = {
            device: np.full((len(self.sizes), len(modes), self.labels.count + 1), np.inf)
            for device, modes in self.modes.items()
        }
        for v, size in enumerate(self.sizes):
            for device in self.modes:
                best = self._begin(v, device)
                if device in self.cores:
                    move = self.inner[device][v]
                    best = windows[device].step(move, best, size, self.chain.first[v])
                padded[device][v, :, :-1] = best
            self.states.append({device: values[v] for device, values in padded.items()})
        value, device = min(
            ((float(found.min()), device) for device, found in self.states[-1].items()),
            default=(float("inf"), 0),
        )
        if value == float("inf"):
            return value, None, frozenset()
        return self._trace(value, device)

    def _begin(self, v: int, device: int) -> Array:
        """Returns the best values, by mode and label, of a loadable or another node at ``v``."""
        np = self.np
        own = self.own[device][v][:, None]
        if v == 0:
            first: Array = own + self.nothing[:, self.sources[NO_DEVICE_YET, device]]
            return first
        best: Array | None = None
        for before, values in self.states[v - 1].items():
            reached = values.take(self.sources[before, device], axis=1)
            move = self.moves[before, device][v]
            if len(reached) == 1:
                candidate = reached + move[0][:, None]
            else:
                candidate = (reached[:, None] + move[:, :, None]).min(axis=0)
            best = candidate if best is None else np.minimum(best, candidate, out=best)
        assert best is not None
        best += own
        return best

    def _tie(self, before: int, device: int) -> float:
        """Among equals fewer transitions win, and fewer loadables among those."""
        if before != device:
            return self.chain.tie
        return self.chain.tie / 2 if device in self.cores else 0.0

    def _trace(self, value: float, device: int) -> Found:
        np = self.np
        final = self.states[-1][device]
        place, label = np.unravel_index(int(final.argmin()), final.shape)
        v, modes, starts = len(self.sizes) - 1, [], set()
        here = (device, int(place), int(label))
        close = 1e-12 * abs(value)
        while True:
            device, place, label = here
            if device in self.cores:
                begin, path = self._loadable(v, device, int(place), int(label), close)
                starts.add(begin)
            else:
                begin, path = v, [int(place)]
            modes += [int(self.modes[device][p]) for p in reversed(path)]
            if begin == 0:
                return value, tuple(reversed(modes)), frozenset(starts)
            here = self._before(begin, device, path[0], int(label))
            v = begin - 1

    def _before(self, v: int, device: int, place: int, label: int) -> tuple[int, int, int]:
        """Returns device, mode and label of the node before, on the best way to this state."""
        options = []
        for before, values in self.states[v - 1].items():
            source = int(self.sources[before, device][label])
            total = values[:, source] + self.moves[before, device][v][:, place]
            options += [(float(t), before, p, source) for p, t in enumerate(total)]
        return min(options)[1:]

    def _loadable(
        self, end: int, device: int, place: int, label: int, close: float
    ) -> tuple[int, list[int]]:
        """Returns where the loadable that ends in a state begins, and its modes."""
        np = self.np
        modes = self.modes[device]
        value = self.states[end][device][place, label]
        rest = np.full(len(modes), np.inf)
        rest[place] = 0.0
        size = 0
        nexts: list[Array] = []
        best: tuple[float, int, int] | None = None
        for v in range(end, self.chain.first[end] - 1, -1):
            size += self.sizes[v]
            if size >= self.chain.problem.min_size:
                total = self._begin(v, device)[:, label] + rest
                found = (float(total.min()), v, int(total.argmin()))
                if best is None or found[0] < best[0]:
                    best = found
                if found[0] <= value + close:
                    break
            if v > 0:
                move = self.inner[device][v] + rest
                nexts.append(move.argmin(axis=1))
                rest = move.min(axis=1)
        assert best is not None
        _, begin, here = best
        path = [here]
        for v in range(begin + 1, end + 1):
            path.append(int(nexts[end - v][path[-1]]))
        return begin, path


class Labels:
    """All combinations of the counts that matter, numbered, and the moves between them.

    Args:
        problem: A chain.
        active: Which of slots, transitions and contiguous are counted.
    """

    def __init__(self, problem: PlacementProblem, active: frozenset[str]) -> None:
        cores = problem.cores if "slots" in active else ()
        self.cores = {core: place for place, core in enumerate(cores)}
        sizes = [(problem.max_loadables or 0) + 1] * len(cores)
        self.transitions = self.seen = None
        if "transitions" in active:
            self.transitions = len(sizes)
            sizes.append((problem.max_transitions[0] or 0) + 1)
        if "contiguous" in active:
            self.seen = len(sizes)
            sizes.append(2 ** len(problem.devices))
        self.sizes = tuple(sizes)
        self.count = prod(sizes)

    def sources(self, before: int, device: int, begins: bool) -> Array:
        """Returns by label the label that a move comes from; ``count`` where there is none.

        Args:
            before: The device of the node before, or START.
            device: The device of the node.
            begins: Whether a loadable begins at the node.
        """
        places = np.indices(self.sizes).reshape(len(self.sizes), self.count)
        good = np.ones(self.count, dtype=bool)
        if begins and device in self.cores:
            places[self.cores[device]] -= 1
        if self.transitions is not None and before not in (device, NO_DEVICE_YET):
            places[self.transitions] -= 1
        if self.seen is not None:
            bit = 1 << device
            seen = places[self.seen]
            good &= (seen & bit) > 0
            if before != device:
                places[self.seen] = seen & ~bit
        good &= (places >= 0).all(axis=0)
        if not self.sizes:
            return np.zeros(1, dtype=int)
        flat = np.ravel_multi_index(tuple(np.maximum(places, 0)), self.sizes)
        return np.where(good, flat, self.count)


# The loadables of one core that may still grow at a node of a chain, by where they began.
#
# How far back a loadable may begin moves forward only, so the best beginning is a minimum over a
# sliding window. With several modes a core the value of a beginning depends on the modes along
# the way; minima of sums over such paths form a semiring, so the window is kept as two stacks
# (the known queue of two stacks): beginnings before ``pivot`` are summed up to it once, those
# after it as they come. Each node costs a constant number of array operations.


class ChainWindow:
    """Best values of open loadables, by mode, size so far (capped) and label.

    Args:
        modes: Modes of the core.
        labels: Labels of a state, what counts along the chain.
        least: The least size of a loadable.
    """

    def __init__(self, modes: int, labels: int, least: int) -> None:
        self._np = np
        self.least = least
        self.open = np.full((modes, least + 1, labels), np.inf)
        self.unit = np.where(np.eye(modes, dtype=bool), 0.0, np.inf)
        self.through = self.unit
        self.pivot = 0
        self.since = 0  # size of the nodes from the pivot
        self.node = -1
        self.front: dict[int, Array] = {}
        self.begun: dict[int, tuple[Array, Array, int]] = {}

    def step(self, move: Array, begin: Array, size: int, first: int) -> Array:
        """Goes on to the next node; returns the best values of loadables that may end there.

        Args:
            move: By mode before and mode: to add when a loadable goes on to this node.
            begin: By mode and label: value of a loadable that begins here.
            size: The node's size.
            first: The first node where a loadable that ends here may begin.
        """
        np = self._np
        self.node += 1
        self.begun[self.node] = (move, begin, size)
        self.since += size
        grown = (self.open[:, None] + move[:, :, None, None]).min(axis=0)
        if size and self.least:
            shifted = np.full_like(grown, np.inf)
            if size <= self.least:
                shifted[:, size:] = grown[:, : self.least + 1 - size]
            shifted[:, -1] = grown[:, max(0, self.least - size) :].min(axis=1)
            grown = shifted
        at = min(size, self.least)
        grown[:, at] = np.minimum(grown[:, at], begin)
        self.open = grown
        self.through = _times(self.through, move)
        if first > self.pivot:
            self._turn(first)
        ended: Array = self.open[:, -1]
        if first < self.pivot:
            wanted = max(0, self.least - self.since)
            before = self.front[first][:, wanted:].min(axis=1)
            ended = np.minimum(ended, (before[:, None] + self.through[:, :, None]).min(axis=0))
        return ended

    def _turn(self, first: int) -> None:
        """Sums the beginnings up to this node, and begins anew after it."""
        np = self._np
        self.front = {}
        path, size = self.unit, 0
        best = np.full_like(self.open, np.inf)
        for node in range(self.node, first - 1, -1):
            move, begin, own = self.begun[node]
            size = min(self.least, size + own)
            best = best.copy()
            value = (begin[:, None] + path[:, :, None]).min(axis=0)
            best[:, size] = np.minimum(best[:, size], value)
            self.front[node] = best
            path = _times(move, path)
        self.begun = {}
        self.open = np.full_like(self.open, np.inf)
        self.through, self.pivot, self.since = self.unit, self.node + 1, 0


def _times(one: Array, other: Array) -> Array:
    """Returns the product in the semiring of minimum and sum."""
    product: Array = (one[:, :, None] + other[None]).min(axis=1)
    return product


# Long chains with bounds on metrics, or with a period to minimise: a bound and a good placement.
#
# The bounds are priced into the goal (Lagrangian relaxation), and what is left is a chain for the
# dynamic programme. The best prices come from its own answers (cutting planes, Kelley 1960), and
# its best value at any prices is a proven bound. Its placements, each at its prices, are then
# crossed: wherever two of them agree on a node outside a loadable, the one can go on as the
# other, and what that takes is known without solving anything.


def chain_search(
    problem: PlacementProblem, goal: Goal, *, effort: Effort | None = None
) -> Optimum | None:
    """Returns a good placement of a chain and a proven bound, or None when it is no chain.

    It is for goals that :func:`chain_optimum` does not carry; a gap is left as a rule. Without a
    placement the bound says nothing about there being one.
    """
    effort = effort or Effort(10.0)
    rows = MetricRows.of(problem, goal)
    prices = rows.first_prices()
    found: list[Placing] = []
    bound, best_prices = -INFINITY, prices
    likely: set[str] = set()
    for _ in range(ROUNDS):
        weights = rows.weights(prices)
        optimum = chain_optimum(problem, Goal(weights[:-1], weights[-1]), likely=likely)
        effort.spend(PASS * len(problem.costs) * len(problem.modes))
        if optimum is None:
            return None
        if optimum.placing is None:
            return Optimum(None, INFINITY)
        value = optimum.bound - rows.paid(prices)
        if value > bound:
            bound, best_prices = value, prices
        found.append(optimum.placing)
        likely, _ = full_or_broken(problem, optimum.placing)
        above, there = _cuts(rows, found)
        if above - bound <= CLOSE * abs(above) or effort.over:
            break
        # Halfway to the best prices so far: the far end of a cutting plane is often far off.
        share = 0.3 if len(prices) > 2 else 0.0
        prices = tuple(
            (1 - share) * new + share * old for new, old in zip(there, best_prices, strict=True)
        )
    found.sort(key=lambda placing: rows.slack(placing, best_prices))
    line = cross_placements(problem, rows, found[:PARENTS])
    if line is None:
        return Optimum(None, max(bound, 0.0))
    chosen = {(border, transfer): way for _, (border, transfer, way) in line.ways}
    priced = Goal((0.0,) * (len(problem.devices) + 1))
    placing = settle_chain(problem, priced, line.modes, line.starts, chosen)
    placing = replace(placing, value=goal.value(placing.load_us, placing.energy_uj))
    return Optimum(placing, max(0.0, min(bound, placing.value)))


def _cuts(rows: MetricRows, found: Sequence[Placing]) -> tuple[float, tuple[float, ...]]:
    """Returns the most that any prices can reach as far as is known, and those prices."""
    unit = rows.unit
    program = Program()
    top = program.real(cost=-1.0)
    prices = [program.real(upper) for upper in rows.steepest(STEEP)]
    if rows.minimax:
        program.row(Expression(dict.fromkeys(prices[: rows.minimax], 1.0)), 1.0, 1.0)
    for placing in found:
        base, over = rows.measure(placing)
        terms = Expression({top: 1.0})
        for price, amount, size in zip(prices, over, rows.sizes, strict=True):
            terms.add(price, -amount / size)
        program.row(terms, high=base / unit)
    solution = program.solve()
    assert solution.values is not None
    values = [
        max(0.0, solution.values[p]) * unit / size
        for p, size in zip(prices, rows.sizes, strict=True)
    ]
    return solution.values[top] * unit, tuple(values)


@dataclass(frozen=True)
class MetricRows:
    """Sums over resources and energy: what is minimised, and what is limited.

    Attributes:
        base: Weights of what is minimised; zeros when it is the largest load.
        sums: Weights of each row; the period is the largest of the first ``minimax``.
        limits: Of each row; 0 for these.
        minimax: How many rows the goal is the largest of.
        sizes: By row, a typical value of it over one of the goal.
        unit: A typical value of the goal.
    """

    base: Vector
    sums: tuple[Vector, ...]
    limits: Vector
    minimax: int
    sizes: Vector
    unit: float

    @classmethod
    def of(cls, problem: PlacementProblem, goal: Goal) -> MetricRows:
        """Returns the rows of a goal."""
        count = len(problem.devices)
        single = [(*row, 0.0, 0.0) for row in problem.shares]
        named: dict[str, list[Vector]] = {
            "latency_us": [(*(1.0,) * (count + 1), 0.0)],
            "energy_uj": [(*(0.0,) * (count + 1), 1.0)],
            "gpu_us": [(*(float(name == "GPU") for name in problem.devices), 0.0, 0.0)],
            "period_us": single,
        }
        minimax = len(single) if goal.weights is None else 0
        sums = single[:minimax]
        limits = [0.0] * minimax
        for name, limit in sorted(goal.bounds.items()):
            sums += named[name]
            limits += [limit] * len(named[name])
        base = (*(goal.weights or (0.0,) * (count + 1)), goal.energy)
        typical = [0.0] * (count + 2)
        for row in problem.costs:
            cost = next((c for c in row if c is not None), None)
            if cost is not None:
                typical = [
                    a + b for a, b in zip(typical, (*cost.load_us, cost.energy_uj), strict=True)
                ]
        unit = _dot(base, typical) or sum(typical[:-1]) or 1.0
        sizes = [unit] * minimax + [max(limit, 1e-9) for limit in limits[minimax:]]
        return cls(base, tuple(sums), tuple(limits), minimax, tuple(sizes), unit)

    def first_prices(self) -> Vector:
        """Returns equal prices of the devices whose largest load counts, and nothing else."""
        share = 1.0 / max(1, self.minimax)
        return tuple(share if r < self.minimax else 0.0 for r in range(len(self.sums)))

    def steepest(self, most: float) -> Vector:
        """Returns the largest price of each row, in units of the goal for its size."""
        return tuple(1.0 if r < self.minimax else most for r in range(len(self.sums)))

    def weights(self, prices: Sequence[float]) -> Vector:
        """Returns what every resource and the energy weigh at these prices."""
        return tuple(
            own + sum(p * row[r] for p, row in zip(prices, self.sums, strict=True))
            for r, own in enumerate(self.base)
        )

    def paid(self, prices: Sequence[float]) -> float:
        """Returns the value of the limits at these prices."""
        return _dot(prices, self.limits)

    def measure(self, placing: Placing) -> tuple[float, Vector]:
        """Returns the weighed part of the goal, and by how much each row is over its limit."""
        have = (*placing.load_us, placing.energy_uj)
        over = (_dot(row, have) - limit for row, limit in zip(self.sums, self.limits, strict=True))
        return _dot(self.base, have), tuple(over)

    def slack(self, placing: Placing, prices: Sequence[float]) -> float:
        """Returns the value of a placement at prices."""
        base, over = self.measure(placing)
        return base + _dot(prices, over)


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def cross_placements(
    problem: PlacementProblem, rows: MetricRows, found: Sequence[Placing]
) -> SummedPlacement | None:
    """Returns the best placement that keeps the limits, made of parts of those found."""
    parents = [SummedPlacement.of(problem, placing) for placing in found]
    value, best = float("inf"), None
    for _ in range(GENERATIONS):
        before = best
        for one in parents if before is None else [before]:
            for other in parents:
                made = _joined(problem, rows, one, other)
                if made and made[0] < value - BOUND_TOLERANCE * abs(made[0]):
                    value, best = made
        if best is before:
            break
    return best


@dataclass(frozen=True, eq=False)
class SummedPlacement:
    """A placement of a chain with its sums up to each node (loads, energy, changes, loadables).

    A transfer belongs to the node that needs it, one outwards to the node that writes it; ``ways``
    are by that node.
    """

    modes: tuple[int, ...]
    starts: frozenset[int]
    sums: Array
    ways: tuple[tuple[int, PaidWay], ...]

    @classmethod
    def of(cls, problem: PlacementProblem, placing: Placing) -> SummedPlacement:
        count, resources = len(placing.modes), len(problem.devices) + 2
        amounts = np.zeros((count + 1, resources + 1 + len(problem.devices)))

        def add(v: int, cost: Any) -> None:
            amounts[v + 1, : resources - 1] += cost.load_us
            amounts[v + 1, resources - 1] += cost.energy_uj

        starts = set()
        for number, step in enumerate(placing.steps):
            first = step.nodes[0]
            if problem.launch[step.device] is not None:
                add(first, problem.launch[step.device])
                amounts[first + 1, resources + 1 + step.device] += 1
                starts.add(first)
            if number and placing.steps[number - 1].device != step.device:
                amounts[first + 1, resources] += 1
        for v, mode in enumerate(placing.modes):
            add(v, problem.costs[v][mode])
        ways = []
        for b, t, way in placing.ways:
            border = problem.borders[b]
            mode = problem.outside if border.producer == OUTSIDE else placing.modes[border.producer]
            outwards = border.output and (mode, problem.outside) in border.transfers[t].pairs
            inner = border.producer == OUTSIDE or not outwards
            at = border.consumers[0] if inner else border.producer
            add(at, border.transfers[t].ways[way])
            ways.append((at, (b, t, way)))
        return cls(placing.modes, frozenset(starts), amounts.cumsum(axis=0), tuple(ways))


def _joined(
    problem: PlacementProblem, rows: MetricRows, one: SummedPlacement, other: SummedPlacement
) -> tuple[float, SummedPlacement] | None:
    """Returns the best line that is ``one`` but for a stretch of ``other``, with its value."""
    count = len(one.modes)
    common = [
        v + 1
        for v in range(count - 1)
        if one.modes[v] == other.modes[v] and problem.device(one.modes[v]) not in problem.cores
    ]
    if len(common) > POINTS:
        common = [common[i * len(common) // POINTS] for i in range(POINTS)]
    points = np.array([0, *common, count])
    change = other.sums[points] - one.sums[points]
    total = one.sums[-1]
    resources = len(problem.devices) + 2

    def table(weights: Sequence[float]) -> Array:
        line = change[:, : len(weights)] @ np.array(weights)
        made: Array = float(total[: len(weights)] @ np.array(weights)) + line[None] - line[:, None]
        return made

    value = table(rows.base)
    wrong = np.tril(np.ones(value.shape, dtype=bool), -1)
    largest = None
    for number, (row, limit) in enumerate(zip(rows.sums, rows.limits, strict=True)):
        have = table(row)
        if number < rows.minimax:
            largest = have if largest is None else np.maximum(largest, have)
        else:
            wrong |= have > limit * (1 + BOUND_TOLERANCE)
    most = problem.max_transitions[0]
    if most is not None:
        wrong |= table([0.0] * resources + [1.0]) > most
    if problem.max_loadables is not None:
        for core in problem.cores:
            row_ = [0.0] * (resources + 1 + core) + [1.0]
            wrong |= table(row_) > problem.max_loadables + 0.5
    value = np.where(wrong, np.inf, value if largest is None else largest)
    if problem.contiguous[0]:  # no stretch at all: runs do not add up
        value = np.where(np.eye(len(points), dtype=bool), value, np.inf)
    i, j = np.unravel_index(int(value.argmin()), value.shape)
    if value[i, j] == np.inf:
        return None
    low, high = int(points[i]), int(points[j])
    modes = one.modes[:low] + other.modes[low:high] + one.modes[high:]
    starts = {v for v in one.starts if not low <= v < high}
    starts |= {v for v in other.starts if low <= v < high}
    sums = one.sums.copy()
    sums[low:high] = one.sums[low] + other.sums[low:high] - other.sums[low]
    sums[high:] += other.sums[high] - other.sums[low] - (one.sums[high] - one.sums[low])
    ways = [at for at in one.ways if not low <= at[0] < high]
    ways += [at for at in other.ways if low <= at[0] < high]
    return float(value[i, j]), SummedPlacement(modes, frozenset(starts), sums, tuple(ways))
