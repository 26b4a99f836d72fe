"""The rewritten graph as a Model again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.rewrite._step import proto_of

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.rewrite._graph import Graph

__all__ = ["emit"]


def emit(graph: Graph) -> Model:
    """Returns the graph as a Model: recipes folded, weights referenced, shapes inferred."""
    import onnx
    from onnx import numpy_helper

    from edgekit.network import canonical

    source = graph.model
    proto = onnx.ModelProto()
    proto.CopyFrom(source.proto)
    del proto.graph.node[:]
    del proto.graph.value_info[:]
    recipes = {id(node): node for node in graph.recipes().values()}
    proto.graph.node.extend(proto_of(node) for node in (*recipes.values(), *graph.nodes()))
    for item in graph.brought().values():
        proto.graph.initializer.append(numpy_helper.from_array(item.stored(), item.name))
    return canonical(proto, None, source=source.source, weights=source.weights)
