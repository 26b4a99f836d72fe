"""The ONNX graph seen from the plan: units (a layer's nodes) and segments (units to cut out)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx

from edgekit.errors import BuildError, ModelError
from edgekit.network.opaque import before_opaque
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.network.model import Model, Network
    from edgekit.placement.plan import PlacedLayer


@dataclass(frozen=True, eq=False)
class Unit:
    """A layer's ONNX nodes in graph order, with the activations that cross its border.

    Attributes:
        name: Layer name (a node's name for nodes that no layer claims, such as Dropout).
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
class Cut:
    """One segment to be: its nodes in graph order, its units, and the tensors at its borders.

    ``layers`` are all its layers, inserted ones too.
    """

    device: str
    layers: tuple[str, ...]
    nodes: tuple[onnx.NodeProto, ...]
    units: tuple[Unit, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PlanGraph:
    """Look-ups into a model's graph.

    Attributes:
        nodes: Nodes that depend on an activation, in graph order.
        constants: Node by tensor it writes, for nodes that depend on initializers only.
        initializers: By name; those in ``weights`` are stripped.
        values: Types of inputs, outputs and inner tensors, as far as known.
        readers: Names of the nodes that read a tensor.
    """

    model: Model
    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, onnx.NodeProto]
    initializers: Mapping[str, onnx.TensorProto]
    values: Mapping[str, onnx.ValueInfoProto]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    readers: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, model: Model) -> PlanGraph:
        """Indexes the model's graph."""
        graph = model.proto.graph
        initializers = {tensor.name: tensor for tensor in graph.initializer}
        inputs = tuple(v.name for v in graph.input if v.name not in initializers)
        nodes: list[onnx.NodeProto] = []
        constants: dict[str, onnx.NodeProto] = {}
        for node in graph.node:
            if all(name in initializers or name in constants for name in node_reads(node)):
                constants.update(dict.fromkeys(filter(None, node.output), node))
            else:
                nodes.append(node)
        values = {v.name: v for v in (*graph.value_info, *graph.input, *graph.output)}
        outputs = tuple(v.name for v in graph.output)
        readers: dict[str, list[str]] = {}
        for node in nodes:
            for name in node_reads(node):
                readers.setdefault(name, []).append(node.name)
        return cls(
            model=model,
            nodes=tuple(nodes),
            constants=constants,
            initializers=initializers,
            values=values,
            inputs=inputs,
            outputs=outputs,
            readers={name: tuple(nodes) for name, nodes in readers.items()},
        )

    def activations(self, node: onnx.NodeProto) -> list[str]:
        """Returns the tensors that a node reads and that change from inference to inference."""
        return [
            name
            for name in node_reads(node)
            if name not in self.initializers and name not in self.constants
        ]

    def is_float32(self, name: str) -> bool:
        """Tells whether a tensor is float32 (also when its type is unknown)."""
        value = self.values.get(name)
        return value is None or value.type.tensor_type.elem_type in (0, 1)


def runnable(model: Model, network: Network) -> tuple[Model, Network]:
    """What ONNX Runtime runs of a model, and its layers: all that comes before opaque ones."""
    from edgekit.network.lowering.layers import layers

    part = before_opaque(model)
    return part, network if part is model else layers(part)


def placed_in(
    part: Network, network: Network, layers: Iterable[PlacedLayer]
) -> Iterable[PlacedLayer]:
    """The places of a part's layers; one that the network joins with a later one has that one's."""
    if part is network:
        return layers
    places = {layer.name: layer for layer in layers}
    owners = {n: places[layer.name] for layer in network.layers for n in layer.origin}
    return [
        places.get(layer.name) or replace(owners[layer.origin[0]], name=layer.name)
        for layer in part.layers
    ]


