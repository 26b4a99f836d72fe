"""The exact optimiser (``minimise``): a relaxation, the exact value of its placements, and cuts
until the gap between both is closed. Also the Pareto front of two metrics, with each point proved
(``pareto``), and the smallest set of constraints that conflict.

With one core and no pools the relaxation is exact (see ``relaxation``): networks of a few hundred
nodes are proved in a second. With more cores the paths of a core bound its loadables from below,
but all loadables need a common order as well, and pools and least sizes can require more loadables.
If a solution violates this, a combinatorial Benders cut over the few nodes that force it is added
(Hooker and Ottosson, 2003), until a solution is valid. A gap that is still open then, for example
if pools bind, goes to the formulation over steps (``cpsat.running_order``), which contains all
constraints, with the bound and the placement found so far.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from edgekit.errors import UsageError
from edgekit.solver.evaluation import (
    evaluate,
    evaluate_quickly,
    is_better,
    merge_twin_cores,
    split_over_cores,
)
from edgekit.solver.loadables import Reach, arrange, fits, is_packed, least_loadables, too_small
from edgekit.solver.problem import (
    OPTIMAL_GAP,
    Effort,
    Goal,
    Optimum,
    PlacementProblem,
    Placing,
    Units,
    metrics,
    twin_cores,
)
from edgekit.solver.program import INFINITY, Progress
from edgekit.solver.relaxation import Relaxation

ROUNDS = 40  # cuts before the steps are tried
EXACT_GAP = 1e-7
TIE_SLACK = 5e-5  # relative gap that the tie-breaking costs may leave open
PERIOD_GAP = 5e-5  # of a min-max problem: proven means 1e-4
PLAIN = 16  # most modes for initial placements without a core
STEPS_SHARE = 0.5  # of the remaining effort
METRICS = ("latency_us", "energy_uj", "gpu_us", "period_us")
OBJECTIVE_OF_METRIC = {
    "latency_us": "latency",
    "energy_uj": "energy",
    "gpu_us": "gpu_time",
    "period_us": "period",
}
APART = 1e-5
"""Relative: points whose metrics differ by less are equal; the solver keeps bounds to 2e-6."""
EACH = 60.0  # units of Effort for one search
TRIALS = 60
"""Sets that the search for a smaller set may try."""
T = TypeVar("T", bound=Hashable)


def minimise(
    problem: PlacementProblem,
    goal: Goal,
    *,
    starts: Sequence[Placing] = (),
    seconds: float = 60.0,
    effort: Effort | None = None,
    enough: float = 0.0,
    progress: Progress | None = None,
) -> Optimum:
    """Returns the placement with the least goal, and the bound that proves it.

    Args:
        problem: The placement problem.
        goal: The goal to minimise, with bounds on other metrics.
        starts: Placements to begin from; only their modes count.
        seconds: Seconds of work on a free core, counted as in ``Effort``, so that the answer is
            the same on every machine. The wall clock ends a search after ten times as long, which
            the result reports.
        effort: The account of a larger search, which is charged instead.
        enough: Relative gap at which the search stops. 0: the gap that counts as optimal.
        progress: Called with the best value and the bound now and then during long work.
    """
    account = Effort(seconds) if effort is None else effort.part(effort.left)
    units = Units.of(problem, goal)
    report = progress and (lambda *both: progress(*map(units.real_value, both)))
    solver = _Solver(units.problem(problem), units.goal(goal), account, report, enough)
    found = solver.run([placing.modes for placing in starts])
    placing, bound = units.real(found.placing), units.real_value(found.bound)
    return Optimum(placing, bound, account.clocked)


def without_impossible_modes(problem: PlacementProblem) -> PlacementProblem:
    """Returns the problem without modes in which a node fits no loadable."""
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
    """A problem and goal, with the best placement so far and the bound."""

    def __init__(
        self,
        problem: PlacementProblem,
        goal: Goal,
        effort: Effort,
        progress: Progress | None,
        enough: float = 0.0,
    ) -> None:
        self.problem, self.goal = without_impossible_modes(problem), goal
        self.effort, self.progress = effort, progress
        self.best: Placing | None = None
        self.bound = -INFINITY
        self.reach = Reach(self.problem)
        self.close = OPTIMAL_GAP if goal.weights is None else TIE_SLACK
        self.enough = enough

    def run(self, starts: Sequence[Sequence[int]] = ()) -> Optimum:
        """Tries the methods in sequence until one proves the best placement."""
        if any(all(cost is None for cost in row) for row in self.problem.costs):
            return Optimum(None, INFINITY)
        for modes in (*starts, *self._start_modes()):
            # no CP-SAT for a start: an answer of the quick search is enough
            self.take(evaluate_quickly(self.problem, modes, self.goal)[0])
        for way in (self._solve_merged_cores, self._solve_relaxation, self._solve_steps):
            if self.progress and self.best is not None:
                self.progress(self.best.value, self.bound)
            way()
            if self.is_proved(max(self.close, self.enough)) or self.effort.over:
                break
        if self.best is not None:
            return Optimum(self.best, min(self.bound, self.best.value))
        return Optimum(None, self.bound)

    def _start_modes(self) -> list[list[int]]:
        """Returns placements without cores: a mode for all nodes that allow it, else the cheapest.

        Of many modes (if every layer has its own formats) those of the most nodes are tried: a mode
        of a single node gives no different start.
        """
        problem = self.problem
        cheapest = [
            min(
                (
                    problem.device(m) in problem.cores,
                    self.goal.value(cost.load_us, cost.energy_uj),
                    m,
                )
                for m, cost in enumerate(row)
                if cost is not None
            )[-1]
            for row in problem.costs
        ]
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

    def is_proved(self, gap: float) -> bool:
        """Returns True if the best placement, or that none exists, is proven to a gap."""
        if self.best is None:
            return self.bound == INFINITY
        return self.best.value - self.bound <= gap * abs(self.best.value)

    def take(self, found: Placing | None) -> None:
        """Keeps a placement if it is better."""
        if found and is_better(found, self.best):
            self.best = found

    def _solve_merged_cores(self) -> None:
        """Solves identical cores that run in sequence as one core with the slots of all."""
        weights = self.goal.weights
        # a period counts the load of each core by itself
        if weights is None or "period_us" in self.goal.bounds:
            return
        single = merge_twin_cores(self.problem)
        if single is None or weights[self.problem.cores[0]] != weights[self.problem.cores[1]]:
            return
        report = self.progress and self._report_part
        single_core = _Solver(single[0], self.goal, self.effort, report, self.enough)
        single_core.run([self.best.modes] if self.best else ())
        self.bound = max(self.bound, single_core.bound)
        if single_core.best is None:
            return
        for placing in split_over_cores(self.problem, self.goal, single_core.best, single[1]):
            self.take(placing)
        if not self.is_proved(self.close):
            self.take(evaluate(self.problem, single_core.best.modes, self.goal))

    def _solve_relaxation(self) -> None:
        """Solves the relaxation with cuts, which is enough for most goals."""
        gap = EXACT_GAP if self.goal.weights else PERIOD_GAP
        self._search(Relaxation(self.problem, self.goal), gap)
        if self.goal.weights and self.best and not self.is_proved(self.close):
            # the tie-breaking costs may be too large against so small a value
            self._search(Relaxation(self.problem, self.goal, ties=False), gap)

    def _search(self, model: Relaxation, gap: float) -> None:
        """Solves the relaxation, adding cuts until its placement can run as computed."""
        for _ in range(ROUNDS):
            if self.effort.over:
                return
            modes, bound = model.solve(
                gap=gap,
                effort=self.effort,
                start=self.best.modes if self.best else None,
                below=self.best.value * (1 - self.enough)
                if self.best and self.enough
                else INFINITY,
                progress=self.progress and self._report_part,
            )
            if bound < INFINITY or self.best is None:  # else the rows exclude it by rounding
                self.bound = max(self.bound, bound)
            if modes is None:
                return
            # first: modes with too small a loadable have no value
            if self._enlarge(model, modes):
                continue
            found, exact = evaluate_quickly(self.problem, modes, self.goal)
            self.take(found)
            if self.is_proved(self.close) or not exact or not self._cut(model, modes):
                return

    def _enlarge(self, model: Relaxation, modes: Sequence[int]) -> bool:
        """Adds cuts if loadables are too small with any nodes they could be joined with."""
        if self.problem.min_size <= 1:
            return False
        devices = [self.problem.device(m) for m in modes]
        small = list(too_small(self.problem, self.reach, devices))
        # on every core: exchanging cores does not make the loadable larger
        for v, border, near in small:
            for core in self.problem.cores:
                model.require_size(core, v, border, near)
        return bool(small)

    def _cut(self, model: Relaxation, modes: Sequence[int]) -> bool:
        """Adds a cut if modes take more loadables than the relaxation counted."""
        devices = [self.problem.device(m) for m in modes]
        # without limits: the cut states how many loadables these devices need
        problem = replace(self.problem, max_loadables=None, max_transitions=None)
        cores = [core for core in problem.cores if core in devices]
        total = _fewest_loadables(problem, devices)
        if not cores or total is None:
            return False
        # the relaxation already counts as many: no cut is needed
        if total <= sum(least_loadables(problem, core, devices) for core in cores):
            return False
        # The cut names only nodes that force this number: with fewer it excludes more placements.
        wild: list[int] = []
        for v in range(len(devices)):
            if _fewest_loadables(problem, devices, (*wild, v)) == total:
                wild.append(v)
        forcing = {v: device for v, device in enumerate(devices) if v not in wild}
        model.require_loadables(problem.cores, forcing, total)
        # the same placement with exchanged cores would be the next answer
        for first, second in twin_cores(self.problem):
            change = {first: second, second: first}
            swapped = {v: change.get(d, d) for v, d in forcing.items()}
            model.require_loadables(problem.cores, swapped, total)
        return True

    def _solve_steps(self) -> None:
        from edgekit.solver.cpsat.running_order import solve_steps

        found = solve_steps(
            self.problem,
            self.goal,
            start=self.best,
            lower=max(self.bound, 0.0),
            effort=self.effort.part(self.effort.left * STEPS_SHARE),
            progress=self.progress and self._report_part,
        )
        self.bound = max(self.bound, found.bound)
        self.take(found.placing)

    def _report_part(self, value: float, bound: float) -> None:
        """Reports a part's progress, with the better of its values and the whole's."""
        best = value if self.best is None else min(value, self.best.value)
        if self.progress and best < INFINITY:
            self.progress(best, min(max(bound, self.bound), best))


def _fewest_loadables(
    problem: PlacementProblem, devices: Sequence[int], wild: Sequence[int] = ()
) -> int | None:
    """Returns the fewest loadables on all cores together; None if unknown."""
    orders = arrange(problem, devices, wild)
    if not orders.exact:
        return None
    return min((sum(order.counts) for order in orders.found), default=None)


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A placement of the front.

    Attributes:
        placing: The placement.
        first: Its value of the first metric.
        second: Its value of the second metric.
        bound: Lower bound of the first metric if the second is at most ``second``.
        optimal: True if both metrics are proved, each for the other's value, to a gap of at most
            1e-4.
    """

    placing: Placing
    first: float
    second: float
    bound: float
    optimal: bool


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """Points by ascending first and descending second metric.

    Attributes:
        metrics: Names of the two metrics.
        points: At least one point.
        complete: True if it has every point of the front (except points within 1e-5), all proved.
        resolution: Largest gap between two neighbours, as shares of the whole front's extent in
            the first and the second metric; zeros if complete.
    """

    metrics: tuple[str, str]
    points: tuple[ParetoPoint, ...]
    complete: bool
    resolution: tuple[float, float]


