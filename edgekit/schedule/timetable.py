"""Timetables of several networks on shared devices: the input (``Workload``), the best places and
starts by CP-SAT (``solve_timetable``), steady states without deadlines, and lower bounds. Times are
in microseconds.

Each network is a chain of parts. A frame runs every part in order; all frames of a network run
alike, so that each network needs a single set of engines. Adjacent parts of a chain on the same
core form a loadable, which is not interrupted; other networks' work may run between any other two
parts. A device runs a single task at a time.

A network may also run by a route: a placement of the whole network with its own tasks, which need
not end at the parts' borders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from time import monotonic
from typing import Any

from edgekit.solver.cpsat.timetable_model import (
    ChainRequest,
    RouteRequest,
    TimetableAnswer,
    TimetableRequest,
    solve,
)

EFFORT = 20.0
"""Deterministic time limit of a search (OR-Tools' own measure, about a second of a core)."""
SECONDS = 60.0
"""Wall-clock limit of all searches together, in seconds, for slow machines."""
_FIRST = 2.0  # effort of the first search, which has one worker
_UNITS = 1e9  # approximate units per cycle; least and most units per microsecond:
_FEWEST, _MOST = 10, 1_000_000
_EXACT = 1e-7  # relative error of weights
_WEIGHT = 5_000  # largest weight of the longest deadline


@dataclass(frozen=True, slots=True)
class DeviceTask:
    """Uninterrupted work of a device for a frame.

    Attributes:
        device: Index of the device.
        first: Index of the first part.
        last: Index of the last part; below ``first`` for a hand-over alone.
        work_us: Duration without contention, in microseconds.
        extra_us: Launch and hand-overs included in ``work_us``.
    """

    device: int
    first: int
    last: int
    work_us: float
    extra_us: float


@dataclass(frozen=True, slots=True)
class Route:
    """A placement of a whole network: consecutive tasks, and microjoules of a frame.

    ``loadables`` counts them by device.
    """

    tasks: tuple[DeviceTask, ...]
    energy_uj: float
    loadables: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NetworkChain:
    """A network; times are in microseconds.

    Attributes:
        name: Its name.
        times_us: By part and device; None if the part cannot run there.
        hands_us: Time of the first device for handing a tensor over, by border (before the first
            part, between two, after the last), and the places before and after it. A place is a
            device's index; the caller has the next index.
        energy_uj: By part and device.
        period_us: Time between two frames; None: a single frame.
        deadline_us: Longest time from a frame's arrival to its end; None: no limit.
        too_large: Parts (first, last) that do not fit one loadable, the shortest such runs.
        routes: Alternatives to the parts; without parts a route is required.
    """

    name: str
    times_us: tuple[tuple[float | None, ...], ...]
    hands_us: tuple[tuple[tuple[float, ...], ...], ...]
    energy_uj: tuple[tuple[float, ...], ...]
    period_us: Fraction | None = None
    deadline_us: float | None = None
    too_large: tuple[tuple[int, int], ...] = ()
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True)
class Workload:
    """All networks and the shared devices.

    Attributes:
        devices: Names; the first device does the hand-overs.
        launch_us: Time to start a loadable, by device; None for a device without loadables.
        watts: By device, for the energy of launches and hand-overs.
        chains: The networks; either all have a period, or none.
        max_loadables: Limit of a core's loadables, all networks together; None: no limit.
        one_core: True if a network may use only a single core, as a single engine does.
    """

    devices: tuple[str, ...]
    launch_us: tuple[float | None, ...]
    watts: tuple[float, ...]
    chains: tuple[NetworkChain, ...]
    max_loadables: int | None = None
    one_core: bool = False

    @cached_property
    def cores(self) -> tuple[int, ...]:
        """Devices that run loadables."""
        return tuple(d for d, launch in enumerate(self.launch_us) if launch is not None)

    @cached_property
    def hyperperiod_us(self) -> Fraction | None:
        """The time after which arrivals repeat: the least common multiple of all periods."""
        periods = [chain.period_us for chain in self.chains if chain.period_us is not None]
        if not periods:
            return None
        # a Fraction is in lowest terms, which this formula needs
        return Fraction(
            math.lcm(*(p.numerator for p in periods)), math.gcd(*(p.denominator for p in periods))
        )

    @cached_property
    def frames(self) -> tuple[int, ...]:
        """Frames of each network in a hyperperiod; 1 each without periods."""
        whole = self.hyperperiod_us
        return tuple(
            1 if whole is None or chain.period_us is None else int(whole / chain.period_us)
            for chain in self.chains
        )

    def arrival_us(self, chain: int, frame: int) -> float:
        """Returns when a frame arrives; the first frames of all networks arrive at 0."""
        period = self.chains[chain].period_us
        return 0.0 if period is None else float(period * frame)

    def loads_us(self, places: Sequence[Sequence[int]]) -> list[float]:
        """Returns each device's working time in a hyperperiod."""
        load = [0.0] * len(self.devices)
        for chain, frames in enumerate(self.frames):
            for task in frame_tasks(self, chain, places[chain]):
                load[task.device] += task.work_us * frames
        return load

    def energy_uj(self, places: Sequence[Sequence[int]]) -> float:
        """Returns the energy of a hyperperiod."""
        total = 0.0
        for chain, frames in enumerate(self.frames):
            route = find_route(self.chains[chain], places[chain])
            if route is not None:
                total += frames * route.energy_uj
                continue
            parts = self.chains[chain].energy_uj
            own = sum(row[d] for row, d in zip(parts, places[chain], strict=True))
            extra = sum(
                task.extra_us * self.watts[task.device]
                for task in frame_tasks(self, chain, places[chain])
            )
            total += frames * (own + extra)
        return total

    def used(self, places: Sequence[Sequence[int]]) -> frozenset[int]:
        """Returns the devices that run parts or tasks."""
        return frozenset(
            task.device
            for chain, own in enumerate(places)
            for task in frame_tasks(self, chain, own)
        )


