"""A tighter relaxation for problems whose loadables have limits: one variable for every set of
nodes that can be a loadable, generated as the duals of the programme need them, and cuts
for loadables that wait for each other in a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from edgekit.solver.evaluation import better, evaluated, settle
from edgekit.solver.loadables import SLACK, Reach, fits
from edgekit.solver.problem import Effort, ExecutionStep, Goal, PlacementProblem, Placing
from edgekit.solver.program import INFINITY, Expression
from edgekit.solver.relaxation import Relaxation

# Loadables as columns: the linear programme over every set of nodes that a loadable can be.
#
# Where pools limit loadables, what matters is which nodes share one, and the relaxation's sum of
# needs says too little of it. Here every possible loadable is a variable of its own, added as the
# duals need it (column generation: Gilmore and Gomory, 1961). The optimum of that linear
# programme bounds the goal. Only loadables whose reduced cost is within the gap can be part of a
# better placement (Baldacci, Christofides and Mingozzi, 2008): where they are few, all of them
# together with the placement's own rows are the exact problem, but for the order of the
# loadables, of which cycles are cut off as they turn up.


ROUNDS = 400  # of pricing
MOST = 30_000  # columns of the exact programme
CYCLES = 30  # rounds of cutting them off
LOOK = 5e-6  # units of Effort for a set that pricing looks at
REDUCED = 1e-7  # of the objective's scale: what counts as a column that helps
AT_ONCE = 20  # columns of one round
LOOKED = 20_000  # sets looked at for the best ones
EVERY = 400_000  # and for all that count
OrderingCut = tuple[frozenset[int], ...]
"""Pairs of nodes: loadables that each hold one of the pairs wait for each other in a circle."""
MOST_PAIRS = 3  # by two loadables of a circle
MOST_CUTS_OF_CYCLE = 12  # cuts of a circle
MOST_CUTS = 200  # cuts of a solution


@dataclass(frozen=True, slots=True)
class _Column:
    network: int
    core: int
    nodes: tuple[int, ...]

    @property
    def members(self) -> frozenset[int]:
        return frozenset(self.nodes)

    def holds(self, cut: OrderingCut) -> bool:
        """Whether it holds one of the pairs of a cut."""
        members = self.members
        return any(pair <= members for pair in cut)


class Columns:
    """The programme of one problem and goal.

    Attributes:
        best: The best placement found.
        bound: Of the goal.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        goal: Goal,
        best: Placing | None,
        effort: Effort,
        progress: Callable[[float, float], None] | None = None,
    ) -> None:
        self.problem, self.goal, self.best = problem, goal, best
        self.effort, self.progress = effort, progress
        self.bound = -INFINITY
        self.cuts: list[tuple[OrderingCut, int]] = []
        self.reach = Reach(problem)
        self.model = Relaxation(problem, goal, ties=False, levels=False)
        self.columns: dict[_Column, int] = {}
        self.links: dict[tuple[int, int], int] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        self.pricing: dict[tuple[int, int], Pricing] = {}
        self._rows()

    def _rows(self) -> None:
        program = self.model.program
        for (network, core), number in self.model.count.items():
            nodes = self.problem.networks[network]
            able = []
            for v in nodes:
                on = self.model.on(v, core)
                if on or on.constant:
                    able.append(v)
                    self.links[v, core] = len(program.row_lower)
                    program.row(Expression().plus(on, -1.0), 0.0, 0.0)
            self.numbers[network, core] = len(program.row_lower)
            program.row(Expression({number: -1.0}), high=0.0)
            self.pricing[network, core] = Pricing(self.problem, network, able)

    def add(self, column: _Column) -> bool:
        """Adds a column unless it is there."""
        if column in self.columns:
            return False
        rows = [self.links[v, column.core] for v in column.nodes]
        rows.append(self.numbers[column.network, column.core])
        rows += [row for cut, row in self.cuts if column.holds(cut)]
        self.columns[column] = self.model.program.column(rows)
        return True

    def run(self) -> bool:
        """Looks for the bound, then for placements, then for the proof.

        Returns:
            Whether the bound is that of all columns.
        """
        for (network, core), pricing in self.pricing.items():
            for v in pricing.nodes:
                if pricing.allows((v,)):
                    self.add(_Column(network, core, (v,)))
        if self.best is not None:
            self._own(self.best)
        if not self._generate():
            return False
        self._integral(exact=False)
        if self.proven or self.best is None:
            return self.best is not None
        self._own(self.best)
        if self._enlarge():
            self._integral(exact=not self._limited)
        return True

    @property
    def proven(self) -> bool:
        """Whether nothing is left to prove."""
        return self.best is not None and self.best.value - self.bound <= 1e-7 * self.best.value

    def _own(self, placing: Placing) -> None:
        for step in placing.steps:
            if step.device in self.problem.cores:
                self.add(_Column(step.network, step.device, step.nodes))

    def _generate(self) -> bool:
        """Adds columns until none helps; returns whether the bound stands."""
        for _ in range(ROUNDS):
            solved = self.model.program.relax(self.effort)
            if solved.values is None:
                return False
            value, duals = solved.value, solved.duals
            lost, added = 0.0, False
            for (network, core), pricing in self.pricing.items():
                fee = duals[self.numbers[network, core]]
                gain = {v: duals[self.links[v, core]] for v in pricing.nodes}
                found, most = pricing.best(gain, REDUCED - fee)
                self.effort.spend(pricing.looked * LOOK)
                lost += (
                    max(0.0, most + fee) * self.model.program.upper[self.model.count[network, core]]
                )
                for nodes in found:
                    added = self.add(_Column(network, core, nodes)) or added
            self.bound = max(self.bound, self.model.real(value - lost))
            if not added:
                self.duals = duals
                self.value = value
                return True
            if self.effort.over:
                return False
        return False

    def _enlarge(self) -> bool:
        """Adds every column that a better placement can have; returns whether that was done."""
        assert self.best is not None
        gap = (self.best.value - self.bound) * self.model.scale + REDUCED
        every: list[_Column] = []
        for (network, core), pricing in self.pricing.items():
            fee = self.duals[self.numbers[network, core]]
            gain = {v: self.duals[self.links[v, core]] for v in pricing.nodes}
            found = pricing.every(gain, -gap - fee, MOST)
            self.effort.spend(pricing.looked * LOOK)
            if found is None:
                return False
            every += [_Column(network, core, nodes) for nodes in found]
        if len(every) > MOST:
            return False
        for column in every:
            self.add(column)
        return True

    def _integral(self, *, exact: bool) -> None:
        """Solves the programme over the columns there are."""
        for _ in range(CYCLES):
            found = self.model.program.solve(
                gap=1e-7, effort=self.effort, start=self._hint(), progress=self._report
            )
            if exact and self.best:
                known = math.isfinite(found.bound)
                bound = self.model.real(found.bound) if known else found.bound
                self.bound = max(self.bound, min(bound, self.best.value))
            if found.values is None or self.effort.over:
                return
            cuts = self._take(found.values)
            if not cuts:
                return
            for cut in cuts:
                self._forbid(cut)

    def _forbid(self, cut: OrderingCut) -> None:
        """Allows no circle: of the loadables that hold one of its pairs, one is missing."""
        held = [index for column, index in self.columns.items() if column.holds(cut)]
        self.cuts.append((cut, len(self.model.program.rows)))
        self.model.program.row(Expression(dict.fromkeys(held, 1.0)), high=len(cut) - 1.0)

    def _report(self, value: float, bound: float) -> None:
        if self.progress:
            self.progress(self.model.real(value), self.model.real(bound))

    def _hint(self) -> dict[int, float]:
        if self.best is None:
            return {}
        hint = self.model.hint(self.best.modes) | dict.fromkeys(self.columns.values(), 0.0)
        for step in self.best.steps:
            column = _Column(step.network, step.device, step.nodes)
            if column in self.columns:
                hint[self.columns[column]] = 1.0
        return hint

    def _take(self, values: list[float]) -> list[OrderingCut]:
        """Keeps a solution's placement; returns cuts where its loadables wait in a circle."""
        modes = self.model.read(values)
        taken = [c for c, i in self.columns.items() if values[i] > 0.5]
        loadables = [ExecutionStep(c.network, c.core, c.nodes) for c in taken]
        steps = ordered(self.problem, modes, loadables)
        cuts = ordering_cuts(self.reach, [c.nodes for c in taken]) if steps is None else []
        if steps is None and self.problem.min_size <= 1:
            steps = ordered(self.problem, modes, loadables, split=True)
        if steps is None:
            return cuts
        if self._limited:
            placing = evaluated(self.problem, modes, self.goal)[0]
        else:
            placing = settle(self.problem, modes, steps, self.goal)
        if placing and better(placing, self.best):
            self.best = placing
        return cuts

    @property
    def _limited(self) -> bool:
        """Whether an order can be wrong for other reasons than a circle."""
        problem = self.problem
        return any(problem.contiguous) or any(n is not None for n in problem.max_transitions)


