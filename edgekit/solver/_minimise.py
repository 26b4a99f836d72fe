"""The exact optimiser: a relaxation, the exact value of its placements, and cuts between the two.

With one core and no pools the relaxation is exact (see ``_relax``): HiGHS proves networks of a few
hundred nodes in a second. With more cores the paths of one core bound its loadables from below,
but the loadables of all need a common order as well, and pools and least sizes can take more of
them. That is added where a solution lacks it, as a combinatorial Benders cut over the few nodes
that force it (Hooker and Ottosson, 2003), until a solution stands. Where pools bind, the programme
over all possible loadables (``_columns``) is the better bound. What is still open then goes to the
formulation over steps (``_steps``), which states everything, with the bound and the placement found
so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgekit.errors import EnvironmentLack
from edgekit.solver._arrange import arrange, is_packed, least_loadables
from edgekit.solver._effort import Effort
from edgekit.solver._evaluate import better, evaluate, evaluated
from edgekit.solver._highs import INFINITY
from edgekit.solver._pack import fits
from edgekit.solver._problem import Cost, Goal, Optimum, Placing, Problem
from edgekit.solver._relax import Relaxation
from edgekit.solver._small import Reach, too_small
from edgekit.solver._twins import as_one_core, shared_out, twins
from edgekit.solver._units import Units

__all__ = ["PROVEN", "minimise"]

PROVEN = 1e-4  # the gap up to which a placement is called optimal
ROUNDS = 40  # cuts before the steps are tried
EXACT_GAP = 1e-7
TIE_SLACK = 5e-5  # what the costs that decide ties may leave open
PERIOD_GAP = 5e-5  # of a min-max problem: proven means 1e-4
NODES = 200_000
PLAIN = 16  # modes that placements without a core are begun with
FEW = 80  # nodes up to which CP-SAT's steps prove a min-max problem faster than a tree
STEPS_SHARE = 0.5  # of the effort left
PERIOD_ROUNDS = 4  # of cuts at the root of its tree
PERIOD_WORK = 20_000  # nodes times nodes of the tree for a min-max problem: a large one keeps a gap
LONG_CHAIN = 800  # nodes of a chain whose bounds or period are priced
LONG_CHAIN_EFFORT = 8.0
LONG_CHAIN_GAP = 1e-2  # what may then be left open

COLUMNS = 120  # nodes up to which loadables are columns
COLUMNS_SHARE = 0.5  # of the effort left
SKETCH_NODES = 20
SKETCH_ROUNDS = 3
SKETCH_EFFORT = 5.0

Progress = Callable[[float, float], None]


def minimise(
    problem: Problem,
    goal: Goal,
    *,
    starts: Sequence[Placing] = (),
    seconds: float = 60.0,
    effort: Effort | None = None,
    progress: Progress | None = None,
) -> Optimum:
    """Returns the placement with the least goal, and the bound that proves it.

    Args:
        problem: What to place.
        goal: What to minimise, and the bounds on other metrics.
        starts: Placements to begin from; only their modes count.
        seconds: Of work on a free core, counted as ``Effort`` does, so that the answer is the
            same everywhere; the clock ends a search at ten times that, which the result says.
        effort: The account of a larger search, which this one spends of, instead.
        progress: Told the best value and the bound now and then during long work.
    """
    account = Effort(seconds) if effort is None else effort.part(effort.left)
    units = Units.of(problem, goal)
    tell = progress and (lambda *both: progress(*map(units.real_value, both)))
    solver = _Solver(units.problem(problem), units.goal(goal), account, tell)
    found = solver.run([placing.modes for placing in starts])
    placing, bound = units.real(found.placing), units.real_value(found.bound)
    return Optimum(placing, bound, account.clocked)


def playable(problem: Problem) -> Problem:
    """Returns the problem without the modes in which a node cannot be in any loadable."""
    cores = set(problem.cores)
    alone = [not is_packed(problem) or fits(problem, (v,)) for v in range(len(problem.costs))]
    costs = tuple(
        tuple(
            None if problem.device(m) in cores and not alone[v] else cost
            for m, cost in enumerate(row)
        )
        for v, row in enumerate(problem.costs)
    )
    return problem if costs == problem.costs else replace(problem, costs=costs)


class _Solver:
    """One problem and goal, the best placement so far and the bound."""

    def __init__(
        self, problem: Problem, goal: Goal, effort: Effort, progress: Progress | None
    ) -> None:
        self.problem, self.goal = playable(problem), goal
        self.effort, self.progress = effort, progress
        self.best: Placing | None = None
        self.bound = -INFINITY
        self.reach = Reach(self.problem)
        self.priced = False
        self.close = PROVEN if goal.weights is None else TIE_SLACK

    def run(self, starts: Sequence[Sequence[int]] = ()) -> Optimum:
        """Tries one way after the other until one proves the best placement."""
        if any(all(cost is None for cost in row) for row in self.problem.costs):
            return Optimum(None, INFINITY)
        for modes in (*starts, *self._plain()):
            self.take(evaluated(self.problem, modes, self.goal)[0])
        ways = [self._chain, self._as_one_core, self._relaxed, self._steps, self._branched]
        if len(self.problem.costs) > FEW:
            ways[3:] = reversed(ways[3:])
        if self._pooled:
            if self.goal.weights is None:
                ways.insert(ways.index(self._steps) + 1, self._columns)
            else:
                ways[2:2] = [self._sketched, self._columns]
        for way in ways:
            self._tell()
            way()
            if self.done(self.close) or self.effort.over:
                break
        if self.best is not None:
            return Optimum(self.best, min(self.bound, self.best.value))
        return Optimum(None, self.bound)

    def _plain(self) -> list[list[int]]:
        """Returns placements without any core: each mode where it can be, else the cheapest.

        Of many modes, as where every layer has formats of its own, those of the most nodes: what
        only one node can have makes no other start.
        """
        problem = self.problem
        cheapest = [
            min((problem.device(m) in problem.cores, self._worth(cost), m)
                for m, cost in enumerate(row) if cost is not None)[-1]
            for row in problem.costs
        ]  # fmt: skip
        able = Counter(m for row in problem.costs for m, cost in enumerate(row) if cost is not None)
        plain = [m for m, mode in enumerate(problem.modes) if mode.device not in problem.cores]
        found: list[list[int]] = []
        for chosen in sorted(sorted(plain, key=lambda m: -able[m])[:PLAIN]):
            modes = [
                chosen if row[chosen] is not None else least
                for row, least in zip(problem.costs, cheapest, strict=True)
            ]
            if modes not in found:
                found.append(modes)
        return found

    def _worth(self, cost: Cost) -> float:
        return self.goal.value(cost.load_us, cost.energy_uj)

    def done(self, gap: float) -> bool:
        """Returns whether the best placement, or that there is none, is proven to a gap."""
        if self.best is None:
            return self.bound == INFINITY
        return self.best.value - self.bound <= gap * abs(self.best.value)

    def take(self, found: Placing | None) -> None:
        """Keeps a placement when it is better."""
        if found and better(found, self.best):
            self.best = found

    def _chain(self) -> None:
        """A chain without what a dynamic programme cannot carry is solved by one."""
        from edgekit.solver._chain import chain_optimum
        from edgekit.solver._chain_bounds import chain_search

        found = chain_optimum(self.problem, self.goal)
        if found is None and len(self.problem.costs) > LONG_CHAIN:
            effort = self.effort.part(LONG_CHAIN_EFFORT)
            found = chain_search(self.problem, self.goal, effort=effort)
            if found is not None:
                self.close = LONG_CHAIN_GAP  # of a chain: a proof would take minutes
        if found is not None:
            self.bound = max(self.bound, found.bound)
            self.take(found.placing)

    def _as_one_core(self) -> None:
        """Identical cores that run one after the other are one core with the slots of all."""
        weights = self.goal.weights
        if weights is None or "period_us" in self.goal.bounds:
            return
        single = as_one_core(self.problem)
        if single is None or weights[self.problem.cores[0]] != weights[self.problem.cores[1]]:
            return
        one = _Solver(single[0], self.goal, self.effort, self.progress and self._told)
        one.run([self.best.modes] if self.best else ())
        self.bound = max(self.bound, one.bound)
        if one.best is None:
            return
        for placing in shared_out(self.problem, self.goal, one.best, single[1]):
            self.take(placing)
        if not self.done(self.close):
            self.take(evaluate(self.problem, one.best.modes, self.goal))

    @property
    def _pooled(self) -> bool:
        return bool(self.problem.pools) and len(self.problem.costs) <= COLUMNS

    def _sketched(self) -> None:
        """The relaxation for a moment: enough where the pools hardly bind."""
        model = Relaxation(self.problem, self.goal)
        effort = self.effort.part(SKETCH_EFFORT)
        self._search(model, EXACT_GAP, SKETCH_NODES, rounds=SKETCH_ROUNDS, effort=effort)

    def _columns(self) -> None:
        """Where pools limit loadables, each of them is a column."""
        from edgekit.solver._columns import Columns

        effort = self.effort.part(self.effort.left * COLUMNS_SHARE)
        told = self.progress and self._told
        columns = Columns(self.problem, self.goal, self.best, effort, told)
        self.priced = columns.run()
        self.bound = max(self.bound, columns.bound)
        self.take(columns.best)

    def _relaxed(self) -> None:
        """The relaxation with its cuts: most weighted goals are done with it."""
        if self.priced:
            return  # nothing that the columns do not know
        if self.goal.weights is None:
            model = Relaxation(self.problem, self.goal)
            self._search(model, PERIOD_GAP, 1, rounds=PERIOD_ROUNDS)
            return
        self._search(Relaxation(self.problem, self.goal), EXACT_GAP, NODES)
        if self.best and not self.done(self.close):
            # the costs that decide ties may weigh too much beside so small a value
            self._search(Relaxation(self.problem, self.goal, ties=False), EXACT_GAP, NODES)

    def _branched(self) -> None:
        """The tree of a min-max problem, where the steps have left a gap."""
        if self.goal.weights is None:
            nodes = max(20, PERIOD_WORK // len(self.problem.costs))
            self._search(Relaxation(self.problem, self.goal), PERIOD_GAP, nodes)

    def _search(
        self,
        model: Relaxation,
        gap: float,
        nodes: int,
        *,
        rounds: int = ROUNDS,
        effort: Effort | None = None,
    ) -> None:
        """Solves the relaxation, adding cuts until its placement can be run as it says."""
        effort = effort or self.effort
        for _ in range(rounds):
            if effort.over:
                return
            modes, bound = model.solve(
                gap=gap,
                nodes=nodes,
                effort=effort,
                start=self.best.modes if self.best else None,
                progress=self.progress and self._told,
            )
            if bound < INFINITY or self.best is None:  # else the rows miss it by a rounding
                self.bound = max(self.bound, bound)
            if modes is None:
                return
            if self._enlarge(model, modes):
                continue
            found, exact = evaluated(self.problem, modes, self.goal)
            self.take(found)
            if self.done(self.close) or not exact or not self._cut(model, modes):
                return

    def _enlarge(self, model: Relaxation, modes: Sequence[int]) -> bool:
        """Adds cuts where loadables are too small whatever they are joined with."""
        if self.problem.min_size <= 1:
            return False
        devices = [self.problem.device(m) for m in modes]
        small = list(too_small(self.problem, self.reach, devices))
        for v, border, near in small:
            for core in self.problem.cores:
                model.require_size(core, v, border, near)
        return bool(small)

    def _cut(self, model: Relaxation, modes: Sequence[int]) -> bool:
        """Adds a cut where modes take more loadables than the relaxation counted."""
        devices = [self.problem.device(m) for m in modes]
        added = False
        for network in range(len(self.problem.networks)):
            added = self._cut_network(model, network, devices) or added
        return added

    def _cut_network(self, model: Relaxation, network: int, devices: Sequence[int]) -> bool:
        problem = replace(
            self.problem,
            max_loadables=None,
            max_transitions=(None,) * len(self.problem.networks),
            contiguous=(False,) * len(self.problem.networks),
        )
        nodes = problem.networks[network]
        cores = [c for c in problem.cores if any(devices[v] == c for v in nodes)]
        total = _fewest(problem, network, devices)
        if not cores or total is None:
            return False
        if total <= sum(least_loadables(problem, network, core, devices) for core in cores):
            return False
        wild: list[int] = []
        for v in nodes:  # keep only the nodes without which fewer would do
            if _fewest(problem, network, devices, (*wild, v)) == total:
                wild.append(v)
        forcing = {v: devices[v] for v in nodes if v not in wild}
        model.require_loadables(network, problem.cores, forcing, total)
        for one, other in twins(self.problem):
            change = {one: other, other: one}
            swapped = {v: change.get(d, d) for v, d in forcing.items()}
            model.require_loadables(network, problem.cores, swapped, total)
        return True

    def _steps(self) -> None:
        from edgekit.solver._steps import solve_steps

        try:
            found = solve_steps(
                self.problem,
                self.goal,
                start=self.best,
                lower=max(self.bound, 0.0),
                effort=self.effort.part(self.effort.left * STEPS_SHARE),
                progress=self.progress and self._told,
            )
        except EnvironmentLack:
            if self.best is None:
                raise
            return  # the placement stands, with its gap
        self.bound = max(self.bound, found.bound)
        self.take(found.placing)

    def _tell(self) -> None:
        """Reports what is known."""
        if self.progress and self.best is not None:
            self.progress(self.best.value, self.bound)

    def _told(self, value: float, bound: float) -> None:
        """Reports a part's progress, which may know less than the whole does."""
        if self.progress:
            known = INFINITY if self.best is None else self.best.value
            self.progress(min(value, known), min(max(bound, self.bound), known))


def _fewest(
    problem: Problem, network: int, devices: Sequence[int], wild: Sequence[int] = ()
) -> int | None:
    """Returns the fewest loadables of a network on all cores together, if it is known."""
    orders = arrange(problem, network, devices, wild)
    if not orders.exact:
        return None
    return min((sum(order.counts) for order in orders.found), default=None)