def two_metrics(*names: str) -> tuple[str, str]:
    """Returns the metrics of a front; each name is a metric's or its objective's.

    Raises:
        UsageError: "usage.pareto": not two different metrics.
    """
    of_objective = {objective: metric for metric, objective in OBJECTIVE_OF_METRIC.items()}
    found = [of_objective.get(name, name) for name in names]
    if len(found) != 2 or found[0] == found[1] or not set(found) <= set(METRICS):
        raise UsageError(
            f"a front needs two different metrics, not {', '.join(names) or 'none'}",
            code="usage.pareto",
            hint=f"choose two of {', '.join(of_objective)}",
        )
    return found[0], found[1]


def pareto(
    problem: PlacementProblem,
    metrics: Sequence[str] = ("latency_us", "energy_uj"),
    *,
    bounds: Mapping[str, float] | None = None,
    limit: int = 25,
    seconds: float = 300.0,
    starts: Sequence[Placing] = (),
    progress: Callable[[int, int], None] | None = None,
) -> ParetoFront | None:
    """Returns the front of two metrics, or None if no placement keeps the bounds.

    Args:
        problem: The placement problem.
        metrics: Two of latency_us, energy_uj, gpu_us, period_us.
        bounds: Limits that every point keeps.
        limit: Most points; beyond, the front is thinned evenly.
        seconds: Seconds of search, as in ``minimise``; unsearched boxes then count as thinned.
        starts: Placements to begin from.
        progress: Called with the points found and the boxes still open.

    Raises:
        UsageError: Unknown metrics, or not two different metrics.
    """
    names = two_metrics(*metrics)
    if limit < 2:
        raise UsageError("a front needs at least two points", code="usage.pareto")
    search = _FrontSearch(problem, (names[0], names[1]), dict(bounds or {}), starts, seconds)
    return search.run(limit, progress)