class Pricing:
    """Searches the convex sets of nodes of one network that one loadable holds.

    Nodes are taken or left in topological order; what could still be won is a fractional knapsack
    of the fullest pool (Dantzig, 1957).

    Attributes:
        looked: Sets that the last search looked at.
    """

    looked = 0

    def __init__(self, problem: PlacementProblem, network: int, nodes: Sequence[int]) -> None:
        self.problem, self.nodes = problem, nodes
        own = problem.networks[network]
        reach = Reach(problem)
        self.up, self.down = reach.up, reach.down
        self.others = sum(1 << v for v in set(own) - set(nodes))
        self.sizes = problem.sizes or (1,) * len(problem.costs)
        self.pools = [pool for pool in problem.pools if any(pool.needs[v] for v in nodes)]

    def allows(self, nodes: Sequence[int]) -> bool:
        """Returns whether nodes can be one loadable."""
        large = sum(self.sizes[v] for v in nodes) >= self.problem.min_size
        return large and fits(self.problem, nodes)

    def best(self, gain: Mapping[int, float], least: float) -> tuple[list[tuple[int, ...]], float]:
        """Returns sets that gain more than ``least``, and what none gains more than."""
        found: list[tuple[float, tuple[int, ...]]] = []
        whole, most = self._search(gain, least, found, rising=True)
        found.sort(reverse=True)
        top = found[0][0] if found else least
        return [nodes for _, nodes in found[:AT_ONCE]], top if whole else most

    def every(
        self, gain: Mapping[int, float], least: float, limit: int
    ) -> list[tuple[int, ...]] | None:
        """Returns all sets that gain at least ``least``; None: more than ``limit``."""
        found: list[tuple[float, tuple[int, ...]]] = []
        whole, _ = self._search(gain, least, found, rising=False, limit=limit)
        return [nodes for _, nodes in found] if whole else None

    def _search(  # noqa: PLR0915
        self,
        gain: Mapping[int, float],
        least: float,
        found: list[tuple[float, tuple[int, ...]]],
        *,
        rising: bool,
        limit: int = 1_000_000,
    ) -> tuple[bool, float]:
        """Walks through the sets; returns whether all were seen, and the root's bound."""
        pool = min(self.pools, key=lambda p: p.limit / sum(p.needs), default=None)
        needs = pool.needs if pool else (0.0,) * len(self.problem.costs)
        capacity = pool.limit * (1 + SLACK) if pool else 0.0
        dense = sorted(
            ((gain[v], needs[v], 1 << v) for v in self.nodes if gain[v] > 0),
            key=lambda item: -item[0] / (item[1] + 1e-12),
        )
        small = self.problem.min_size > 1
        plain = self.problem.fits is None and len(self.pools) <= 1
        up, down, order = self.up, self.down, self.nodes

        def promise(away: int, left: float) -> float:
            total = 0.0
            for value, need, bit in dense:
                if bit & away:
                    continue
                if need > left:
                    return total + value * left / need
                total += value
                left -= need
            return total

        top = promise(0, capacity)
        decided = [0] * (len(order) + 1)  # bits of the nodes decided by position
        for i, v in enumerate(order):
            decided[i + 1] = decided[i] | 1 << v
        # position, taken, what cannot be taken any more, gain, capacity left
        stack = [(0, 0, 0, 0.0, capacity)]
        self.looked = 0
        threshold = least
        while stack:
            i, taken, blocked, value, left = stack.pop()
            self.looked += 1
            if self.looked > (LOOKED if rising else EVERY):
                return False, top
            if value + promise(blocked | decided[i], left) < threshold:
                continue
            if i == len(order):
                continue
            v = order[i]
            bit = 1 << v
            related = up[v] & taken
            out = blocked
            if related:
                out = blocked | down[v]
            stack.append((i + 1, taken, out, value, left))
            if (
                blocked & bit
                or needs[v] > left
                or (rising and gain[v] <= 0 and not related and not small)
            ):
                continue
            # a node that cannot be on the core and lies between keeps the two apart
            if related and self._apart(v, taken):
                continue
            more = taken | bit
            members = tuple(w for w in order[: i + 1] if more >> w & 1)
            if not plain and not fits(self.problem, members):
                continue
            total = value + gain[v]
            worthy = total > threshold if rising else total >= threshold
            if worthy and (not small or self.allows(members)):
                found.append((total, members))
                if len(found) > limit:
                    return False, top
                threshold = total if rising else threshold
            stack.append((i + 1, more, blocked, total, left - needs[v]))
        return True, top

    def _apart(self, v: int, taken: int) -> bool:
        between = self.up[v] & self.others
        while between:
            low = between & -between
            if self.up[low.bit_length() - 1] & taken:
                return True
            between ^= low
        return False


