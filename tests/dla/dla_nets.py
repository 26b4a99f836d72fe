"""Networks for the tests, built with onnx.helper and zero weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit import network
from edgekit.network import Network


class Builder:
    """Collects ONNX nodes and weights; each method returns the name of its output."""

    def __init__(self, **inputs: Sequence[int]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in inputs.items()
        ]

    def weight(self, name: str, shape: Sequence[int], kind: type = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.ones(shape, kind), name))
        return name

    def constant(self, name: str, values: Any, kind: type = np.int64) -> str:
        self.weights.append(numpy_helper.from_array(np.array(values, kind), name))
        return name

    def add(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        output = f"{name}_out"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=name, **attributes))
        return output

    def conv(
        self, name: str, source: str, channels: int, maps: int, kernel: int = 3, stride: int = 1
    ) -> str:
        weight = self.weight(f"{name}.w", (maps, channels, kernel, kernel))
        bias = self.weight(f"{name}.b", (maps,))
        pad = (kernel - 1) // 2
        return self.add(
            "Conv", name, source, weight, bias, pads=[pad] * 4, strides=[stride] * 2,
            kernel_shape=[kernel] * 2,
        )  # fmt: skip

    def network(self, path: Path, *outputs: str, opset: int = 17) -> Network:
        """Saves, loads and returns the layer graph."""
        return network.layers(network.load(self.save(path, *outputs, opset=opset)))

    def save(self, path: Path, *outputs: str, opset: int = 17) -> Path:
        values = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in outputs]
        graph = helper.make_graph(self.nodes, "net", self.inputs, values, self.weights)
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        known = {v.name: v for v in [*inferred.graph.value_info, *inferred.graph.output]}
        del model.graph.output[:]
        model.graph.output.extend(known[name] for name in outputs)
        file = path / "net.onnx"
        onnx.save(model, file)
        return file


def resnet50(path: Path) -> Network:
    """torchvision's ResNet-50 as its exporter names it, BatchNorm folded into the convolutions."""
    b = Builder(input=(1, 3, 224, 224))
    x = b.add("Relu", "/relu/Relu", b.conv("/conv1/Conv", "input", 3, 64, 7, 2))
    x = b.add("MaxPool", "/maxpool/MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, (blocks, width) in enumerate(
        [(3, 64), (4, 128), (6, 256), (3, 512)], start=1
    ):  # fmt: skip
        for block in range(blocks):
            at = f"/layer{stage}/layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = b.add("Relu", f"{at}/relu/Relu", b.conv(f"{at}/conv1/Conv", x, channels, width, 1))
            y = b.conv(f"{at}/conv2/Conv", y, width, width, 3, stride)
            y = b.add("Relu", f"{at}/relu_1/Relu", y)
            y = b.conv(f"{at}/conv3/Conv", y, width, 4 * width, 1)
            if block == 0:
                name = f"{at}/downsample/downsample.0/Conv"
                x = b.conv(name, x, channels, 4 * width, 1, stride)
            x = b.add("Relu", f"{at}/relu_2/Relu", b.add("Add", f"{at}/Add", y, x))
            channels = 4 * width
    x = b.add("GlobalAveragePool", "/avgpool/GlobalAveragePool", x)
    x = b.add("Flatten", "/Flatten", x)
    fc = (b.weight("fc.weight", (1000, 2048)), b.weight("fc.bias", (1000,)))
    x = b.add("Gemm", "/fc/Gemm", x, *fc, transB=1)
    return b.network(path, x)
