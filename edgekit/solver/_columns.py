"""Loadables as columns: the linear programme over every set of nodes that a loadable can be.

Where pools limit loadables, what matters is which nodes share one, and the relaxation's sum of
needs says too little of it. Here every possible loadable is a variable of its own, added as the
duals ask for it (column generation: Gilmore and Gomory, 1961). The optimum of that linear programme
bounds the goal. Only loadables whose reduced cost is within the gap can be part of a better
placement (Baldacci, Christofides and Mingozzi, 2008): where they are few, all of them together
with the placement's own rows are the exact problem, but for the order of the loadables, of which
cycles are cut off as they turn up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgekit.solver._circles import Cut, circles, ordered
from edgekit.solver._effort import Effort
from edgekit.solver._evaluate import better, evaluated, settle
from edgekit.solver._highs import INFINITY, Expression, interruptible
from edgekit.solver._price import Pricing
from edgekit.solver._problem import Goal, Placing, Problem, Step
from edgekit.solver._relax import Relaxation
from edgekit.solver._small import Reach

__all__ = ["Columns"]

ROUNDS = 400  # of pricing
MOST = 30_000  # columns of the exact programme
TREE = 4_000  # nodes of its tree
FIRST_TREE = 200  # nodes of the tree over the columns that the duals asked for

CYCLES = 30  # rounds of cutting them off
LOOK = 5e-6  # units of Effort for a set that pricing looks at
REDUCED = 1e-7  # of the objective's scale: what counts as a column that helps


@dataclass(frozen=True, slots=True)
class _Column:
    network: int
    core: int
    nodes: tuple[int, ...]

    @property
    def members(self) -> frozenset[int]:
        return frozenset(self.nodes)


class Columns:
    """The programme of one problem and goal.

    Attributes:
        best: The best placement found.
        bound: Of the goal.
    """

    def __init__(
        self,
        problem: Problem,
        goal: Goal,
        best: Placing | None,
        effort: Effort,
        progress: Callable[[float, float], None] | None = None,
    ) -> None:
        self.problem, self.goal, self.best = problem, goal, best
        self.effort, self.progress = effort, progress
        self.bound = -INFINITY
        self.cuts: list[Cut] = []
        self.reach = Reach(problem)
        self.model = Relaxation(problem, goal, ties=False, levels=False)
        self.columns: dict[_Column, int] = {}
        self.links: dict[tuple[int, int], int] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        self.pricing: dict[tuple[int, int], Pricing] = {}
        self._rows()
        self.lp = self.model.program.passed(relaxed=True)
        self.fixed = len(self.model.program.cost)

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
        import numpy as np

        if column in self.columns:
            return False
        rows = [self.links[v, column.core] for v in column.nodes]
        rows.append(self.numbers[column.network, column.core])
        self.columns[column] = self.fixed + len(self.columns)
        self.lp.addCol(
            0.0, 0.0, 1.0, len(rows), np.asarray(rows, dtype=np.int32), np.ones(len(rows))
        )
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
        self._integral(FIRST_TREE, exact=False)
        if self.proven or self.best is None:
            return self.best is not None
        self._own(self.best)
        if self._enlarge():
            self._integral(TREE, exact=not self._limited)
        return True

    @property
    def proven(self) -> bool:
        """Whether nothing is left to prove."""
        return self.best is not None and self.best.value - self.bound <= 1e-7 * self.best.value

    def _own(self, placing: Placing) -> None:
        for step in placing.steps:
            if step.device in self.problem.cores:
                self.add(_Column(step.network, step.device, step.nodes))

    def _duals(self) -> tuple[float, list[float]] | None:
        import highspy

        interruptible(self.lp, None, self.effort)
        if self.lp.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        value = float(self.lp.getInfo().objective_function_value)
        return value, list(self.lp.getSolution().row_dual)

    def _generate(self) -> bool:
        """Adds columns until none helps; returns whether the bound stands."""
        for _ in range(ROUNDS):
            solved = self._duals()
            if solved is None:
                return False
            value, duals = solved
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

    def _integral(self, nodes: int, *, exact: bool) -> None:
        """Solves the programme over the columns there are."""
        import highspy

        lp = self.lp.getLp()
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        program = self.model.program
        lp.integrality_ = [
            *(kinds[kind] for kind in program.integer), *[kinds[1]] * len(self.columns)
        ]  # fmt: skip
        whole = program.solver(gap=1e-7, nodes=nodes)
        whole.passModel(lp)
        for cut in self.cuts:
            self._forbid(whole, cut)
        for _ in range(CYCLES):
            self._hint(whole)
            interruptible(whole, self.progress and self._told, self.effort)
            info = whole.getInfo()
            none = whole.getModelStatus() == highspy.HighsModelStatus.kInfeasible
            if exact and self.best:
                bound = INFINITY if none else self.model.real(float(info.mip_dual_bound))
                self.bound = max(self.bound, min(bound, self.best.value))
            if info.primal_solution_status != 2 or self.effort.over:
                return
            values = list(whole.getSolution().col_value)
            cuts = self._take(values)
            if not cuts:
                return
            whole.clearSolver()
            for cut in cuts:
                self.cuts.append(cut)
                self._forbid(whole, cut)

    def _forbid(self, solver: Any, cut: Cut) -> None:
        """Allows no circle: of the loadables that hold one of its pairs, one is missing."""
        import numpy as np

        held = [
            index
            for column, index in self.columns.items()
            if any(pair <= column.members for pair in cut)
        ]
        row = np.asarray(held, dtype=np.int32)
        solver.addRow(-INFINITY, len(cut) - 1.0, len(held), row, np.ones(len(held)))

    def _told(self, value: float, bound: float) -> None:
        if self.progress:
            self.progress(self.model.real(value), self.model.real(bound))

    def _hint(self, whole: Any) -> None:
        import numpy as np

        if self.best is None:
            return
        hint = self.model.hint(self.best.modes)
        hint |= dict.fromkeys(self.columns.values(), 0.0)
        for step in self.best.steps:
            column = _Column(step.network, step.device, step.nodes)
            if column in self.columns:
                hint[self.columns[column]] = 1.0
        known = np.asarray(list(hint), dtype=np.int32)
        whole.setSolution(len(hint), known, np.asarray(list(hint.values()), dtype=float))

    def _take(self, values: list[float]) -> list[Cut]:
        """Keeps a solution's placement; returns cuts where its loadables wait in a circle."""
        modes = self.model.read(values)
        taken = [c for c, i in self.columns.items() if values[i] > 0.5]
        loadables = [Step(c.network, c.core, c.nodes) for c in taken]
        steps = ordered(self.problem, modes, loadables)
        cuts = circles(self.reach, [c.nodes for c in taken]) if steps is None else []
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
