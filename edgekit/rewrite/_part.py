"""A few nodes of a graph as a network of their own, to be judged alone."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from edgekit.rewrite._forms import form
from edgekit.rewrite._step import in_order, proto_of

if TYPE_CHECKING:
    from edgekit.network import Network
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Node, Step

__all__ = ["Around", "Part", "around", "parts"]

#: The writers of what a step reads and the readers of what it writes.
Around: TypeAlias = "tuple[list[Node], list[Node]]"

# neighbours that may have any number of tensors, of which so many are looked at
_WIDE = frozenset({"Concat", "Max", "Mean", "Min", "Split", "Sum"})
_MANY = 8
_FEW = 3

# constants of up to this many elements say how an operator works; larger ones are weights
_SMALL = 64
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# whose floating-point constants the layers depend on; all others' are weights, of any size
# (of the last ones, whether all elements are the same)
_READS_FLOATS = frozenset(
    {"Clip", "Pad", "Resize", "Upsample", "Div", "Equal", "Greater", "Less", "Pow"}
)


class Part:
    """Nodes with what they read and write.

    Attributes:
        nodes: In topological order, recipes left out.
        returned: Tensors that are read outside or returned.
    """

    def __init__(
        self, graph: Graph, nodes: Sequence[Node], returned: Collection[str], step: Step | None
    ) -> None:
        self.nodes = nodes
        self.returned = returned
        self._graph = graph
        self._step = step
        self._telling = {n for node in nodes if node.op in _READS_FLOATS for n in node.inputs}
        self._brought = {item.name: item for item in step.fixed} if step else {}
        self._derived = (
            {n for node in step.new if node.name in step.recipes for n in node.outputs}
            if step
            else set()
        )

    def key(self) -> Hashable:
        """Returns what a verdict depends on: structure, attributes, shapes, small constants."""
        number = {"": -1}
        # flat: in these, a form is followed by the node's tensors, which are numbers, or facts
        # where they are met first, and by how many of them are read
        rows: list[Hashable] = []
        returned = self.returned
        for node in self.nodes:
            rows.append(form(node))
            for name in (*node.inputs, *node.outputs):
                known = number.get(name)
                if known is None:
                    number[name] = len(number)
                    rows += (self.facts(name), name in returned)
                else:
                    rows.append(known)
            rows.append((len(node.inputs), len(node.outputs)))
        return tuple(rows)

    def facts(self, tensor: str) -> tuple[Hashable, ...]:
        """Returns a tensor's shape, type, and what is seen of its value."""
        if not self._graph.known(tensor):
            return ()
        step = self._step
        own = tensor in self._brought or (step is not None and tensor in step.shapes)
        if own or tensor in self._telling:
            return self.shape(tensor), self.dtype(tensor), self._small(tensor)
        # those of the graph's tensors are kept
        known = self._graph.facts.get(tensor)
        if known is None:
            known = self.shape(tensor), self.dtype(tensor), self._small(tensor)
            self._graph.facts[tensor] = known
        return known

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Returns a tensor's shape."""
        if self._step is not None and tensor in self._step.shapes:
            return self._step.shapes[tensor]
        if tensor in self._brought:
            return tuple(self._brought[tensor].value.shape)
        return self._graph.shape(tensor)

    def dtype(self, tensor: str) -> str:
        """Returns a tensor's NumPy type name."""
        if self._step is not None and tensor in self._step.dtypes:
            return self._step.dtypes[tensor]
        if tensor in self._brought:
            return self._brought[tensor].dtype
        return self._graph.dtype(tensor)

    def constant(self, tensor: str) -> bool:
        """Whether a tensor is known before running."""
        return tensor in self._brought or tensor in self._derived or self._graph.constant(tensor)

    def network(self) -> Network:
        """Returns the layers of the part."""
        import numpy as np
        import onnx
        from onnx import helper, numpy_helper

        from edgekit.network import Model, layers

        written = {n for node in self.nodes for n in node.outputs if n}
        read = dict.fromkeys(n for node in self.nodes for n in node.inputs if n)
        inputs = [n for n in read if n not in written and not self.constant(n)]
        infos = {n: self._info(n) for n in (*inputs, *written)}
        constants, weights = [], {}
        for name in read:
            if name in written or name in infos:
                continue
            value = self._value(name)
            if value is not None:
                constants.append(numpy_helper.from_array(value, name))
                continue
            elem = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype(name)))
            stub = onnx.TensorProto(name=name, data_type=elem, dims=self.shape(name))
            stub.data_location = onnx.TensorProto.EXTERNAL
            constants.append(stub)
            weights[name] = np.broadcast_to(np.zeros((), self.dtype(name)), self.shape(name))
        ends = [n for node in self.nodes for n in node.outputs if n in self.returned]
        graph = helper.make_graph(
            [proto_of(node) for node in self.nodes],
            "part",
            [infos[n] for n in inputs],
            [infos[n] for n in ends],
            constants,
            value_info=[infos[n] for n in infos if n not in self.returned and n in written],
        )
        opsets = [helper.make_opsetid("", self._graph.opset)]
        opsets += [o for o in self._graph.model.proto.opset_import if o.domain]
        proto = helper.make_model(graph, opset_imports=opsets)
        return layers(Model(proto, weights, "", "part"))

    def _info(self, name: str) -> Any:
        import numpy as np
        import onnx
        from onnx import helper

        if not self._graph.known(name):
            return onnx.ValueInfoProto(name=name)
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype(name)))
        return helper.make_tensor_value_info(name, elem, self.shape(name))

    def _value(self, name: str) -> Any:
        import numpy as np

        if not self._inline(name):
            return None
        if not self._tells(name):
            return np.zeros(self.shape(name), self.dtype(name))
        item = self._brought.get(name) or self._graph.fixed(name)
        return item.stored() if item else self._graph.value(name)

    def _inline(self, name: str) -> bool:
        if name in self._derived or self._graph.recipe(name) is not None:
            return False
        return math.prod(self.shape(name)) <= _SMALL

    def _tells(self, name: str) -> bool:
        return name in self._telling or self.dtype(name) not in _FLOATS

    def _small(self, name: str) -> Hashable:
        if not self.constant(name):
            return None
        if not self._inline(name):
            return "weight"
        return self._value(name).tobytes() if self._tells(name) else "number"


