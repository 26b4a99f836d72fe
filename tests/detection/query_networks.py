"""Small detectors with queries, rebuilt with the structure of the real ones and random weights.

A convolution makes tokens of the picture; the queries attend to each other and to the tokens; a
linear layer gives logits, and an MLP the boxes. Weights are large enough for scores that spread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.network.loading.load import canonical
from edgekit.network.model import Model

__all__ = ["BATCH", "CLASSES", "HEIGHT", "KEPT", "NETWORKS", "QUERIES", "WIDTH", "Net", "model"]

BATCH, HEIGHT, WIDTH = 2, 64, 96
QUERIES, CLASSES, KEPT = 60, 5, 80
_SIZE = 16


@dataclass
class Net:
    """Nodes and weights of a network as they are written."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    integers: set[str] = field(default_factory=set)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attrs: object) -> str:
        """Writes a node, and returns its first output; others end with ".1" and so on."""
        name = f"t{len(self.nodes)}"
        names = [name, *(f"{name}.{one}" for one in range(1, outputs))]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"{op}_{name}", **attrs))
        return name

    def constant(self, values: object, dtype: type = np.float32) -> str:
        """Adds a constant."""
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(values, dtype)
        return name

    def ints(self, *values: int) -> str:
        """Adds a constant of axes or sizes."""
        return self.constant(values, np.int64)

    def linear(self, tensor: str, size: int, out: int, scale: float = 1.0) -> str:
        """Writes a linear layer, as PyTorch's exporters do."""
        drawn = self.random.standard_normal((size, out)) * scale / np.sqrt(size)
        product = self("MatMul", tensor, self.constant(drawn))
        return self("Add", self.constant(self.random.standard_normal(out)), product)

    def attend(self, queries: str, tokens: str) -> str:
        """Writes attention and the sum with what it was asked for."""
        keys = self("Transpose", self.linear(tokens, _SIZE, _SIZE), perm=[0, 2, 1])
        weights = self("Softmax", self("MatMul", self.linear(queries, _SIZE, _SIZE), keys), axis=-1)
        return self("Add", queries, self("MatMul", weights, self.linear(tokens, _SIZE, _SIZE)))

    def features(self, attention: bool = True) -> str:
        """Writes what is before the heads: [batch, queries, 16]."""
        kernel = self.constant(self.random.standard_normal((_SIZE, 3, 16, 16)) / 16)
        grid = self("Conv", "images", kernel, strides=[16, 16])
        flat = self("Reshape", grid, self.ints(BATCH, _SIZE, -1))
        tokens = self("Transpose", flat, perm=[0, 2, 1])
        learned = self.constant(self.random.standard_normal((1, QUERIES, _SIZE)))
        queries = self("Expand", learned, self.ints(BATCH, QUERIES, _SIZE))
        if attention:
            queries = self.attend(queries, tokens)
            queries = self.attend(queries, queries)
        else:
            queries = self("Add", queries, self("ReduceMean", tokens, self.ints(1), keepdims=1))
        scale, shift = self.constant(np.ones(_SIZE)), self.constant(np.zeros(_SIZE))
        return self("LayerNormalization", queries, scale, shift, axis=-1)

    def mlp(self, tensor: str) -> str:
        """Writes the layers of a box."""
        return self.linear(self("Relu", self.linear(tensor, _SIZE, _SIZE)), _SIZE, 4, 2.0)

    def logits(self, tensor: str, classes: int = CLASSES) -> str:
        """Writes the layer of classes."""
        return self.linear(tensor, _SIZE, classes, 3.0)

    def stacked(self, *tensors: str) -> str:
        """Writes a stack of the decoder's layers and the selection of the last."""
        ones = [self("Unsqueeze", one, self.ints(1)) for one in tensors]
        return self("Gather", self("Concat", *ones, axis=1), self.constant(-1, np.int64), axis=1)

    def referred(self, features: str) -> tuple[str, str]:
        """Writes boxes that are added to reference points, and RT-DETR's first guess of them."""
        first = self("Sigmoid", self.mlp(features))
        low, one = self.constant(1e-5), self.constant(1.0)
        above = self("Clip", self("Sub", one, first), low)
        inverse = self("Log", self("Div", self("Clip", first, low), above))
        return self("Sigmoid", self("Add", self.mlp(features), inverse)), first

    def chosen(self, boxes: str, scores: str, classes: int) -> tuple[str, str, str]:
        """Writes the choice of the best pairs: boxes, their scores and their classes."""
        flat = self("Flatten", scores, axis=1)
        best = self("TopK", flat, self.ints(KEPT), outputs=2, axis=1)
        count = self.constant(classes, np.int64)
        query = self("Div", f"{best}.1", count)
        number = self("Sub", f"{best}.1", self("Mul", query, count))
        self.integers.add(number)
        index = self("Unsqueeze", query, self.ints(-1))
        index = self("Expand", index, self.ints(BATCH, KEPT, 4))
        return self("GatherElements", boxes, index, axis=1), best, number


