"""The exact optimiser for placement problems, whatever network they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.solver._chain import chain_optimum
    from edgekit.solver._contention import Slowdown, run_through, worst_slowdown
    from edgekit.solver._contention_upper import stretched, under_contention
    from edgekit.solver._cpsat import run_worker
    from edgekit.solver._document import solve_document
    from edgekit.solver._document_file import read_document
    from edgekit.solver._effort import Effort
    from edgekit.solver._evaluate import evaluate
    from edgekit.solver._minimise import minimise
    from edgekit.solver._mix import Mix, mix_plans
    from edgekit.solver._pareto import Front, Point, pareto
    from edgekit.solver._periodic import (
        Chain,
        Route,
        Task,
        Timetable,
        Workload,
        route_of,
        tasks_of,
    )
    from edgekit.solver._periodic_bounds import alone_us, steady_state
    from edgekit.solver._periodic_solve import best_places, timetable, value_of
    from edgekit.solver._problem import (
        OUTSIDE,
        Border,
        Cost,
        Goal,
        Mode,
        Optimum,
        Placing,
        Pool,
        Problem,
        Step,
        Transfer,
        metrics,
    )
    from edgekit.solver._schedule import Schedule, schedule_once
    from edgekit.solver._smallest import smallest_conflict
    from edgekit.solver._steps import solve_steps

__all__ = [
    "OUTSIDE",
    "Border",
    "Chain",
    "Cost",
    "Effort",
    "Front",
    "Goal",
    "Mix",
    "Mode",
    "Optimum",
    "Placing",
    "Point",
    "Pool",
    "Problem",
    "Route",
    "Schedule",
    "Slowdown",
    "Step",
    "Task",
    "Timetable",
    "Transfer",
    "Workload",
    "alone_us",
    "best_places",
    "chain_optimum",
    "evaluate",
    "metrics",
    "minimise",
    "mix_plans",
    "pareto",
    "read_document",
    "route_of",
    "run_through",
    "run_worker",
    "schedule_once",
    "smallest_conflict",
    "solve_document",
    "solve_steps",
    "steady_state",
    "stretched",
    "tasks_of",
    "timetable",
    "under_contention",
    "value_of",
    "worst_slowdown",
]

__getattr__ = lazy(
    __name__,
    {
        "_contention": "Slowdown run_through worst_slowdown",
        "_contention_upper": "stretched under_contention",
        "_cpsat": "run_worker",
        "_periodic": "Chain Route Task Timetable Workload route_of tasks_of",
        "_periodic_bounds": "alone_us steady_state",
        "_periodic_solve": "best_places timetable value_of",
        "_smallest": "smallest_conflict",
        "_schedule": "Schedule schedule_once",
        "_steps": "solve_steps",
        "_chain": "chain_optimum",
        "_effort": "Effort",
        "_evaluate": "evaluate",
        "_minimise": "minimise",
        "_document": "solve_document",
        "_document_file": "read_document",
        "_mix": "Mix mix_plans",
        "_pareto": "Front Point pareto",
        "_problem": (
            "OUTSIDE Border Cost Goal Mode Optimum Placing Pool Problem Step Transfer metrics"
        ),
    },
)