_Box = tuple[ParetoPoint, ParetoPoint]


class _FrontSearch:
    """The box method of Hamacher, Pedersen and Ruzika (2007).

    Further points can only be in boxes between two neighbours of the front. The largest box is
    halved: the best point of its lower half and the best point above that leave two smaller boxes.
    So the front is complete when no box is left, and evenly thinned, to a known resolution, if the
    limit is reached first.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        names: tuple[str, str],
        bounds: dict[str, float],
        starts: Sequence[Placing],
        seconds: float,
    ) -> None:
        self.problem, self.names, self.bounds = problem, names, bounds
        self.starts = list(starts)
        self.proved = True
        self.effort = Effort(seconds)

    def run(self, limit: int, progress: Callable[[int, int], None] | None) -> ParetoFront | None:
        """Finds both ends and fills in the points between."""
        upper = self.least(0, {})
        lower = self.least(1, {}) if upper else None
        if upper is None or lower is None:
            return None
        points = [upper]
        boxes: list[_Box] = []
        width, height = lower.first - upper.first, upper.second - lower.second
        if self.differ(upper, lower):
            points.append(lower)
            boxes.append((upper, lower))

        def extent(box: _Box) -> tuple[float, float]:
            start, end = box
            return (end.first - start.first) / width, (start.second - end.second) / height

        while boxes and len(points) < limit and not self.effort.over:
            box = max(boxes, key=lambda box: (math.prod(extent(box)), -box[0].first))
            boxes.remove(box)
            for point, left in self.split(*box):
                if point:
                    points.append(point)
                boxes += left
            if progress:
                progress(len(points), len(boxes))
        points.sort(key=lambda point: (point.first, point.second))
        open_ = [extent(box) for box in boxes]
        resolution = (
            max((e[0] for e in open_), default=0.0),
            max((e[1] for e in open_), default=0.0),
        )
        return ParetoFront(self.names, tuple(points), self.proved and not boxes, resolution)

    def split(
        self, upper: ParetoPoint, lower: ParetoPoint
    ) -> list[tuple[ParetoPoint | None, list[_Box]]]:
        """Returns the two points around the middle of a box, with the boxes left open."""
        middle = (upper.second + lower.second) / 2
        found = self.least(0, {self.names[1]: middle})
        if found is None or not self.differ(found, lower) or found.first > lower.first:
            found = lower
        below: tuple[ParetoPoint | None, list[_Box]] = (None, [])
        if found is not lower:
            below = (found, [(found, lower)])
        # strictly better than the point found, or the search would return it
        limit = found.first - APART * abs(found.first)
        above = self.least(1, {self.names[0]: limit})
        if above is None or not self.differ(upper, above) or above.second > upper.second:
            return [below]
        return [below, (above, [(upper, above)])]

    def differ(self, point: ParetoPoint, other: ParetoPoint) -> bool:
        """Returns True if two points differ by more than the solver's tolerance."""
        return abs(point.first - other.first) > APART * abs(other.first) and abs(
            point.second - other.second
        ) > APART * abs(point.second)

    def least(self, which: int, limits: Mapping[str, float]) -> ParetoPoint | None:
        """Returns the point with the least of one metric, and then of the other."""
        metric, other = self.names[which], self.names[1 - which]
        bounds = self.with_limits(limits)
        best, bound = self.solve(metric, bounds)
        if best is None:
            return None
        proved = self.value(best, metric) - bound <= OPTIMAL_GAP * abs(bound)
        value = self.value(best, metric)
        # Of all placements with this value, only the best in the other metric is not beaten.
        then, least_bound = self.solve(other, self.with_limits({**limits, metric: value}), best)
        placing = then or best
        if which == 1:
            bound = least_bound
        first, second = (self.value(placing, name) for name in self.names)
        last = second if which == 0 else first
        optimal = proved and last - least_bound <= OPTIMAL_GAP * abs(last)
        self.proved = self.proved and optimal
        return ParetoPoint(placing, first, second, min(bound, first), optimal)

    def with_limits(self, limits: Mapping[str, float]) -> dict[str, float]:
        found = dict(self.bounds)
        for name, limit in limits.items():
            found[name] = min(limit, found.get(name, math.inf))
        return found

    def solve(
        self, name: str, bounds: Mapping[str, float], start: Placing | None = None
    ) -> tuple[Placing | None, float]:
        goal = Goal.of(self.problem, OBJECTIVE_OF_METRIC[name], bounds)
        starts = [*self.starts, *([start] if start else [])]
        found = minimise(self.problem, goal, starts=starts, effort=self.effort.part(EACH))
        self.proved = self.proved and (found.placing is not None or found.bound == math.inf)
        return found.placing, found.bound

    def value(self, placing: Placing, name: str) -> float:
        return metrics(self.problem, placing.load_us, placing.energy_uj)[name]


def smallest_conflict(
    constraints: Sequence[T], fails: Callable[[Sequence[T]], bool]
) -> tuple[list[T], bool]:
    """Returns a smallest conflicting set, and True if all smaller sets were tried.

    A superset of a conflicting set conflicts, too. So a deletion filter finds a set in which every
    constraint is needed (Chinneck, Feasibility and Infeasibility in Optimization, 2008, section
    6.2), and smaller sets are then tried by size.

    Args:
        constraints: All constraints, which together conflict; the first are dropped first.
        fails: Returns True if given constraints cannot hold together.
    """
    needed = list(constraints)
    for constraint in constraints:
        rest = [other for other in needed if other != constraint]
        if fails(rest):
            needed = rest
    tried = 0
    for size in range(1, len(needed)):
        for few in itertools.combinations(constraints, size):
            if set(few) <= set(needed):
                continue  # the conflict needs all constraints of the set
            if tried == TRIALS:
                return needed, False
            tried += 1
            if fails(few):
                return list(few), True
    return needed, True