def parts(graph: Graph, step: Step, beside: Around) -> tuple[Part, Part]:
    """Returns what a step takes away and what it brings, each with the nodes beside it."""
    made = [node for node in step.new if node.name not in step.recipes]
    return _part(graph, beside, step.old, None), _part(graph, beside, made, step)


def _part(graph: Graph, beside: Around, nodes: Iterable[Node], step: Step | None) -> Part:
    # one neighbour may read another's result, beside the step
    chosen = in_order([*beside[0], *nodes, *beside[1]])
    own = {node.name for node in nodes} | {node.name for side in beside for node in side}
    inside = {name for node in chosen for name in node.inputs}
    written = frozenset(step.outputs if step else ())
    returned = set()
    for node in chosen:
        for name in node.outputs:
            if name and (
                graph.returned(name)
                or name not in inside
                or (name not in written and not graph.read_within(name, own))
            ):
                returned.add(name)
    return Part(graph, chosen, returned, step)


def around(graph: Graph, step: Step) -> Around:
    """Returns the writers of what the step reads and the readers of what it writes."""
    gone = {node.name for node in step.old}
    before: dict[str, Node] = {}
    for name in step.inputs:
        producer = graph.producer(name)
        if producer is not None and producer.name not in gone:
            before[producer.name] = producer
    after: dict[str, Node] = {}
    for name in step.outputs:
        for reader in graph.readers(name):
            if reader.name not in gone and reader.name not in before:
                after[reader.name] = reader
    touched = {*step.inputs, *step.outputs}
    before_, after_ = (
        [_narrow(node, touched) for node in side.values()] for side in (before, after)
    )
    return before_, after_


def _narrow(node: Node, touched: Collection[str]) -> Node:
    """A neighbour of many tensors with those that the step touches and a few more.

    Its verdict is that of the whole one; looking at all of them for each would be quadratic.
    """
    if node.op not in _WIDE or max(len(node.inputs), len(node.outputs)) <= _MANY:
        return node
    return replace(
        node,
        inputs=_some(node.inputs, touched),
        outputs=_some(node.outputs, touched),
        proto=None,
    )


def _some(tensors: Sequence[str], touched: Collection[str]) -> tuple[str, ...]:
    others = [name for name in tensors if name not in touched][:_FEW]
    return tuple(name for name in tensors if name in touched or name in others)
