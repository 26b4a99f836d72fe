"""The shipped light_* graphs, and what their parameters are for.

onnx ships the graphs with every large weight as a ConstantOfShape node and the small ones (up to
64 values) as left-overs of the trained network. Here all of them become parameters with a shape
and a role; nothing of the shipped values is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

__all__ = ["Graph", "Recipe", "shipped"]

# operators that carry a weight unchanged to its user (here: Unsqueeze and Reshape of weights)
_CARRIERS = frozenset({"Unsqueeze", "Reshape"})


@dataclass(frozen=True)
class Graph:
    """A shipped graph without its weight generators.

    Attributes:
        proto: Nodes as shipped, less ConstantOfShape; the image is the only input; no float
            initializers.
        shapes: Shape by parameter name.
        root: Parameter name by any name that carries it (itself, or a reshaped copy).
        carriers: The node that makes a reshaped copy of a parameter, by the copy's name.
        users: Nodes by the name of a tensor they read.
    """

    proto: onnx.ModelProto
    shapes: Mapping[str, tuple[int, ...]]
    root: Mapping[str, str]
    carriers: Mapping[str, onnx.NodeProto]
    users: Mapping[str, tuple[onnx.NodeProto, ...]]

    @property
    def steps(self) -> list[onnx.NodeProto]:
        """The nodes that work on activations, in graph order."""
        return [n for n in self.proto.graph.node if n.output[0] not in self.carriers]

    def parameter(self, node: onnx.NodeProto, index: int) -> str:
        """The parameter that ``node`` reads at ``index``; empty when it has none there."""
        return self.root.get(node.input[index], "") if index < len(node.input) else ""

    def only_user(self, node: onnx.NodeProto, op_type: str) -> onnx.NodeProto | None:
        """The node's one consumer, when there is just one and it is an ``op_type``."""
        users = self.users.get(node.output[0], ())
        return users[0] if len(users) == 1 and users[0].op_type == op_type else None


@dataclass(frozen=True)
class Recipe:
    """What is chosen for each network, between telling inputs apart and surviving INT8.

    Attributes:
        spread: Standard deviation of an image's logits; larger tells inputs apart better and
            shows more of INT8's rounding.
        first_mean: Share of its mean that a filter of the first layer keeps: it answers to
            brightness, of which images have much and noise has little.
        smooth: How much of its mean a later filter gets on top: rounding errors differ from pixel
            to pixel and are averaged away, what tells images apart is not.
    """

    spread: float = 1.3
    first_mean: float = 0.05
    smooth: float = 1.4


def shipped(path: str) -> Graph:
    """Reads one light_*.onnx file and separates its graph from its weights."""
    import onnx
    from onnx import numpy_helper

    proto = onnx.load(path)
    graph = proto.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    shapes: dict[str, tuple[int, ...]] = {}
    nodes = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            dims = numpy_helper.to_array(stored[node.input[0]])
            shapes[node.output[0]] = tuple(int(d) for d in dims)
        else:
            nodes.append(node)
    read = {name for node in nodes for name in node.input}
    kept = []
    for name, tensor in stored.items():
        if name in read and tensor.data_type == onnx.TensorProto.FLOAT:
            shapes[name] = tuple(tensor.dims)
        elif name in read:
            kept.append(tensor)
    inputs = [value for value in graph.input if value.name in read and value.name not in stored]
    for field, values in ((graph.node, nodes), (graph.initializer, kept), (graph.input, inputs)):
        copies = list(values)
        del field[:]
        field.extend(copies)
    return _indexed(proto, shapes)


def _indexed(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    root = {name: name for name in shapes}
    carriers = {}
    users: dict[str, list[Any]] = {}
    for node in proto.graph.node:
        if node.op_type in _CARRIERS and node.input[0] in root:
            root[node.output[0]] = root[node.input[0]]
            carriers[node.output[0]] = node
        for name in node.input:
            users.setdefault(name, []).append(node)
    return Graph(proto, shapes, root, carriers, {k: tuple(v) for k, v in users.items()})
