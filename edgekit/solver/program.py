"""Linear programmes with GLOP and integer programmes with CP-SAT (both from OR-Tools), solved
deterministically. A Ctrl-C ends a solve.

The relaxation is solved first. Placements are close to a minimum cut, so it is nearly always
integral, and then no search is needed.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from edgekit import timeouts
from edgekit.errors import EnvironmentLack
from edgekit.solver.problem import Effort

INFINITY = float("inf")
# Cost of a solve, in units of Effort.
ITERATION = 2.5e-8  # of the simplex method in a linear programme, by entry
SOLVE = 3e-6  # of any linear programme, by entry
UNITS = 1.7  # for a unit of CP-SAT's deterministic time
CALL = 0.02  # of a call of CP-SAT in addition to its search
# CP-SAT takes integers only. Sums stay within the precision of its linear programmes in doubles.
GRID = 2.0**22  # steps of a real variable from 0 to its largest value
SUM = 2.0**40  # of a row or of the costs
WHOLE = 1e-6  # largest distance of a relaxed variable from an integer
Progress = Callable[[float, float], None]


class Expression(dict[int, float]):
    """A linear expression: coefficients by variable, and a constant."""

    constant: float = 0.0

    def add(self, variable: int, coefficient: float) -> None:
        """Adds a variable."""
        self[variable] = self.get(variable, 0.0) + coefficient

    def plus(self, other: Expression, factor: float = 1.0) -> Expression:
        """Adds another expression to this expression, and returns it."""
        for variable, coefficient in other.items():
            self.add(variable, factor * coefficient)
        self.constant += factor * other.constant
        return self

    def value(self, values: Sequence[float]) -> float:
        """Returns the value for these values of the variables."""
        return self.constant + sum(c * values[i] for i, c in self.items())


@dataclass(frozen=True, slots=True)
class Solution:
    """Values by variable, objective and dual bound; for a linear programme the duals by row.

    Without a solution ``values`` is None, and ``bound`` is infinite if provably none exists.
    """

    values: list[float] | None
    value: float
    bound: float
    duals: tuple[float, ...] = ()


@dataclass
class Program:
    """A linear function to minimise; variables and rows are added in sequence and have an index."""

    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    _relaxation: _GlopProgram | None = None

    def variable(self, upper: float, cost: float = 0.0, integer: bool = False) -> int:
        """Adds a variable from 0 to ``upper`` and returns its index.

        It is an integer. Without ``integer`` it is integral in a best solution if the ``integer``
        variables are.
        """
        return self._add(upper, cost, "integer" if integer else "implied")

    def real(self, upper: float = INFINITY, cost: float = 0.0) -> int:
        """Adds a real variable from 0 to ``upper``, which is finite in an integer programme."""
        return self._add(upper, cost, "real")

    def _add(self, upper: float, cost: float, kind: str) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        self.kinds.append(kind)
        return len(self.cost) - 1

    def row(self, terms: Expression, low: float = -INFINITY, high: float = INFINITY) -> None:
        """Adds ``low <= terms <= high``."""
        # sums of expressions leave zeros behind
        self.rows.append({index: entry for index, entry in terms.items() if entry})
        self.row_lower.append(low - terms.constant)
        self.row_upper.append(high - terms.constant)

    def relax(self, effort: Effort | None = None) -> Solution:
        """Minimises without integer constraints, from the last solution."""
        if self._relaxation is None:
            self._relaxation = _GlopProgram()
        return self._relaxation.solve(self, effort)

    def solve(
        self,
        *,
        gap: float = 1e-6,
        effort: Effort | None = None,
        start: Mapping[int, float] | None = None,
        below: float = INFINITY,
        progress: Progress | None = None,
    ) -> Solution:
        """Minimises, from ``start`` (some values of a first solution), within the limits.

        If no solution can have a value under ``below``, it returns a bound without a search.
        ``progress`` is called with the best value and the bound now and then.
        """
        relaxed = self.relax(effort)
        if relaxed.bound >= below:
            return Solution(None, INFINITY, relaxed.bound)
        if relaxed.values is None or "integer" not in self.kinds:
            return relaxed
        decided = [i for i, kind in enumerate(self.kinds) if kind == "integer"]
        if all(abs(relaxed.values[i] - round(relaxed.values[i])) <= WHOLE for i in decided):
            return relaxed
        return _Integers(self, relaxed).solve(
            gap=gap, effort=effort, start=start or {}, progress=progress
        )


class _GlopProgram:
    """A programme in GLOP, which resumes from the last solution after additions."""

    def __init__(self) -> None:
        pywraplp = _loaded("ortools.linear_solver.pywraplp")
        self._optimal = pywraplp.Solver.OPTIMAL
        self._infeasible = pywraplp.Solver.INFEASIBLE
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._variables: list[Any] = []
        self._rows: list[Any] = []

    def solve(self, program: Program, effort: Effort | None) -> Solution:
        solver = self._solver
        if effort is not None:
            # milliseconds
            solver.set_time_limit(round(1000 * effort.seconds))
        self._take(program)
        size = solver.NumVariables() + sum(map(len, program.rows))
        status = run_interruptibly(solver.Solve, solver.InterruptSolve)
        if effort is not None:
            effort.spend(size * (SOLVE + ITERATION * solver.iterations()))
        if status == self._infeasible:
            return Solution(None, INFINITY, INFINITY)
        if status != self._optimal:
            return Solution(None, INFINITY, -INFINITY)
        value = solver.Objective().Value()
        values = [variable.solution_value() for variable in self._variables]
        return Solution(values, value, value, tuple(row.dual_value() for row in self._rows))

    def _take(self, program: Program) -> None:
        """Adds the new variables and rows."""
        solver, infinity = self._solver, self._solver.infinity()
        objective = solver.Objective()
        for index in range(len(self._variables), len(program.cost)):
            variable = solver.NumVar(0.0, min(program.upper[index], infinity), "")
            objective.SetCoefficient(variable, program.cost[index])
            self._variables.append(variable)
        for number in range(len(self._rows), len(program.rows)):
            low, high = program.row_lower[number], program.row_upper[number]
            row = solver.Constraint(max(low, -infinity), min(high, infinity))
            for index, entry in program.rows[number].items():
                row.SetCoefficient(self._variables[index], entry)
            self._rows.append(row)


class _Integers:
    """An integer programme for CP-SAT; real variables are in steps of a grid."""

    def __init__(self, program: Program, relaxed: Solution) -> None:
        cp_model = load_cp_model()
        self.program, self.relaxed = program, relaxed
        self.model = cp_model.CpModel()
        self.grid = [
            # a power of two, so that scaling is exact
            2.0 ** math.floor(math.log2(GRID / upper)) if kind == "real" else 1.0
            for kind, upper in zip(program.kinds, program.upper, strict=True)
        ]
        most = (round(upper * grid) for upper, grid in zip(program.upper, self.grid, strict=True))
        self.variables = [self.model.new_int_var(0, upper, "") for upper in most]
        for terms, low, high in zip(
            program.rows, program.row_lower, program.row_upper, strict=True
        ):
            self._row(terms, low, high)
        costs = {index: cost for index, cost in enumerate(program.cost) if cost}
        self.factor = self._factor(costs, ())
        real = [index for index in costs if program.kinds[index] == "real"]
        for index in real[:1]:
            # its coefficient has the fewest digits: make it exact
            cost = abs(costs[index]) / self.grid[index]
            self.factor = max(1, round(cost * self.factor)) / cost
        # largest rounding error: of the costs, and up to a grid step of each real variable
        self.slack = self._rounding(costs, self.factor) / self.factor + sum(
            abs(cost) / self.grid[i] for i, cost in costs.items() if program.kinds[i] == "real"
        )
        self.model.minimize(self._sum(costs, self.factor))

    def _factor(self, terms: Mapping[int, float], limits: Sequence[float]) -> float:
        """Returns the factor of coefficients before they are rounded."""
        numbers = [*terms.values(), *(limit for limit in limits if math.isfinite(limit))]
        if all(number == round(number) for number in numbers) and not any(
            self.program.kinds[index] == "real" for index in terms
        ):
            return 1.0
        total = sum(abs(entry) * self.program.upper[index] for index, entry in terms.items())
        return 2.0 ** math.floor(math.log2(SUM / max(total, 1e-9)))

    def _sum(self, terms: Mapping[int, float], factor: float) -> Any:
        return sum(
            round(entry * factor / self.grid[index]) * self.variables[index]
            for index, entry in terms.items()
        )

    def _rounding(self, terms: Mapping[int, float], factor: float) -> float:
        """Returns the largest change of a sum by rounded coefficients of integer variables.

        The coefficient of a row's only real variable is exact; those of several are good to 1e-6.
        """
        return sum(
            abs(entry * factor - round(entry * factor)) * self.program.upper[i]
            for i, entry in terms.items()
            if self.program.kinds[i] != "real"
        )

    def _row(self, terms: Mapping[int, float], low: float, high: float) -> None:
        if not terms:
            return
        factor = self._factor(terms, (low, high))
        # rounding must not exclude values that the exact row allows
        slack = self._rounding(terms, factor)
        total = self._sum(terms, factor)
        least, most = (
            sum(entry * self.program.upper[i] for i, entry in terms.items() if entry * sign > 0)
            for sign in (-1, 1)
        )
        # a limit that no values reach may be too large for CP-SAT
        if low > least:
            self.model.add(total >= math.floor(min(low, most + 1.0) * factor - slack))
        if high < most:
            self.model.add(total <= math.ceil(max(high, least - 1.0) * factor + slack))

    def solve(
        self,
        *,
        gap: float,
        effort: Effort | None,
        start: Mapping[int, float],
        progress: Progress | None,
    ) -> Solution:
        for index, value in start.items():
            self.model.add_hint(self.variables[index], round(value * self.grid[index]))
        solver = make_solver(gap=gap)
        solver.parameters.linearization_level = 2
        # it takes a third of a solve's time with hardly any effect on these programmes
        solver.parameters.cp_model_probing_level = 0

        def report(value: float, bound: float) -> None:
            if progress is not None:
                progress(value / self.factor, bound / self.factor)

        if effort is None:
            status = search(solver, self.model, report)
        else:
            status = search_within(effort, solver, self.model, report)
        if status == "INFEASIBLE":
            return Solution(None, INFINITY, INFINITY)
        found = solver.best_objective_bound / self.factor - self.slack
        # a search that ended early may have a weaker bound than the relaxation
        bound = max(self.relaxed.bound, found if abs(found) < INFINITY else -INFINITY)
        if status not in {"OPTIMAL", "FEASIBLE"}:
            return Solution(None, INFINITY, bound)
        values = [
            solver.value(variable) / grid
            for variable, grid in zip(self.variables, self.grid, strict=True)
        ]
        value = sum(c * x for c, x in zip(self.program.cost, values, strict=True))
        return Solution(values, value, min(bound, value))


def load_cp_model() -> Any:
    """Returns OR-Tools' CP-SAT module.

    Raises:
        EnvironmentLack: "solver.missing".
    """
    return _loaded("ortools.sat.python.cp_model")


def _loaded(module: str) -> Any:
    known = sys.modules.get(module)
    if known is not None:
        return known
    try:
        # in a thread: a Ctrl-C during the import of a C library is lost
        return run_interruptibly(lambda: import_module(module), lambda: None)
    except ImportError as error:
        raise EnvironmentLack(
            f"OR-Tools cannot be imported: {error}",
            code="solver.missing",
            hint="install it: pip install 'ortools>=9.10'",
        ) from error


def make_solver(
    *, gap: float, effort: float = INFINITY, seconds: float = INFINITY, workers: int = 1
) -> Any:
    """Returns a deterministic solver, unless the wall clock ends it.

    ``effort`` limits the deterministic time, ``seconds`` the wall clock.
    """
    solver = load_cp_model().CpSolver()
    own = solver.parameters
    # OR-Tools 9.15's presolve cuts off best solutions when it compares linear constraints that
    # contain each other, and reports a worse one as optimal (google/or-tools#5293).
    # tests/solver/test_periodic.py has a timetable that was lost.
    own.presolve_inclusion_work_limit = 0
    # These precedences reported a makespan of 37 as optimal although 29 is possible, with or
    # without presolve.
    own.use_precedences_in_disjunctive_constraint = False
    # the handler of this process ends the search
    own.catch_sigint_signal = False
    own.num_workers = workers
    # the parallel searches take turns in a fixed order: the answer does not depend on the threads
    own.interleave_search = workers > 1
    own.random_seed = 0
    own.relative_gap_limit = gap
    own.max_deterministic_time = effort
    own.max_time_in_seconds = seconds
    return solver


def search(solver: Any, model: Any, report: Progress | None = None) -> str:
    """Runs CP-SAT, interruptible by Ctrl-C, and returns the name of its status.

    Args:
        solver: From :func:`make_solver`, with its limits set.
        model: The model.
        report: Called with the objective's best value (infinite without a solution) and its bound
            now and then.
    """
    cp_model = load_cp_model()
    state = [INFINITY, -INFINITY]

    class Callback(cp_model.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]
        def on_solution_callback(self) -> None:
            state[0] = self.objective_value
            state[1] = max(state[1], self.best_objective_bound)

    def on_bound(bound: float) -> None:
        state[1] = max(state[1], bound)

    solver.best_bound_callback = on_bound

    def report_state() -> None:
        if report is not None and abs(state[1]) < INFINITY:
            report(state[0], state[1])

    callback = Callback() if report is not None else None
    status = run_interruptibly(
        lambda: solver.solve(model, callback), solver.stop_search, report_state
    )
    return str(solver.status_name(status))


def search_within(
    effort: Effort,
    solver: Any,
    model: Any,
    report: Progress | None = None,
    *,
    units: float = UNITS,
    share: float = 1.0,
) -> str:
    """Runs :func:`search` within the remaining effort of an account, and charges the account.

    Args:
        effort: The account.
        solver: From :func:`make_solver`; its limits are set here.
        model: The model.
        report: As in :func:`search`.
        units: Units of the account for a unit of CP-SAT's deterministic time.
        share: Share of the remaining effort that this search may take.
    """
    seconds = effort.seconds
    solver.parameters.max_deterministic_time = max(effort.left, 0.0) / units * share
    solver.parameters.max_time_in_seconds = seconds
    status = search(solver, model, report)
    effort.spend(units * solver.response_proto.deterministic_time + CALL)
    if solver.wall_time >= 0.99 * seconds:
        effort.note_clock()
    return status


def run_interruptibly(
    solve: Callable[[], Any],
    stop: Callable[[], object],
    meanwhile: Callable[[], None] | None = None,
) -> Any:
    """Returns ``solve``'s result; an interrupt of this thread stops it at once.

    Args:
        solve: Runs in a separate thread.
        stop: Ends ``solve``, from another thread.
        meanwhile: Called now and then while it runs.
    """
    result: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(solve())
        # raised again in the caller's thread
        except BaseException as error:
            failure.append(error)

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    try:
        while worker.is_alive():
            # with a timeout: Python handles a signal only between two calls of this thread
            worker.join(timeouts.REPORT_S)
            if meanwhile is not None and worker.is_alive():
                meanwhile()
    except BaseException:
        stop()
        worker.join(timeouts.END_S)
        raise
    if failure:
        raise failure[0]
    return result[0]
