"""An engine's graph from its build log: the ONNX nodes of each unit, by its name and neighbours,
and the tensors between units.

The parser's lines give each node's inputs, the units' names give their nodes. If a log has no
parser's lines, units are joined by their timed formats: the written and the read format are equal,
or those of a measured reformat.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from edgekit.buildlog.facts import BuildLog
from edgekit.buildlog.timings import Combination, OnnxNode, Timings, UnitTiming

_FEW = 4

#: (unit, number of its input or output)
TensorPort = tuple[int, int]
# operators that the builder computes at build time
_CONSTANT = ("Constant", "Shape", "Size", "ConstantOfShape")
_FOREIGN = re.compile(r"^\{ForeignNode\[(.*)\]\}$")
_PARTS = re.compile(r" \+ | \|\| |, ")
# 8.x and 10.x name the reshapes around a matrix product differently
_AROUND = (
    ("after", ("reshape_after_", "squeeze_after_", "unsqueeze_node_after_")),
    ("before", ("reshape_before_", "unsqueeze_before_", "unsqueeze_node_before_")),
)


@dataclass(frozen=True, slots=True)
class UnitTensor:
    """A tensor between units.

    Attributes:
        tensor: Its name, generated if the log has none.
        producer: The port that writes it; None for an input of the network.
        consumers: The ports that read it.
        output: True for an output of the network.
        outside: The format in which it enters or leaves the network, empty if unknown.
    """

    tensor: str
    producer: TensorPort | None
    consumers: tuple[TensorPort, ...]
    output: bool = False
    outside: str = ""


@dataclass(frozen=True)
class EngineGraph:
    """Units with times, in running order, and their tensors."""

    units: tuple[UnitTiming, ...]
    wires: tuple[UnitTensor, ...]


def engine_graph(timings: Timings, log: BuildLog | None = None) -> EngineGraph:
    """Rebuilds the graph; units without a time in the log are bridged.

    The builder's choices (its reformat layers, the finished engine) are ignored.
    """
    timed = []
    for unit in timings.units:
        combinations = tuple(c for c in unit.combinations if c.us is not None)
        if combinations:
            timed.append(replace(unit, combinations=combinations))
    units = _without_parts(tuple(timed), timings)
    return _GraphBuilder(replace(timings, units=units), log).build()


def _without_parts(units: tuple[UnitTiming, ...], timings: Timings) -> tuple[UnitTiming, ...]:
    """Returns the units without the GPU's parts of a subgraph that was timed as a whole."""
    place = {node.name: i for i, node in enumerate(timings.nodes)}
    held = [frozenset(place[name] for name in unit_name(unit.name, place).nodes) for unit in units]
    parts: set[int] = set()
    for unit, ends in zip(units, held, strict=True):
        if unit.on_dla or len(ends) < 2 or not unit_name(unit.name, place).subgraph:
            continue
        start = min(ends)
        nodes = [(node.inputs, node.outputs) for node in timings.nodes[start : max(ends) + 1]]
        inside = {start + i for i in nodes_between(nodes)}
        parts.update(
            n
            for n, own in enumerate(held)
            if own and own < inside and own != ends and not units[n].on_dla
        )
    return tuple(unit for n, unit in enumerate(units) if n not in parts)