def _detr(net: Net) -> list[str]:
    features = net.features()
    return [net.logits(features), net("Sigmoid", net.mlp(features))]


def _softmax(net: Net) -> list[str]:
    logits, boxes = _detr(net)
    return [net("Softmax", logits, axis=-1), boxes]


def _conditional(net: Net) -> list[str]:
    features = net.features()
    centre = net.constant(net.random.standard_normal((1, QUERIES, 2)))
    raw = net.mlp(features)
    place = net("Add", net("Slice", raw, net.ints(0), net.ints(2), net.ints(2)), centre)
    size = net("Slice", raw, net.ints(2), net.ints(4), net.ints(2))
    return [net.logits(features), net("Sigmoid", net("Concat", place, size, axis=-1))]


def _rtdetr(net: Net) -> list[str]:
    features = net.features()
    boxes, first = net.referred(features)
    logits = net.logits(features)
    return [net.stacked(net.logits(features), logits), net.stacked(first, boxes)]


def _dfine(net: Net) -> list[str]:
    features = net.features()
    half, two = net.constant(0.2), net.constant(2.0)
    centre = net("Sigmoid", net.linear(features, _SIZE, 2))
    far = net("Mul", net("Sigmoid", net.linear(features, _SIZE, 2)), half)
    near, corner = net("Sub", centre, far), net("Add", centre, far)
    split = net.ints(1, 1)
    left = net("Split", near, split, outputs=2, axis=-1)
    right = net("Split", corner, split, outputs=2, axis=-1)
    sides = [(left, right), (f"{left}.1", f"{right}.1")]
    centres = [net("Div", net("Add", low, high), two) for low, high in sides]
    sizes = [net("Sub", high, low) for low, high in sides]
    boxes = net("Concat", *centres, *sizes, axis=-1)
    quality = net.linear(features, _SIZE, 1)
    return [net("Add", net.logits(features), quality), boxes]


def _side_by_side(net: Net) -> list[str]:
    features = net.features()
    boxes, _ = net.referred(features)
    return [net("Concat", boxes, net("Sigmoid", net.logits(features)), axis=-1)]


def _kept(net: Net) -> list[str]:
    features = net.features()
    boxes, _ = net.referred(features)
    scores = net("Sigmoid", net.logits(features))
    chosen, best, number = net.chosen(boxes, scores, CLASSES)
    column = net("Unsqueeze", best, net.ints(-1))
    classes = net("Cast", net("Unsqueeze", number, net.ints(-1)), to=onnx.TensorProto.FLOAT)
    return [net("Concat", chosen, column, classes, axis=-1)]


def _processed(net: Net) -> list[str]:
    features = net.features()
    boxes, _ = net.referred(features)
    scores = net("Sigmoid", net.logits(features))
    parts = net("Split", boxes, net.ints(2, 2), outputs=2, axis=-1)
    half = net("Mul", f"{parts}.1", net.constant(0.5))
    corners = net("Concat", net("Sub", parts, half), net("Add", parts, half), axis=-1)
    sizes = net("Cast", "sizes", to=onnx.TensorProto.FLOAT)
    pixels = net("Unsqueeze", net("Concat", sizes, sizes, axis=1), net.ints(1))
    chosen, best, number = net.chosen(net("Mul", corners, pixels), scores, CLASSES)
    return [number, chosen, best]


#: The nodes of each by the network whose structure it has; outputs are what it returns.
NETWORKS: dict[str, Callable[[Net], list[str]]] = {
    "DETR": _detr,
    "DETR with its softmax": _softmax,
    "conditional DETR": _conditional,
    "RT-DETR": _rtdetr,
    "D-FINE": _dfine,
    "Ultralytics' RT-DETR of 8.3": _side_by_side,
    "Ultralytics' RT-DETR of 8.4": _kept,
    "RT-DETR with its authors' post-processing": _processed,
}


def model(write: Callable[[Net], list[str]]) -> Model:
    """Returns the network whose nodes ``write`` writes."""
    net = Net()
    outputs = write(net)
    inputs = [helper.make_tensor_value_info("images", 1, [BATCH, 3, HEIGHT, WIDTH])]
    if any("sizes" in node.input for node in net.nodes):
        inputs.append(helper.make_tensor_value_info("sizes", onnx.TensorProto.INT64, [BATCH, 2]))
    types = dict.fromkeys(net.integers, onnx.TensorProto.INT64)
    graph = helper.make_graph(
        net.nodes,
        "queries",
        inputs,
        [helper.make_tensor_value_info(name, types.get(name, 1), None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in net.weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return canonical(onnx.shape_inference.infer_shapes(proto), None)