def ordered(
    problem: PlacementProblem,
    modes: Sequence[int],
    loadables: Sequence[ExecutionStep],
    *,
    split: bool = False,
) -> list[ExecutionStep] | None:
    """Returns all steps in a running order, or None when there is none.

    With ``split`` a loadable of a circle is divided, and there always is one.
    """
    before = [frozenset(found) for found in problem.predecessors]
    inside = {v: i for i, step in enumerate(loadables) for v in step.nodes}
    steps: list[ExecutionStep] = []
    for network, nodes in enumerate(problem.networks):
        left = set(nodes)
        last = -1
        while left:
            alone = [v for v in nodes if v in left and v not in inside]
            able = sorted({problem.device(modes[v]) for v in alone if not left & before[v]})
            if able:
                device = last = last if last in able else able[0]
                run = []
                for v in alone:
                    if problem.device(modes[v]) == device and not left & before[v]:
                        run.append(v)
                        left.discard(v)
                steps.append(ExecutionStep(network, device, tuple(run)))
                continue
            ready = [
                step
                for step in loadables
                if step.network == network
                and left.issuperset(step.nodes)
                and not any(left & before[v] - {*step.nodes} for v in step.nodes)
            ]
            if not ready and not split:
                return None
            if not ready:
                ready = [part for step in loadables if (part := _runnable_part(step, left, before))]
            steps.append(
                min(ready, key=lambda step: (step.device != last, -len(step.nodes), step.nodes))
            )
            last = steps[-1].device
            left -= {*steps[-1].nodes}
    return steps


