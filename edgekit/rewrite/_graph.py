"""Small readings of an ONNX graph that rewrites share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network import Model

__all__ = ["attribute", "constant", "nodes_of", "tensor_shape"]

# looked up once a node, so reading them anew each time would be quadratic
_SHAPES: WeakKeyDictionary[Model, dict[str, tuple[int, ...]]] = WeakKeyDictionary()


def nodes_of(
    model: Model, op: str | None = None, *, names: Sequence[str] | None = None
) -> list[onnx.NodeProto]:
    """Returns the nodes of an operator of the ai.onnx domain, or those called ``names``."""
    wanted = None if names is None else set(names)
    return [
        node
        for node in model.proto.graph.node
        if (op is None or (node.op_type == op and node.domain in ("", "ai.onnx")))
        and (wanted is None or node.name in wanted)
    ]


def tensor_shape(model: Model, name: str) -> tuple[int, ...]:
    """Returns the static shape of an activation tensor; () when it is not one."""
    known = _SHAPES.get(model)
    if known is None:
        graph = model.proto.graph
        known = _SHAPES[model] = {
            value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
            for value in (*graph.output, *graph.value_info, *graph.input)
        }
    return known.get(name, ())


def constant(model: Model, name: str) -> np.ndarray | None:
    """Returns the value of an inline constant, or None."""
    from onnx import numpy_helper

    for tensor in model.proto.graph.initializer:
        if tensor.name == name and name not in model.weights:
            return numpy_helper.to_array(tensor)
    return None


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """Returns a node's attribute, or ``default``."""
    from onnx import helper

    for item in node.attribute:
        if item.name == name:
            return helper.get_attribute_value(item)
    return default
