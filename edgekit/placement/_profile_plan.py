"""``plan_of_log``: the best formats of an engine from its build log alone, without the model."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.errors import DataError
from edgekit.placement._costs_data import cost_data
from edgekit.placement._profile_graph import engine_graph
from edgekit.placement._profile_problem import Asked, format_problem, loadable_names
from edgekit.placement._profile_types import Profile
from edgekit.solver import Goal, Placing

__all__ = ["LogPlan", "LogReformat", "LogUnit", "plan_of_log"]

SCHEMA = "edgekit.logplan/1"
OPTIMAL_GAP = 1e-4
DIGITS = 6


@dataclass(frozen=True, slots=True)
class LogUnit:
    """A layer or loadable of the engine with the formats to take, and its measured time."""

    name: str
    device: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    us: float

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "name": self.name, "device": self.device, "reads": list(self.reads),
            "writes": list(self.writes), "us": self.us, "clock": "measured",
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogReformat:
    """A change of format that the plan pays for; runs on the GPU."""

    tensor: str
    source: str
    goal: str
    us: float
    measured: bool

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "tensor": self.tensor, "from": self.source, "to": self.goal, "us": self.us,
            "clock": "measured" if self.measured else "predicted",
        }  # fmt: skip


@dataclass(frozen=True)
class LogPlan:
    """What the log's own timings say the engine takes at best.

    Attributes:
        file: The log.
        board: As the log names it.
        tensorrt: Release.
        units: In running order.
        reformats: In the order of the tensors' producers.
        latency_us: One inference on the device, without copies from and to the host; at most what
            the same log measured of the whole engine.
        gpu_us: The GPU's part, reformats included.
        dla_us: The DLA's part.
        copies_us: Input and output over the host, least and most; None where shapes are unknown.
        copies_measured: Whether the log itself measured the copies.
        measured: The part of ``latency_us`` that the log measured, 0 to 1.
        optimal: Proved to a gap of 1e-4, under the log's timings; never where units have none.
        bound: A proven lower bound of ``latency_us``.
        agrees: Whether the builder put in the same reformats; None where the log does not tell.
        notes: What was missing or guessed.
    """

    file: str
    board: str
    tensorrt: str
    units: tuple[LogUnit, ...]
    reformats: tuple[LogReformat, ...]
    latency_us: float
    gpu_us: float
    dla_us: float
    copies_us: tuple[float, float] | None
    copies_measured: bool
    measured: float
    optimal: bool
    bound: float
    agrees: bool | None
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """Relative distance between the latency and its bound."""
        return (self.latency_us - self.bound) / self.latency_us if self.latency_us else 0.0

    @property
    def with_copies_us(self) -> tuple[float, float] | None:
        """Latency with the copies from and to the host, least and most."""
        if self.copies_us is None:
            return None
        low, high = self.copies_us
        return round(self.latency_us + low, DIGITS), round(self.latency_us + high, DIGITS)

    def to_json(self) -> dict[str, Any]:
        """Returns the ``edgekit.logplan/1`` document."""
        return {
            "schema": SCHEMA,
            "file": self.file,
            "board": self.board,
            "tensorrt": self.tensorrt,
            "units": [unit.to_json() for unit in self.units],
            "reformats": [reformat.to_json() for reformat in self.reformats],
            "latency_us": self.latency_us,
            "gpu_us": self.gpu_us,
            "dla_us": self.dla_us,
            "host_copies": self._copies_json(),
            "measured": self.measured,
            "objective": "latency",
            "optimal": self.optimal,
            "bound": self.bound,
            "gap": self.gap,
            "agrees_with_builder": self.agrees,
            "notes": list(self.notes),
        }

    def _copies_json(self) -> dict[str, Any] | None:
        if self.copies_us is None or self.with_copies_us is None:
            return None
        return {
            "us": list(self.copies_us), "latency_us": list(self.with_copies_us),
            "clock": "measured" if self.copies_measured else "predicted",
        }  # fmt: skip


def plan_of_log(
    profile: Profile,
    *,
    seconds: float = 60.0,
    progress: Callable[[float, float], None] | None = None,
) -> LogPlan:
    """Takes the formats that make the sum of the log's own timings least.

    The builder's timings of every format combination and every reformat are the costs; which of
    them the builder chose is not looked at, only compared at the end. Devices stay as the log has
    them: it timed every unit on its own device only.

    Args:
        profile: Of kind "log".
        seconds: The solver's limit.
        progress: Passed to the solver.

    Raises:
        DataError: The profile is no build log (``profile.no_log``).
    """
    if profile.kind != "log" or profile.timings is None:
        raise DataError(
            "only a verbose build log holds the times of every format",
            code="profile.no_log", where=profile.path,
            hint="build with trtexec --verbose, or name the model to plan with this profile",
        )  # fmt: skip
    from edgekit.solver import minimise

    timings, log = profile.timings, profile.log
    graph = engine_graph(timings, log)
    named = {loadable.name for loadable in log.loadables} if log else set()
    on_dla = loadable_names(graph.units, named)
    asked = format_problem(graph, timings.reformats, on_dla)
    goal = Goal.of(asked.problem, "latency")
    optimum = minimise(asked.problem, goal, seconds=seconds, progress=progress)
    placing = optimum.placing
    if placing is None:
        raise DataError(
            "the log's timings fit together in no way", code="profile.no_log",
            where=profile.path, hint="keep the whole log of one build",
        )  # fmt: skip
    units = tuple(
        LogUnit(
            unit.name, "DLA" if unit.name in on_dla else "GPU", asked.reads[m], asked.writes[m],
            sum(_load(asked, v, m)),
        )
        for v, (unit, m) in enumerate(zip(graph.units, placing.modes, strict=True))
    )  # fmt: skip
    reformats = _reformats(asked, placing)
    known = sum(u.us for u in units) + sum(r.us for r in reformats if r.measured)
    gpu_us, dla_us = placing.load_us[0], placing.load_us[1]
    found = gpu_us + dla_us
    missing = _untimed_us(profile, units, found)
    whole = dict(timings.run_us).get("gpu", 0.0)
    # timed one by one, units cannot take less in an engine that took less as a whole
    shorter = whole / found if 0 < whole < found else 1.0
    latency = round(shorter * found + missing, DIGITS)
    bound = min(round(shorter * optimum.bound, DIGITS), latency)
    copies, copied = _copies(profile)
    notes = list(profile.notes)
    if missing:
        notes.append(f"{missing:.6g} µs of the latency are predicted, for what has no time")
    if shorter < 1:
        notes.append(
            f"the units' times, each taken alone, add up to {found:.6g} µs; the engine as a whole "
            f"took {whole:.6g} µs, which counts"
        )
    if graph.guessed:
        notes.append(
            f"the log does not name what {len(graph.guessed)} of {len(graph.units)} units read; "
            "they were joined by their formats"
        )
    return LogPlan(
        profile.path, profile.board, profile.tensorrt, units, reformats, latency,
        round(shorter * gpu_us + missing, DIGITS), round(shorter * dla_us, DIGITS), copies, copied,
        min(1.0, round(shorter * known / latency, DIGITS)) if latency else 1.0,
        latency - bound <= OPTIMAL_GAP * latency, bound, _agrees(profile, reformats), tuple(notes),
    )  # fmt: skip


def _untimed_us(profile: Profile, units: Sequence[LogUnit], found_us: float) -> float:
    """Returns what the units without a time take: the rest of the engine's own, else as others."""
    timings = profile.timings
    assert timings is not None
    count = sum(all(c.us is None for c in unit.combinations) for unit in timings.units)
    if not count:
        return 0.0
    if whole := dict(timings.run_us).get("gpu"):
        return max(0.0, whole - found_us)
    # loadables are always timed; a unit on the GPU is far shorter than one of those
    others = [unit.us for unit in units if unit.device == "GPU"]
    return count * statistics.median(others) if others else 0.0


