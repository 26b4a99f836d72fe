"""What shared memory does to a timetable: devices that work together slow each other down.

The order of the tasks on each device is kept; every task starts as soon as its frame, its device
and the task before it allow. While several devices work, each runs at a speed of one over its
slowdown, which was measured for those devices together (``targets/costs/contention.yaml``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edgekit.solver._periodic import Task, Timetable, Workload, tasks_of

__all__ = ["Slowdown", "run_through", "worst_slowdown"]

Slowdown = Callable[[int, frozenset[int]], float]
"""Takes a device and those that work beside it; returns how much longer its work takes."""

_CYCLES = 12
_SAME_US = 1e-6


def worst_slowdown(workload: Workload, slowdown: Slowdown, used: frozenset[int]) -> list[float]:
    """Returns by device what it is slowed down by while all of ``used`` work."""
    return [slowdown(d, used - {d}) for d in range(len(workload.devices))]


def run_through(
    workload: Workload, table: Timetable, slowdown: Slowdown | None = None
) -> Timetable | None:
    """Returns the same order of tasks as it runs; without ``slowdown`` nothing else changes.

    Periodic workloads run hyperperiod after hyperperiod until two are alike; None when that does
    not come about, because frames pile up.
    """
    runs = _Runs(workload, table, slowdown)
    if workload.hyperperiod_us is None:
        return runs.table(runs.through(1), 0)
    ran = runs.through(_CYCLES)
    for cycle in range(1, _CYCLES):
        before, after = runs.table(ran, cycle - 1), runs.table(ran, cycle)
        if _alike(before, after) and _alike(after, runs.table(ran, _CYCLES - 2)):
            return after
    return None


def _alike(a: Timetable, b: Timetable) -> bool:
    return all(
        abs(x - y) <= _SAME_US
        for one, other in ((a.starts_us, b.starts_us), (a.ends_us, b.ends_us))
        for chain, chain2 in zip(one, other, strict=True)
        for frame, frame2 in zip(chain, chain2, strict=True)
        for x, y in zip(frame, frame2, strict=True)
    )


_Key = tuple[int, int, int]  # chain, frame (of all hyperperiods), task


class _Runs:
    def __init__(self, workload: Workload, table: Timetable, slowdown: Slowdown | None) -> None:
        self.workload = workload
        self.old = table
        self.slowdown = slowdown
        self.tasks: list[list[Task]] = [
            tasks_of(workload, i, places) for i, places in enumerate(table.places)
        ]

    def through(self, cycles: int) -> dict[_Key, tuple[float, float]]:
        """Returns start and end of every task of so many hyperperiods."""
        whole = float(self.workload.hyperperiod_us or 0)
        order = self._order(cycles, whole)
        heads = [0] * len(order)
        running: dict[int, tuple[_Key, float]] = {}  # device: task and work left
        starts: dict[_Key, float] = {}
        done: dict[_Key, tuple[float, float]] = {}
        now = 0.0
        while True:
            wait = float("inf")
            for device, queue in enumerate(order):
                if device in running or heads[device] == len(queue):
                    continue
                key = queue[heads[device]]
                chain, frame, number = key
                if number and (chain, frame, number - 1) not in done:
                    continue
                arrival = self.workload.arrival_us(chain, frame)
                if arrival > now + 1e-9:
                    wait = min(wait, arrival - now)
                    continue
                heads[device] += 1
                starts[key] = now
                running[device] = (key, self.tasks[chain][number].work_us)
            if not running and wait == float("inf"):
                return done
            speeds = self._speeds(frozenset(running))
            step = min([wait, *(left / speeds[d] for d, (_, left) in running.items())])
            now += step
            for device, (key, before) in list(running.items()):
                left = before - step * speeds[device]
                if left <= 1e-9:
                    done[key] = (starts[key], now)
                    del running[device]
                else:
                    running[device] = (key, left)

    def _order(self, cycles: int, whole: float) -> list[list[_Key]]:
        """Returns the tasks of each device in the timetable's order, cycle after cycle."""
        queues: list[list[tuple[float, _Key]]] = [[] for _ in self.workload.devices]
        for chain, frames in enumerate(self.old.starts_us):
            for cycle in range(cycles):
                for frame, row in enumerate(frames):
                    for number, start in enumerate(row):
                        device = self.tasks[chain][number].device
                        key = (chain, cycle * len(frames) + frame, number)
                        queues[device].append((start + cycle * whole, key))
        return [[key for _, key in sorted(queue)] for queue in queues]

    def _speeds(self, busy: frozenset[int]) -> dict[int, float]:
        if self.slowdown is None:
            return dict.fromkeys(busy, 1.0)
        return {d: 1 / self.slowdown(d, busy - {d}) for d in busy}

    def table(self, ran: dict[_Key, tuple[float, float]], cycle: int) -> Timetable:
        """Returns one hyperperiod, its times from its own beginning."""
        shift = cycle * float(self.workload.hyperperiod_us or 0)
        both = []
        for side in (0, 1):
            both.append(
                tuple(
                    tuple(
                        tuple(
                            ran[chain, cycle * len(frames) + frame, number][side] - shift
                            for number in range(len(row))
                        )
                        for frame, row in enumerate(frames)
                    )
                    for chain, frames in enumerate(self.old.starts_us)
                )
            )
        return replace(self.old, starts_us=both[0], ends_us=both[1])
