"""``plan_of_log``: the best formats of an engine from its build log alone, without the model.
States the choice of formats as a problem for the solver; formats as builders and inspectors
print them are read in the names of the cost model.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from edgekit.buildlog.timings import ReformatTiming, UnitTiming
from edgekit.errors import DataError
from edgekit.placement.costs.kernel_costs import cost_data
from edgekit.placement.profiles.log_graph import EngineGraph, UnitTensor, engine_graph
from edgekit.placement.profiles.profile import Profile
from edgekit.solver.optimiser import minimise
from edgekit.solver.problem import (
    OPTIMAL_GAP,
    OUTSIDE,
    Border,
    Cost,
    Goal,
    Mode,
    PlacementProblem,
    Placing,
    Transfer,
)

SCHEMA = "edgekit.logplan/1"
DIGITS = 6
DEVICES = ("GPU", "DLA0")
SWEEPS = 8  # over all units, for formats that suit their neighbours
_PRINTED = re.compile(r"^([A-Za-z]\w*)\(([^()]*)\)$")
_INSPECTED = re.compile(
    r"^(?:(?P<wide>[A-Z][a-z-]+) wide channel vectorized row major"
    r"|(?P<linear>Row major)(?: linear)?|(?P<last>Channel major)) "
    r"(?P<type>FP32|FP16|Int8)(?: format)?(?: where channel % (?P<multiple>\d+) == 0)?$"
)
_WIDTHS = {"Two": 2, "Four": 4, "Eight": 8, "Sixteen": 16, "Thirty-two": 32}
_TYPES = {"Float": "fp32", "Half": "fp16", "Int8": "int8"}
_IMAGE = 4


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
        agrees: Whether the builder put in the same reformats; None where the log does not say.
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
            "only a verbose build log contains the times of all formats",
            code="profile.no_log", where=profile.path,
            hint="build with trtexec --verbose, or also give the model to plan with this profile",
        )  # fmt: skip

    timings, log = profile.timings, profile.log
    graph = engine_graph(timings, log)
    named = {loadable.name for loadable in log.loadables} if log else set()
    on_dla = loadable_names(graph.units, named)
    choices = format_problem(graph, timings.reformats, on_dla)
    goal = Goal.of(choices.problem, "latency")
    optimum = minimise(choices.problem, goal, seconds=seconds, progress=progress)
    placing = optimum.placing
    if placing is None:
        raise DataError(
            "the timings of the log do not fit together", code="profile.no_log",
            where=profile.path, hint="give the whole log of one build",
        )  # fmt: skip
    units = tuple(
        LogUnit(
            unit.name, "DLA" if unit.name in on_dla else "GPU", choices.reads[m], choices.writes[m],
            sum(_load(choices, v, m)),
        )
        for v, (unit, m) in enumerate(zip(graph.units, placing.modes, strict=True))
    )  # fmt: skip
    reformats = _reformats(choices, placing)
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
        notes.append(
            f"{missing:,.6g} µs of the latency are predicted, because the log has no times for them"
        )
    if shorter < 1:
        notes.append(
            f"the single times add up to {found:,.6g} µs, but the whole engine took "
            f"{whole:,.6g} µs; the latter is used"
        )
    if graph.guessed:
        notes.append(
            f"the log does not name the inputs of {len(graph.guessed)} of "
            f"{len(graph.units)} units; they were matched by format"
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


def _load(choices: FormatProblem, node: int, mode: int) -> tuple[float, ...]:
    cost = choices.problem.costs[node][mode]
    return cost.load_us if cost is not None else ()


def _reformats(choices: FormatProblem, placing: Placing) -> tuple[LogReformat, ...]:
    found = []
    for border, transfer, way in sorted(placing.ways):
        source, goal, measured = choices.changes[border][transfer]
        us = sum(choices.problem.borders[border].transfers[transfer].ways[way].load_us)
        found.append(LogReformat(choices.wires[border].tensor, source, goal, us, measured))
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


@dataclass(frozen=True)
class FormatProblem:
    """The problem, and what its indices stand for.

    Attributes:
        problem: Nodes are units, modes are a device with formats.
        reads: By mode, the formats of the unit's inputs.
        writes: By mode, those of its outputs.
        changes: By border and transfer, (source, goal, whether it was measured).
        wires: By border.
    """

    problem: PlacementProblem
    reads: tuple[tuple[str, ...], ...]
    writes: tuple[tuple[str, ...], ...]
    changes: tuple[tuple[tuple[str, str, bool], ...], ...]
    wires: tuple[UnitTensor, ...]


class ReformatPrices:
    """What a change of format takes: measured for the tensor, or for another of the same shape.

    The builder times every pair that it could need. A pair that it did not time is one between
    equal elements whose strides differ (a part of a concatenation), which is free, or was not
    needed; the longest known time of the tensor then stands for it, called not measured.
    """

    def __init__(self, timings: Sequence[ReformatTiming]) -> None:
        self._own: dict[tuple[str, str, str], float] = {}
        self._any: dict[tuple[str, str], float] = {}
        self._most: dict[str, float] = {}
        for timing in timings:
            key = (timing.tensor, timing.source, timing.goal)
            self._own[key] = min(timing.us, self._own.get(key, timing.us))
            pair = (timing.source, timing.goal)
            self._any[pair] = min(timing.us, self._any.get(pair, timing.us))
            self._most[timing.tensor] = max(timing.us, self._most.get(timing.tensor, 0.0))
        self._middle = statistics.median(self._any.values()) if self._any else 0.0

    def us(self, tensor: str, source: str, goal: str) -> tuple[float, bool]:
        """Returns microseconds, and whether they were measured."""
        own = self._own.get((tensor, source, goal), self._any.get((source, goal)))
        if own is not None:
            return own, True
        if same_elements(source, goal):
            return 0.0, True
        return self._most.get(tensor, self._middle), False


def format_problem(
    graph: EngineGraph, reformats: Sequence[ReformatTiming], on_dla: Collection[str]
) -> FormatProblem:
    """Returns the problem of an engine.

    Args:
        graph: Units and wires.
        reformats: Measured conversions.
        on_dla: Names of the units that are loadables.
    """
    modes: list[Mode] = [Mode(0, "outside", "outside")]
    reads: list[tuple[str, ...]] = [()]
    writes: list[tuple[str, ...]] = [()]
    seen: dict[tuple[object, ...], int] = {}
    own: list[dict[int, float]] = []
    for index, unit in enumerate(graph.units):
        device = int(unit.name in on_dla)
        times: dict[int, float] = {}
        plain = len(unit.combinations[0].reads) == len(unit.combinations[0].writes) == 1
        for c in unit.combinations:
            # units of one input and one output can share their modes
            key = (device, c.reads, c.writes, -1 if plain else index)
            if key not in seen:
                seen[key] = len(modes)
                modes.append(Mode(device, ", ".join(c.reads), ", ".join(c.writes)))
                reads.append(c.reads)
                writes.append(c.writes)
            assert c.us is not None  # the graph keeps timed ones only
            times[seen[key]] = min(c.us, times.get(seen[key], c.us))
        own.append(times)
    costs = tuple(
        tuple(_cost(int(unit.name in on_dla), times[m]) if m in times else None
              for m in range(len(modes)))
        for unit, times in zip(graph.units, own, strict=True)
    )  # fmt: skip
    prices = ReformatPrices(reformats)
    borders, changes, wires = [], [], []
    for wire in graph.wires:
        border, pairs = _border(wire, own, reads, writes, prices)
        borders.append(border)
        changes.append(pairs)
        wires.append(wire)
    problem = PlacementProblem(
        DEVICES, tuple(modes), costs, tuple(borders), (None,) * len(DEVICES),
        max_transitions=(None,), contiguous=(False,),
    )  # fmt: skip
    return FormatProblem(problem, tuple(reads), tuple(writes), tuple(changes), tuple(wires))


def _cost(device: int, us: float) -> Cost:
    load = [0.0] * (len(DEVICES) + 1)
    load[device] = us
    return Cost(tuple(load))


def _border(
    wire: UnitTensor, own: Sequence[Mapping[int, float]],
    reads: Sequence[tuple[str, ...]], writes: Sequence[tuple[str, ...]], prices: ReformatPrices,
) -> tuple[Border, tuple[tuple[str, str, bool], ...]]:  # fmt: skip
    before = {0: wire.outside}
    if wire.producer is not None:
        unit, port = wire.producer
        before = {m: writes[m][port] for m in own[unit] if port < len(writes[m])}
    after: list[tuple[int, str]] = []
    for unit, port in wire.consumers:
        after += [(m, reads[m][port]) for m in own[unit] if port < len(reads[m])]
    if wire.output:
        after.append((0, wire.outside))
    pairs: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for m, source in before.items():
        for n, goal in after:
            if source and goal and source != goal:
                pairs.setdefault((source, goal), set()).add((m, n))
    transfers, changes = [], []
    for (source, goal), which in pairs.items():
        us, measured = prices.us(wire.tensor, source, goal)
        if us:
            transfers.append(Transfer(frozenset(which), (_cost(0, us),)))
            changes.append((source, goal, measured))
    producer = OUTSIDE if wire.producer is None else wire.producer[0]
    consumers = tuple(sorted({unit for unit, _ in wire.consumers}))
    return Border(producer, consumers, tuple(transfers), wire.output), tuple(changes)


def loadable_names(units: Sequence[UnitTiming], named: Collection[str]) -> frozenset[str]:
    """Returns the units on the DLA: by their runner, or by name where the time was cached."""
    return frozenset(
        unit.name for unit in units if unit.on_dla or (not unit.runners and unit.name in named)
    )


class EngineTimes:
    """What the units of a build log's engine take together, each in formats that suit the others.

    No unit alone would be faster in other formats. The least sum of all takes a search
    (``plan_of_log``); on the public builds this one is within 0.3 % of it.

    Attributes:
        total_us: All units and the conversions between them.
    """

    def __init__(self, profile: Profile) -> None:
        timings, log = profile.timings, profile.log
        assert timings is not None
        graph = engine_graph(timings, log)
        named = {loadable.name for loadable in log.loadables} if log else set()
        choices = format_problem(graph, timings.reformats, loadable_names(graph.units, named))
        self._names = [unit.name for unit in graph.units]
        self._borders = choices.problem.borders
        self._own = [
            {m: sum(cost.load_us) for m, cost in enumerate(row) if cost is not None}
            for row in choices.problem.costs
        ]
        #: by border and pair of modes: the transfer, its microseconds, whether they were measured
        self._pays = [
            {pair: (t, sum(transfer.ways[0].load_us), choices.changes[b][t][2])
             for t, transfer in enumerate(border.transfers) for pair in transfer.pairs}
            for b, border in enumerate(self._borders)
        ]  # fmt: skip
        self._modes = [min(times, key=times.__getitem__) for times in self._own]
        self._settle()
        self.total_us = sum(us[m] for us, m in zip(self._own, self._modes, strict=True)) + sum(
            us for b in range(len(self._borders)) for _, us, _ in self._paid(b)
        )

    def _settle(self) -> None:
        near: list[list[int]] = [[] for _ in self._own]
        for b, border in enumerate(self._borders):
            for v in {border.producer, *border.consumers} - {OUTSIDE}:
                near[v].append(b)
        for _ in range(SWEEPS):
            before = list(self._modes)
            for v, times in enumerate(self._own):
                found = []
                for m, us in times.items():
                    self._modes[v] = m
                    around = sum(paid for b in near[v] for _, paid, _ in self._paid(b))
                    found.append((us + around, m != before[v], m))
                self._modes[v] = min(found)[-1]
            if self._modes == before:
                return

    def _paid(self, b: int) -> set[tuple[int, float, bool]]:
        """Returns the conversions of a tensor, each once for all who read it so."""
        border, pays, modes = self._borders[b], self._pays[b], self._modes
        source = 0 if border.producer == OUTSIDE else modes[border.producer]
        goals = [modes[u] for u in border.consumers] + [0] * border.output
        return {pays[source, goal] for goal in goals if (source, goal) in pays}

    def between(self, names: Collection[str]) -> tuple[float, float]:
        """Returns what some units take together beyond their fastest times, and is measured of it.

        That is the conversions between them, and formats that avoid one.
        """
        inside = {v for v, name in enumerate(self._names) if name in names}
        longer = sum(self._own[v][self._modes[v]] - min(self._own[v].values()) for v in inside)
        paid = [
            one
            for b, border in enumerate(self._borders)
            if border.consumers and {border.producer, *border.consumers} <= inside
            for one in self._paid(b)
        ]
        known = sum(us for _, us, measured in paid if measured)
        return longer + sum(us for _, us, _ in paid), longer + known


@cache
def layout_of(text: str, *, dla: bool = False) -> tuple[str, str] | None:
    """Returns (type, format) of a format with strides, such as ``Int8(3136,49:32,7,1)``.

    Strides are in vectors: a vector of channels whose own stride is 1 before wider rows is a
    channel-last format. None for what is no such text.

    Args:
        text: As the builder prints it, or an engine inspector.
        dla: Of a loadable's border; linear and image formats are the DLA's own there.
    """
    match = _PRINTED.match(text.strip())
    if match is None or match[1] not in _TYPES:
        return _inspected(text.strip(), dla=dla)
    strides, vector, at = [], 1, -1
    for place, part in enumerate(match[2].split(",")):
        number, _, width = part.partition(":")
        if not number.strip().isdigit():
            return None
        strides.append(int(number))
        if width:
            vector, at = int(width), place
    dtype = _TYPES[match[1]]
    if vector == 1:
        last = len(strides) == 4 and strides[1] == 1 and strides[3] > 1
        form = "HWC" if last else "LINEAR"
        return dtype, "DLA_LINEAR" if dla and form == "LINEAR" else form
    if dla and vector == _IMAGE:
        return dtype, "DLA_HWC4"
    channel_last = strides[at] == 1 and at + 1 < len(strides) and strides[-1] > 1
    return dtype, f"{'HWC' if channel_last else 'CHW'}{vector}"


def _inspected(text: str, *, dla: bool) -> tuple[str, str] | None:
    """Reads what an engine inspector prints: "Thirty-two wide channel vectorized row major ..."."""
    match = _INSPECTED.match(text)
    if match is None:
        return None
    dtype = match["type"].lower().replace("float", "fp")
    if match["linear"]:
        return dtype, "DLA_LINEAR" if dla else "LINEAR"
    if match["last"]:
        return dtype, f"HWC{match['multiple'] or ''}"
    width = _WIDTHS.get(match["wide"])
    if width is None:
        return None
    return dtype, "DLA_HWC4" if dla and width == _IMAGE else f"CHW{width}"


@cache
def same_elements(one: str, other: str) -> bool:
    """Whether two formats differ in strides only: the same type and the same vectors."""
    first, second = _PRINTED.match(one), _PRINTED.match(other)
    if first is None or second is None or first[1] != second[1]:
        return False
    return _vectors(first[2]) == _vectors(second[2])


def _vectors(strides: str) -> tuple[str, ...]:
    return tuple(part.partition(":")[2] for part in strides.split(","))
