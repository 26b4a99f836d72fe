"""What no timetable can get around, for a clear no; and steady states without deadlines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from edgekit.solver._periodic import Task, Timetable, Workload, tasks_of

__all__ = ["alone_us", "steady_state"]


def alone_us(workload: Workload, chain: int) -> float:
    """Returns the shortest time of a frame that has the whole board to itself."""
    own = workload.chains[chain]
    routes = min((sum(t.work_us for t in r.tasks) for r in own.routes), default=math.inf)
    if not own.times_us:
        return routes
    caller = len(workload.devices)
    best = {caller: 0.0}
    for part, row in enumerate(own.times_us):
        step = {}
        for device, time in enumerate(row):
            if time is None:
                continue
            launch = workload.launch_us[device] or 0.0
            step[device] = time + min(
                value + own.hands_us[part][before][device] + launch * (before != device)
                for before, value in best.items()
            )
        best = step
    parts = [value + own.hands_us[-1][device][caller] for device, value in best.items()]
    return min(routes, *parts)


def steady_state(
    workload: Workload, places: Sequence[Sequence[int]], period_us: float
) -> Timetable:
    """Returns a timetable in which every network takes one frame each ``period_us``.

    Each task takes the first gap of its device, with frames of several periods under way at once;
    where that leaves a device's time in pieces too small, the tasks lie side by side instead.
    ``period_us`` is at least the load of each device.
    """
    period = Fraction(period_us)
    chains = tuple(replace(chain, period_us=period) for chain in workload.chains)
    workload = replace(workload, chains=chains)
    tasks = [tasks_of(workload, i, own) for i, own in enumerate(places)]
    starts = _first_gaps(workload, tasks, period_us) or _side_by_side(workload, tasks, period_us)
    ends = [
        [start + task.work_us for start, task in zip(row, own, strict=True)]
        for row, own in zip(starts, tasks, strict=True)
    ]
    return Timetable(
        tuple(map(tuple, places)),
        tuple((tuple(row),) for row in starts),
        tuple((tuple(row),) for row in ends),
        period_us,
        0.0,
    )


def _first_gaps(
    workload: Workload, tasks: Sequence[Sequence[Task]], period: float
) -> list[list[float]] | None:
    busy: list[list[tuple[float, float]]] = [[] for _ in workload.devices]  # within one period
    found = []
    for own in tasks:
        now, row = 0.0, []
        for task in own:
            start = _gap(busy[task.device], now, task.work_us, period)
            if start is None:
                return None
            row.append(start)
            now = start + task.work_us
            phase = start % period
            first = min(task.work_us, period - phase)
            busy[task.device].append((phase, phase + first))
            if first < task.work_us:
                busy[task.device].append((0.0, task.work_us - first))
            busy[task.device].sort()
        found.append(row)
    return found


def _gap(
    busy: Sequence[tuple[float, float]], now: float, work: float, period: float
) -> float | None:
    """Returns the first start from ``now`` on with ``work`` free time behind it."""
    base = now - now % period
    taken = [(a + base + k * period, b + base + k * period) for k in range(4) for a, b in busy]
    start = now
    for a, b in taken:
        if b <= start + 1e-9:
            continue
        if a >= start + work - 1e-9:
            break
        start = b
    return start if start <= now + 2 * period else None


def _side_by_side(
    workload: Workload, tasks: Sequence[Sequence[Task]], period: float
) -> list[list[float]]:
    filled = [0.0] * len(workload.devices)
    found = []
    for own in tasks:
        now, row = 0.0, []
        for task in own:
            phase = filled[task.device]
            filled[task.device] += task.work_us
            start = now - now % period + phase
            if start < now - 1e-9:
                start += period
            row.append(start)
            now = start + task.work_us
        found.append(row)
    return found
