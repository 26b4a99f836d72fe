"""Nodes in float64, for proofs and for weights that are derived from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._step import proto_of

if TYPE_CHECKING:
    import numpy as np

    from edgekit.rewrite._types import Node

__all__ = ["evaluate"]


def evaluate(
    nodes: Sequence[Node], feeds: Mapping[str, np.ndarray], opset: int
) -> dict[str, np.ndarray]:
    """Returns every tensor that ``nodes`` write, with floating-point numbers in float64.

    Args:
        nodes: In topological order.
        feeds: What they read from outside, by name; floating-point values of any width.
        opset: Version of ai.onnx.
    """
    import numpy as np
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    written = [name for node in nodes for name in node.outputs if name]
    values = {
        name: value.astype(np.float64) if value.dtype.kind in "fV" else value
        for name, value in feeds.items()
    }
    graph = helper.make_graph(
        [proto_of(node) for node in nodes],
        "float64",
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, v.shape) for name, v in values.items()],
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in written],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made = ReferenceEvaluator(model).run(written, values)
    return dict(zip(written, made, strict=True))
