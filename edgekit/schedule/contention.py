"""Contention for shared memory: devices that work together slow each other down. Simulates a
timetable with the measured slowdowns, and finds the best timetable that holds with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from edgekit.placement.costs.constants import contention_constants
from edgekit.placement.costs.model import contention_table
from edgekit.schedule.timetable import (
    DeviceTask,
    SearchLimit,
    Timetable,
    Workload,
    frame_tasks,
    solve_timetable,
    timetable_value,
)
from edgekit.targets.board import Target
from edgekit_device.protocol.codec import choice, document, mapping, member, number, text

_ROUNDS = 3
Slowdown = Callable[[int, frozenset[int]], float]
"""Takes a device and the devices that work at the same time; returns the factor on its time."""
_CYCLES = 12
_OTHERS = choice("gpu", "dla", "dla+dla", "dla+gpu")
_SAME_US = 1e-6
_Key = tuple[int, int, int]  # chain, frame (of all hyperperiods), task


def under_contention(
    workload: Workload,
    objective: str,
    lower: Timetable,
    slowdown: Slowdown,
    limit: SearchLimit,
) -> Timetable:
    """Returns the best timetable found under ``slowdown``, with its value.

    The task order is taken from the optimum without contention, then from the optimum with times
    stretched by the slowdown seen in the last simulation, until the order is stable. If all of
    these miss a deadline, all times are stretched by the worst slowdown of devices that work
    together, which holds for any overlap. A value with a missed deadline is infinite.
    """
    best: Timetable | None = None
    last, seen = lower, set()
    for round_ in range(_ROUNDS):
        ran = simulate(workload, last, slowdown)
        if ran is not None:
            best = _keep_better(workload, objective, best, ran)
        used = workload.used(last.places)
        # one device alone has no contention, and known places give the same times again
        if len(used) < 2 or last.places in seen or round_ == _ROUNDS - 1:
            break
        seen.add(last.places)
        longer = stretch_times(workload, _observed_slowdown(workload, last, ran, slowdown))
        again = solve_timetable(longer, objective, hint=last.places, limit=limit.part(1 / 10))
        if again is None or not again.places:
            break
        last = again
    if best is None or best.value == float("inf"):
        safe = _schedule_worst_case(workload, objective, lower, slowdown, limit)
        best = safe if safe is not None else best
    return replace(lower, value=float("inf")) if best is None else best


def _keep_better(
    workload: Workload, objective: str, best: Timetable | None, ran: Timetable
) -> Timetable:
    value = timetable_value(workload, objective, ran)
    if _lateness(workload, ran) > 1 + 1e-9:
        ran = replace(ran, value=float("inf"))
        late = best is not None and best.value == float("inf")
        if best is None or (late and _lateness(workload, ran) < _lateness(workload, best)):
            return ran
        return best
    ran = replace(ran, value=value)
    return ran if best is None or value < best.value - 1e-9 else best


def _lateness(workload: Workload, table: Timetable) -> float:
    return max(
        (
            table.latency_us(workload, i) / chain.deadline_us
            for i, chain in enumerate(workload.chains)
            if chain.deadline_us is not None
        ),
        default=0.0,
    )


def _observed_slowdown(
    workload: Workload, last: Timetable, ran: Timetable | None, slowdown: Slowdown
) -> list[float]:
    """Returns each device's slowdown in the simulation; if unknown, the worst slowdown."""
    factors = worst_slowdown(workload, slowdown, workload.used(last.places) | {0})
    if ran is None:
        return factors
    work, took = [0.0] * len(factors), [0.0] * len(factors)
    for chain, frames in enumerate(ran.starts_us):
        tasks = frame_tasks(workload, chain, ran.places[chain])
        for starts, ends in zip(frames, ran.ends_us[chain], strict=True):
            for task, start, end in zip(tasks, starts, ends, strict=True):
                work[task.device] += task.work_us
                took[task.device] += end - start
    return [t / w if w else f for w, t, f in zip(work, took, factors, strict=True)]


def stretch_times(workload: Workload, factors: Sequence[float]) -> Workload:
    """Returns the workload with every device's times multiplied by its factor."""
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


def _schedule_worst_case(
    workload: Workload,
    objective: str,
    lower: Timetable,
    slowdown: Slowdown,
    limit: SearchLimit,
) -> Timetable | None:
    everyone = frozenset(range(len(workload.devices)))
    longer = stretch_times(workload, worst_slowdown(workload, slowdown, everyone))
    safe = solve_timetable(longer, objective, hint=lower.places, limit=limit)
    if safe is None or not safe.places:
        return None
    ran = simulate(workload, safe, slowdown)
    best = None if ran is None else _keep_better(workload, objective, None, ran)
    # with the worst slowdown of all devices no task ends later than in this timetable
    return _keep_better(workload, objective, best, safe)


def worst_slowdown(workload: Workload, slowdown: Slowdown, used: frozenset[int]) -> list[float]:
    """Returns each device's slowdown while all of ``used`` work."""
    return [slowdown(d, used - {d}) for d in range(len(workload.devices))]


