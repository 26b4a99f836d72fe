"""What weights do not say: small constants and attributes, which a refit cannot change."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network import Model

__all__ = ["built_in", "operators_of", "parameters_of"]

_LONGEST = 200
_DIGITS = 32


def parameters_of(model: Model) -> dict[str, str]:
    """Returns a digest of each constant that is no weight, by name: bounds, axes, masks."""
    return {name: _digest(value) for name, value in built_in(model).items()}


def built_in(model: Model) -> dict[str, np.ndarray]:
    """Returns the constants that engines have built in: all that are no weights, by name."""
    from onnx import numpy_helper

    return {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.proto.graph.initializer
        if tensor.name not in model.weights
    }


def operators_of(model: Model) -> dict[str, int]:
    """Returns how many nodes of each operator and attributes there are; bodies are left out.

    Names of nodes and tensors are no part of it, so that another export of the same network has
    the same.
    """
    return dict(sorted(Counter(_described(node) for node in model.proto.graph.node).items()))


def _digest(value: np.ndarray) -> str:
    import hashlib

    import numpy as np

    if value.dtype.kind == "O":  # texts
        return hashlib.sha256(repr(value.tolist()).encode()).hexdigest()[:_DIGITS]
    data = np.ascontiguousarray(value)
    data = data.astype(data.dtype.newbyteorder("<"), copy=False)
    head = f"{value.dtype.name}{list(value.shape)}"
    return hashlib.sha256(head.encode() + data.tobytes()).hexdigest()[:_DIGITS]


def _described(node: onnx.NodeProto) -> str:
    import hashlib

    from onnx import helper

    parts = []
    for item in sorted(node.attribute, key=lambda item: item.name):
        if item.type in (item.GRAPH, item.GRAPHS):
            continue
        value = helper.get_attribute_value(item)
        if hasattr(value, "SerializeToString"):
            value = hashlib.sha256(value.SerializeToString(deterministic=True)).hexdigest()[
                :_DIGITS
            ]
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        parts.append(f"{item.name}={list(value) if isinstance(value, tuple) else value}")
    text = " ".join([f"{node.domain}.{node.op_type}" if node.domain else node.op_type, *parts])
    if len(text) > _LONGEST:
        return f"{node.op_type} {hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"
    return text
