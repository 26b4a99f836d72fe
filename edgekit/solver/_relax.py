"""The relaxation of a placement problem as a mixed-integer programme.

Per node and mode a binary variable, per transfer a continuous one. Per node and core a level, the
number of loadables entered on the way there; per network and core their number. With one core and
no pools the number of loadables is the largest number of entries into it along any path, so that
the programme states the problem exactly, linearly and without big constants; it is then nearly a
minimum cut. With more cores, pools or a least size it is a lower bound (see ``_minimise``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from edgekit.solver._edges import Edges
from edgekit.solver._effort import Effort
from edgekit.solver._evaluate import state_goal, useful
from edgekit.solver._highs import Expression, Program, Solution
from edgekit.solver._problem import OUTSIDE, Border, Cost, Goal, Problem, Transfer
from edgekit.solver._runs import limit_runs
from edgekit.solver._twins import twins

__all__ = ["Relaxation"]

OBJECTIVE_SCALE = 1e5  # HiGHS's tolerances are absolute: costs are scaled to this sum
TIE = 2e-7  # of the objective's scale, per transition: below every gap that counts as optimal


class Relaxation:
    """Variables and rows for one problem and goal.

    Attributes:
        count: By network and core, the variable that counts loadables.
    """

    def __init__(
        self, problem: Problem, goal: Goal, *, ties: bool = True, levels: bool = True
    ) -> None:
        self.problem, self.goal, self.levels = problem, goal, levels
        self.program = Program()
        self.modes: list[dict[int, Expression]] = []
        self.count: dict[tuple[int, int], int] = {}
        self._levels: dict[int, list[int]] = {}
        self._loads = [Expression() for _ in range(len(problem.devices) + 1)]
        self._energy = Expression()
        self.edges = Edges(self.program, self.inside, self._allowed)
        self._nodes()
        for border in problem.borders:
            self._border(border)
        for core in problem.cores:
            self._core(core)
        self._slots()
        for network in range(len(problem.networks)):
            limit_runs(problem, self.program, self.on, network)
        self._objective(ties)

    def _nodes(self) -> None:
        cores = self.problem.cores
        for row in self.problem.costs:
            allowed = [m for m, cost in enumerate(row) if cost is not None]
            allowed.sort(key=lambda m: (self.problem.device(m) in cores, m))
            rest = Expression()
            rest.constant = 1.0
            spots: dict[int, Expression] = {}
            for m in allowed[1:]:
                spots[m] = Expression({self.program.variable(1.0, integer=True): 1.0})
                rest.plus(spots[m], -1.0)
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
        """Returns whether a node, OUTSIDE included, is in one of some modes."""
        total = Expression()
        if v == OUTSIDE:
            total.constant = float(self.problem.outside in modes)
            return total
        for m, chosen in self.modes[v].items():
            if m in modes:
                total.plus(chosen)
        return total

    def on(self, v: int, device: int) -> Expression:
        """Returns whether a node is on a device."""
        if v == OUTSIDE:
            return Expression()
        return self.inside(v, [m for m in self.modes[v] if self.problem.device(m) == device])

    def _border(self, border: Border) -> None:
        users = [*border.consumers, *([OUTSIDE] if border.output else [])]
        spent = [self._paid(transfer) for transfer in border.transfers]
        for user in users:
            self.edges.state(border, user, spent)

    def _allowed(self, v: int) -> list[int]:
        return [self.problem.outside] if v == OUTSIDE else sorted(self.modes[v])

    def _paid(self, transfer: Transfer) -> Expression:
        """Returns how often a transfer is paid, with its cost added."""
        ways = useful(transfer.ways, self.goal)
        paid = Expression()
        for w in ways:
            variable = self.program.variable(1.0, integer=len(ways) > 1)
            paid.add(variable, 1.0)
            self._pay(transfer.ways[w], Expression({variable: 1.0}))
        return paid

    def _core(self, core: int) -> None:
        problem, program = self.problem, self.program
        packed = bool(problem.pools) or problem.min_size > 1
        levels = [-1] * len(problem.costs)
        self._levels[core] = levels
        for network, nodes in enumerate(problem.networks):
            possible = [v for v in nodes if self.on(v, core) or self.on(v, core).constant]
            if not possible:
                continue
            number = program.variable(self._most(len(possible)), integer=packed)
            self.count[network, core] = number
            for v in nodes if self.levels else ():
                levels[v] = program.variable(self._most(len(possible)))
                program.row(Expression({number: 1.0, levels[v]: -1.0}), low=0.0)
                for u in problem.predecessors[v] or (OUTSIDE,):
                    below = {} if u == OUTSIDE else {levels[u]: -1.0}
                    entry = Expression({levels[v]: 1.0, **below})
                    if below:
                        program.row(Expression(entry), low=0.0)
                    entry.plus(self.on(v, core), -1.0).plus(self.on(u, core))
                    program.row(entry, low=0.0)
            self._fill(core, nodes, number)
            launch = problem.launch[core]
            if launch is not None:
                self._pay(launch, Expression({number: 1.0}))

    def _most(self, nodes: int) -> float:
        slots = self.problem.max_loadables
        return float(nodes if slots is None else min(nodes, slots))

    def _fill(self, core: int, nodes: Sequence[int], number: int) -> None:
        """A pool's needs take as many loadables; a least size allows no more of them."""
        for pool in self.problem.pools:
            if pool.limit <= 0:
                continue
            terms = Expression({number: 1.0})
            for v in nodes:
                if pool.needs[v]:
                    terms.plus(self.on(v, core), -pool.needs[v] / pool.limit)
            self.program.row(terms, low=-1e-9)
        if self.problem.min_size > 1:
            terms = Expression({number: -float(self.problem.min_size)})
            for v in nodes:
                size = self.problem.sizes[v] if self.problem.sizes else 1
                terms.plus(self.on(v, core), float(size))
            self.program.row(terms, low=0.0)

    def _slots(self) -> None:
        slots = self.problem.max_loadables
        if slots is not None and len(self.problem.networks) > 1:
            for core in self.problem.cores:
                numbers = [number for (_, c), number in self.count.items() if c == core]
                self.program.row(Expression(dict.fromkeys(numbers, 1.0)), high=float(slots))

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
            for one, other in twins(problem):  # the busier of two identical cores comes first
                terms = Expression().plus(self._loads[one]).plus(self._loads[other], -1.0)
                self.program.row(terms, low=0.0)
        self.tie_limit = 0.0
        if ties:
            self._ties()

    def _ties(self) -> None:
        """Adds a cost that only decides between equal plans: transitions, then all the loads."""
        tie = TIE * OBJECTIVE_SCALE
        for number in self.count.values():
            self.program.cost[number] += 2 * tie
            self.tie_limit += 2 * tie * self.program.upper[number]
        if len(self.problem.cores) == 1:
            for network, nodes in enumerate(self.problem.networks):
                if (network, self.problem.cores[0]) in self.count:
                    self._tie_ends(network, nodes, tie)
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
        self.tie_limit += tie

    def _tie_ends(self, network: int, nodes: Sequence[int], tie: float) -> None:
        """One core: transitions are 2 * loadables - 2, and one for each end that is elsewhere."""
        core = self.problem.cores[0]
        first, last = (self.program.variable(1.0, tie) for _ in range(2))
        self.tie_limit += 2 * tie
        for v in nodes:
            level = self._levels[core][v]
            terms = Expression({first: 1.0, level: 1.0}).plus(self.on(v, core))
            self.program.row(terms, low=1.0)
            terms = Expression({last: 1.0, self.count[network, core]: 1.0, level: -1.0})
            self.program.row(terms.plus(self.on(v, core)), low=1.0)

    def require_loadables(
        self, network: int, cores: Collection[int], devices: Mapping[int, int], total: int
    ) -> None:
        """Demands ``total`` loadables on some cores while nodes keep their ``devices``."""
        terms = Expression()
        for core in cores:
            if (network, core) in self.count:
                terms.add(self.count[network, core], 1.0)
        for v, device in devices.items():  # every deviation releases the demand
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
        nodes: int,
        effort: Effort,
        start: Sequence[int] | None,
        progress: Callable[[float, float], None] | None = None,
    ) -> tuple[tuple[int, ...] | None, float]:
        """Returns modes by node (None: none found) and a bound on the goal."""
        hint = None if start is None else self.hint(start)
        told = progress and (lambda value, bound: progress(self.real(value), self.real(bound)))
        found: Solution = self.program.solve(
            gap=gap, nodes=nodes, effort=effort, start=hint, progress=told or None
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
            max(sorted(spots), key=lambda m, s=spots: round(s[m].value(values)))  # type: ignore[misc]
            for spots in self.modes
        )

    def real(self, value: float) -> float:
        """Returns the goal for an objective of the programme."""
        return value / self.scale + self.constant
