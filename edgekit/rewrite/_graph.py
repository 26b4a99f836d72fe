"""Small readings of an ONNX graph that rewrites share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network import Model

__all__ = ["attribute", "constant", "node_called", "nodes_of", "tensor_shape"]


class _Index:
    """A graph by name: what is looked up once a node would be quadratic when searched for."""

    def __init__(self, model: Model) -> None:
        graph = model.proto.graph
        self.shapes = {
            value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
            for value in (*graph.output, *graph.value_info, *graph.input)
        }
        self.nodes = {node.name: node for node in graph.node}
        self.constants = {
            tensor.name: tensor for tensor in graph.initializer if tensor.name not in model.weights
        }


_INDEX: WeakKeyDictionary[Model, _Index] = WeakKeyDictionary()


def _index(model: Model) -> _Index:
    known = _INDEX.get(model)
    if known is None:
        known = _INDEX[model] = _Index(model)
    return known


def nodes_of(model: Model, op: str) -> list[onnx.NodeProto]:
    """Returns the nodes of an operator of the ai.onnx domain, in graph order."""
    return [
        node
        for node in model.proto.graph.node
        if node.op_type == op and node.domain in ("", "ai.onnx")
    ]


def node_called(model: Model, name: str) -> onnx.NodeProto:
    """Returns the node of a name; loading made them unique.

    Raises:
        KeyError: There is none.
    """
    node: onnx.NodeProto = _index(model).nodes[name]
    return node


def tensor_shape(model: Model, name: str) -> tuple[int, ...]:
    """Returns the static shape of an activation tensor; () when it is not one."""
    return _index(model).shapes.get(name, ())


def constant(model: Model, name: str) -> np.ndarray | None:
    """Returns the value of an inline constant, or None."""
    from onnx import numpy_helper

    tensor = _index(model).constants.get(name)
    return None if tensor is None else numpy_helper.to_array(tensor)


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """Returns a node's attribute, or ``default``."""
    from onnx import helper

    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default