def _load(asked: Asked, node: int, mode: int) -> tuple[float, ...]:
    cost = asked.problem.costs[node][mode]
    return cost.load_us if cost is not None else ()


def _reformats(asked: Asked, placing: Placing) -> tuple[LogReformat, ...]:
    found = []
    for border, transfer, way in sorted(placing.ways):
        source, goal, measured = asked.changes[border][transfer]
        us = sum(asked.problem.borders[border].transfers[transfer].ways[way].load_us)
        found.append(LogReformat(asked.wires[border].tensor, source, goal, us, measured))
    return tuple(found)


def _agrees(profile: Profile, reformats: tuple[LogReformat, ...]) -> bool | None:
    timings = profile.timings
    if timings is None or not timings.finished:
        return None
    theirs = {(chosen.source, chosen.goal) for chosen in timings.chosen}
    return theirs == {(own.source, own.goal) for own in reformats}


def _copies(profile: Profile) -> tuple[tuple[float, float] | None, bool]:
    """Returns the copies' time: the log's own run's, else the range that is predicted."""
    timings = profile.timings
    if timings is None:
        return None, False
    run = dict(timings.run_us)
    if "h2d" in run and "d2h" in run:
        both = round(run["h2d"] + run["d2h"], DIGITS)
        return (both, both), True
    data = cost_data("host_copy")
    shapes = dict(timings.shapes)
    names = (*timings.inputs, *timings.outputs)
    sizes = [math.prod(shapes.get(name, (0,))) * data["element_bytes"] for name in names]
    if not names or min(sizes) < 1 or set(timings.io_formats) - {data["io_format"]}:
        return None, False
    low, high = (
        sum(line["floor_us"] + size / (line["gb_per_second"] * 1e3) for size in sizes)
        for line in (data["low"], data["high"])
    )
    return (round(low, DIGITS), round(high, DIGITS)), False
