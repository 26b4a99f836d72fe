"""The layers in the bodies of If, Loop and Scan, and how often a body runs.

TensorRT keeps such a node whole on the GPU (IIfConditional, ILoop).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import onnx

from edgekit.errors import ModelError
from edgekit.network.graph import LayerSource, Node, OnnxGraph, node_proto
from edgekit.network.loading.bodies import evaluate_bodies, graphs, trip_count, trip_limit
from edgekit.network.loading.load import emit
from edgekit.network.loading.shapes import Evaluation, outer_scope
from edgekit.network.model import Body, Network

Lower = Callable[[OnnxGraph, str], Network]
_REMEMBERED = 64
# a constant of more values is a weight, which never controls a body
_SMALL = 1024


@dataclass(frozen=True)
class Bodies:
    """The bodies of a node and their number of iterations.

    Attributes:
        bodies: The body of each attribute, in the node's order; empty if any cannot be evaluated.
        trip_count: Iterations of a Loop or a Scan; None if data-dependent.
        trip_limit: Most iterations of a Loop or a Scan; None if unlimited or unknown.
    """

    bodies: tuple[Body, ...]
    trip_count: int | None
    trip_limit: int | None


class _Outer:
    """A node and the outer tensors that it reads; two are equal if their bodies lower equally."""

    def __init__(self, graph: LayerSource, node: Node) -> None:
        self.node = node_proto(node)
        self.scope = outer_scope(graph, node)
        facts: list[object] = [graph.opset, self.node.SerializeToString(deterministic=True)]
        for name in node.reads():
            value = self.scope.value(name)
            facts.append((name, self.scope.type_and_shape(name), value is not None))
            # larger values are weights: their type and shape are enough for equal layers
            if value is not None and value.size <= _SMALL:
                facts.append(value.tobytes())
        self._key = (*facts, graph.plugins)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Outer) and self._key == other._key


def lower_bodies(graph: LayerSource, node: Node, release: str, lower: Lower) -> Bodies:
    """Returns the layers in a node's bodies.

    Args:
        graph: The node's graph.
        node: An If, a Loop or a Scan.
        release: The TensorRT release.
        lower: Returns the layers of a graph in a release.
    """
    return _lower_cached(_Outer(graph, node), release, lower)


@lru_cache(_REMEMBERED)
def _lower_cached(outer: _Outer, release: str, lower: Lower) -> Bodies:
    node = outer.node
    scope = outer.scope
    limit = trip_limit(scope, node) if node.op_type != "If" else None
    try:
        inner = evaluate_bodies(scope, node)
        count = trip_count(scope, node, inner) if node.op_type != "If" else None
        found = tuple(
            Body(name, lower(_body_graph(body, inner[name], scope), release))
            for name, body in graphs(node).items()
        )
    except (ModelError, KeyError):
        # the body cannot be evaluated: its cost is unknown
        return Bodies((), limit if node.op_type == "Scan" else None, limit)
    return Bodies(found, count, limit)


def _body_graph(body: onnx.GraphProto, inner: Evaluation, outer: Evaluation) -> OnnxGraph:
    """Returns the body as a separate graph, with captured tensors as inputs."""
    made = {name for node in inner.nodes for name in node.output}
    fed = dict.fromkeys((*(value.name for value in body.input), *outer.shapes))
    inputs = [name for name in fed if name in inner.shapes and name not in made]
    results = [
        value.name
        for value in body.output
        if value.name not in inputs and inner.value(value.name) is None
    ]
    stripped, weights = emit(inner, inputs, list(dict.fromkeys(results)), body.name, {})
    return OnnxGraph(stripped, weights, outer.own)