def node_reads(node: onnx.NodeProto) -> list[str]:
    """Returns the tensors that a node reads, those that its subgraphs capture included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        subgraphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
        for graph in subgraphs:
            own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
            for inner in graph.node:
                names += [name for name in node_reads(inner) if name not in own]
                own.update(inner.output)
            names += [v.name for v in graph.output if v.name not in own]
    return list(dict.fromkeys(names))


def cut(graph: PlanGraph, network: Network, layers: Iterable[PlacedLayer]) -> tuple[Cut, ...]:
    """Cuts the graph at the placement's borders.

    Inserted layers have no nodes: a segment of nothing else disappears, its layers are listed
    with the segment of the node that caused them.

    Raises:
        BuildError: A layer or node is missing from the plan, or a segment reads a tensor that
            only a later one writes.
    """
    placed = {layer.name: layer for layer in layers}
    unknown = [layer.name for layer in network.layers if layer.name not in placed]
    if unknown:
        raise BuildError(
            f"the plan does not place {counted(len(unknown), 'layer')}, such as {unknown[0]!r}",
            code="build.plan",
            where=unknown[0],
            hint="plan this model again; the plan is of another one",
        )
    owner: dict[str, PlacedLayer] = {}
    for layer in network.layers:
        for name in layer.nodes:
            owner.setdefault(name, placed[layer.name])
    homes = _origins(graph, owner, list(placed.values()))
    members: dict[int, list[onnx.NodeProto]] = {}
    for node, home in zip(graph.nodes, homes, strict=True):
        members.setdefault(home.segment, []).append(node)
    order = sorted(members)
    by_name = {node.name: home for node, home in zip(graph.nodes, homes, strict=True)}
    listed = _listed(network, placed, set(order), by_name)
    written_in = {
        out: number for number in order for node in members[number] for out in node.output if out
    }
    needed: dict[int, set[str]] = {number: set() for number in order}
    reads: dict[int, list[str]] = {}
    for number in order:
        names = dict.fromkeys(name for node in members[number] for name in graph.activations(node))
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
            outputs_here = [name for name in graph.outputs if name in graph.constants]
        else:
            outputs_here = []
        writes = [out for node in members[number] for out in node.output if out in wanted]
        cuts.append(
            Cut(
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
class _Origin:
    """Where a node runs."""

    unit: str
    device: str
    precision: str
    segment: int


def _origins(
    graph: PlanGraph, owner: Mapping[str, PlacedLayer], placed: list[PlacedLayer]
) -> list[_Origin]:
    """Finds each node's home: its layer's, or for nodes of no layer where its inputs end."""
    if not placed:
        raise ModelError(
            "the network computes nothing: its outputs are constants", code="model.empty_graph"
        )
    first = min(placed, key=lambda layer: layer.segment)
    home_of: dict[str, _Origin] = {}
    homes = []
    for node in graph.nodes:
        layer = owner.get(node.name)
        if layer is not None:
            home = _Origin(layer.name, layer.device, layer.precision, layer.segment)
        else:
            before = [home_of[name] for name in graph.activations(node) if name in home_of]
            last = max(before, key=lambda h: h.segment) if before else None
            home = (
                _Origin(node.name, last.device, last.precision, last.segment)
                if last
                else _Origin(node.name, first.device, first.precision, first.segment)
            )
        home_of.update(dict.fromkeys(node.output, home))
        homes.append(home)
    return homes


def _listed(
    network: Network,
    placed: Mapping[str, PlacedLayer],
    segments: set[int],
    home_of_node: Mapping[str, _Origin],
) -> dict[int, list[str]]:
    """Lists every layer, inserted ones too, under a segment that has nodes."""
    listed: dict[int, list[str]] = {number: [] for number in segments}
    for layer in network.layers:
        number = placed[layer.name].segment
        if number not in segments:
            origins = [home_of_node[n].segment for n in layer.origin if n in home_of_node]
            number = origins[0] if origins else max((s for s in segments if s < number), default=-1)
        if number in listed:
            listed[number].append(layer.name)
    return listed


def _units(
    graph: PlanGraph, nodes: list[onnx.NodeProto], homes: Mapping[str, _Origin]
) -> tuple[Unit, ...]:
    """Groups a segment's nodes by layer, in the order of their first nodes."""
    grouped: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        grouped.setdefault(homes[node.name].unit, []).append(node)
    units = []
    for name, members in grouped.items():
        writes = tuple(out for node in members for out in node.output if out)
        reads = dict.fromkeys(t for node in members for t in graph.activations(node))
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
