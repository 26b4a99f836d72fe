"""Compares edgekit's layers of a model with the network that NVIDIA's parser makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from _parser_layers import parsed_form, read_parameters, same_value, type_name

from edgekit.network.graph import Node, node_proto, read_node
from edgekit.network.loading.bodies import graphs
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Layer, Model, Network
from edgekit.network.operators import operator_table
from edgekit.parsing.table import parse_check
from edgekit_device.build.network import BuilderLayer, map_layers, read_layers
from edgekit_device.build.request import LayerSpec

__all__ = ["Difference", "Parsed", "compare", "parse"]

# of one node several layers that edgekit has one for
_LOOP = {"ITERATOR", "RECURRENCE", "TRIP_LIMIT", "LOOP_OUTPUT"}
_CONDITION = {"CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT"}
# operators that only give a tensor another shape; the builder erases their layers
_SHAPING = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}
_SHUFFLES = {"SHUFFLE", "SQUEEZE", "UNSQUEEZE"}
# layers that the parser writes around a node's own layer: constants, broadcasts, computed shapes
_AROUND = {"CONSTANT", *_SHUFFLES}


@dataclass(frozen=True)
class Difference:
    """A difference between edgekit and NVIDIA's parser.

    Attributes:
        check: The compared property: accepted, kinds, parameters, tensors, constants, map, build or
            answers.
        operator: The ONNX operator; for answers the question.
        ours: edgekit's answer.
        theirs: The answer of NVIDIA's module.
        where: The model's name, and the node or the tensor.
    """

    check: str
    operator: str
    ours: str
    theirs: str
    where: str

    def to_json(self) -> dict[str, str]:
        """As JSON has it."""
        return asdict(self)


class Parsed:
    """The parser's result for a file.

    Attributes:
        network: The INetworkDefinition; its weights live as long as this object.
        errors: (operator, message) of each error; empty where the parser accepts the file.
    """

    def __init__(self, trt: Any, logger: Any, path: Path) -> None:
        self._builder = trt.Builder(logger)
        self.network = self._builder.create_network(0)
        self._parser = trt.OnnxParser(self.network, logger)
        accepted = self._parser.parse_from_file(str(path))
        found = [self._parser.get_error(n) for n in range(self._parser.num_errors)]
        self.errors = [(error.node_operator(), " ".join(error.desc().split())) for error in found]
        if not accepted and not found:
            self.errors = [("", "no reason")]


def parse(trt: Any, logger: Any, path: Path) -> Parsed:
    """Parses a file with NVIDIA's parser."""
    return Parsed(trt, logger, path)


def compare(
    trt: Any, name: str, model: Model, parsed: Parsed
) -> tuple[list[Difference], Counter[str]]:
    """Compares edgekit's facts about a model with the parser's network.

    Returns:
        The differences, and how much was compared: nodes, layers, tensors, constants, mapped.
    """
    counts: Counter[str] = Counter(models=1)
    verdict = parse_check(model.graph, operator_table().newest)
    problem = verdict.problems[0] if verdict.problems else None
    if bool(parsed.errors) != bool(problem):
        operator = parsed.errors[0][0] if parsed.errors else problem.operator if problem else ""
        ours = f"refused: {problem.message}" if problem else "accepted"
        theirs = f"refused: {parsed.errors[0][1]}" if parsed.errors else "accepted"
        return [Difference("accepted", operator, ours, theirs, name)], counts
    if parsed.errors:
        counts["refused by both"] += 1
        return [], counts
    network = layers(model, operator_table().newest)
    comparison = _Comparison(trt, name, model, network, read_layers(parsed.network), counts)
    return [
        *comparison.layers(),
        *comparison.tensors(),
        *comparison.constants(),
        *comparison.mapping(),
    ], counts