def find_route(chain: NetworkChain, places: Sequence[int]) -> Route | None:
    """Returns the route that a network's places denote; None if they are places of parts.

    Route number k is the single place -1 - k.
    """
    return chain.routes[-1 - places[0]] if places and places[0] < 0 else None


def frame_tasks(workload: Workload, chain: int, places: Sequence[int]) -> list[DeviceTask]:
    """Returns the tasks of a frame in order: parts, loadables and separate hand-overs.

    The first device hands over right before or after its own parts; between two other places (the
    caller and a core) a hand-over is a separate task.
    """
    own = workload.chains[chain]
    route = find_route(own, places)
    if route is not None:
        return list(route.tasks)
    caller = len(workload.devices)
    found: list[DeviceTask] = []
    for border, (before, after) in enumerate(pairwise([caller, *places, caller])):
        hand = own.hands_us[border][before][after]
        if hand and before == 0 and border:
            task = found[-1]
            found[-1] = DeviceTask(
                0, task.first, task.last, task.work_us + hand, task.extra_us + hand
            )
        elif hand and after != 0:
            found.append(DeviceTask(0, border, border - 1, hand, hand))
        if border == len(places):
            break
        time = own.times_us[border][after]
        assert time is not None
        launch = workload.launch_us[after]
        if launch is not None and after == before:
            task = found[-1]
            found[-1] = DeviceTask(after, task.first, border, task.work_us + time, task.extra_us)
        else:
            # a hand-over to the GPU (device 0) is the GPU's own work, before its part
            extra = (launch or 0.0) + (hand if after == 0 and before != 0 else 0.0)
            found.append(DeviceTask(after, border, border, time + extra, extra))
    return found


@dataclass(frozen=True)
class Timetable:
    """The device of every part and the start of every task.

    Attributes:
        places: Device by network and part, or the route's number (:func:`find_route`).
        starts_us: By network, frame and task of ``frame_tasks``.
        ends_us: Likewise.
        value: The objective's value.
        bound: Proven lower bound of the objective.
    """

    places: tuple[tuple[int, ...], ...]
    starts_us: tuple[tuple[tuple[float, ...], ...], ...]
    ends_us: tuple[tuple[tuple[float, ...], ...], ...]
    value: float
    bound: float

    def latency_us(self, workload: Workload, chain: int) -> float:
        """Returns the longest time from a frame's arrival to its end."""
        return max(
            frame[-1] - workload.arrival_us(chain, number)
            for number, frame in enumerate(self.ends_us[chain])
        )


@dataclass(frozen=True, slots=True)
class SearchLimit:
    """The limits of searches.

    Attributes:
        effort: Limit of each search, in CP-SAT's deterministic time.
        ends: End of all searches together, by ``time.monotonic()``: the last resort.
    """

    effort: float
    ends: float

    @classmethod
    def of(cls, effort: float = EFFORT, seconds: float = SECONDS) -> SearchLimit:
        """Returns the limit of searches that begin now."""
        return cls(effort, monotonic() + seconds)

    @property
    def seconds(self) -> float:
        """Seconds left until ``ends``."""
        return max(0.1, self.ends - monotonic())

    def part(self, share: float) -> SearchLimit:
        """Returns the limit with a fraction of the effort."""
        return replace(self, effort=self.effort * share)


