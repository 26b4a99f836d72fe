"""Mixed-integer programmes for HiGHS, solved the same way every time (one thread, fixed seed)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["INFINITY", "Program", "Solution"]

INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class Solution:
    """What HiGHS found: values by variable, objective and dual bound.

    Without a solution ``values`` is None, and ``bound`` is infinite when there provably is none.
    """

    values: list[float] | None
    value: float
    bound: float
    row_duals: list[float]


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

    def row(
        self, terms: Mapping[int, float], low: float = -INFINITY, high: float = INFINITY
    ) -> int:
        """Adds ``low <= sum(coefficient * variable) <= high`` and returns its index."""
        for index, coefficient in terms.items():
            if coefficient:
                self.indices.append(index)
                self.entries.append(coefficient)
        self.starts.append(len(self.indices))
        self.row_lower.append(low)
        self.row_upper.append(high)
        return len(self.row_lower) - 1

    def solve(
        self,
        *,
        gap: float = 1e-6,
        nodes: int = 1_000_000,
        seconds: float = INFINITY,
        start: Mapping[int, float] | None = None,
    ) -> Solution:
        """Minimises, from ``start`` (some values of a first solution), within the limits."""
        import highspy
        import numpy as np

        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, option in {
            "output_flag": False, "threads": 1, "random_seed": 0, "mip_rel_gap": gap,
            "mip_abs_gap": 1e-7, "mip_max_nodes": nodes, "time_limit": seconds,
        }.items():  # fmt: skip
            solver.setOptionValue(name, option)
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
        whole = any(self.integer)
        if whole:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            model.integrality_ = [kinds[kind] for kind in self.integer]
        solver.passModel(model)
        if start is not None:
            known = np.asarray(list(start), dtype=np.int32)
            solver.setSolution(len(start), known, np.asarray(list(start.values()), dtype=float))
        solver.run()
        info = solver.getInfo()
        bound = float(info.mip_dual_bound if whole else info.objective_function_value)
        if info.primal_solution_status != 2:  # 2: a feasible point
            proven = solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible
            return Solution(None, INFINITY, INFINITY if proven else bound, [])
        found = solver.getSolution()
        return Solution(
            list(found.col_value),
            float(info.objective_function_value),
            bound,
            [] if whole else list(found.row_dual),
        )
