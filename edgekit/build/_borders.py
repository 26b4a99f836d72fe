"""Where kernels begin and end: what leaves a unit, what never leaves a fused INT8 kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgekit.build._graph import Cut, Graph, Unit
from edgekit.dla import int8_operators

__all__ = ["float_results", "inside_kernels", "leaving"]


def leaving(graph: Graph, unit: Unit) -> list[str]:
    """Returns the unit's tensors that other units or the caller may read."""
    inner = {name for node in unit.nodes for name in graph.activations(node)}
    names = {node.name for node in unit.nodes}
    return [
        name
        for name in unit.writes
        if name not in inner
        or name in graph.outputs
        or any(reader not in names for reader in graph.readers.get(name, ()))
    ]


def _computes(unit: Unit) -> bool:
    """Tells whether the unit ends in arithmetic, so that its result first exists in FP32."""
    ops = int8_operators()
    return unit.ops[-1] in ops.computing and set(unit.ops) <= ops.computing | ops.moving


def float_results(graph: Graph, cuts: tuple[Cut, ...], precision: Mapping[str, str]) -> set[str]:
    """Returns what INT8 kernels on the GPU write as floats, since no INT8 unit reads it."""
    unit_of = {node.name: unit.name for cut in cuts for unit in cut.units for node in unit.nodes}
    found: set[str] = set()
    for segment in cuts:
        if segment.device != "GPU":
            continue
        for unit in segment.units:
            if precision[unit.name] == "int8" and _computes(unit):
                found.update(
                    name
                    for name in leaving(graph, unit)
                    if not any(
                        precision[unit_of[reader]] == "int8"
                        for reader in graph.readers.get(name, ())
                    )
                )
    return found


def inside_kernels(graph: Graph, cuts: tuple[Cut, ...], precision: Mapping[str, str]) -> set[str]:
    """Returns the tensors that never leave a fused INT8 kernel."""
    inside: set[str] = set()
    for segment in cuts:
        writer = {name: unit for unit in segment.units for name in unit.writes}
        place = {unit.name: number for number, unit in enumerate(segment.units)}
        unit_of = {node.name: unit for unit in segment.units for node in unit.nodes}
        for unit in segment.units:
            if precision[unit.name] != "int8" or not set(unit.ops) <= int8_operators().pointwise:
                continue
            eligible: list[str] = []
            for name in unit.reads:
                source = writer.get(name)
                if (
                    source is not None
                    and precision[source.name] == "int8"
                    and _computes(source)
                    and name not in segment.outputs
                    and all(unit_of.get(reader) is unit for reader in graph.readers[name])
                ):
                    eligible.append(name)
            if eligible:
                # a sum of two chains: the later one goes on, the earlier is read back as INT8
                inside.add(max(eligible, key=_by_place(place, writer)))
    return inside


def _by_place(place: Mapping[str, int], writer: Mapping[str, Unit]) -> Callable[[str], int]:
    return lambda name: place[writer[name].name]
