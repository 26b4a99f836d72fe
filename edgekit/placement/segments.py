"""A plan seen from the ONNX graph: segments to cut out and their units (a layer's nodes)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import onnx

from edgekit.errors import BuildError, ModelError
from edgekit.network.graph import OnnxGraph
from edgekit.network.loading.opaque import before_opaque
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network
from edgekit.placement.plan import PlacedLayer, Plan
from edgekit.text import counted


@dataclass(frozen=True, eq=False)
class Unit:
    """A layer's ONNX nodes in graph order, with the activations that cross its border.

    Attributes:
        name: Layer name (a node's name for nodes without a layer, such as Dropout).
        precision: The plan's: "fp32", "fp16" or "int8".
        reads: Activation tensors that come from outside the unit.
        writes: Tensors that the unit's nodes write.
    """

    name: str
    precision: str
    nodes: tuple[onnx.NodeProto, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def ops(self) -> tuple[str, ...]:
        """ONNX operators of the nodes."""
        return tuple(node.op_type for node in self.nodes)


@dataclass(frozen=True, eq=False)
class Segment:
    """One segment: its nodes in graph order, its units, and the tensors at its borders.

    ``layers`` are all its layers, including inserted layers.
    """

    device: str
    layers: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    units: tuple[Unit, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class SegmentedPlan:
    """A plan of a network with the segments to cut its model into, by plan variant.

    Attributes:
        model: The ONNX model; its nodes are those of the network.
        network: The layers.
        plan: The placement of the layers.
        variants: The segments of each of ``plan.plans``, in running order.
    """

    model: Model
    network: Network
    plan: Plan
    variants: tuple[tuple[Segment, ...], ...]

    @property
    def graph(self) -> OnnxGraph:
        """The model's graph."""
        return self.model.graph

    @cached_property
    def runnable(self) -> SegmentedPlan:
        """The part that ONNX Runtime runs: everything before opaque layers.

        A layer of the part that the network joins with a later layer has that layer's placement.

        Raises:
            ModelError: ``model.opaque`` if no layer comes before opaque layers.
        """
        part = before_opaque(self.model)
        if part is self.model:
            return self
        network = layers(part, self.network.release)
        return SegmentedPlan(
            part,
            network,
            self.plan,
            tuple(
                _cut(part.graph, network, _placed_in(network, self.network, share.layers))
                for share in self.plan.plans
            ),
        )


def cut_segments(model: Model, network: Network, plan: Plan) -> SegmentedPlan:
    """Cuts a model at the borders of a plan.

    Raises:
        BuildError: A layer or node is missing from the plan, or a segment reads a tensor that
            only a later segment writes.
        ModelError: ``model.empty_graph``: the network's outputs are constants.
    """
    variants = (_cut(model.graph, network, share.layers) for share in plan.plans)
    return SegmentedPlan(model, network, plan, tuple(variants))


def _placed_in(
    part: Network, network: Network, placed: Iterable[PlacedLayer]
) -> Iterable[PlacedLayer]:
    places = {layer.name: layer for layer in placed}
    owners = {n: places[layer.name] for layer in network.layers for n in layer.origin}
    return [
        places.get(layer.name) or replace(owners[layer.origin[0]], name=layer.name)
        for layer in part.layers
    ]


def _cut(graph: OnnxGraph, network: Network, layers: Iterable[PlacedLayer]) -> tuple[Segment, ...]:
    """Returns the segments of one placement.

    Inserted layers have no nodes: a segment with only inserted layers disappears, and its layers
    are listed with the segment of the node that caused them.
    """
    placed = {layer.name: layer for layer in layers}
    unknown = [layer.name for layer in network.layers if layer.name not in placed]
    if unknown:
        raise BuildError(
            f"the plan does not place {counted(len(unknown), 'layer')}, such as {unknown[0]!r}",
            code="build.plan",
            where=unknown[0],
            hint="plan this model again; the plan is for another model",
        )
    owner: dict[str, PlacedLayer] = {}
    for layer in network.layers:
        for name in layer.nodes:
            # the first layer of a node that became several
            owner.setdefault(name, placed[layer.name])
    homes = _origins(graph, owner, list(placed.values()))
    members: dict[int, list[onnx.NodeProto]] = {}
    for node, home in zip(graph.computed, homes, strict=True):
        members.setdefault(home.segment, []).append(node)
    order = sorted(members)
    by_name = {node.name: home for node, home in zip(graph.computed, homes, strict=True)}
    listed = _listed(network, placed, set(order), by_name)
    written_in = {
        out: number for number in order for node in members[number] for out in node.output if out
    }
    needed: dict[int, set[str]] = {number: set() for number in order}
    reads: dict[int, list[str]] = {}
    for number in order:
        names = dict.fromkeys(
            name for node in members[number] for name in graph.variable_reads(node)
        )
        reads[number] = [name for name in names if written_in.get(name) != number]
        for name in reads[number]:
            if name in graph.inputs:
                continue
            if name not in written_in or written_in[name] > number:
                raise BuildError(
                    f"segment {number} reads {name!r} before it is written",
                    code="build.order",
                    where=name,
                    hint="the plan's segments are not in running order; plan again",
                )
            needed[written_in[name]].add(name)
    cuts = []
    for number in order:
        wanted = needed[number] | set(graph.outputs)
        if number == order[-1]:
            outputs_here = [
                name for name in graph.outputs if name in graph.derived or graph.constant(name)
            ]
        else:
            outputs_here = []
        writes = [out for node in members[number] for out in node.output if out in wanted]
        cuts.append(
            Segment(
                device=by_name[members[number][0].name].device,
                layers=tuple(listed[number]),
                nodes=tuple(members[number]),
                units=_units(graph, members[number], by_name),
                inputs=tuple(reads[number]),
                outputs=(*writes, *outputs_here),
            )
        )
    return tuple(cuts)


@dataclass(frozen=True, slots=True)
class _NodeAssignment:
    """The unit, device, precision and segment of a node."""

    unit: str
    device: str
    precision: str
    segment: int


def _origins(
    graph: OnnxGraph, owner: Mapping[str, PlacedLayer], placed: list[PlacedLayer]
) -> list[_NodeAssignment]:
    """Returns each node's assignment: its layer's, or its inputs' for a node without a layer."""
    if not placed:
        raise ModelError("all outputs of the network are constants", code="model.empty_graph")
    first = min(placed, key=lambda layer: layer.segment)
    home_of: dict[str, _NodeAssignment] = {}
    homes = []
    for node in graph.computed:
        layer = owner.get(node.name)
        if layer is not None:
            home = _NodeAssignment(layer.name, layer.device, layer.precision, layer.segment)
        else:
            before = [home_of[name] for name in graph.variable_reads(node) if name in home_of]
            # the latest of its inputs: an earlier segment would read a tensor before it is written
            last = max(before, key=lambda h: h.segment) if before else None
            home = (
                _NodeAssignment(node.name, last.device, last.precision, last.segment)
                if last
                else _NodeAssignment(node.name, first.device, first.precision, first.segment)
            )
        home_of.update(dict.fromkeys(node.output, home))
        homes.append(home)
    return homes


def _listed(
    network: Network,
    placed: Mapping[str, PlacedLayer],
    segments: set[int],
    home_of_node: Mapping[str, _NodeAssignment],
) -> dict[int, list[str]]:
    """Returns all layers, including inserted layers, by a segment that has nodes."""
    listed: dict[int, list[str]] = {number: [] for number in segments}
    for layer in network.layers:
        number = placed[layer.name].segment
        if number not in segments:
            origins = [home_of_node[n].segment for n in layer.origin if n in home_of_node]
            # its segment has no nodes: it goes with the node that it was inserted for, else with
            # the segment before
            number = origins[0] if origins else max((s for s in segments if s < number), default=-1)
        if number in listed:
            listed[number].append(layer.name)
    return listed


def _units(
    graph: OnnxGraph, nodes: list[onnx.NodeProto], homes: Mapping[str, _NodeAssignment]
) -> tuple[Unit, ...]:
    """Groups a segment's nodes by layer, in the order of their first nodes."""
    grouped: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        grouped.setdefault(homes[node.name].unit, []).append(node)
    units = []
    for name, members in grouped.items():
        writes = tuple(out for node in members for out in node.output if out)
        reads = dict.fromkeys(t for node in members for t in graph.variable_reads(node))
        units.append(
            Unit(
                name=name,
                precision=homes[members[0].name].precision,
                nodes=tuple(members),
                reads=tuple(t for t in reads if t not in writes),
                writes=writes,
            )
        )
    return tuple(units)
