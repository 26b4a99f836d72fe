"""The placement problem as a mixed-integer programme (see ``_optimum`` for why it is exact)."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.placement._goal import Goal
from edgekit.placement._highs import Program, Solution
from edgekit.placement._problem import OUTSIDE, Problem

__all__ = ["Model"]

OBJECTIVE_SCALE = 1e5  # HiGHS's tolerances are absolute: costs are scaled to this sum
TIE = 2e-7  # of the objective's scale, per transition: below every gap that counts as optimal


class _Sum(dict[int, float]):
    """A linear expression: coefficients by variable, and a constant."""

    constant: float = 0.0

    def add(self, variable: int, coefficient: float) -> None:
        self[variable] = self.get(variable, 0.0) + coefficient

    def plus(self, other: _Sum, factor: float) -> None:
        for variable, coefficient in other.items():
            self.add(variable, factor * coefficient)
        self.constant += factor * other.constant


class Model:
    """Variables and rows for one problem and goal.

    Per kernel and core a binary variable; per border a continuous one and direction; per kernel
    and core a level, the number of loadables entered on the way there; per core their number.
    """

    def __init__(self, problem: Problem, goal: Goal, *, ties: bool = True) -> None:
        self.problem = problem
        self.program = Program()
        self.place: list[dict[int, int]] = []
        self.count: dict[int, int] = {}
        self._levels: dict[int, list[int]] = {}
        self._binaries()
        self._loads = [_Sum() for _ in problem.devices]
        self._kernel_loads()
        self._border_loads()
        for core in problem.cores:
            self._core(core)
        self._bounds(goal)
        self._objective(goal, ties)

    def _binaries(self) -> None:
        for row in self.problem.times:
            cores = [core for core in self.problem.cores if row[core] is not None]
            spots = {core: self.program.variable(1.0, integer=True) for core in cores}
            self.place.append(spots)
            if row[0] is None:
                self.program.row(dict.fromkeys(spots.values(), 1.0), 1.0, 1.0)
            elif len(spots) > 1:
                self.program.row(dict.fromkeys(spots.values(), 1.0), high=1.0)

    def _kernel_loads(self) -> None:
        for row, spots in zip(self.problem.times, self.place, strict=True):
            on_gpu = row[0] or 0.0
            self._loads[0].constant += on_gpu
            for core, variable in spots.items():
                self._loads[0].add(variable, -on_gpu)
                self._loads[core].add(variable, row[core] or 0.0)

    def _difference(self, v: int, u: int, core: int | None = None) -> dict[int, float]:
        """Returns [v on a core] - [u on a core], for one core or any; OUTSIDE is on none."""
        terms: dict[int, float] = {}
        for kernel, sign in ((v, 1.0), (u, -1.0)):
            if kernel != OUTSIDE:
                for c, variable in self.place[kernel].items():
                    if core in (None, c):
                        terms[variable] = terms.get(variable, 0.0) + sign
        return terms

    def _border_loads(self) -> None:
        for border in self.problem.borders:
            ends = list(border.consumers)
            if border.to_dla_us:
                pairs = [(v, border.producer) for v in ends]
                self._transfer(border.to_dla_us, pairs)
            if border.to_gpu_us and border.producer != OUTSIDE:
                ends += [OUTSIDE] if border.output else []
                self._transfer(border.to_gpu_us, [(border.producer, v) for v in ends])

    def _transfer(self, cost: float, pairs: Sequence[tuple[int, int]]) -> None:
        """Adds a cost that is paid once when the first of any pair is on a core, the other not."""
        paid = self.program.variable(1.0)
        self._loads[0].add(paid, cost)
        for inner, outer in pairs:
            terms = {paid: 1.0}
            for variable, sign in self._difference(inner, outer).items():
                terms[variable] = -sign
            self.program.row(terms, low=0.0)

    def _core(self, core: int) -> None:
        slots = float(self.problem.max_loadables)
        number = self.program.variable(slots)
        self.count[core] = number
        self._loads[core].add(number, self.problem.launch_us)
        levels = [self.program.variable(slots) for _ in self.place]
        self._levels[core] = levels
        for v, before in enumerate(self.problem.predecessors):
            self.program.row({number: 1.0, levels[v]: -1.0}, low=0.0)
            for u in before or (OUTSIDE,):
                entry = {k: -c for k, c in self._difference(v, u, core).items()}
                below = {} if u == OUTSIDE else {levels[u]: -1.0}
                self.program.row({levels[v]: 1.0, **below, **entry}, low=0.0)
                if below:
                    self.program.row({levels[v]: 1.0, **below}, low=0.0)

    def _bounds(self, goal: Goal) -> None:
        weights = {
            "latency_us": (1.0,) * len(self._loads),
            "energy_uj": self.problem.watts,
            "gpu_us": (1.0,) + (0.0,) * len(self.problem.cores),
        }
        for name, limit in goal.bounds.items():
            total = self._weighed(weights[name])
            size = max(limit, 1e-9)
            terms = {k: c / size for k, c in total.items()}
            self.program.row(terms, high=(limit - total.constant) / size)

    def _weighed(self, weights: Sequence[float]) -> _Sum:
        total = _Sum()
        for weight, load in zip(weights, self._loads, strict=True):
            total.plus(load, weight)
        return total

    def _objective(self, goal: Goal, ties: bool) -> None:
        weights = goal.weights or (1.0,) * len(self._loads)
        worst = sum(
            max(w * (us or 0.0) for w, us in zip(weights, row, strict=True))
            for row in self.problem.times
        )
        self.scale = OBJECTIVE_SCALE / worst if worst > 0 else 1.0
        if goal.weights is None:
            total = _Sum({self.program.variable(): 1.0})
            peak = next(iter(total))
            for load in self._loads:
                terms = {k: -c for k, c in load.items()}
                self.program.row({peak: 1.0, **terms}, low=load.constant)
            self._order_twins()
        else:
            total = self._weighed(weights)
        self.constant = total.constant
        for variable, coefficient in total.items():
            self.program.cost[variable] += self.scale * coefficient
        self.tie_limit = 0.0
        if ties:
            self._ties()

    def _order_twins(self) -> None:
        """Identical cores: the busier one comes first."""
        if self.problem.twins:
            for core in self.problem.cores[1:]:
                terms = _Sum()
                terms.plus(self._loads[core - 1], 1.0)
                terms.plus(self._loads[core], -1.0)
                self.program.row(terms, low=0.0)

    def _ties(self) -> None:
        """Adds a cost that only decides between equal plans: transitions, then all the loads."""
        tie = TIE * OBJECTIVE_SCALE
        cores = self.problem.cores
        for core in cores:
            self.program.cost[self.count[core]] += 2 * tie
            self.tie_limit += 2 * tie * min(self.problem.max_loadables, len(self.place))
        if len(cores) == 1:
            self._tie_ends(cores[0], tie)
        every = self._weighed((1.0,) * len(self._loads))
        highest = sum(max(us or 0.0 for us in row) for row in self.problem.times)
        highest += sum(b.to_dla_us + b.to_gpu_us for b in self.problem.borders)
        share = tie / highest if highest > 0 else 0.0
        for variable, coefficient in every.items():
            self.program.cost[variable] += share * coefficient
        self.tie_limit += tie

    def _tie_ends(self, core: int, tie: float) -> None:
        """One core: transitions are 2 * loadables - 2, and one for each end that is on the GPU."""
        first, last = (self.program.variable(1.0, tie) for _ in range(2))
        self.tie_limit += 2 * tie
        for v, spots in enumerate(self.place):
            on_core = dict.fromkeys(spots.values(), 1.0)
            level = self._levels[core][v]
            self.program.row({first: 1.0, level: 1.0, **on_core}, low=1.0)
            self.program.row({last: 1.0, self.count[core]: 1.0, level: -1.0, **on_core}, low=1.0)

    def require_loadables(self, devices: Sequence[int], forcing: Sequence[int], total: int) -> None:
        """Demands ``total`` loadables while the kernels in ``forcing`` keep their devices."""
        terms = _Sum()
        low = float(total)
        for variable in self.count.values():
            terms.add(variable, 1.0)
        for v in forcing:  # every deviation releases the demand
            if devices[v]:
                low -= total
                terms.add(self.place[v][devices[v]], -float(total))
            else:
                for variable in self.place[v].values():
                    terms.add(variable, float(total))
        self.program.row(terms, low=low)

    def solve(
        self, *, gap: float, nodes: int, seconds: float, start: Sequence[int] | None
    ) -> tuple[tuple[int, ...] | None, float]:
        """Returns device indices by kernel (None: none found) and a bound on the goal."""
        hint = None
        if start is not None:
            hint = {
                variable: float(start[v] == core)
                for v, spots in enumerate(self.place)
                for core, variable in spots.items()
            }
        found: Solution = self.program.solve(gap=gap, nodes=nodes, seconds=seconds, start=hint)
        if found.values is None:
            return None, found.bound
        values = found.values
        devices = tuple(
            next((core for core, variable in spots.items() if values[variable] > 0.5), 0)
            for spots in self.place
        )
        bound = (found.bound - self.tie_limit) / self.scale + self.constant
        return devices, bound
