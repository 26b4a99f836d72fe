"""The graph of an ONNX model: lookup of nodes, neighbours, shapes and constants in constant time,
and extraction of sub-models.

Lowering reads any graph that implements :class:`LayerSource`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import count
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.module_names import ModuleNames, read_module_names
from edgekit.network.plugins import Plugin, plugin_for
from edgekit.network.protos import (
    FLOAT,
    LEFT_DOMAIN,
    WITH_BODIES,
    dtype_name,
    is_known,
    is_plugin,
    reads,
)

#: An ONNX node's attributes, or a layer's parameters: numbers, text, lists, protos.
Attributes: TypeAlias = Mapping[str, Any]
#: Reasons for an opaque node: TensorRT needs a plugin for it, a shape is data-dependent, or it
#: replaces a module that is left out of the network.
PLUGIN, SHAPES, LEFT = "plugin", "shapes", "left"
#: Reason for an opaque layer: the parser writes layers unknown to edgekit for an operator of ONNX
#: Runtime or of its own.
IMPORTED = "imported"
_REMEMBERED_FORMS = 1 << 16
_FORM_NUMBERS = count()


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node of a graph.

    Attributes:
        name: Unique in the graph.
        op: ONNX operator.
        inputs: Tensors read, in order; "" for an omitted optional input.
        outputs: Tensors written, in order; "" for an omitted optional output.
        attrs: Attribute values as plain Python values (int, float, str or lists); tensors and
            graphs as their protos.
        domain: "" for ai.onnx.
        proto: The node of the model; None for a node from a rewrite.
        known: Its form, once requested.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Attributes = field(default_factory=dict)
    domain: str = ""
    proto: onnx.NodeProto | None = None
    known: list[int] = field(default_factory=list, init=False, repr=False)

    def input(self, index: int) -> str:
        """Returns the name of an input; "" if omitted."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def reads(self) -> Iterable[str]:
        """Returns every tensor that it reads, including its bodies' captured tensors."""
        if self.proto is not None and self.op in WITH_BODIES:
            return reads(self.proto)
        return [name for name in self.inputs if name]

    def tensors(self) -> tuple[str, ...]:
        """Returns its inputs ("" if omitted), its outputs, and its bodies' captured tensors."""
        if self.op not in WITH_BODIES:
            return (*self.inputs, *self.outputs)
        captured = [name for name in self.reads() if name not in self.inputs]
        return (*self.inputs, *self.outputs, *captured)


def read_node(proto: onnx.NodeProto) -> Node:
    """Returns a node of a model as a Node."""
    attrs = {item.name: _attribute(item) for item in proto.attribute}
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    return Node(
        proto.name, proto.op_type, tuple(proto.input), tuple(proto.output), attrs, domain, proto
    )


def _attribute(item: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(item)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if item.type == item.STRINGS:
        return [part.decode("utf-8", "replace") for part in value]
    return value


def node_proto(node: Node) -> onnx.NodeProto:
    """Returns a node as ONNX's protobuf message."""
    if node.proto is not None:
        return node.proto
    return helper.make_node(
        node.op, node.inputs, node.outputs, name=node.name, domain=node.domain, **node.attrs
    )


def form(node: Node) -> int:
    """Returns a number that is equal for nodes with equal operators and attributes.

    Different forms never have the same number; equal forms may have different numbers after more
    forms than the cache holds.
    """
    # a list in a frozen class: the form is computed once a node
    if not node.known:
        pairs = sorted(node.attrs.items()) if node.attrs else ()
        attrs = tuple((key, _hashable(value)) for key, value in pairs)
        # as text, to distinguish 1 from 1.0
        node.known.append(_form_number(node.op, node.domain, repr(attrs)))
    return node.known[0]


@lru_cache(_REMEMBERED_FORMS)
def _form_number(op: str, domain: str, attrs: str) -> int:
    return next(_FORM_NUMBERS)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, int | float | str | bytes):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    return value.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


class LayerSource(Protocol):
    """The input of lowering: a model's graph, or nodes that do not belong to a model yet."""

    @property
    def name(self) -> str:
        """The graph's name."""

    @property
    def opset(self) -> int:
        """Version of ai.onnx."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Input activations."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Tensors returned."""

    @property
    def opaque(self) -> Mapping[str, str]:
        """Reason of each opaque node (:data:`PLUGIN` or :data:`SHAPES`), by node name."""

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The user's own plugins."""

    def plugin(self, node: Node) -> Plugin | None:
        """Returns the user's own plugin of a node; None for any other node."""

    def nodes(self) -> Iterator[Node]:
        """Yields the nodes in topological order."""

    def activations(self) -> Iterable[str]:
        """Returns the inputs and every tensor that a node writes."""

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Returns the shape of an activation or a constant; unknown sizes are 0."""

    def dtype(self, tensor: str) -> str:
        """Returns the NumPy type name of an activation or a constant; "float32" if unknown."""

    def constant(self, tensor: str) -> bool:
        """Returns True if a tensor's values are stored."""

    def weight(self, tensor: str) -> bool:
        """Returns True if a tensor is a weight, whose values refitting may change."""

    def value(self, tensor: str) -> np.ndarray | None:
        """Returns the values of a constant; None for an activation."""


