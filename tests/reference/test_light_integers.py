"""Single layers of the nine networks, with weights drawn here, against integer arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.reference.integer_layers import same
from tests.reference.integer_reference import attributes

NETWORKS = [
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
]
WINDOWED = {"Conv", "MaxPool", "AveragePool"}
OPS = WINDOWED | {"Gemm", "Concat", "Sum", "GlobalAveragePool", "Relu", "Add", "Mul"}
# the slow reference computes a few thousand outputs of a convolution, not a whole image's, and
# some of the output channels: each place and each channel is computed by itself
MARGIN = 3
CHANNELS = 24


def shapes_of(graph: onnx.GraphProto) -> dict[str, list[int]]:
    values = (*graph.value_info, *graph.input, *graph.output)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = numpy_helper.to_array(stored[node.input[0]]).tolist()
    return shapes | {name: list(tensor.dims) for name, tensor in stored.items()}


def sampled(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The first, the middle and the last node of each operator."""
    chosen = {}
    for op in sorted(OPS):
        nodes = [node for node in graph.node if node.op_type == op]
        for node in (nodes[0], nodes[len(nodes) // 2], nodes[-1]) if nodes else ():
            chosen[node.output[0]] = node
    return list(chosen.values())


def drawn(
    node: onnx.NodeProto, shapes: Mapping[str, list[int]], constants: set[str], seed: int
) -> dict[str, np.ndarray]:
    whole = node.op_type == "Conv" and attributes(node).get("group", 1) > 1
    weights = {}
    for name in node.input:
        if name in constants:
            shape = shapes[name]
            if node.op_type in ("Conv", "Gemm") and not whole:
                shape = [min(CHANNELS, shape[0]), *shape[1:]]
            values = np.random.default_rng(seed).standard_normal(shape)
            weights[name] = values.astype(np.float32)
    return weights


def cropped(node: onnx.NodeProto, shape: list[int]) -> list[int]:
    if node.op_type not in WINDOWED | {"Concat", "Sum", "Relu"} or len(shape) != 4:
        return shape
    kernel = attributes(node).get("kernel_shape", [3, 3])
    return [*shape[:2], *(min(n, k + MARGIN) for n, k in zip(shape[2:], kernel, strict=True))]


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_layers_of_a_network(name: str) -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.shape_inference.infer_shapes(onnx.load(folder / f"light_{name}.onnx"))
    graph = model.graph
    shapes = shapes_of(graph)
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {n.output[0] for n in graph.node if n.op_type == "ConstantOfShape"}
    tested = set()
    for number, original in enumerate(sampled(graph)):
        node = onnx.NodeProto()
        node.CopyFrom(original)
        node.name = "layer"
        del node.output[1:]
        node.output[0] = "y"
        weights = drawn(node, shapes, constants, number)
        moving = [name for name in dict.fromkeys(node.input) if name not in weights]
        if not moving or (node.op_type == "Gemm" and node.input[1] not in weights):
            continue  # of weights alone, or the file reshapes the weights first
        if node.op_type == "Gemm":
            # behind a Reshape whose shape the file does not tell
            shapes[moving[0]] = [1, weights[node.input[1]].shape[1]]
        scales = {name: 0.013 + 0.004 * i for i, name in enumerate(moving)}
        scales["y"] = 0.002 if "Average" in node.op_type else 0.05
        if node.op_type in ("Conv", "Gemm"):
            scales["y"] = 0.013 * float(np.sqrt(weights[node.input[1]][0].size))
        codes = same(
            node,
            {name: cropped(node, shapes[name]) for name in moving},
            weights,
            scales,
            number,
            opset=9,
            relu=node.op_type in ("Conv", "Sum"),
        )
        assert len(np.unique(codes)) > min(8, codes.size / 2)
        tested.add(node.op_type)
    assert {"Conv", "MaxPool"} <= tested