def simulate(
    workload: Workload, table: Timetable, slowdown: Slowdown | None = None
) -> Timetable | None:
    """Returns the simulated timetable with the same task order; None for ``slowdown``: no
    contention.

    Periodic workloads are simulated until two hyperperiods are alike. Returns None if they never
    are, because frames accumulate.
    """
    runs = _Simulation(workload, table, slowdown)
    if workload.hyperperiod_us is None:
        return runs.table(runs.through(1), 0)
    ran = runs.through(_CYCLES)
    for cycle in range(1, _CYCLES):
        before, after = runs.table(ran, cycle - 1), runs.table(ran, cycle)
        # Frames can pile up slowly: a late cycle must be the same. The last has no next cycle
        # beside it.
        if _same_times(before, after) and _same_times(after, runs.table(ran, _CYCLES - 2)):
            return after
    return None


def _same_times(a: Timetable, b: Timetable) -> bool:
    return all(
        abs(x - y) <= _SAME_US
        for times, other in ((a.starts_us, b.starts_us), (a.ends_us, b.ends_us))
        for chain, chain2 in zip(times, other, strict=True)
        for frame, frame2 in zip(chain, chain2, strict=True)
        for x, y in zip(frame, frame2, strict=True)
    )


class _Simulation:
    """Runs the tasks of a timetable in its order.

    Each task starts as soon as its frame, its device and the task before it allow. While several
    devices work, each runs at speed 1 / slowdown, measured for those devices together
    (``targets/costs/contention.yaml``).
    """

    def __init__(self, workload: Workload, table: Timetable, slowdown: Slowdown | None) -> None:
        self.workload = workload
        self.old = table
        self.slowdown = slowdown
        self.tasks: list[list[DeviceTask]] = [
            frame_tasks(workload, i, places) for i, places in enumerate(table.places)
        ]

    def through(self, cycles: int) -> dict[_Key, tuple[float, float]]:
        """Returns start and end of every task of ``cycles`` hyperperiods."""
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
                # the device keeps its order: it waits for this task and takes no other
                if number and (chain, frame, number - 1) not in done:
                    continue
                arrival = self.workload.arrival_us(chain, frame)
                if arrival > now + 1e-9:
                    wait = min(wait, arrival - now)
                    continue
                heads[device] += 1
                starts[key] = now
                running[device] = (key, self.tasks[chain][number].work_us)
            # no task runs and no arrival is awaited: all is done
            if not running and wait == float("inf"):
                return done
            # speeds change only when a task starts or ends
            speeds = self._speeds(frozenset(running))
            step = min([wait, *(left / speeds[d] for d, (_, left) in running.items())])
            now += step
            for device, (key, before) in list(running.items()):
                left = before - step * speeds[device]
                # rounding can leave a little work
                if left <= 1e-9:
                    done[key] = (starts[key], now)
                    del running[device]
                else:
                    running[device] = (key, left)

    def _order(self, cycles: int, whole: float) -> list[list[_Key]]:
        """Returns each device's tasks in the timetable's order, cycle by cycle."""
        queues: list[list[tuple[float, _Key]]] = [[] for _ in self.workload.devices]
        for chain, frames in enumerate(self.old.starts_us):
            for cycle in range(cycles):
                for frame, row in enumerate(frames):
                    for part, start in enumerate(row):
                        device = self.tasks[chain][part].device
                        key = (chain, cycle * len(frames) + frame, part)
                        queues[device].append((start + cycle * whole, key))
        return [[key for _, key in sorted(queue)] for queue in queues]

    def _speeds(self, busy: frozenset[int]) -> dict[int, float]:
        if self.slowdown is None:
            return dict.fromkeys(busy, 1.0)
        return {d: 1 / self.slowdown(d, busy - {d}) for d in busy}

    def table(self, ran: dict[_Key, tuple[float, float]], cycle: int) -> Timetable:
        """Returns a hyperperiod; times are relative to its beginning."""
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


@document(frozen=True)
class Contention:
    """The slowdown of devices that work beside others, with its source.

    Attributes:
        slowdown: Factor by device ("gpu", "dla") and the devices working beside it ("dla+gpu").
    """

    slowdown: Mapping[str, Mapping[str, float]] = member(
        mapping(mapping(number(0, 1e6), _OTHERS), choice("gpu", "dla"))
    )
    source: str = member(text(most=1 << 20))


def contention_model(target: Target, workload: Workload) -> tuple[Slowdown, Contention]:
    """Returns the slowdown by device, and its description for the plan's document."""
    data, generation = contention_constants(), target.dla.generation
    # the timetable already models waiting for the GPU: only memory contention remains
    table = contention_table(target)
    pairs = [p for p in data.pairs if p.generation == generation and not p.hybrid]
    source = "; ".join(dict.fromkeys(data.sources[pair.source] for pair in pairs))
    cores = frozenset(workload.cores)

    def slowdown(device: int, others: frozenset[int]) -> float:
        # factors are known for two other cores at most
        concurrent = ["dla"] * min(2, len(others & cores))
        if others - cores:
            concurrent.append("gpu")
        if not concurrent:
            return 1.0
        own = table.get("dla" if device in cores else "gpu", {})
        return float(own.get("+".join(concurrent), 1.0))

    return slowdown, Contention(table, source)
