"""``edgekit.problem/1`` in, ``edgekit.solution/1`` out: the solver without a network's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from edgekit.errors import GateError
from edgekit.solver._document_answer import in_sequence, loadables
from edgekit.solver._document_conflict import conflict
from edgekit.solver._document_problem import to_problem
from edgekit.solver._document_read import Document, parse_document
from edgekit.solver._effort import Effort
from edgekit.solver._problem import Goal, Placing, Problem, metrics

__all__ = ["solve_document"]

SCHEMA = "edgekit.solution/1"
PROVEN = 1e-4  # relative gap at which a placement counts as optimal
ROUNDING = 1e-9  # relative, by which a metric may exceed its bound
TIGHTER = 4e-6  # relative: the solver keeps bounds to half of it


def solve_document(
    document: object,
    *,
    seconds: float = 60.0,
    progress: Callable[[float, float], None] | None = None,
) -> dict[str, Any]:
    """Solves an abstract placement problem.

    Args:
        document: An ``edgekit.problem/1`` as ``json.load`` returns it; see docs/problems.md.
        seconds: Of search, as :func:`edgekit.solver.minimise` counts them; the answer then
            carries its bound and gap.
        progress: Called with the best value so far and the proven bound.

    Returns:
        An ``edgekit.solution/1``. Its times are predictions of the document's model.

    Raises:
        DataError: The document is not as the contract says (code ``problem.invalid``).
        GateError: No placement keeps its constraints (code ``plan.infeasible``), or none was
            found in time (``plan.unsolved``).
    """
    read = parse_document(document)
    problem, places = to_problem(read)
    if read.objective == "makespan":
        from edgekit.solver._document_makespan import side_by_side

        found, bound, value, times, clocked = side_by_side(read, problem, places, seconds, progress)
        if found is None:
            raise _refused(read, bound == float("inf"), seconds)
        placing = found
    else:
        placing, bound, clocked = _minimised(read, problem, seconds, progress)
        value = placing.value
        times = in_sequence(read, problem, places, placing)
    gap = (value - bound) / value if value > bound else 0.0
    assignment: dict[str, dict[str, str]] = {net.name: {} for net in read.networks}
    place_of = {place: i for i, place in enumerate(places.nodes)}
    for number, net in enumerate(read.networks):
        for v, node in enumerate(net.nodes):
            device = problem.device(placing.modes[place_of[number, v]])
            assignment[net.name][node.name] = read.devices[device]
    items, transfers = times
    notes = ["the wall clock ended the search: another run may end elsewhere"] if clocked else []
    return {
        "schema": SCHEMA,
        "objective": read.objective,
        "clock": "predicted",
        "value": value,
        "bound": min(bound, value),
        "gap": gap,
        "optimal": gap <= PROVEN,
        "assignment": assignment,
        "loadable_of": loadables(read, problem, places, placing),
        "schedule": items,
        "transfers": transfers,
        **({"notes": notes} if notes else {}),
    }


def _minimised(
    read: Document,
    problem: Problem,
    seconds: float,
    progress: Callable[[float, float], None] | None,
) -> tuple[Placing, float, bool]:
    """Returns the best placement found, the proven bound, and whether the clock ended the search.

    All searches together take ``seconds``.
    """
    from edgekit.solver._minimise import minimise
    from edgekit.solver._steps import solve_steps

    goal = Goal.of(problem, read.objective, read.bounds)
    effort = Effort(seconds)
    found = minimise(problem, goal, effort=effort, progress=progress)
    placing, bound = found.placing, found.bound
    if placing is not None and not _keeps(problem, placing, goal):
        # Over by the solver's tolerance: the best one that keeps the bound to the letter.
        bounds = {name: limit * (1 - TIGHTER) for name, limit in goal.bounds.items()}
        placing = minimise(problem, replace(goal, bounds=bounds), effort=effort).placing
        if placing is None:  # what is just at the bound: the steps count in integers
            exact = solve_steps(problem, goal, lower=max(bound, 0.0), effort=effort)
            placing, bound = exact.placing, max(bound, exact.bound)
    if placing is None:
        raise _refused(read, bound == float("inf"), seconds)
    return placing, bound, effort.clocked


def _keeps(problem: Problem, placing: Placing, goal: Goal) -> bool:
    have = metrics(problem, placing.load_us, placing.energy_uj)
    return all(have[name] <= limit * (1 + ROUNDING) for name, limit in goal.bounds.items())


def _refused(read: Document, proven: bool, seconds: float) -> GateError:
    if not proven:
        return GateError(
            f"no placement was found within {seconds:g} s of search, and none was ruled out",
            code="plan.unsolved",
            hint="give more time, or fewer constraints",
        )
    names, message, hint = conflict(read, seconds)
    error = GateError(
        message,
        code="plan.infeasible",
        where=names[0].partition(" ")[0] if names else "",
        hint=hint,
    )
    error.extra = {"conflict": list(names)}
    return error
