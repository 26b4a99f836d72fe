"""The engine's graph out of a build log alone: units, and the tensors between them.

The parser's lines tell which node reads what, the units' names tell which nodes they hold. Where a
log has no parser's lines, units are joined where the formats that one was timed to write and the
other to read are those of a measured reformat, or the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from edgekit.buildlog import BuildLog, Combination, Timings, UnitTiming
from edgekit.placement._profile_names import between, unit_name
from edgekit.placement._profile_owners import owners

__all__ = ["EngineGraph", "Port", "Wire", "engine_graph"]

_FEW = 4

#: (unit, number of its input or output)
Port = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wire:
    """A tensor between units.

    Attributes:
        tensor: Its name, made up where the log has none.
        producer: Who writes it; None: it enters the network.
        consumers: Who reads it.
        output: It leaves the network.
        outside: The format in which it enters or leaves, empty where unknown.
    """

    tensor: str
    producer: Port | None
    consumers: tuple[Port, ...]
    output: bool = False
    outside: str = ""


@dataclass(frozen=True)
class EngineGraph:
    """Units with times, in running order, their tensors, and what had to be guessed."""

    units: tuple[UnitTiming, ...]
    wires: tuple[Wire, ...]
    guessed: tuple[str, ...] = ()


def engine_graph(timings: Timings, log: BuildLog | None = None) -> EngineGraph:
    """Rebuilds the graph; units that the log gives no time of are bridged.

    What the builder chose (its reformat layers, the finished engine) is not looked at.
    """
    units = tuple(_timed(unit) for unit in timings.units)
    units = _without_parts(tuple(unit for unit in units if unit.combinations), timings)
    return _Graph(replace(timings, units=units), log).build()


def _without_parts(units: tuple[UnitTiming, ...], timings: Timings) -> tuple[UnitTiming, ...]:
    """Leaves out what the GPU runs inside a subgraph that was timed as a whole."""
    place = {node.name: i for i, node in enumerate(timings.nodes)}
    held = [frozenset(place[name] for name in unit_name(unit.name, place).nodes) for unit in units]
    parts: set[int] = set()
    for unit, ends in zip(units, held, strict=True):
        if unit.on_dla or len(ends) < 2 or not unit_name(unit.name, place).subgraph:
            continue
        start = min(ends)
        nodes = [(node.inputs, node.outputs) for node in timings.nodes[start : max(ends) + 1]]
        inside = {start + i for i in between(nodes)}
        parts.update(n for n, own in enumerate(held)
                     if own and own < inside and own != ends and not units[n].on_dla)  # fmt: skip
    return tuple(unit for n, unit in enumerate(units) if n not in parts)


def _timed(unit: UnitTiming) -> UnitTiming:
    return replace(unit, combinations=tuple(c for c in unit.combinations if c.us is not None))


class _Graph:
    def __init__(self, timings: Timings, log: BuildLog | None) -> None:
        self._timings, self._log = timings, log
        self._units = timings.units
        self._sources: dict[str, set[str]] = {}
        self._goals: dict[str, set[str]] = {}
        self._outward: dict[str, set[str]] = {}
        for reformat in timings.reformats:
            self._sources.setdefault(reformat.tensor, set()).add(reformat.source)
            ends = self._outward if reformat.outward else self._goals
            ends.setdefault(reformat.tensor, set()).add(reformat.goal)
        self._readers: dict[str, list[Port]] = {}
        self._writer: dict[str, Port] = {}
        self._read: set[Port] = set()
        self._written: set[Port] = set()
        self._guessed: list[str] = []

    def build(self) -> EngineGraph:
        self._by_nodes()
        for index, unit in enumerate(self._units):
            for number in range(len(unit.combinations[0].reads)):
                if (index, number) not in self._read:
                    self._by_formats((index, number))
        ends = self._outputs()
        names = dict.fromkeys((*self._readers, *self._writer))
        wires = tuple(self._wire(name, name in ends) for name in names)
        return EngineGraph(self._units, wires, tuple(self._guessed))

    def _by_nodes(self) -> None:
        owned = owners(self._timings, self._log)
        reads: dict[int, dict[str, None]] = {}
        writes: dict[int, dict[str, None]] = {}
        at = {t: owned.unit_of.get(node.name) for node in owned.nodes for t in node.outputs}
        wanted = set(self._timings.outputs)
        for node in owned.nodes:
            unit = owned.unit_of.get(node.name)
            if unit is None:
                continue
            for tensor in node.inputs:
                writer = at.get(tensor)
                # the builder's order is a topological one: what is written later was misjudged
                if writer is None or writer < unit:
                    reads.setdefault(unit, {})[tensor] = None
                    wanted.add(tensor)
        for node in owned.nodes:
            unit = owned.unit_of.get(node.name)
            if unit is not None:
                writes.setdefault(unit, {}).update(
                    dict.fromkeys(tensor for tensor in node.outputs if tensor in wanted)
                )
        for index, unit_ in enumerate(self._units):
            first = unit_.combinations[0]
            for port, tensor in self._ports(index, list(reads.get(index, ())), first.reads, True):
                self._readers.setdefault(tensor, []).append((index, port))
                self._read.add((index, port))
            for port, tensor in self._ports(
                index, list(writes.get(index, ())), first.writes, False
            ):
                self._writer[tensor] = (index, port)
                self._written.add((index, port))

    def _ports(
        self, unit: int, tensors: list[str], ports: Sequence[str], reading: bool
    ) -> list[tuple[int, str]]:
        """Returns tensors by port: in order, unless the formats say otherwise."""
        known = self._goals if reading else self._sources
        if len(tensors) > len(ports):
            # a name that the formats do not know is an erased tensor's
            told = [tensor for tensor in tensors if tensor in known]
            tensors = (told + [t for t in tensors if t not in known])[: len(ports)]
        if 1 < len(tensors) <= _FEW and len(ports) <= _FEW:
            sets = [self._formats((unit, number), reading) for number in range(len(ports))]
            wanted = [known.get(tensor, set()) for tensor in tensors]
            orders = permutations(range(len(ports)), len(tensors))
            best = max(orders, key=lambda order: sum(
                bool(want) and want <= sets[port]
                for want, port in zip(wanted, order, strict=True)
            ))  # fmt: skip
            return list(zip(best, tensors, strict=True))
        return list(enumerate(tensors))

    def _formats(self, port: Port, reading: bool) -> set[str]:
        unit, number = port
        combinations = self._units[unit].combinations
        return {_side(c, reading)[number] for c in combinations if number < len(_side(c, reading))}

    def _by_formats(self, port: Port) -> None:
        """Joins an input that no node explains to the nearest output that suits."""
        wanted = self._formats(port, True)
        self._guessed.append(self._units[port[0]].name)
        for tensor, goals in self._goals.items():
            if tensor in self._readers or not goals <= wanted:
                continue
            writer = self._writer.get(tensor) or self._nearest(port[0], self._sources[tensor])
            self._join(tensor or f"into {self._units[port[0]].name}", writer, port)
            return
        writer = self._nearest(port[0], wanted, exact=False)
        name = f"into {self._units[port[0]].name} ({port[1]})"
        self._join(self._name_of(writer) or name, writer, port)

    def _join(self, tensor: str, writer: Port | None, reader: Port) -> None:
        self._readers.setdefault(tensor, []).append(reader)
        self._read.add(reader)
        if writer is not None:
            self._writer.setdefault(tensor, writer)
            self._written.add(writer)

    def _name_of(self, writer: Port | None) -> str:
        return next((t for t, port in self._writer.items() if port == writer), "")

    def _nearest(self, before: int, wanted: set[str], *, exact: bool = True) -> Port | None:
        for index in reversed(range(before)):
            for number in range(len(self._units[index].combinations[0].writes)):
                if (index, number) in self._written:
                    continue
                have = self._formats((index, number), False)
                if wanted <= have if exact else wanted & have:
                    return index, number
        return None

    def _outputs(self) -> set[str]:
        """Returns the tensors that leave; units that nobody reads write some of them."""
        ends = {name for name in self._timings.outputs if name in self._writer}
        for tensor in self._outward:
            if tensor in self._writer:
                ends.add(tensor)
        for index, unit in enumerate(self._units):
            for number in range(len(unit.combinations[0].writes)):
                if (index, number) in self._written:
                    continue
                have = self._formats((index, number), False)
                free = (t for t in self._outward if t not in ends and self._sources[t] <= have)
                name = next(free, f"out of {unit.name} ({number})")
                self._writer[name] = (index, number)
                ends.add(name)
        return ends

    def _wire(self, tensor: str, output: bool) -> Wire:
        writer = self._writer.get(tensor)
        outside = ""
        if writer is None:
            outside = self._caller(tensor, self._sources.get(tensor, set()))
        elif output:
            outside = self._caller(tensor, self._outward.get(tensor, set()))
        return Wire(tensor, writer, tuple(self._readers.get(tensor, ())), output, outside)

    def _caller(self, tensor: str, seen: set[str]) -> str:
        """Returns the caller's format: what was measured, else linear FP32 if that was asked."""
        if len(seen) == 1:
            return next(iter(seen))
        shape = dict(self._timings.shapes).get(tensor)
        asked = set(self._timings.io_formats)
        if not shape or any(dim < 1 for dim in shape) or asked - {"fp32:CHW"}:
            return ""
        strides = [1]
        for dim in reversed(shape[1:]):
            strides.insert(0, strides[0] * dim)
        return f"Float({','.join(map(str, strides))})"


def _side(combination: Combination, reading: bool) -> tuple[str, ...]:
    return combination.reads if reading else combination.writes
