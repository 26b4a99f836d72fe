"""Which unit of the engine each ONNX node ended in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.buildlog import BuildLog, OnnxNode, Timings, UnitTiming
from edgekit.placement._profile_names import UnitName, around, unit_name

__all__ = ["Owned", "owners"]

# what the builder knows when it builds
_CONSTANT = ("Constant", "Shape", "Size", "ConstantOfShape")


@dataclass(frozen=True)
class Owned:
    """The nodes that compute something from the inputs, in order, and the unit of each."""

    nodes: tuple[OnnxNode, ...]
    unit_of: Mapping[str, int]


def owners(timings: Timings, log: BuildLog | None) -> Owned:
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
    return Owned(nodes, unit_of)


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
    """Puts the importer's reshapes in as nodes of their own."""
    by_name = {node.name: node for node in nodes}
    order = [node.name for node in nodes]
    for unit in units:
        found = around(unit.name, by_name)
        if found is None or unit.name in by_name:
            continue
        side, inner = found
        node, place = by_name[inner], order.index(inner)
        if side == "after" and node.outputs:
            # the builder's name of what a product made of a convolution writes
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
    """Gives what no name holds to the subgraph that it lies in, else to a neighbour."""
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
