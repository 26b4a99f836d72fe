"""The best timetable under contention: schedule, run through, stretch what was slowed, again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgekit.solver._contention import Slowdown, run_through, worst_slowdown
from edgekit.solver._periodic import Timetable, Workload, tasks_of
from edgekit.solver._periodic_solve import timetable, value_of

__all__ = ["stretched", "under_contention"]

_ROUNDS = 3


def under_contention(
    workload: Workload,
    objective: str,
    lower: Timetable,
    slowdown: Slowdown,
    *,
    effort: float,
    seconds: float,
) -> Timetable:
    """Returns the best timetable found with ``slowdown`` in force, and its value.

    Its order is that of the optimum without contention, or of the optimum with times stretched by
    what the last run showed, until nothing changes; should all of them miss a deadline, that of
    the optimum with all times stretched by the worst slowdown of devices that work together, which
    keeps what it promises whatever overlaps. A value with a missed deadline is infinite.
    """
    best: Timetable | None = None
    last, seen = lower, set()
    for round_ in range(_ROUNDS):
        ran = run_through(workload, last, slowdown)
        if ran is not None:
            best = _better(workload, objective, best, ran)
        used = workload.used(last.places)
        if len(used) < 2 or last.places in seen or round_ == _ROUNDS - 1:
            break
        seen.add(last.places)
        longer = stretched(workload, _factors(workload, last, ran, slowdown))
        again = timetable(
            longer, objective, hint=last.places, effort=effort / 10, seconds=seconds / 4
        )
        if again is None or not again.places:
            break
        last = again
    if best is None or best.value == float("inf"):
        safe = _safe(workload, objective, lower, slowdown, effort, seconds)
        best = safe if safe is not None else best
    return replace(lower, value=float("inf")) if best is None else best


def _better(
    workload: Workload, objective: str, best: Timetable | None, ran: Timetable
) -> Timetable:
    value = value_of(workload, objective, ran)
    if not _in_time(workload, ran):
        ran = replace(ran, value=float("inf"))
        late = best is not None and best.value == float("inf")
        if best is None or (late and _lateness(workload, ran) < _lateness(workload, best)):
            return ran
        return best
    ran = replace(ran, value=value)
    return ran if best is None or value < best.value - 1e-9 else best


def _in_time(workload: Workload, table: Timetable) -> bool:
    return _lateness(workload, table) <= 1 + 1e-9


def _lateness(workload: Workload, table: Timetable) -> float:
    return max(
        (
            table.latency_us(workload, i) / chain.deadline_us
            for i, chain in enumerate(workload.chains)
            if chain.deadline_us is not None
        ),
        default=0.0,
    )


def _factors(
    workload: Workload, last: Timetable, ran: Timetable | None, slowdown: Slowdown
) -> list[float]:
    """Returns by device how much longer its work took; what is not known, at worst."""
    factors = worst_slowdown(workload, slowdown, workload.used(last.places) | {0})
    if ran is None:
        return factors
    work, took = [0.0] * len(factors), [0.0] * len(factors)
    for chain, frames in enumerate(ran.starts_us):
        tasks = tasks_of(workload, chain, ran.places[chain])
        for starts, ends in zip(frames, ran.ends_us[chain], strict=True):
            for task, start, end in zip(tasks, starts, ends, strict=True):
                work[task.device] += task.work_us
                took[task.device] += end - start
    return [t / w if w else f for w, t, f in zip(work, took, factors, strict=True)]


def stretched(workload: Workload, factors: Sequence[float]) -> Workload:
    """Returns the workload with every device slower by its factor."""
    chains = tuple(
        replace(
            chain,
            times_us=tuple(
                tuple(None if us is None else us * f for us, f in zip(row, factors, strict=True))
                for row in chain.times_us
            ),
            hands_us=tuple(
                tuple(tuple(us * factors[0] for us in row) for row in border)
                for border in chain.hands_us
            ),
            routes=tuple(
                replace(
                    route,
                    tasks=tuple(
                        replace(
                            task,
                            work_us=task.work_us * factors[task.device],
                            extra_us=task.extra_us * factors[task.device],
                        )
                        for task in route.tasks
                    ),
                )
                for route in chain.routes
            ),
        )
        for chain in workload.chains
    )
    launch = tuple(
        None if us is None else us * f for us, f in zip(workload.launch_us, factors, strict=True)
    )
    return replace(workload, chains=chains, launch_us=launch)


def _safe(
    workload: Workload,
    objective: str,
    lower: Timetable,
    slowdown: Slowdown,
    effort: float,
    seconds: float,
) -> Timetable | None:
    everyone = frozenset(range(len(workload.devices)))
    longer = stretched(workload, worst_slowdown(workload, slowdown, everyone))
    safe = timetable(longer, objective, hint=lower.places, effort=effort, seconds=seconds)
    if safe is None or not safe.places:
        return None
    ran = run_through(workload, safe, slowdown)
    best = None if ran is None else _better(workload, objective, None, ran)
    # every task ends by then at the latest
    return _better(workload, objective, best, safe)