def solve_timetable(
    workload: Workload,
    objective: str,
    *,
    within: float = 1.0,
    hint: Sequence[Sequence[int]] | None = None,
    limit: SearchLimit | None = None,
) -> Timetable | None:
    """Returns the best places and starts of all tasks.

    Args:
        workload: What to schedule.
        objective: "latency" (the largest latency relative to its deadline), "makespan" (the end
            of the last frame), "energy" (microjoules of a hyperperiod) or "gpu_time"
            (microseconds of the first device in a hyperperiod).
        within: Latencies stay below this multiple of their deadlines.
        hint: Places from which the search starts.
        limit: Limits of the search; the default limits if None.

    Returns:
        The timetable with a proven bound; None if it is proven that there is none. A timetable
        without places if the search ended before it found any.

    Raises:
        EnvironmentLack: CP-SAT cannot be run.
    """
    scaled = _ScaledRequest(workload, objective, within)
    answer = _run_searches(scaled, hint, limit)
    if answer.status == "infeasible":
        return None
    if answer.status == "unknown":
        return Timetable((), (), (), math.inf, max(0.0, scaled.bound(answer.bound)))
    places = tuple(map(tuple, answer.places))
    starts, ends = scaled.times(places, answer)
    found = Timetable(places, starts, ends, 0.0, 0.0)
    value = timetable_value(workload, objective, found)
    bound = min(value, scaled.bound(answer.bound))
    return Timetable(places, starts, ends, value, bound)


def timetable_value(workload: Workload, objective: str, table: Timetable) -> float:
    """Returns the value of a timetable under an objective of :func:`solve_timetable`."""
    if objective == "energy":
        return workload.energy_uj(table.places)
    if objective == "gpu_time":
        return workload.loads_us(table.places)[0]
    latencies = [table.latency_us(workload, i) for i in range(len(workload.chains))]
    if objective == "makespan":
        return max(latencies)
    return max(
        latency / chain.deadline_us
        for latency, chain in zip(latencies, workload.chains, strict=True)
        if chain.deadline_us is not None
    )


def find_best_places(
    workload: Workload, *, limit: SearchLimit | None = None
) -> tuple[tuple[tuple[int, ...], ...], float, float] | None:
    """Returns the places with the smallest largest load of a device in a hyperperiod.

    Deadlines are ignored. Returns (places, that load in microseconds, a proven lower bound of the
    load); None if no places are possible.

    Raises:
        EnvironmentLack: CP-SAT cannot be run.
    """
    scaled = _ScaledRequest(workload, "load", 1.0)
    answer = _run_searches(scaled, None, limit)
    if answer.status != "found":
        return None
    places = tuple(map(tuple, answer.places))
    load = max(workload.loads_us(places))
    return places, load, min(load, scaled.bound(answer.bound))


def _run_searches(
    scaled: _ScaledRequest, hint: Sequence[Sequence[int]] | None, limit: SearchLimit | None
) -> TimetableAnswer:
    """Runs a single search, then, if it is not quick, several searches that share solutions.

    Both give the same answer each time, unless the wall clock ends them.
    """
    limit = limit or SearchLimit.of()
    first = replace(scaled.request, hint=hint, workers=1, effort=min(_FIRST, limit.effort))
    answer = solve(first, limit.seconds)
    if answer.status == "infeasible" or answer.proved:
        return answer
    # the second search starts where the first one ended
    hint = answer.places or hint
    later = replace(scaled.request, hint=hint, workers=4, effort=limit.effort)
    if limit.effort <= _FIRST:
        return answer
    again = solve(later, limit.seconds)
    # the clock ended the second search: the first answer is still valid
    if again.status == "unknown" != answer.status:
        return answer
    return again