class OnnxGraph:
    """A model's immutable graph; every lookup takes constant time.

    Attributes:
        proto: ONNX's protobuf message.
        weights: Values of the constants that are weights.
        name: The graph's name.
        opset: Version of ai.onnx.
        inputs: Tensors fed.
        outputs: Tensors returned.
        initializers: The model's constants by name; weights have no data here.
        unknown: Tensors written whose shape is unknown before running.
        opaque: Reason of each opaque node, by name, in graph order.
        plugins: The user's own plugins.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        plugins: tuple[Plugin, ...] = (),
    ) -> None:
        graph = proto.graph
        self.proto = proto
        self.name = graph.name
        self.opset = next(int(item.version) for item in proto.opset_import if not item.domain)
        self.inputs = tuple(value.name for value in graph.input)
        self.outputs = tuple(value.name for value in graph.output)
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.weights = weights
        self.plugins = plugins
        self._nodes = {node.name: read_node(node) for node in graph.node}
        self._producers = {n: node for node in self._nodes.values() for n in node.outputs if n}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._dtypes: dict[str, str] = {}
        known: set[str] = set()
        for value in (*graph.input, *graph.value_info, *graph.output):
            tensor = value.type.tensor_type
            self._shapes[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
            # the type of a plugin's output may be unknown
            self._dtypes[value.name] = dtype_name(tensor.elem_type or FLOAT)
            if is_known(value):
                known.add(value.name)
        self.unknown = {name: None for name in self._producers if name not in known}
        for name in self.unknown:
            self._shapes[name] = self._shapes.get(name) or (0,)
            self._dtypes.setdefault(name, "float32")
        self._activations = tuple(self._shapes)
        for name, initializer in self.initializers.items():
            self._shapes[name] = tuple(initializer.dims)
            self._dtypes[name] = dtype_name(initializer.data_type)
        self.opaque = self._opaque()

    def _opaque(self) -> dict[str, str]:
        found = {}
        there: set[str] = set()
        for node in self._nodes.values():
            assert node.proto is not None
            if node.domain == LEFT_DOMAIN:
                found[node.name] = LEFT
                continue
            # one look-up of each ONNX operator; in other domains the node's form decides
            asked = node.domain or node.op not in there
            if asked and is_plugin(node.proto, self.opset):
                found[node.name] = PLUGIN
                continue
            there.add(node.op)
            if self.unknown and not self.unknown.keys().isdisjoint((*node.reads(), *node.outputs)):
                found[node.name] = SHAPES
        return found

    @cached_property
    def only_on_board(self) -> Mapping[str, str]:
        """The opaque nodes that this machine cannot run: all but plugins with a function."""
        return {
            name: why
            for name, why in self.opaque.items()
            if why != PLUGIN
            or (own := self.plugin(self._nodes[name])) is None
            or own.function is None
            or not self.unknown.keys().isdisjoint(self._nodes[name].outputs)
        }

    def plugin(self, node: Node) -> Plugin | None:
        """Returns the user's own plugin of a node; None for any other node."""
        return plugin_for(self.plugins, node.op, node.domain) if self.plugins else None

    def nodes(self) -> Iterator[Node]:
        """Yields the nodes in topological order."""
        return iter(self._nodes.values())

    def node(self, name: str) -> Node:
        """Returns a node by name; raises KeyError if it does not exist."""
        return self._nodes[name]

    def producer(self, tensor: str) -> Node | None:
        """Returns the node that writes an activation; None for an input or a constant."""
        return self._producers.get(tensor)

    def activations(self) -> Iterable[str]:
        """Returns the inputs and every tensor that a node writes."""
        return self._activations

    @cached_property
    def modules(self) -> ModuleNames | None:
        """The PyTorch modules of the nodes; None if the file names no modules."""
        return read_module_names(self.proto.graph)

    @cached_property
    def tensor_names(self) -> frozenset[str]:
        """Names of the inputs and of all tensors that nodes write."""
        return frozenset((*self.inputs, *self._producers))

    @cached_property
    def readers(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the nodes that read a tensor, in graph order."""
        found: dict[str, list[str]] = {}
        for node in self._nodes.values():
            for name in node.reads():
                found.setdefault(name, []).append(node.name)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def derived(self) -> Mapping[str, onnx.NodeProto]:
        """The nodes that depend only on stored constants, by the tensors that they write."""
        found: dict[str, onnx.NodeProto] = {}
        for node in self._nodes.values():
            if all(self.constant(name) or name in found for name in node.reads()):
                found.update(dict.fromkeys(filter(None, node.outputs), node_proto(node)))
        return found

    @cached_property
    def computed(self) -> tuple[onnx.NodeProto, ...]:
        """The nodes that depend on an activation, in graph order."""
        return tuple(
            node_proto(node)
            for node in self._nodes.values()
            if not any(name in self.derived for name in node.outputs)
        )

    def variable_reads(self, node: onnx.NodeProto) -> list[str]:
        """Returns the tensors that a node reads and that change from inference to inference."""
        return [n for n in reads(node) if not self.constant(n) and n not in self.derived]

    @cached_property
    def values(self) -> Mapping[str, onnx.ValueInfoProto]:
        """Types of the inputs, the outputs and the tensors between them, as far as known."""
        graph = self.proto.graph
        return {v.name: v for v in (*graph.value_info, *graph.input, *graph.output)}

    def is_float32(self, tensor: str) -> bool:
        """Returns True if an activation is float32 or of unknown type."""
        return self._dtypes[tensor] == "float32"

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Returns the static shape of an activation or a constant; unknown sizes are 0."""
        return self._shapes[tensor]

    def dtype(self, tensor: str) -> str:
        """Returns the NumPy type name of a tensor ("float32", "int64", "bool")."""
        return self._dtypes[tensor]

    def nbytes(self, tensor: str) -> int:
        """Returns the number of bytes of a tensor's values; 0 if its shape is unknown."""
        return math.prod(self._shapes[tensor]) * np.dtype(self._dtypes[tensor]).itemsize

    def constant(self, tensor: str) -> bool:
        """Returns True if a tensor's values are stored."""
        return tensor in self.initializers

    def weight(self, tensor: str) -> bool:
        """Returns True if a tensor is a weight, whose values refitting may change."""
        return tensor in self.weights

    def value(self, tensor: str) -> np.ndarray | None:
        """Returns the values of a constant, None for an activation.

        Weights are memory maps: read large weights only if necessary.
        """
        if tensor in self.weights:
            return self.weights[tensor]
        if tensor in self.initializers:
            return numpy_helper.to_array(self.initializers[tensor])
        return None

    def cut(
        self, nodes: Collection[str], inputs: Sequence[str], outputs: Sequence[str]
    ) -> onnx.ModelProto:
        """Returns the sub-model of the named nodes between tensor borders.

        Weights stay stubs, small constants stay inline, and inputs, outputs and inner tensors
        carry their types and static shapes.

        Args:
            nodes: Names of the nodes to keep.
            inputs: Tensors to feed, in this order.
            outputs: Tensors to return, in this order.

        Raises:
            ModelError: ``model.unknown_node``, ``model.unknown_output``, or
                ``model.open_segment`` if a node reads a tensor that is not an input, not computed
                inside and not a constant.
        """
        missing = set(nodes) - self._nodes.keys()
        if missing:
            raise ModelError(
                f"unknown node {min(missing)!r}",
                code="model.unknown_node",
                where=min(missing),
            )
        chosen = [node for node in self._nodes.values() if node.name in nodes]
        infos = self.values
        produced = {name for node in chosen for name in node.outputs if name}
        used: dict[str, None] = {}
        for node in chosen:
            for name in node.reads():
                if name not in produced and name not in inputs and not self.constant(name):
                    raise ModelError(
                        f"node {node.name!r} reads {name!r}, which is not in the segment and not "
                        "one of its inputs",
                        code="model.open_segment",
                        where=node.name,
                    )
                used[name] = None
        for name in (*inputs, *outputs):
            inside = name in produced or name in inputs or self.constant(name)
            if name not in infos or (name in outputs and not inside):
                raise ModelError(
                    f"tensor {name!r} is not an input or output of the segment",
                    code="model.unknown_output",
                    where=name,
                )
        # an output may be a constant that no node of the part reads
        needed = [name for name in dict.fromkeys([*used, *outputs]) if self.constant(name)]
        part = helper.make_graph(
            [node_proto(node) for node in chosen],
            self.name,
            [infos[name] for name in inputs],
            [infos[name] for name in outputs],
            # a constant may also be an input of the part: then it is fed
            [self.initializers[name] for name in needed if name not in inputs],
            value_info=[
                infos[name]
                for node in chosen
                for name in node.outputs
                if name and name not in outputs and name not in inputs
            ],
        )
        return helper.make_model(
            part,
            opset_imports=self.proto.opset_import,
            ir_version=self.proto.ir_version,
            producer_name=self.proto.producer_name,
        )
