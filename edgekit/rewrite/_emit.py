"""The rewritten graph as a Model again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.network._forms import elem_of
from edgekit.rewrite._step import proto_of

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model
    from edgekit.rewrite._graph import Graph
    from edgekit.rewrite._types import Fixed

__all__ = ["emit"]


def emit(graph: Graph) -> Model:
    """Returns the graph as a Model: recipes folded, weights referenced.

    The shapes of what nodes write were inferred when a step wrote them, and hold.
    """
    import onnx

    from edgekit.network import canonical, joined_weights

    source = graph.model
    old = source.proto
    proto = onnx.ModelProto(ir_version=old.ir_version, opset_import=old.opset_import)
    proto.metadata_props.extend(old.metadata_props)
    proto.graph.name = old.graph.name
    proto.graph.input.extend(old.graph.input)
    proto.graph.output.extend(old.graph.output)
    proto.graph.initializer.extend(old.graph.initializer)
    recipes = {id(node): node for node in graph.recipes().values()}
    nodes = (*recipes.values(), *graph.nodes())
    proto.graph.node.extend(proto_of(node) for node in nodes)
    brought = {name: _stored(item) for name, item in graph.brought().items()}
    weights = joined_weights(brought, source.weights, list(source.weights))
    written = [name for node in nodes for name in node.outputs if name]
    known = {name: _form(graph, name) for name in written if graph.known(name)}
    # what is said of the type of tensors without a known shape
    proto.graph.value_info.extend(v for v in old.graph.value_info if not graph.known(v.name))
    return canonical(proto, None, source=source.source, weights=weights, known=known)


def _stored(item: Fixed) -> np.ndarray:
    import numpy as np

    return np.asarray(item.stored(), order="C")


def _form(graph: Graph, tensor: str) -> tuple[int, tuple[int, ...]]:
    import numpy as np

    return elem_of(np.dtype(graph.dtype(tensor))), tuple(graph.shape(tensor))