class _ScaledRequest:
    """A request in whole units, durations rounded up: its timetables also hold for the workload."""

    def __init__(self, workload: Workload, objective: str, within: float) -> None:
        self.workload = workload
        self.objective = objective
        whole = workload.hyperperiod_us
        horizon = self._horizon_us()
        units = min(_MOST, max(_FEWEST, round(_UNITS / float(whole or horizon))))
        if whole is None:
            self.unit_us, hyper = 1 / units, None
        else:
            # each network's period must be a whole number of units
            step = math.lcm(*workload.frames)
            hyper = step * math.ceil(float(whole) * units / step)
            self.unit_us = float(whole) / hyper
        deadlines = [
            horizon if chain.deadline_us is None else chain.deadline_us for chain in workload.chains
        ]
        limits = [min(horizon, within * deadline) for deadline in deadlines]
        self.weights, self.longest_us, self.error = _weights(deadlines)
        goals = {"latency": "ratio", "makespan": "end", "load": "load"}
        # later cycles that a frame, arriving last, can still run in
        copies = 0
        if hyper is not None and objective != "load":
            reach = max(
                workload.arrival_us(i, frames - 1) + limit
                for i, (frames, limit) in enumerate(zip(workload.frames, limits, strict=True))
            )
            copies = max(0, math.ceil(reach / self.unit_us / hyper - 1e-9) - 1)
        self.request = TimetableRequest(
            devices=len(workload.devices),
            cores=list(workload.cores),
            launch=[self.up(us or 0.0) for us in workload.launch_us],
            launch_cost=[
                self._cost(d, (workload.launch_us[d] or 0.0) * watt, 0.0)
                for d, watt in enumerate(workload.watts)
            ],
            slots=workload.max_loadables,
            one_core=workload.one_core,
            hyper=hyper,
            copies=copies,
            goal=goals.get(objective, "cost"),
            most=self._largest_goal(within, horizon),
            chains=[
                self._chain(i, chain, hyper, limits[i], deadlines[i])
                for i, chain in enumerate(workload.chains)
            ],
        )

    def up(self, us: float) -> int:
        """Returns a duration in units, rounded up."""
        # a duration that is whole but for rounding stays as it is
        return math.ceil(us / self.unit_us - 1e-6)

    def down(self, us: float) -> int:
        """Returns a limit in units, rounded down."""
        return math.floor(us / self.unit_us + 1e-6)

    def _horizon_us(self) -> float:
        """Returns several times the worst time of all networks run one after the other."""
        total = 0.0
        for chain in self.workload.chains:
            total += sum(max(us for us in row if us is not None) for row in chain.times_us)
            total += max((sum(t.work_us for t in r.tasks) for r in chain.routes), default=0.0)
            total += sum(max(map(max, hands)) for hands in chain.hands_us)
            total += len(chain.times_us) * max(us or 0.0 for us in self.workload.launch_us)
        longest = max((float(c.period_us or 0) for c in self.workload.chains), default=0.0)
        deadline = max((c.deadline_us or 0.0 for c in self.workload.chains), default=0.0)
        return 4 * max(total, longest, deadline) + 1

    def _largest_goal(self, within: float, horizon: float) -> int:
        if self.objective == "latency":
            return math.ceil(within * self.longest_us * (1 + self.error) / self.unit_us)
        return self.up(horizon * max(self.workload.frames))

    def _cost(self, device: int, energy_uj: float, us: float) -> int:
        if self.objective == "energy":
            # thousandths, since CP-SAT takes integers
            return round(energy_uj * 1000)
        return round(us * 1000) if self.objective == "gpu_time" and device == 0 else 0

    def _chain(
        self,
        number: int,
        chain: NetworkChain,
        hyper: int | None,
        limit_us: float,
        deadline_us: float,
    ) -> ChainRequest:
        frames = self.workload.frames[number]
        watt = self.workload.watts[0]
        return ChainRequest(
            times=[[None if us is None else self.up(us) for us in row] for row in chain.times_us],
            hands=[[[self.up(us) for us in row] for row in border] for border in chain.hands_us],
            cost=[
                [
                    self._cost(d, uj, us or 0.0)
                    for d, (uj, us) in enumerate(zip(energy, times, strict=True))
                ]
                for energy, times in zip(chain.energy_uj, chain.times_us, strict=True)
            ],
            hand_cost=[
                [[self._cost(0, us * watt, us) for us in row] for row in border]
                for border in chain.hands_us
            ],
            frames=frames,
            period=0 if hyper is None else hyper // frames,
            weight=self.weights[number],
            limit=self.down(limit_us),
            too_large=[list(run) for run in chain.too_large],
            routes=[self._route(route) for route in chain.routes],
        )

    def _route(self, route: Route) -> RouteRequest:
        gpu = sum(task.work_us for task in route.tasks if task.device == 0)
        return RouteRequest(
            tasks=[(task.device, self.up(task.work_us)) for task in route.tasks],
            loadables=list(route.loadables),
            cost=self._cost(0, route.energy_uj, gpu),
        )

    def bound(self, value: float) -> float:
        """Converts a bound of the scaled problem to a bound of the workload.

        Each rounded duration can lengthen a frame by less than a unit; the bound is reduced by
        that.
        """
        if self.objective == "latency":
            least = value - self._slack() * max(self.weights)
            return max(0.0, least * self.unit_us / self.longest_us / (1 + self.error))
        if self.objective in ("energy", "gpu_time"):
            parts = sum(
                frames * (4 * len(chain.times_us) + 1)
                for frames, chain in zip(self.workload.frames, self.workload.chains, strict=True)
            )
            return max(0.0, (value - parts) / 1000)
        return max(0.0, (value - self._slack()) * self.unit_us)

    def _slack(self) -> int:
        return sum(
            frames * max(4 * (len(chain.times_us) + 1), *(len(r.tasks) for r in chain.routes), 4)
            for frames, chain in zip(self.workload.frames, self.workload.chains, strict=True)
        )

    def times(
        self, places: tuple[tuple[int, ...], ...], answer: TimetableAnswer
    ) -> tuple[Any, Any]:
        """Returns starts and ends of all tasks in microseconds."""
        all_starts: list[Any] = []
        all_ends: list[Any] = []
        for chain, (frames, hands) in enumerate(zip(answer.starts, answer.hands, strict=True)):
            tasks = frame_tasks(self.workload, chain, places[chain])
            starts = []
            whole = find_route(self.workload.chains[chain], places[chain]) is not None
            for begins, lone in zip(frames, hands, strict=True):
                alone = dict(lone)
                parts = (
                    alone[task.first] if task.last < task.first else begins[task.first]
                    for task in tasks
                )
                starts.append(tuple(at * self.unit_us for at in (begins if whole else parts)))
            all_starts.append(tuple(starts))
            all_ends.append(
                tuple(
                    tuple(s + task.work_us for s, task in zip(row, tasks, strict=True))
                    for row in starts
                )
            )
        return tuple(all_starts), tuple(all_ends)


