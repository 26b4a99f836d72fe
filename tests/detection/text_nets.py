"""Tiny networks with the heads of PaddleOCR's detector and recogniser, of random weights."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.network.loading.load import canonical
from edgekit.network.model import Model

__all__ = ["CHARACTERS", "loaded", "recogniser", "text_detector"]

#: One a line, as the metadata of PaddleOCR's files has them; the space is not listed there.
CHARACTERS = "a\nb\nc\n7\n"


class _Writer:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = self.random.standard_normal(shape).astype(np.float32) * 0.5
        return name

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def model(self, shape: tuple[int, ...], output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "text",
            [helper.make_tensor_value_info("x", 1, shape)],
            [helper.make_tensor_value_info(output, 1, None)],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def text_detector(
    *, batch: int = 1, size: tuple[int, int] = (64, 96), end: str = "DB"
) -> onnx.ModelProto:
    """Returns a detector of text.

    Args:
        batch: Pictures.
        size: Height and width.
        end: "DB", or how it differs: "logits" (no sigmoid), "mask" (a segmentation of two classes,
            by a convolution and a resize), "one" (only one transposed convolution), "plain" (no
            pyramid), "classes" (a segmentation of three classes).
    """
    net = _Writer(1)
    quarter = net.op("Conv", "x", net.weight(4, 3, 4, 4), strides=[4, 4])
    eighth = net.op("Conv", quarter, net.weight(4, 4, 2, 2), strides=[2, 2])
    net.weights["scales"] = np.array([1, 1, 2, 2], np.float32)
    up = net.op("Resize", eighth, "", "scales", mode="nearest")
    y = quarter if end == "plain" else net.op("Concat", up, quarter, axis=1)
    channels = 4 if end == "plain" else 8
    y = net.op("Conv", y, net.weight(4, channels, 3, 3), pads=[1, 1, 1, 1])
    y = net.op("Relu", y)
    if end in ("DB", "logits", "plain"):
        y = net.op("ConvTranspose", y, net.weight(4, 4, 2, 2), strides=[2, 2])
        y = net.op("Add", y, net.weight(1, 4, 1, 1))
        vectors = [net.weight(4) for _ in range(3)]
        net.weights["variance"] = np.ones(4, np.float32)
        y = net.op("Relu", net.op("BatchNormalization", y, *vectors, "variance"))
        y = net.op("ConvTranspose", y, net.weight(4, 1, 2, 2), strides=[2, 2])
        y = net.op("Add", y, net.weight(1, 1, 1, 1))
    elif end == "one":
        y = net.op("Resize", y, "", "scales", mode="nearest")
        y = net.op("ConvTranspose", y, net.weight(4, 1, 2, 2), strides=[2, 2])
    else:
        y = net.op("Conv", y, net.weight(3 if end == "classes" else 1, 4, 1, 1))
        net.weights["four"] = np.array([1, 1, 4, 4], np.float32)
        y = net.op("Resize", y, "", "four", mode="nearest")
    return net.model((batch, 3, *size), y if end == "logits" else net.op("Sigmoid", y))


def recogniser(*, batch: int = 1, width: int = 64, end: str = "CTC") -> onnx.ModelProto:
    """Returns a recogniser of lines with the blank, ``CHARACTERS`` and the space.

    Args:
        batch: Lines.
        width: Of a line, eight columns a step.
        end: "CTC", or how it differs: "logits" (no softmax), "places" (steps are the places of a
            map), "pooled" (a classifier), "joined" (a softmax of joined maps).
    """
    net = _Writer(2)
    y = net.op("Conv", "x", net.weight(6, 3, 8, 8), strides=[8, 8])
    y = net.op("Relu", y)
    rows, columns = 4, width // 8
    if end in ("places", "joined"):
        net.weights["shape"] = np.array([batch, 6, rows * columns])
        y = net.op("Reshape", y, "shape")
    elif end == "pooled":
        net.weights["axes"] = np.array([2, 3])
        y = net.op("Squeeze", net.op("GlobalAveragePool", y), "axes")
        y = net.op("MatMul", y, net.weight(6, 6))
        return net.model((batch, 3, 32, width), net.op("Softmax", y, axis=1))
    else:
        y = net.op("AveragePool", y, kernel_shape=[rows, 1])
        net.weights["axes"] = np.array([2])
        y = net.op("Squeeze", y, "axes")
    y = net.op("Transpose", y, perm=[0, 2, 1])
    if end != "joined":
        y = net.op("Add", net.op("MatMul", y, net.weight(6, 6)), net.weight(6))
    return net.model((batch, 3, 32, width), y if end == "logits" else net.op("Softmax", y, axis=2))


def loaded(proto: onnx.ModelProto) -> Model:
    """Returns the network as edgekit loads it."""
    return canonical(proto, None)