class _GraphBuilder:
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
        self._readers: dict[str, list[TensorPort]] = {}
        self._writer: dict[str, TensorPort] = {}
        self._read: set[TensorPort] = set()
        self._written: set[TensorPort] = set()

    def build(self) -> EngineGraph:
        self._join_by_nodes()
        for index, unit in enumerate(self._units):
            for number in range(len(unit.combinations[0].reads)):
                if (index, number) not in self._read:
                    self._join_by_formats((index, number))
        ends = self._outputs()
        names = dict.fromkeys((*self._readers, *self._writer))
        wires = tuple(self._wire(name, name in ends) for name in names)
        return EngineGraph(self._units, wires)

    def _join_by_nodes(self) -> None:
        owned = find_owners(self._timings, self._log)
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
                # the builder's order is topological: a tensor that is written later was misjudged
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
        """Returns tensors by port: in order, unless the formats contradict it."""
        known = self._goals if reading else self._sources
        if len(tensors) > len(ports):
            # a name without formats is an erased tensor
            known_first = [tensor for tensor in tensors if tensor in known]
            tensors = (known_first + [t for t in tensors if t not in known])[: len(ports)]
        if 1 < len(tensors) <= _FEW and len(ports) <= _FEW:
            sets = [self._formats((unit, number), reading) for number in range(len(ports))]
            wanted = [known.get(tensor, set()) for tensor in tensors]
            # few ports: all orders can be tried
            orders = permutations(range(len(ports)), len(tensors))
            best = max(
                orders,
                key=lambda order: sum(
                    bool(want) and want <= sets[port]
                    for want, port in zip(wanted, order, strict=True)
                ),
            )
            return list(zip(best, tensors, strict=True))
        return list(enumerate(tensors))

    def _formats(self, port: TensorPort, reading: bool) -> set[str]:
        unit, number = port
        combinations = self._units[unit].combinations
        return {_side(c, reading)[number] for c in combinations if number < len(_side(c, reading))}

    def _join_by_formats(self, port: TensorPort) -> None:
        """Joins an input that no node explains to the nearest matching output."""
        wanted = self._formats(port, True)
        for tensor, goals in self._goals.items():
            if tensor in self._readers or not goals <= wanted:
                continue
            writer = self._writer.get(tensor) or self._nearest(port[0], self._sources[tensor])
            self._join(tensor or f"into {self._units[port[0]].name}", writer, port)
            return
        writer = self._nearest(port[0], wanted, exact=False)
        name = f"into {self._units[port[0]].name} ({port[1]})"
        known = next((tensor for tensor, end in self._writer.items() if end == writer), "")
        self._join(known or name, writer, port)

    def _join(self, tensor: str, writer: TensorPort | None, reader: TensorPort) -> None:
        self._readers.setdefault(tensor, []).append(reader)
        self._read.add(reader)
        if writer is not None:
            self._writer.setdefault(tensor, writer)
            self._written.add(writer)

    def _nearest(self, before: int, wanted: set[str], *, exact: bool = True) -> TensorPort | None:
        # the nearest earlier unit with a free output of this format
        for index in reversed(range(before)):
            for number in range(len(self._units[index].combinations[0].writes)):
                if (index, number) in self._written:
                    continue
                have = self._formats((index, number), False)
                if wanted <= have if exact else wanted & have:
                    return index, number
        return None

    def _outputs(self) -> set[str]:
        """Returns the network's outputs; units without readers write some of these."""
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

    def _wire(self, tensor: str, output: bool) -> UnitTensor:
        writer = self._writer.get(tensor)
        outside = ""
        if writer is None:
            outside = self._caller(tensor, self._sources.get(tensor, set()))
        elif output:
            outside = self._caller(tensor, self._outward.get(tensor, set()))
        return UnitTensor(tensor, writer, tuple(self._readers.get(tensor, ())), output, outside)

    def _caller(self, tensor: str, seen: set[str]) -> str:
        """Returns the caller's format: the measured format, else linear FP32 if requested."""
        if len(seen) == 1:
            return next(iter(seen))
        shape = dict(self._timings.shapes).get(tensor)
        requested = set(self._timings.io_formats)
        if not shape or any(dim < 1 for dim in shape) or requested - {"fp32:CHW"}:
            return ""
        strides = [1]
        for dim in reversed(shape[1:]):
            strides.insert(0, strides[0] * dim)
        return f"Float({','.join(map(str, strides))})"


def _side(combination: Combination, reading: bool) -> tuple[str, ...]:
    return combination.reads if reading else combination.writes


@dataclass(frozen=True)
class NodeOwners:
    """The nodes that compute something from the inputs, in order, and the unit of each."""

    nodes: tuple[OnnxNode, ...]
    unit_of: Mapping[str, int]


def find_owners(timings: Timings, log: BuildLog | None) -> NodeOwners:
    """Finds the unit of every node.

    GPU layers name all their nodes; a loadable names its first and last, or the log lists its
    layers. A node that no unit names was erased (a flatten between two kernels) and goes to a
    neighbour.
    """
    nodes = _spliced(timings.units, _dynamic(timings))
    names = {node.name for node in nodes}
    said = [unit_name(unit.name, names) for unit in timings.units]
    unit_of: dict[str, int] = {}
    listed = {loadable.name: loadable.layers for loadable in log.loadables} if log else {}
    for index, (unit, name) in enumerate(zip(timings.units, said, strict=True)):
        if unit.name in names:
            unit_of[unit.name] = index
        members = [m for layer in listed.get(unit.name, ()) for m in unit_name(layer, names).nodes]
        for node in (*name.nodes, *members):
            unit_of.setdefault(node, index)
    _grow(nodes, said, unit_of)
    return NodeOwners(nodes, unit_of)


def _dynamic(timings: Timings) -> list[OnnxNode]:
    live = set(timings.inputs)
    found = []
    for node in timings.nodes:
        read = tuple(name for name in node.inputs if name in live)
        if read and node.kind not in _CONSTANT:
            live.update(node.outputs)
            found.append(OnnxNode(node.name, node.kind, read, node.outputs))
    return found


