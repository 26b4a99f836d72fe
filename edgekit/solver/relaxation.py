"""The relaxation of a placement problem as a mixed-integer programme: transfers as cuts or flows,
running orders as numbers of runs.

Variables: a binary per node and mode; a continuous variable per transfer; per node and core a
level, the number of loadables entered on a path to the node; per core the number of loadables. With
one core and no pools the number of loadables is the largest number of entries into the core along
any path. Then the programme is exact, linear and without big constants; it is nearly a minimum cut.
With more cores, pools or a least size it is a lower bound (see ``optimiser``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations, pairwise

from edgekit.solver.evaluation import state_goal, useful_ways
from edgekit.solver.problem import (
    OUTSIDE,
    Border,
    Cost,
    Effort,
    Goal,
    PlacementProblem,
    Transfer,
    twin_cores,
)
from edgekit.solver.program import Expression, Program, Solution

OBJECTIVE_SCALE = 1e5  # the solvers' tolerances are absolute: costs are scaled to this sum
TIE = 2e-7  # of the objective's scale, per transition: below every gap that counts as optimal
On = Callable[[int, int], Expression]


class Relaxation:
    """Variables and rows for a problem and goal.

    Attributes:
        count: The variable that counts loadables, by core.
    """

    def __init__(self, problem: PlacementProblem, goal: Goal, *, ties: bool = True) -> None:
        self.problem, self.goal = problem, goal
        self.program = Program()
        self.modes: list[dict[int, Expression]] = []
        self.count: dict[int, int] = {}
        self._levels: dict[int, list[int]] = {}
        self._loads = [Expression() for _ in range(len(problem.devices) + 1)]
        self._energy = Expression()
        self.edges = TransferRows(self.program, self.inside, self._allowed_modes)
        self._nodes()
        for border in problem.borders:
            spent = [self._pay_transfer(transfer) for transfer in border.transfers]
            for user in (*border.consumers, *([OUTSIDE] if border.output else [])):
                self.edges.state(border, user, spent)
        for core in problem.cores:
            self._add_core(core)
        limit_runs(problem, self.program, self.on)
        self._objective(ties)

    def _nodes(self) -> None:
        cores = self.problem.cores
        for row in self.problem.costs:
            allowed = [m for m, cost in enumerate(row) if cost is not None]
            allowed.sort(key=lambda m: (self.problem.device(m) in cores, m))
            # The first mode, without loadables if possible, is 1 minus the others: a variable less.
            rest = Expression()
            rest.constant = 1.0
            spots: dict[int, Expression] = {}
            for m in allowed[1:]:
                spots[m] = Expression({self.program.variable(1.0, integer=True): 1.0})
                rest.plus(spots[m], -1.0)
            # with two modes, the other's upper bound of 1 is this row
            if len(allowed) > 2:
                self.program.row(Expression().plus(rest), low=0.0)
            spots[allowed[0]] = rest
            self.modes.append(spots)
            for m, chosen in spots.items():
                cost = row[m]
                if cost is not None:
                    self._pay(cost, chosen)

    def _pay(self, cost: Cost, times: Expression) -> None:
        for load, us in zip(self._loads, cost.load_us, strict=True):
            if us:
                load.plus(times, us)
        self._energy.plus(times, cost.energy_uj)

    def inside(self, v: int, modes: Collection[int]) -> Expression:
        """Returns an expression that is 1 if a node, or OUTSIDE, is in any of ``modes``."""
        total = Expression()
        if v == OUTSIDE:
            total.constant = float(self.problem.outside in modes)
            return total
        for m, chosen in self.modes[v].items():
            if m in modes:
                total.plus(chosen)
        return total

    def on(self, v: int, device: int) -> Expression:
        """Returns an expression that is 1 if a node is on a device."""
        if v == OUTSIDE:
            return Expression()
        return self.inside(v, [m for m in self.modes[v] if self.problem.device(m) == device])

    def _allowed_modes(self, v: int) -> list[int]:
        return [self.problem.outside] if v == OUTSIDE else sorted(self.modes[v])

    def _pay_transfer(self, transfer: Transfer) -> Expression:
        """Returns an expression that is 1 if a transfer is paid, and adds its cost."""
        ways = useful_ways(transfer.ways, self.goal)
        paid = Expression()
        for w in ways:
            # a single way needs no integer: its cost makes it as small as the rows allow, which is
            # whole if the modes are
            variable = self.program.variable(1.0, integer=len(ways) > 1)
            paid.add(variable, 1.0)
            self._pay(transfer.ways[w], Expression({variable: 1.0}))
        return paid

    def _add_core(self, core: int) -> None:
        problem, program = self.problem, self.program
        packed = bool(problem.pools) or problem.min_size > 1
        nodes = range(len(problem.costs))
        possible = [v for v in nodes if self.on(v, core) or self.on(v, core).constant]
        if not possible:
            return
        # the levels of whole modes are whole; a pool's row can ask for a part of a loadable
        number = program.variable(self._most(len(possible)), integer=packed)
        self.count[core] = number
        self._levels[core] = levels = list[int]()
        for v in nodes:
            levels.append(program.variable(self._most(len(possible))))
            program.row(Expression({number: 1.0, levels[v]: -1.0}), low=0.0)
            for u in problem.predecessors[v] or (OUTSIDE,):
                below = {} if u == OUTSIDE else {levels[u]: -1.0}
                entry = Expression({levels[v]: 1.0, **below})
                if below:
                    program.row(Expression(entry), low=0.0)
                # one more than a predecessor's level if the edge enters the core
                entry.plus(self.on(v, core), -1.0).plus(self.on(u, core))
                program.row(entry, low=0.0)
        self._fill(core, number)
        launch = problem.launch[core]
        if launch is not None:
            self._pay(launch, Expression({number: 1.0}))

    def _most(self, nodes: int) -> float:
        slots = self.problem.max_loadables
        return float(nodes if slots is None else min(nodes, slots))

    def _fill(self, core: int, number: int) -> None:
        """Adds the least number of loadables for pools, and the most for a least size."""
        nodes = range(len(self.problem.costs))
        for pool in self.problem.pools:
            if pool.limit <= 0:
                continue
            terms = Expression({number: 1.0})
            for v in nodes:
                if pool.needs[v]:
                    terms.plus(self.on(v, core), -pool.needs[v] / pool.limit)
            # rounding must not make an exactly filled pool need one more loadable
            self.program.row(terms, low=-1e-9)
        if self.problem.min_size > 1:
            terms = Expression({number: -float(self.problem.min_size)})
            for v in nodes:
                size = self.problem.sizes[v] if self.problem.sizes else 1
                terms.plus(self.on(v, core), float(size))
            self.program.row(terms, low=0.0)

    def _objective(self, ties: bool) -> None:
        problem, goal = self.problem, self.goal
        weights = goal.weights or (1.0,) * (len(problem.devices) + 1)
        worst = sum(
            max(
                sum(w * us for w, us in zip(weights, cost.load_us, strict=True))
                + goal.energy * cost.energy_uj
                for cost in row
                if cost is not None
            )
            for row in problem.costs
        )
        self.scale = OBJECTIVE_SCALE / worst if worst > 0 else 1.0
        self.constant = state_goal(
            problem, goal, self.program, self._loads, self._energy, self.scale
        )
        if goal.weights is None:
            # the busier of two identical cores comes first
            for first, second in twin_cores(problem):
                terms = Expression().plus(self._loads[first]).plus(self._loads[second], -1.0)
                self.program.row(terms, low=0.0)
        self.tie_limit = 0.0
        if ties:
            self._ties()

    def _ties(self) -> None:
        """Adds a tie-breaking cost between equal plans: transitions, then all loads."""
        tie = TIE * OBJECTIVE_SCALE
        for number in self.count.values():
            # the running order enters and leaves each loadable
            self.program.cost[number] += 2 * tie
            self.tie_limit += 2 * tie * self.program.upper[number]
        if len(self.problem.cores) == len(self.count) == 1:
            self._tie_ends(tie)
        every = Expression()
        for load in self._loads:
            every.plus(load)
        highest = sum(
            max(sum(c.load_us) for c in row if c is not None) for row in self.problem.costs
        )
        highest += sum(
            max((sum(way.load_us) for way in transfer.ways), default=0.0)
            for border in self.problem.borders
            for transfer in border.transfers
        )
        share = tie / highest if highest > 0 else 0.0
        for variable, coefficient in every.items():
            self.program.cost[variable] += share * coefficient
        self.tie_limit += tie if every else 0.0

    def _tie_ends(self, tie: float) -> None:
        """Adds transitions for one core: 2 * loadables - 2, plus one for each end elsewhere."""
        core = self.problem.cores[0]
        first, last = (self.program.variable(1.0, tie) for _ in range(2))
        self.tie_limit += 2 * tie
        for v, level in enumerate(self._levels[core]):
            terms = Expression({first: 1.0, level: 1.0}).plus(self.on(v, core))
            self.program.row(terms, low=1.0)
            terms = Expression({last: 1.0, self.count[core]: 1.0, level: -1.0})
            self.program.row(terms.plus(self.on(v, core)), low=1.0)

    def require_loadables(
        self, cores: Collection[int], devices: Mapping[int, int], total: int
    ) -> None:
        """Demands ``total`` loadables on some cores while nodes keep their ``devices``."""
        terms = Expression()
        for core in cores:
            if core in self.count:
                terms.add(self.count[core], 1.0)
        for v, device in devices.items():  # any change of device lifts the demand
            terms.constant += total
            terms.plus(self.on(v, device), -float(total))
        self.program.row(terms, low=float(total))

    def require_size(
        self, core: int, node: int, border: Collection[int], near: Collection[int]
    ) -> None:
        """Demands the least size of ``near`` while a node is on a core and no ``border`` is."""
        least, sizes = self.problem.min_size, self.problem.sizes
        total = Expression()
        for v in near:
            total.plus(self.on(v, core), float(min(least, sizes[v] if sizes else 1)))
        for b in border:
            total.plus(self.on(b, core), float(least))
        self.program.row(total.plus(self.on(node, core), -float(least)), low=0.0)

    def solve(
        self,
        *,
        gap: float,
        effort: Effort,
        start: Sequence[int] | None,
        below: float = float("inf"),
        progress: Callable[[float, float], None] | None = None,
    ) -> tuple[tuple[int, ...] | None, float]:
        """Returns modes by node (None: none found) and a bound on the goal.

        The search skips modes whose goal is not under ``below``.
        """
        # objectives contain ties of up to tie_limit: this limit and the bound allow for them
        below = (below - self.constant) * self.scale + self.tie_limit
        hint = None if start is None else self.hint(start)
        report = progress and (lambda value, bound: progress(self.real(value), self.real(bound)))
        found: Solution = self.program.solve(
            gap=gap, effort=effort, start=hint, below=below, progress=report or None
        )
        if found.values is None:
            return None, found.bound if abs(found.bound) == float("inf") else self.real(found.bound)
        return self.read(found.values), self.real(found.bound - self.tie_limit)

    def hint(self, modes: Sequence[int]) -> dict[int, float]:
        """Returns the variables of modes by node."""
        return {
            next(iter(chosen)): float(modes[v] == m)
            for v, spots in enumerate(self.modes)
            for m, chosen in spots.items()
            if len(chosen) == 1 and not chosen.constant
        }

    def read(self, values: list[float]) -> tuple[int, ...]:
        """Returns the modes by node of a solution."""
        return tuple(
            # rounded: the first mode is 1 minus values that are whole to 1e-6 only
            max(sorted(spots), key=lambda m, s=spots: round(s[m].value(values)))  # type: ignore[misc]
            for spots in self.modes
        )

    def real(self, value: float) -> float:
        """Returns the goal for an objective of the programme."""
        return value / self.scale + self.constant


class TransferRows:
    """Adds the cost of a tensor's transfers as rows: between two kinds of modes a cut, else a flow.

    If neither end has more than two kinds of modes, a transfer is at least the difference of two
    sums of binaries. Between more kinds the rows are the edge's flow from the producer's modes to
    the consumer's (the local polytope), which is tight on trees.
    """

    def __init__(
        self,
        program: Program,
        inside: Callable[[int, Collection[int]], Expression],
        allowed: Callable[[int], Sequence[int]],
    ) -> None:
        """Takes functions for a node or OUTSIDE: if it is in some modes, and its allowed modes."""
        self.program, self.inside, self.allowed = program, inside, allowed

    def state(self, border: Border, user: int, spent: Sequence[Expression]) -> None:
        """Adds the rows for the transfers of a tensor to one consumer."""
        sources = self.allowed(border.producer)
        goals = self.allowed(user)
        # a row for each group of equal modes instead of each mode
        rows = _classes(
            sources, lambda a: [[(a, b) in t.pairs for b in goals] for t in border.transfers]
        )
        columns = _classes(
            goals, lambda b: [[(a, b) in t.pairs for a in sources] for t in border.transfers]
        )
        active = [
            (transfer, paid)
            for transfer, paid in zip(border.transfers, spent, strict=True)
            if any((a[0], b[0]) in transfer.pairs for a in rows for b in columns)
        ]
        if not active:
            return
        if min(len(rows), len(columns)) <= 1 or max(len(rows), len(columns)) <= 2:
            for transfer, paid in active:
                self._cuts(transfer, paid, (border.producer, rows), (user, columns))
        else:
            self._flow(active, (border.producer, rows), (user, columns))

    def _cuts(
        self,
        transfer: Transfer,
        paid: Expression,
        source: tuple[int, Sequence[Sequence[int]]],
        goal: tuple[int, Sequence[Sequence[int]]],
    ) -> None:
        """Adds a cost for producer's modes if the consumer is in no mode that is free for these.

        Over all sets of modes this is the least cost of an edge (maximum flow, minimum cut).
        """
        (producer, rows), (user, columns) = source, goal
        free = [
            frozenset(k for k, b in enumerate(columns) if (a[0], b[0]) not in transfer.pairs)
            for a in rows
        ]
        paying = [i for i, among in enumerate(free) if len(among) < len(columns)]
        seen = set()
        for size in range(1, len(paying) + 1):
            for chosen in combinations(paying, size):
                among = frozenset[int]().union(*(free[i] for i in chosen))
                if len(among) == len(columns):
                    continue
                # all producer's modes that add no free mode: a stronger row than those of subsets
                whole = frozenset(i for i in paying if free[i] <= among)
                if whole in seen:
                    continue
                seen.add(whole)
                terms = Expression().plus(paid)
                terms.plus(self.inside(producer, [m for i in whole for m in rows[i]]), -1.0)
                terms.plus(self.inside(user, [m for k in among for m in columns[k]]))
                self.program.row(terms, low=0.0)

    def _flow(
        self,
        active: Sequence[tuple[Transfer, Expression]],
        source: tuple[int, Sequence[Sequence[int]]],
        goal: tuple[int, Sequence[Sequence[int]]],
    ) -> None:
        (producer, rows), (user, columns) = source, goal
        flow = {
            (i, k): self.program.variable(1.0)
            for i in range(len(rows))
            for k in range(len(columns))
        }
        for i, modes in enumerate(rows):
            terms = self.inside(producer, modes)
            for k in range(len(columns)):
                terms.add(flow[i, k], -1.0)
            self.program.row(terms, 0.0, 0.0)
        for k, modes in enumerate(columns):
            terms = self.inside(user, modes)
            for i in range(len(rows)):
                terms.add(flow[i, k], -1.0)
            self.program.row(terms, 0.0, 0.0)
        for transfer, paid in active:
            terms = Expression().plus(paid)
            for (i, k), variable in flow.items():
                if (rows[i][0], columns[k][0]) in transfer.pairs:
                    terms.add(variable, -1.0)
            self.program.row(terms, low=0.0)


def _classes(
    modes: Sequence[int], pattern: Callable[[int], Sequence[Sequence[bool]]]
) -> list[list[int]]:
    """Returns groups of modes that no transfer distinguishes."""
    found: dict[tuple[tuple[bool, ...], ...], list[int]] = {}
    for m in modes:
        found.setdefault(tuple(map(tuple, pattern(m))), []).append(m)
    return list(found.values())


def limit_runs(problem: PlacementProblem, program: Program, on: On) -> None:
    """Adds the rows of ``max_transitions``.

    A running order with ``n`` changes has ``n + 1`` runs, each on one device. With two devices the
    longest alternating path gives the number of runs; with more, every run gets a device.
    """
    nodes = tuple(range(len(problem.costs)))
    devices = sorted(
        {problem.device(m) for row in problem.costs for m, cost in enumerate(row) if cost}
    )
    limit = problem.max_transitions
    # otherwise no order can exceed the limit
    if limit is not None and len(devices) > 1 and limit < len(nodes) - 1:
        if len(devices) == 2:
            _alternating(problem, program, on, nodes, devices, limit)
        else:
            _numbered(problem, program, on, nodes, devices, limit)


def _alternating(
    problem: PlacementProblem,
    program: Program,
    on: On,
    nodes: tuple[int, ...],
    devices: list[int],
    limit: int,
) -> None:
    """Adds rows for two alternating devices: the run of each node, counted from the first run."""
    begins = Expression({program.variable(1.0, integer=True): 1.0})  # the second device
    runs = {v: program.variable(float(limit)) for v in nodes}
    first, second = devices
    for v in nodes:
        # run 0 is on the device that begins: a node on the other is in run 1 or later
        terms = Expression({runs[v]: 1.0}).plus(on(v, second), -1.0).plus(begins)
        program.row(terms, low=0.0)
        terms = Expression({runs[v]: 1.0}).plus(on(v, first), -1.0).plus(begins, -1.0)
        terms.constant += 1.0
        program.row(terms, low=0.0)
        for u in problem.predecessors[v]:
            program.row(Expression({runs[v]: 1.0, runs[u]: -1.0}), low=0.0)
            for device in devices:
                # an edge to the other device leads into a later run
                terms = Expression({runs[v]: 1.0, runs[u]: -1.0})
                program.row(terms.plus(on(v, device), -1.0).plus(on(u, device)), low=0.0)


def _numbered(
    problem: PlacementProblem,
    program: Program,
    on: On,
    nodes: tuple[int, ...],
    devices: list[int],
    limit: int,
) -> None:
    """Adds rows for numbered runs: nodes are in order along the edges; a run has one device."""
    count = min(limit + 1, len(nodes))
    chosen = [{d: program.variable(1.0, integer=True) for d in devices} for _ in range(count)]
    for spots in chosen:
        program.row(Expression(dict.fromkeys(spots.values(), 1.0)), high=1.0)
    reached = {  # 1 if the node is in this or a later run; always 1 for the first
        v: [Expression({program.variable(1.0, integer=True): 1.0}) for _ in range(count - 1)]
        for v in nodes
    }
    for v in nodes:
        steps = reached[v]
        for early, late in pairwise(steps):
            program.row(Expression().plus(early).plus(late, -1.0), low=0.0)
        for u in problem.predecessors[v]:
            for mine, theirs in zip(steps, reached[u], strict=True):
                program.row(Expression().plus(mine).plus(theirs, -1.0), low=0.0)
        for run in range(count):
            inside = Expression()
            if run:
                inside.plus(steps[run - 1])
            else:
                inside.constant = 1.0
            if run < count - 1:
                inside.plus(steps[run], -1.0)
            for d in devices:
                # a node of this run decides the run's device
                terms = Expression().plus(inside).plus(on(v, d))
                terms.add(chosen[run][d], -1.0)
                program.row(terms, high=1.0)