def _weights(deadlines: Sequence[float]) -> tuple[list[int], float, float]:
    """Returns small integer weights for latencies, proportional to 1 / deadline.

    Also returns the divisor of weighted latencies, and its relative error.
    """
    longest = max(deadlines)
    ratios = [longest / deadline for deadline in deadlines]
    best: tuple[float, int, list[int]] | None = None
    # the smallest multiple at which all ratios are nearly whole
    for times in range(1, _WEIGHT + 1):
        weights = [round(times * ratio) for ratio in ratios]
        pairs = zip(weights, ratios, strict=True)
        error = max(abs(weight / (times * ratio) - 1) for weight, ratio in pairs)
        if best is None or error < best[0]:
            best = error, times, weights
        if error <= _EXACT:
            break
    assert best is not None
    return best[2], best[1] * longest, best[0]


def alone_us(workload: Workload, chain: int) -> float:
    """Returns the shortest time of a frame that has the board alone."""
    own = workload.chains[chain]
    routes = min((sum(t.work_us for t in r.tasks) for r in own.routes), default=math.inf)
    if not own.times_us:
        return routes
    caller = len(workload.devices)
    # a shortest path over the parts; the places before the next part are the states
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

    Each task takes the first gap of its device, with frames of several periods in flight at once;
    if the gaps become too small, the tasks are placed contiguously instead. ``period_us`` is at
    least the load of each device.
    """
    period = Fraction(period_us)
    chains = tuple(replace(chain, period_us=period) for chain in workload.chains)
    workload = replace(workload, chains=chains)
    tasks = [frame_tasks(workload, i, own) for i, own in enumerate(places)]
    starts = _first_gaps(workload, tasks, period_us) or _first_starts(workload, tasks, period_us)
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
    workload: Workload, tasks: Sequence[Sequence[DeviceTask]], period: float
) -> list[list[float]] | None:
    busy: list[list[tuple[float, float]]] = [[] for _ in workload.devices]  # within a period
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
            # work over the end of a period continues at the beginning of the next period
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
    """Returns the first start from ``now`` on with ``work`` free time after it."""
    base = now - now % period
    taken = [(a + base + k * period, b + base + k * period) for k in range(4) for a, b in busy]
    start = now
    for a, b in taken:
        if b <= start + 1e-9:
            continue
        if a >= start + work - 1e-9:
            break
        start = b
    # `taken` covers four periods: a later start could overlap work that it leaves out
    return start if start <= now + 2 * period else None


def _first_starts(
    workload: Workload, tasks: Sequence[Sequence[DeviceTask]], period: float
) -> list[list[float]]:
    filled = [0.0] * len(workload.devices)
    found = []
    for own in tasks:
        now, row = 0.0, []
        for task in own:
            phase = filled[task.device]
            # One task after the other fits into the period, which is at least the device's load.
            filled[task.device] += task.work_us
            start = now - now % period + phase
            # this period's turn is over before the frame gets here
            if start < now - 1e-9:
                start += period
            row.append(start)
            now = start + task.work_us
        found.append(row)
    return found
