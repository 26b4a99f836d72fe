"""Several networks on shared devices: what is to be scheduled, and the timetable found.

Each network is a chain of parts. A frame takes every part in order; all frames of a network run
alike, so that each network needs one set of engines. Parts of a chain next to each other on one
core are one loadable, which runs unbroken; everything else may be interleaved with other
networks' work between two parts. A device does one thing at a time.

A network may also run by one of its routes: a placement of the whole of it with tasks of its own,
which need not end where the parts do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

__all__ = ["Chain", "Route", "Task", "Timetable", "Workload", "route_of", "tasks_of"]


@dataclass(frozen=True, slots=True)
class Task:
    """What one device does without a break for a frame.

    Attributes:
        device: Where.
        first: Its first part.
        last: Its last part; below ``first`` for a hand-over alone.
        work_us: How long it takes alone.
        extra_us: Launch and hand-overs in it.
    """

    device: int
    first: int
    last: int
    work_us: float
    extra_us: float


@dataclass(frozen=True, slots=True)
class Route:
    """A placement of a whole network: tasks one after the other, and microjoules of a frame.

    ``loadables`` counts them by device.
    """

    tasks: tuple[Task, ...]
    energy_uj: float
    loadables: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """One network; times in microseconds.

    Attributes:
        name: Its name.
        times_us: By part and device; None where the part cannot run.
        hands_us: What handing a tensor over takes of the first device, by border (before the
            first part, between two, after the last), and the places before and after it. A place
            is a device, or one more for the caller.
        energy_uj: By part and device.
        period_us: Time between two frames; None: one frame.
        deadline_us: Longest time from a frame's arrival to its end; None: no limit.
        too_large: Parts (first, last) that do not fit one loadable, the shortest such runs.
        routes: What it can do instead; without parts it has to.
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
    """All networks, and what they share.

    Attributes:
        devices: Names; the first one carries the hand-overs.
        launch_us: By device: what starting a loadable takes; None for a device without loadables.
        watts: By device, for the energy of launches and hand-overs.
        chains: The networks; all of them have a period, or none.
        max_loadables: What each core can hold, of all networks together; None: no limit.
        one_core: Whether a network may use only one core, as a single engine does.
    """

    devices: tuple[str, ...]
    launch_us: tuple[float | None, ...]
    watts: tuple[float, ...]
    chains: tuple[Chain, ...]
    max_loadables: int | None = None
    one_core: bool = False

    @cached_property
    def cores(self) -> tuple[int, ...]:
        """Devices that run loadables."""
        return tuple(d for d, launch in enumerate(self.launch_us) if launch is not None)

    @cached_property
    def hyperperiod_us(self) -> Fraction | None:
        """After what time the arrivals repeat: the least common multiple of all periods."""
        periods = [chain.period_us for chain in self.chains if chain.period_us is not None]
        if not periods:
            return None
        return Fraction(
            math.lcm(*(p.numerator for p in periods)), math.gcd(*(p.denominator for p in periods))
        )

    @cached_property
    def frames(self) -> tuple[int, ...]:
        """Frames of each network in one hyperperiod; 1 each without periods."""
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
        """Returns what each device works in a hyperperiod."""
        load = [0.0] * len(self.devices)
        for chain, frames in enumerate(self.frames):
            for task in tasks_of(self, chain, places[chain]):
                load[task.device] += task.work_us * frames
        return load

    def energy_uj(self, places: Sequence[Sequence[int]]) -> float:
        """Returns the energy of a hyperperiod."""
        total = 0.0
        for chain, frames in enumerate(self.frames):
            route = route_of(self.chains[chain], places[chain])
            if route is not None:
                total += frames * route.energy_uj
                continue
            parts = self.chains[chain].energy_uj
            own = sum(row[d] for row, d in zip(parts, places[chain], strict=True))
            extra = sum(
                task.extra_us * self.watts[task.device]
                for task in tasks_of(self, chain, places[chain])
            )
            total += frames * (own + extra)
        return total

    def used(self, places: Sequence[Sequence[int]]) -> frozenset[int]:
        """Returns the devices that run parts or tasks."""
        return frozenset(
            task.device for chain, own in enumerate(places) for task in tasks_of(self, chain, own)
        )


def route_of(chain: Chain, places: Sequence[int]) -> Route | None:
    """Returns the route that places (of one network) stand for, or None for those of parts.

    Route number k is the single place -1 - k.
    """
    return chain.routes[-1 - places[0]] if places and places[0] < 0 else None


def tasks_of(workload: Workload, chain: int, places: Sequence[int]) -> list[Task]:
    """Returns the tasks of a frame in order: parts, loadables, and hand-overs on their own.

    The first device hands over right before or after its own parts; between two other places
    (the caller and a core) a hand-over is a task of its own.
    """
    own = workload.chains[chain]
    route = route_of(own, places)
    if route is not None:
        return list(route.tasks)
    caller = len(workload.devices)
    found: list[Task] = []
    for border, (before, after) in enumerate(pairwise([caller, *places, caller])):
        hand = own.hands_us[border][before][after]
        if hand and before == 0 and border:
            task = found[-1]
            found[-1] = Task(0, task.first, task.last, task.work_us + hand, task.extra_us + hand)
        elif hand and after != 0:
            found.append(Task(0, border, border - 1, hand, hand))
        if border == len(places):
            break
        time = own.times_us[border][after]
        assert time is not None
        launch = workload.launch_us[after]
        if launch is not None and after == before:
            task = found[-1]
            found[-1] = Task(after, task.first, border, task.work_us + time, task.extra_us)
        else:
            extra = (launch or 0.0) + (hand if after == 0 and before != 0 else 0.0)
            found.append(Task(after, border, border, time + extra, extra))
    return found


@dataclass(frozen=True)
class Timetable:
    """Where every part runs and when every task starts.

    Attributes:
        places: Device by network and part, or the route's number (:func:`route_of`).
        starts_us: By network, frame and task of ``tasks_of``.
        ends_us: Likewise.
        value: Of the objective.
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