@dataclass
class _Comparison:
    trt: Any
    name: str
    model: Model
    network: Network
    built: Sequence[BuilderLayer]
    counts: Counter[str]

    def layers(self) -> Iterator[Difference]:
        """Kinds of layers by node, and the parameters of those of the same kind."""
        theirs: dict[str, list[BuilderLayer]] = {}
        for layer in self.built:
            for name in layer.nodes:
                theirs.setdefault(name, []).append(layer)
        ours: dict[str, list[Layer]] = {}
        for own in self.network.layers:
            for name in own.nodes:
                ours.setdefault(name, []).append(own)
        graph = self.model.graph
        for node in graph.nodes():
            if any(name in graph.derived for name in node.outputs):
                continue  # computed beforehand: its readers have taken it in
            self.counts["nodes"] += 1
            yield from self._node(node, ours.get(node.name, ()), theirs.get(node.name, ()))
        for own in self.network.layers:
            if own.bodies:
                yield from self._bodies(own, graph.node(own.nodes[-1]), theirs)

    def _bodies(
        self, layer: Layer, node: Node, theirs: Mapping[str, Sequence[BuilderLayer]]
    ) -> Iterator[Difference]:
        """The same of the nodes inside of a loop or a conditional."""
        for body in layer.bodies:
            parts = {part.name: part for part in graphs(node_proto(node))[body.name].node}
            for own in body.network.layers:
                part = read_node(parts[own.nodes[-1]]) if own.nodes else None
                if part is None or own.op != part.op:
                    continue
                self.counts["nodes inside"] += 1
                layers = [x for x in body.network.layers if part.name in x.nodes]
                yield from self._node(part, layers, theirs.get(part.name, ()))
                if own.bodies:
                    yield from self._bodies(own, part, theirs)

    def _node(
        self, node: Node, ours: Sequence[Layer], theirs: Sequence[BuilderLayer]
    ) -> Iterator[Difference]:
        where = f"{self.name}: {node.name}"
        if node.op in _SHAPING:
            have = "SHUFFLE" if ours else "nothing"
            kinds = {layer.kind for layer in theirs} & _SHUFFLES
            want = "SHUFFLE" if kinds else _list_kinds([layer.kind for layer in theirs])
            if have != want:
                yield Difference("kinds", node.op, have, want, where)
            return
        own = [
            part
            for layer in ours
            if layer.op == node.op and layer.nodes[-1:] == (node.name,)
            for part in parsed_form(layer.kind, layer.op, layer.params)
        ]
        # in a fused shuffle; a Pad without a layer is one of zeros, which the builder erases
        if not own and node.op != "Pad" and any(layer.kind == "SHUFFLE" for layer in ours):
            own = [("SHUFFLE", {})]
        moved = any(kind == "SHUFFLE" for kind, _ in own)
        found = _group_layers([layer for layer in theirs if moved or layer.kind not in _AROUND])
        have, want = (
            _list_kinds([kind for kind, _ in own]),
            _list_kinds([kind for kind, _ in found]),
        )
        if have != want:
            yield Difference("kinds", node.op, have, want, where)
            return
        for kind in dict.fromkeys(kind for kind, _ in own):
            left = [params for own_kind, params in own if own_kind == kind]
            right = [layer for layer_kind, layer in found if layer_kind == kind]
            for params, layer in zip(left, right, strict=True):
                self.counts["layers"] += 1
                there = read_parameters(self.trt, layer.layer) if layer is not None else {}
                for key in params:
                    if key in there and not same_value(params[key], there[key]):
                        yield Difference(
                            "parameters",
                            node.op,
                            f"{kind}.{key} = {params[key]}",
                            f"{kind}.{key} = {there[key]}",
                            where,
                        )

    def tensors(self) -> Iterator[Difference]:
        """Shapes and types of the model's tensors."""
        graph = self.model.graph
        known = {}
        for layer in self.built:
            for get, count in (
                (layer.layer.get_input, layer.layer.num_inputs),
                (layer.layer.get_output, layer.layer.num_outputs),
            ):
                for tensor in filter(None, map(get, range(count))):
                    known[tensor.name] = tensor
        for name in graph.activations():
            if name in graph.unknown or name in graph.derived or name not in known:
                continue
            self.counts["tensors"] += 1
            producer = graph.producer(name)
            operator = producer.op if producer is not None else ""
            where = f"{self.name}: {name}"
            shape, there = tuple(graph.shape(name)), tuple(known[name].shape)
            if shape != there:
                yield Difference("tensors", operator, f"{shape}", f"{there}", where)
            kind, found = type_name(graph.dtype(name)), known[name].dtype.name
            if kind != found:
                yield Difference("tensors", operator, kind, found, where)

    def constants(self) -> Iterator[Difference]:
        """The constants that stay layers of their own."""
        there = {layer.name: layer for layer in self.built if layer.kind == "CONSTANT"}
        for layer in self.network.constants:
            self.counts["constants"] += 1
            name = layer.outputs[0]
            found = there.get(name)
            where = f"{self.name}: {name}"
            if found is None:
                yield Difference("constants", layer.op, "CONSTANT", "nothing", where)
                continue
            shape = tuple(found.layer.get_output(0).shape)
            if shape != tuple(layer.params["shape"]):
                ours = f"{tuple(layer.params['shape'])}"
                yield Difference("constants", layer.op, ours, f"{shape}", where)

    def mapping(self) -> Iterator[Difference]:
        """Yields builder layers with a node whose layer ``map_layers`` does not find."""
        specs = [
            LayerSpec(
                layer.name,
                layer.builder_name,
                tuple(layer.nodes),
                layer.kind,
                "GPU" if layer.bodies or index % 2 == 0 else "DLA",
                "fp16",
            )
            for index, layer in enumerate(self.network.layers)
        ]
        mapped = map_layers(self.built, specs)
        nodes = {node for layer in self.built for node in layer.nodes}
        plan_layers = {node: {spec.name for spec in specs if node in spec.nodes} for node in nodes}
        for layer in self.built:
            rightful = {name for node in layer.nodes for name in plan_layers.get(node, ())}
            if not rightful:
                continue
            self.counts["mapped"] += 1
            ours = mapped.ours.get(layer.index)
            if ours is None or ours.name not in rightful:
                text = "nothing" if ours is None else ours.name
                where = f"{self.name}: {layer.name}"
                yield Difference("map", layer.kind, text, _list_kinds(sorted(rightful)), where)
        for layer in self.built:
            inside = layer.kind in _LOOP | _CONDITION or set(layer.nodes) & self._inner()
            if inside and mapped.device.get(layer.index) != "GPU":
                where = f"{self.name}: {layer.name}"
                yield Difference("map", layer.kind, "DLA", "inside a loop or conditional", where)
        for name in mapped.lost:
            operator = self.network.layer(name).op
            yield Difference("map", operator, "lost", "", f"{self.name}: {name}")

    def _inner(self) -> set[str]:
        waiting, found = list(self.network.layers), set()
        while waiting:
            for body in waiting.pop().bodies:
                found |= {name for layer in body.network.layers for name in layer.nodes}
                waiting += body.network.layers
        return found


def _group_layers(layers: Sequence[BuilderLayer]) -> list[tuple[str, BuilderLayer | None]]:
    """Kind and layer of each; a loop or a condition is one."""
    found: list[tuple[str, BuilderLayer | None]] = []
    kinds = {layer.kind for layer in layers}
    if kinds & _LOOP:
        return [("LOOP", None)]
    if kinds & _CONDITION:
        return [("CONDITION", None)]
    found += [(layer.kind, layer) for layer in layers]
    return found


def _list_kinds(kinds: Sequence[str]) -> str:
    counted = Counter(kinds)
    parts = [f"{count} {kind}" if count > 1 else kind for kind, count in sorted(counted.items())]
    return ", ".join(parts) or "nothing"
