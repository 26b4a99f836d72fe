"""Timetables by CP-SAT: microseconds to whole numbers and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from edgekit.solver._cpsat import run_worker
from edgekit.solver._periodic import Chain, Route, Timetable, Workload, route_of, tasks_of

__all__ = ["EFFORT", "best_places", "timetable", "value_of"]

EFFORT = 20.0
"""Deterministic time limit of one search (OR-Tools' own measure, about a second of one core)."""

_FIRST = 2.0

_UNITS = 1e9  # of a cycle, about; in a microsecond at least and at most:
_FEWEST, _MOST = 10, 1_000_000
_EXACT = 1e-7
_WEIGHT = 5_000


def timetable(
    workload: Workload,
    objective: str,
    *,
    within: float = 1.0,
    hint: Sequence[Sequence[int]] | None = None,
    effort: float = EFFORT,
    seconds: float = 60.0,
) -> Timetable | None:
    """Returns the best places and starts of all tasks.

    Args:
        workload: What to schedule.
        objective: "latency" (the largest latency relative to its deadline), "makespan" (the end
            of the last frame), "energy" (microjoules of a hyperperiod) or "gpu_time"
            (microseconds of the first device in a hyperperiod).
        within: Latencies stay below this multiple of their deadlines.
        hint: Places to start the search from.
        effort: Deterministic time limit.
        seconds: Wall-clock limit, the last resort.

    Returns:
        The timetable with a proven bound; None when it is proved that there is none.
        A timetable without places: the search ended before it found one.

    Raises:
        EnvironmentLack: CP-SAT cannot be run.
    """
    asked = _Scaled(workload, objective, within)
    answer = _ask(asked, hint, effort, seconds)
    if answer["status"] == "infeasible":
        return None
    if answer["status"] == "unknown":
        return Timetable((), (), (), math.inf, max(0.0, asked.bound(answer["bound"])))
    places = tuple(map(tuple, answer["places"]))
    starts, ends = asked.times(places, answer)
    found = Timetable(places, starts, ends, 0.0, 0.0)
    value = value_of(workload, objective, found)
    bound = min(value, asked.bound(answer["bound"]))
    return Timetable(places, starts, ends, value, bound)


def value_of(workload: Workload, objective: str, table: Timetable) -> float:
    """Returns what a timetable is worth under an objective of :func:`timetable`."""
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


def best_places(
    workload: Workload, *, effort: float = EFFORT, seconds: float = 60.0
) -> tuple[tuple[tuple[int, ...], ...], float, float] | None:
    """Returns the places with the smallest largest load of a device in a hyperperiod.

    Deadlines are left alone. Returns (places, that load in microseconds, a proven lower bound of
    it); None when there are no places at all.

    Raises:
        EnvironmentLack: CP-SAT cannot be run.
    """
    asked = _Scaled(workload, "load", 1.0)
    answer = _ask(asked, None, effort, seconds)
    if answer["status"] != "found":
        return None
    places = tuple(map(tuple, answer["places"]))
    load = max(workload.loads_us(places))
    return places, load, min(load, asked.bound(answer["bound"]))


def _ask(
    asked: _Scaled, hint: Sequence[Sequence[int]] | None, effort: float, seconds: float
) -> dict[str, Any]:
    """Asks one search, which is quick or stuck; then several that tell each other what they find.

    Both give the same answer each time, unless the wall clock ends them.
    """
    request = {**asked.request, "hint": hint}
    first = {**request, "workers": 1, "effort": min(_FIRST, effort)}
    answer = run_worker("periodic", first, seconds=seconds)
    if answer["status"] == "infeasible" or answer.get("proved"):
        return answer
    hint = answer.get("places", hint)
    later = {**request, "workers": 4, "effort": effort, "hint": hint}
    if effort <= _FIRST:
        return answer
    again = run_worker("periodic", later, seconds=seconds)
    if again["status"] == "unknown" != answer["status"]:
        return answer
    return again


class _Scaled:
    """A request in whole units, durations rounded up: what keeps it keeps the workload, too."""

    def __init__(self, workload: Workload, objective: str, within: float) -> None:
        self.workload = workload
        self.objective = objective
        whole = workload.hyperperiod_us
        horizon = self._horizon_us()
        units = min(_MOST, max(_FEWEST, round(_UNITS / float(whole or horizon))))
        if whole is None:
            self.unit_us, hyper = 1 / units, None
        else:
            step = math.lcm(*workload.frames)
            hyper = step * math.ceil(float(whole) * units / step)
            self.unit_us = float(whole) / hyper
        deadlines = [self._deadline_us(chain, horizon) for chain in workload.chains]
        limits = [min(horizon, within * deadline) for deadline in deadlines]
        self.weights, self.longest_us, self.error = _weights(deadlines)
        goals = {"latency": "ratio", "makespan": "end", "load": "load"}
        copies = 0
        if hyper is not None and objective != "load":
            reach = max(
                workload.arrival_us(i, frames - 1) + limit
                for i, (frames, limit) in enumerate(zip(workload.frames, limits, strict=True))
            )
            copies = max(0, math.ceil(reach / self.unit_us / hyper - 1e-9) - 1)
        self.request: dict[str, Any] = {
            "devices": len(workload.devices),
            "cores": list(workload.cores),
            "launch": [self.up(us or 0.0) for us in workload.launch_us],
            "launch_cost": [
                self._cost(d, (workload.launch_us[d] or 0.0) * watt, 0.0)
                for d, watt in enumerate(workload.watts)
            ],
            "slots": workload.max_loadables,
            "one_core": workload.one_core,
            "hyper": hyper,
            "copies": copies,
            "goal": goals.get(objective, "cost"),
            "most": self._most(within, horizon),
            "chains": [
                self._chain(i, chain, hyper, limits[i], deadlines[i])
                for i, chain in enumerate(workload.chains)
            ],
        }

    def up(self, us: float) -> int:
        """Returns a duration in units, rounded up."""
        return math.ceil(us / self.unit_us - 1e-6)

    def down(self, us: float) -> int:
        """Returns a limit in units, rounded down."""
        return math.floor(us / self.unit_us + 1e-6)

    def _horizon_us(self) -> float:
        """Returns what all networks take one after the other at worst, several times over."""
        total = 0.0
        for chain in self.workload.chains:
            total += sum(max(us for us in row if us is not None) for row in chain.times_us)
            total += max((sum(t.work_us for t in r.tasks) for r in chain.routes), default=0.0)
            total += sum(max(map(max, hands)) for hands in chain.hands_us)
            total += len(chain.times_us) * max(us or 0.0 for us in self.workload.launch_us)
        longest = max((float(c.period_us or 0) for c in self.workload.chains), default=0.0)
        deadline = max((c.deadline_us or 0.0 for c in self.workload.chains), default=0.0)
        return 4 * max(total, longest, deadline) + 1

    def _deadline_us(self, chain: Chain, horizon: float) -> float:
        return horizon if chain.deadline_us is None else chain.deadline_us

    def _most(self, within: float, horizon: float) -> int:
        if self.objective == "latency":
            return math.ceil(within * self.longest_us * (1 + self.error) / self.unit_us)
        return self.up(horizon * max(self.workload.frames))

    def _cost(self, device: int, energy_uj: float, us: float) -> int:
        if self.objective == "energy":
            return round(energy_uj * 1000)
        return round(us * 1000) if self.objective == "gpu_time" and device == 0 else 0

    def _chain(
        self, number: int, chain: Chain, hyper: int | None, limit_us: float, deadline_us: float
    ) -> dict[str, Any]:
        frames = self.workload.frames[number]
        watt = self.workload.watts[0]
        return {
            "times": [
                [None if us is None else self.up(us) for us in row] for row in chain.times_us
            ],
            "hands": [
                [[self.up(us) for us in row] for row in border] for border in chain.hands_us
            ],
            "cost": [
                [
                    self._cost(d, uj, us or 0.0)
                    for d, (uj, us) in enumerate(zip(energy, times, strict=True))
                ]
                for energy, times in zip(chain.energy_uj, chain.times_us, strict=True)
            ],
            "hand_cost": [
                [[self._cost(0, us * watt, us) for us in row] for row in border]
                for border in chain.hands_us
            ],
            "frames": frames,
            "period": 0 if hyper is None else hyper // frames,
            "weight": self.weights[number],
            "limit": self.down(limit_us),
            "too_large": [list(run) for run in chain.too_large],
            "routes": [self._route(route) for route in chain.routes],
        }  # fmt: skip

    def _route(self, route: Route) -> dict[str, Any]:
        gpu = sum(task.work_us for task in route.tasks if task.device == 0)
        return {
            "tasks": [[task.device, self.up(task.work_us)] for task in route.tasks],
            "loadables": list(route.loadables),
            "cost": self._cost(0, route.energy_uj, gpu),
        }

    def bound(self, value: float) -> float:
        """Returns a bound of the scaled problem as one of the workload.

        Rounded durations can make a frame longer by less than a unit each; so much less is
        proved.
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

    def times(self, places: tuple[tuple[int, ...], ...], answer: dict[str, Any]) -> tuple[Any, Any]:
        """Returns starts and ends of all tasks in microseconds."""
        all_starts: list[Any] = []
        all_ends: list[Any] = []
        for chain, (frames, hands) in enumerate(
            zip(answer["starts"], answer["hands"], strict=True)
        ):
            tasks = tasks_of(self.workload, chain, places[chain])
            starts = []
            whole = route_of(self.workload.chains[chain], places[chain]) is not None
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
    """Returns small integers that latencies relative to deadlines are told by.

    Also returns what a latency times its weight is divided by, and the relative error of that.
    """
    longest = max(deadlines)
    ratios = [longest / deadline for deadline in deadlines]
    best: tuple[float, int, list[int]] | None = None
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