def _runnable_part(
    step: ExecutionStep, left: set[int], before: Sequence[frozenset[int]]
) -> ExecutionStep | None:
    """Returns what of a loadable can run now."""
    run: list[int] = []
    for v in step.nodes:
        if v in left and not left - {*run} & before[v]:
            run.append(v)
    return ExecutionStep(step.network, step.device, tuple(run)) if run else None


def ordering_cuts(reach: Reach, loadables: Sequence[tuple[int, ...]]) -> list[OrderingCut]:
    """Returns the shortest circles of loadables as cuts.

    Loadables that each hold both nodes of a pair cannot all be there, whatever else they hold:
    each pair's one node waits for the pair before, the next pair waits for its other one.
    """
    masks = [sum(1 << v for v in nodes) for nodes in loadables]
    above = [0] * len(loadables)
    for i, nodes in enumerate(loadables):
        for v in nodes:
            above[i] |= reach.up[v]
    after = {
        i: [k for k in range(len(loadables)) if k != i and above[i] & masks[k]]
        for i in range(len(loadables))
    }
    found: dict[frozenset[int], list[int]] = {}
    for start in after:
        circle = _shortest_cycle(after, start)
        if circle:
            found.setdefault(frozenset(circle), circle)
    least = min(map(len, found.values()), default=0)
    cuts: dict[frozenset[frozenset[int]], OrderingCut] = {}
    for circle in found.values():
        if len(circle) > least:
            continue
        joints = [
            sorted(
                (v - u, u, v) for v in loadables[i] for u in loadables[k] if reach.up[v] >> u & 1
            )[:MOST_PAIRS]
            for i, k in zip(circle, [*circle[1:], circle[0]], strict=True)
        ]
        for chosen in islice(product(*joints), MOST_CUTS_OF_CYCLE):
            # a loadable holds the node that waits and the one that the loadable before waits for
            cut = tuple(
                frozenset((mine[2], before[1]))
                for mine, before in zip(chosen, [chosen[-1], *chosen[:-1]], strict=True)
            )
            cuts.setdefault(frozenset(cut), cut)
    return list(cuts.values())[:MOST_CUTS]


def _shortest_cycle(after: dict[int, list[int]], start: int) -> list[int]:
    parent = {start: -1}
    queue = [start]
    for i in queue:
        for k in after[i]:
            if k == start:
                path = [i]
                while parent[path[-1]] != -1:
                    path.append(parent[path[-1]])
                return path[::-1]
            if k not in parent:
                parent[k] = i
                queue.append(k)
    return []
