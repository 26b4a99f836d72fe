"""The graph that rewrites read and change: nodes by name, tensors with static shapes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.network import opaque_nodes
from edgekit.network._graph import reads
from edgekit.network._opaque import unknown_tensors
from edgekit.rewrite._types import Fixed, Node, Step

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network import Model

__all__ = ["Graph", "node_of", "opset_of"]

_OPAQUE = "opaque:"
_WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def node_of(proto: onnx.NodeProto, *, opaque: bool = False) -> Node:
    """Returns a node of a model as a Node; an opaque one has an operator that no rewrite knows."""
    from onnx import helper

    attrs: dict[str, Any] = {}
    for item in proto.attribute:
        value = helper.get_attribute_value(item)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif item.type == item.STRINGS:
            value = [part.decode("utf-8", "replace") for part in value]
        attrs[item.name] = value
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    op = f"{_OPAQUE}{proto.op_type}" if opaque else proto.op_type
    return Node(proto.name, op, tuple(proto.input), tuple(proto.output), attrs, domain, proto)


def opset_of(model: Model) -> int:
    """Returns a model's version of ai.onnx."""
    return next(int(o.version) for o in model.proto.opset_import if not o.domain)


class Graph:
    """A model's graph while it is rewritten; every lookup takes constant time.

    Attributes:
        model: The model it was made of.
        opset: Version of ai.onnx.
        inputs: Tensors fed.
        outputs: Tensors returned.
    """

    def __init__(self, model: Model) -> None:
        from onnx import helper

        graph = model.proto.graph
        self.model = model
        self.opset = opset_of(model)
        self.inputs = tuple(value.name for value in graph.input)
        self.outputs = tuple(value.name for value in graph.output)
        self._returned = frozenset(self.outputs)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._dtypes: dict[str, str] = {}
        self._unknown = unknown_tensors(model.proto)
        opaque = opaque_nodes(model.proto, self._unknown)
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.name in self._unknown:
                continue
            tensor = value.type.tensor_type
            self._shapes[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
            self._dtypes[value.name] = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        for name, tensor in self._initializers.items():
            self._shapes[name] = tuple(tensor.dims)
            self._dtypes[name] = helper.tensor_dtype_to_np_dtype(tensor.data_type).name
        self._fixed: dict[str, Fixed] = {}
        # constants made from constants, by the tensors that they write
        self._recipes: dict[str, Node] = {}
        self._nodes: dict[str, Node] = {}
        self._producer: dict[str, Node] = {}
        self._readers: dict[str, dict[str, Node]] = {}
        # where a node stood in the model; new ones have the place of their anchor
        self._place: dict[str, int] = {}
        self._captured: set[str] = set()
        # what was asked for since somebody cleared it; what is known of tensors besides names
        self.asked_writers: set[str] = set()
        self.asked_readers: set[str] = set()
        self.facts: dict[str, tuple[Hashable, ...]] = {}
        for index, proto in enumerate(graph.node):
            self._add(node_of(proto, opaque=proto.name in opaque), index)

    def known(self, tensor: str) -> bool:
        """Whether a tensor's shape is known before running; of a new one it is."""
        return tensor not in self._unknown

    def nodes(self) -> Iterator[Node]:
        """Yields the nodes about in the model's order; recipes of constants are none of them."""
        return iter(sorted(self._nodes.values(), key=lambda node: self._place[node.name]))

    def has(self, name: str) -> bool:
        """Whether there is a node of this name."""
        return name in self._nodes

    def node(self, name: str) -> Node:
        """Returns a node by name; KeyError when there is none (any more)."""
        return self._nodes[name]

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Returns the static shape of an activation or a constant; KeyError when unknown."""
        return self._shapes[tensor]

    def rank(self, tensor: str) -> int:
        """Returns the number of dimensions of a tensor."""
        return len(self._shapes[tensor])

    def dtype(self, tensor: str) -> str:
        """Returns the NumPy type name of a tensor ("float32", "int64", "bool")."""
        return self._dtypes[tensor]

    def floats(self, tensor: str) -> bool:
        """Whether a tensor holds floating-point numbers (of 16 or 32 bits)."""
        return self._dtypes.get(tensor) in {"float32", "float16"}

    def constant(self, tensor: str) -> bool:
        """Whether a tensor is known before running: stored, brought along or derived."""
        return tensor in self._initializers or tensor in self._fixed or tensor in self._recipes

    def value(self, tensor: str) -> np.ndarray | None:
        """Returns the value of a constant, None for an activation.

        Weights are memory maps: look at large ones only where it must be.
        """
        from onnx import numpy_helper

        if tensor in self._fixed:
            return self._fixed[tensor].value
        if tensor in self.model.weights:
            return self.model.weights[tensor]
        if tensor in self._initializers:
            return numpy_helper.to_array(self._initializers[tensor])
        if tensor in self._recipes:
            from edgekit.rewrite._float64 import evaluate

            recipe = self._recipes[tensor]
            feeds = {n: v for n in recipe.inputs if n and (v := self.value(n)) is not None}
            made = evaluate([recipe], feeds, self.opset)[tensor]
            # a view of a large weight stays one
            return made.astype(self._dtypes[tensor], copy=False)
        return None

    def ints(self, tensor: str) -> list[int] | None:
        """Returns the integers of a constant, flat; None for an activation or ""."""
        value = self.value(tensor) if tensor else None
        return None if value is None else [int(item) for item in value.reshape(-1)]

    def scalar(self, tensor: str) -> float | None:
        """Returns the only element of a constant; None when it has several or is computed."""
        value = self.value(tensor) if tensor else None
        return None if value is None or value.size != 1 else float(value.reshape(-1)[0])

    def producer(self, tensor: str) -> Node | None:
        """Returns the node that writes an activation; None for an input or a constant."""
        self.asked_writers.add(tensor)
        return self._producer.get(tensor)

    def readers(self, tensor: str) -> tuple[Node, ...]:
        """Returns the nodes that read a tensor."""
        self.asked_readers.add(tensor)
        return tuple(self._readers.get(tensor, {}).values())

    def only_reader(self, tensor: str) -> Node | None:
        """Returns the one node that reads an activation that nothing else needs; else None."""
        self.asked_readers.add(tensor)
        readers = self._readers.get(tensor, {})
        if len(readers) != 1 or tensor in self._returned or tensor in self._captured:
            return None
        return next(iter(readers.values()))

    def inner(self, tensor: str, nodes: Iterable[Node]) -> bool:
        """Whether only ``nodes`` read a tensor and the graph does not return it."""
        needed = tensor in self._returned or tensor in self._captured
        return not needed and self.read_within(tensor, {node.name for node in nodes})

    def read_within(self, tensor: str, names: Collection[str]) -> bool:
        """Whether all readers of a tensor are among the nodes called ``names``."""
        self.asked_readers.add(tensor)
        return all(name in names for name in self._readers.get(tensor, ()))

    def returned(self, tensor: str) -> bool:
        """Whether the graph returns a tensor."""
        return tensor in self._returned

    def taken(self, tensor: str) -> bool:
        """Whether a tensor of this name exists."""
        return tensor in self._shapes or tensor in self._unknown

    def recipe(self, tensor: str) -> Node | None:
        """Returns the node that derives a constant from others; None for any other tensor."""
        return self._recipes.get(tensor)

    def fixed(self, tensor: str) -> Fixed | None:
        """Returns a constant that a rewrite brought along; None for any other tensor."""
        return self._fixed.get(tensor)

    def recipes(self) -> Mapping[str, Node]:
        """The recipes by the constants that they derive, in the order in which they came."""
        return self._recipes

    def brought(self) -> Mapping[str, Fixed]:
        """The constants that rewrites brought along, by name."""
        return self._fixed

    def initializer(self, tensor: str) -> onnx.TensorProto | None:
        """Returns the model's own initializer of a name."""
        return self._initializers.get(tensor)

    def apply(self, step: Step) -> None:
        """Replaces ``step.old`` by ``step.new``."""
        place = self._place[step.anchor]
        for node in step.old:
            self._remove(node)
        for name in step.shapes:
            self.facts.pop(name, None)
        self._shapes |= step.shapes
        self._dtypes |= step.dtypes
        for item in step.fixed:
            self._fixed[item.name] = item
            self._shapes[item.name], self._dtypes[item.name] = item.value.shape, item.dtype
        for node in step.new:
            self._add(node, place)

    def _add(self, node: Node, place: int) -> None:
        read = [name for name in node.inputs if name]
        if node.proto is None and read and all(self.constant(name) for name in read):
            for name in node.outputs:
                self._recipes[name] = node
            return
        self._nodes[node.name] = node
        self._place[node.name] = place
        for name in node.outputs:
            if name:
                self._producer[name] = node
        if node.proto is not None and node.proto.op_type in _WITH_BODIES:
            read = reads(node.proto)
            self._captured.update(set(read) - set(node.inputs))
        for name in read:
            self._readers.setdefault(name, {})[node.name] = node

    def _remove(self, node: Node) -> None:
        del self._nodes[node.name], self._place[node.name]
        for name in node.outputs:
            if self._producer.get(name) is node:
                del self._producer[name]
        for name in node.inputs:
            self._readers.get(name, {}).pop(node.name, None)