def _spliced(units: Sequence[UnitTiming], nodes: list[OnnxNode]) -> tuple[OnnxNode, ...]:
    """Returns the nodes with the importer's reshapes inserted as nodes."""
    by_name = {node.name: node for node in nodes}
    order = [node.name for node in nodes]
    for unit in units:
        found = reshape_neighbour(unit.name, by_name)
        if found is None or unit.name in by_name:
            continue
        side, inner = found
        node, place = by_name[inner], order.index(inner)
        if side == "after" and node.outputs:
            # the builder's name for the output of a product made from a convolution
            between = (f"{inner}_conv_out",)
            by_name[inner] = OnnxNode(inner, node.kind, node.inputs, between)
            by_name[unit.name] = OnnxNode(unit.name, "Reshape", between, node.outputs)
            order.insert(place + 1, unit.name)
        elif side == "before" and node.inputs:
            outer = (f"{unit.name}_out",)
            by_name[inner] = OnnxNode(inner, node.kind, (*outer, *node.inputs[1:]), node.outputs)
            by_name[unit.name] = OnnxNode(unit.name, "Reshape", node.inputs[:1], outer)
            order.insert(place, unit.name)
    return tuple(by_name[name] for name in order)


def _grow(nodes: Sequence[OnnxNode], said: Sequence[UnitName], unit_of: dict[str, int]) -> None:
    """Assigns nodes that no name contains to the surrounding subgraph, else to a neighbour."""
    producer = {tensor: node for node in nodes for tensor in node.outputs}
    by_name = {node.name: node for node in nodes}
    for index, name in enumerate(said):
        pending = [by_name[node] for node in name.nodes if name.subgraph]
        while pending:
            for tensor in pending.pop().inputs:
                before = producer.get(tensor)
                if before is not None and before.name not in unit_of:
                    unit_of[before.name] = index
                    pending.append(before)
    # downwards to the producer's unit, then upwards to the first consumer's
    for node in nodes:
        if node.name not in unit_of:
            above = [producer[tensor].name for tensor in node.inputs if tensor in producer]
            held = [unit_of[name] for name in above if name in unit_of]
            if held:
                unit_of[node.name] = max(held)
    for node in reversed(nodes):
        if node.name in unit_of:
            for tensor in node.inputs:
                if tensor in producer:
                    unit_of.setdefault(producer[tensor].name, unit_of[node.name])


@dataclass(frozen=True, slots=True)
class UnitName:
    """The nodes in a unit's name; a subgraph's name has only the first and the last node."""

    subgraph: bool
    nodes: tuple[str, ...]


def unit_name(name: str, nodes: Container[str]) -> UnitName:
    """Parses a unit's name; parts that are not nodes are ignored."""
    match = _FOREIGN.match(name)
    if match is None:
        return UnitName(False, _nodes(name, nodes))
    first, _, last = match[1].partition("...")
    ends = _nodes(last or first, nodes)
    return UnitName(True, tuple(dict.fromkeys((*_nodes(first, nodes), *ends))))


def reshape_neighbour(name: str, nodes: Container[str]) -> tuple[str, str] | None:
    """Returns ("before" or "after", node) of a reshape that the importer put around a node."""
    plain = name.removeprefix("copied_")
    for side, prefixes in _AROUND:
        for prefix in prefixes:
            if plain.startswith(prefix) and plain[len(prefix) :] in nodes:
                return side, plain[len(prefix) :]
    return None


def nodes_between(nodes: Sequence[tuple[Sequence[str], Sequence[str]]]) -> set[int]:
    """Returns the nodes on paths from the first node to the last, inclusive; empty without a path.

    A subgraph contains all these nodes: without any of the nodes it would wait for itself.

    Args:
        nodes: (tensors read, tensors written), in running order.
    """
    below, written = {0}, set(nodes[0][1])
    for i, (reads, writes) in enumerate(nodes):
        if i and not written.isdisjoint(reads):
            below.add(i)
            written.update(writes)
    last = len(nodes) - 1
    if last not in below:
        return set()
    above, read = {last}, set(nodes[last][0])
    for i in reversed(range(last)):
        if i in below and not read.isdisjoint(nodes[i][1]):
            above.add(i)
            read.update(nodes[i][0])
    return above


def _nodes(name: str, nodes: Container[str]) -> tuple[str, ...]:
    if name in nodes:
        return (name,)
    found = []
    for part in _PARTS.split(name):
        piece = part.strip()
        # fusions of pointwise layers are nested
        while piece and piece not in nodes:
            # PWN(PWN(a, b), c)
            if piece.startswith("PWN("):
                piece = piece[len("PWN(") :]
            elif piece.endswith(")"):
                piece = piece[:-1]
            else:
                break
        if piece in nodes:
            found.append(piece)
    return tuple(found)
