"""A small network with its layers, for the tests of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network


def make(
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, np.ndarray],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    elem: int = 1,
) -> tuple[Model, Network]:
    graph = helper.make_graph(
        list(nodes),
        "toy",
        [helper.make_tensor_value_info(n, elem, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, elem, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model = canonical(proto, None, source="toy")
    return model, layers(model)


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def branches(size: int = 8) -> tuple[Model, Network]:
    """Two convolutions of different range, concatenated, pooled and classified."""
    rng = np.random.default_rng(0)
    weights = {
        "small": (rng.standard_normal((4, 3, 1, 1)) * 0.1).astype(np.float32),
        "large": rng.standard_normal((4, 3, 1, 1)).astype(np.float32),
        "last": rng.standard_normal((5, 8, 1, 1)).astype(np.float32),
    }
    nodes = [
        node("Conv", "x small", "a"),
        node("Conv", "x large", "b"),
        node("Concat", "a b", "joined", axis=1),
        node("MaxPool", "joined", "pooled", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "pooled last", "c"),
        node("Relu", "c", "y"),
    ]
    return make(nodes, weights, {"x": [1, 3, size, size]}, ["y"])
