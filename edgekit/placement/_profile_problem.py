"""Which formats to take, as a problem for the solver, from an engine's graph and its timings."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from edgekit.buildlog import ReformatTiming, UnitTiming
from edgekit.placement._profile_formats import same_elements
from edgekit.placement._profile_graph import EngineGraph, Wire, engine_graph
from edgekit.placement._profile_types import Profile
from edgekit.solver import OUTSIDE, Border, Cost, Mode, Problem, Transfer

__all__ = ["Asked", "EngineTimes", "Prices", "format_problem", "loadable_names"]

DEVICES = ("GPU", "DLA0")
SWEEPS = 8  # over all units, for formats that suit their neighbours


@dataclass(frozen=True)
class Asked:
    """The problem, and what its indices stand for.

    Attributes:
        problem: Nodes are units, modes are a device with formats.
        reads: By mode, the formats of the unit's inputs.
        writes: By mode, those of its outputs.
        changes: By border and transfer, (source, goal, whether it was measured).
        wires: By border.
    """

    problem: Problem
    reads: tuple[tuple[str, ...], ...]
    writes: tuple[tuple[str, ...], ...]
    changes: tuple[tuple[tuple[str, str, bool], ...], ...]
    wires: tuple[Wire, ...]


class Prices:
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
) -> Asked:
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
    prices = Prices(reformats)
    borders, changes, wires = [], [], []
    for wire in graph.wires:
        border, pairs = _border(wire, own, reads, writes, prices)
        borders.append(border)
        changes.append(pairs)
        wires.append(wire)
    problem = Problem(
        DEVICES, tuple(modes), costs, tuple(borders), (None,) * len(DEVICES),
        max_transitions=(None,), contiguous=(False,),
    )  # fmt: skip
    return Asked(problem, tuple(reads), tuple(writes), tuple(changes), tuple(wires))


def _cost(device: int, us: float) -> Cost:
    load = [0.0] * (len(DEVICES) + 1)
    load[device] = us
    return Cost(tuple(load))


def _border(
    wire: Wire, own: Sequence[Mapping[int, float]],
    reads: Sequence[tuple[str, ...]], writes: Sequence[tuple[str, ...]], prices: Prices,
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
        asked = format_problem(graph, timings.reformats, loadable_names(graph.units, named))
        self._names = [unit.name for unit in graph.units]
        self._borders = asked.problem.borders
        self._own = [
            {m: sum(cost.load_us) for m, cost in enumerate(row) if cost is not None}
            for row in asked.problem.costs
        ]
        #: by border and pair of modes: the transfer, its microseconds, whether they were measured
        self._pays = [
            {pair: (t, sum(transfer.ways[0].load_us), asked.changes[b][t][2])
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
