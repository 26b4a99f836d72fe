"""Mixed-integer programmes for HiGHS, solved the same way every time (one thread, fixed seed).
A Ctrl-C ends a solve.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgekit.solver.problem import Effort

INFINITY = float("inf")
# What a search takes, in units of Effort: HiGHS calls back whether it is to go on at the same
# points of its search every time (after a round of cuts, between nodes), and what lies between two
# of them grows with the entries of the model.
ROUND = 1.8e-5  # a round at the root, by entry
STEP = 7e-7  # a step of the tree, by entry
ITERATION = 2.5e-8  # of the simplex method in a linear programme, by entry
SOLVE = 3e-6  # of any model, by entry


class Expression(dict[int, float]):
    """A linear expression: coefficients by variable, and a constant."""

    constant: float = 0.0

    def add(self, variable: int, coefficient: float) -> None:
        """Adds a variable."""
        self[variable] = self.get(variable, 0.0) + coefficient

    def plus(self, other: Expression, factor: float = 1.0) -> Expression:
        """Adds another expression to this one, and returns this one."""
        for variable, coefficient in other.items():
            self.add(variable, factor * coefficient)
        self.constant += factor * other.constant
        return self

    def value(self, values: list[float]) -> float:
        """Returns the value for these values of the variables."""
        return self.constant + sum(c * values[i] for i, c in self.items())


@dataclass(frozen=True, slots=True)
class Solution:
    """What HiGHS found: values by variable, objective and dual bound.

    Without a solution ``values`` is None, and ``bound`` is infinite when there provably is none.
    """

    values: list[float] | None
    value: float
    bound: float


@dataclass
class Program:
    """Minimise a linear function; variables and rows are added one by one and known by index."""

    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[int] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    indices: list[int] = field(default_factory=list)
    entries: list[float] = field(default_factory=list)

    def variable(self, upper: float = INFINITY, cost: float = 0.0, integer: bool = False) -> int:
        """Adds a variable of at least 0 and returns its index."""
        self.cost.append(cost)
        self.lower.append(0.0)
        self.upper.append(upper)
        self.integer.append(int(integer))
        return len(self.cost) - 1

    def row(self, terms: Expression, low: float = -INFINITY, high: float = INFINITY) -> None:
        """Adds ``low <= terms <= high``."""
        for index, coefficient in terms.items():
            if coefficient:
                self.indices.append(index)
                self.entries.append(coefficient)
        self.starts.append(len(self.indices))
        self.row_lower.append(low - terms.constant)
        self.row_upper.append(high - terms.constant)

    def solve(
        self,
        *,
        gap: float = 1e-6,
        nodes: int = 1_000_000,
        effort: Effort | None = None,
        start: Mapping[int, float] | None = None,
        progress: Callable[[float, float], None] | None = None,
        relaxed: bool = False,
    ) -> Solution:
        """Minimises, from ``start`` (some values of a first solution), within the limits.

        ``progress`` is called with the best value and the bound now and then; ``relaxed`` gives up
        integrality.
        """
        import highspy

        whole = any(self.integer) and not relaxed
        solver = self.passed(gap=gap, nodes=nodes, relaxed=relaxed)
        if start is not None:
            known = np.asarray(list(start), dtype=np.int32)
            solver.setSolution(len(start), known, np.asarray(list(start.values()), dtype=float))
        interruptible(solver, progress if whole else None, effort)
        info = solver.getInfo()
        bound = float(info.mip_dual_bound if whole else info.objective_function_value)
        if info.primal_solution_status != 2:  # 2: a feasible point
            proven = solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible
            return Solution(None, INFINITY, INFINITY if proven else bound if whole else -INFINITY)
        found = solver.getSolution()
        return Solution(list(found.col_value), float(info.objective_function_value), bound)

    def solver(self, *, gap: float = 1e-6, nodes: int = 1_000_000) -> Any:
        """Returns HiGHS without a model, with its limits set."""
        import highspy

        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, option in {
            "output_flag": False, "threads": 1, "random_seed": 0, "mip_rel_gap": gap,
            "mip_abs_gap": 1e-7, "mip_max_nodes": nodes,
        }.items():  # fmt: skip
            solver.setOptionValue(name, option)
        return solver

    def passed(
        self,
        *,
        gap: float = 1e-6,
        nodes: int = 1_000_000,
        relaxed: bool = False,
    ) -> Any:
        """Returns HiGHS with this programme as its model."""
        import highspy

        solver = self.solver(gap=gap, nodes=nodes)
        model = highspy.HighsLp()
        model.num_col_ = len(self.cost)
        model.num_row_ = len(self.row_lower)
        model.col_cost_ = np.asarray(self.cost, dtype=float)
        model.col_lower_ = np.asarray(self.lower, dtype=float)
        model.col_upper_ = np.asarray(self.upper, dtype=float)
        model.row_lower_ = np.asarray(self.row_lower, dtype=float)
        model.row_upper_ = np.asarray(self.row_upper, dtype=float)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.asarray(self.starts, dtype=np.int32)
        model.a_matrix_.index_ = np.asarray(self.indices, dtype=np.int32)
        model.a_matrix_.value_ = np.asarray(self.entries, dtype=float)
        if any(self.integer) and not relaxed:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            model.integrality_ = [kinds[kind] for kind in self.integer]
        solver.passModel(model)
        return solver


def interruptible(
    solver: Any,
    progress: Callable[[float, float], None] | None = None,
    effort: Effort | None = None,
) -> None:
    """Runs HiGHS in a thread, so that an interrupt of the main one stops it at once.

    It ends when ``effort`` is spent; what it takes is taken off.
    """
    import highspy

    stopped = threading.Event()
    state: list[float] = []
    size = solver.getNumNz()
    spent = SOLVE * size

    def check(event: Any) -> None:
        nonlocal spent
        data = event.data_out
        state[:] = [data.mip_primal_bound, data.mip_dual_bound]
        spent += size * (STEP if data.mip_node_count else ROUND)
        if stopped.is_set() or (effort is not None and spent >= effort.left):
            event.interrupt()

    solver.cbMipInterrupt.subscribe(check)
    if effort is not None:
        solver.setOptionValue("time_limit", solver.getRunTime() + effort.seconds)
    worker = threading.Thread(target=solver.run, daemon=True)
    worker.start()
    try:
        while worker.is_alive():
            worker.join(0.25)
            if progress and state and worker.is_alive():
                progress(state[0], state[1])
    except BaseException:
        stopped.set()
        worker.join(5.0)
        raise
    finally:
        solver.cbMipInterrupt.unsubscribe(check)
    if effort is not None:
        if not state:
            spent += ITERATION * size * max(0, int(solver.getInfo().simplex_iteration_count))
        effort.spend(spent)
        if solver.getModelStatus() == highspy.HighsModelStatus.kTimeLimit:
            effort.stopped()
