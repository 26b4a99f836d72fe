"""One net in every opset from 7 to 21: the same layers, whatever form the operators had then."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Layer
from tests.network.onnx_making import make, values

OPSETS = range(7, 22)
ACROSS = {
    "mode",
    "axis",
    "function",
    "axes",
    "keepdims",
    "starts",
    "sizes",
    "strides",
    "scales",
    "alpha",
    "beta",
    "kernel",
    "stride",
    "pads",
    "dilation",
    "shape",
    "perm",
}


class Writer:
    """Writes nodes in the form that an opset had: parameters as attributes or as inputs."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def add(self, op: str, inputs: str, outputs: str, **attributes: Any) -> None:
        read = [self._fixed(name) for name in inputs.split()]
        name = outputs.split(maxsplit=1)[0]
        self.nodes.append(helper.make_node(op, read, outputs.split(), name, **attributes))

    def take(
        self, op: str, since: int, inputs: str, outputs: str, given: dict[str, Any], **same: Any
    ) -> None:
        """``given`` becomes inputs from opset ``since`` on; attributes before."""
        if self.opset < since:
            self.add(op, inputs, outputs, **given, **same)
            return
        read = inputs.split()
        for key, value in given.items():
            kind = np.float32 if isinstance(value, float) else np.int64
            self.constants[f"{outputs.split(maxsplit=1)[0]}.{key}"] = np.array(value, kind)
            read.append(f"{outputs.split(maxsplit=1)[0]}.{key}")
        self.add(op, " ".join(read), outputs, **same)

    def _fixed(self, name: str) -> str:
        shapes = {"w": (8, 3, 3, 3), "b": (8,), "fw": (5, 16), "fb": (5,)}
        if name in shapes or name.startswith("bn."):
            self.constants[name] = np.abs(values(shapes.get(name, (8,)), 1)) + 1
        return name


def net(opset: int) -> onnx.ModelProto:
    at = Writer(opset)
    at.add("Conv", "x w b", "conv", pads=[1] * 4, kernel_shape=[3, 3])
    at.add("BatchNormalization", "conv bn.s bn.b bn.m bn.v", "bn")
    at.add("Relu", "bn", "relu")
    at.take("Clip", 11, "relu", "clip", {"min": 0.0, "max": 6.0})
    kinds = {"mode": "constant"}
    pads = {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "value": 0.0}
    at.take("Pad", 11, "clip", "pad", pads, **kinds)
    at.add("MaxPool", "pad", "pool", kernel_shape=[2, 2], strides=[2, 2])
    _enlarge(at)
    at.take("Slice", 10, "up", "slice", {"starts": [1, 1], "ends": [9, 9], "axes": [2, 3]})
    count = {"num_outputs": 2} if opset >= 18 else {}
    at.add("Split", "slice", "left right", axis=1, **count)
    at.add("Add", "left right", "add")
    at.add("Dropout", "add", "drop")
    at.add("AveragePool", "drop", "mean", kernel_shape=[4, 4], strides=[4, 4])
    at.take("ReduceMax", 18, "mean", "most", {"axes": [2]}, keepdims=1)
    at.take("ReduceSum", 13, "most", "sum", {"axes": [3]}, keepdims=0)
    at.take("Squeeze", 13, "sum", "thin", {"axes": [2]})
    at.take("Unsqueeze", 13, "thin", "thick", {"axes": [2, 3]})
    at.constants["to"] = np.array([1, -1], np.int64)
    at.add("Concat", "thick thick thick thick", "four", axis=1)
    at.add("Reshape", "four to", "flat")
    at.add("Gemm", "flat fw fb", "fc", transB=1)
    at.add("Softmax", "fc", "y", axis=1)
    proto = make(at.nodes, {"x": [1, 3, 10, 10]}, ["y"], at.constants, opset=opset)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [1, 5]))
    return proto


def _enlarge(at: Writer) -> None:
    scales = [1.0, 1.0, 2.0, 2.0]
    if at.opset < 9:
        at.add("Upsample", "pool", "up", mode="nearest", scales=scales)
        return
    at.constants["scales"] = np.array(scales, np.float32)
    if at.opset == 9:
        at.add("Upsample", "pool scales", "up", mode="nearest")
    elif at.opset == 10:
        at.add("Resize", "pool scales", "up", mode="nearest")
    else:
        # the region of interest may be left out since opset 13 only
        at.constants["roi"] = np.zeros(0, np.float32)
        at.add(
            "Resize",
            "pool roi scales",
            "up",
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )


def shown(layer: Layer) -> tuple[Any, ...]:
    params = {key: value for key, value in layer.params.items() if key in ACROSS}
    return layer.kind, layer.name, layer.nodes, layer.origin, layer.builder_name, params


KINDS = {
    "conv": "CONVOLUTION",
    "bn": "SCALE",
    "relu": "ACTIVATION",
    "clip": "ACTIVATION",
    "pad": "SLICE",
    "pool": "POOLING",
    "up": "RESIZE",
    "slice": "SLICE",
    "left": "SLICE",
    "left_1": "SLICE",
    "add": "ELEMENTWISE",
    "mean": "POOLING",
    "most": "REDUCE",
    "sum": "REDUCE",
    "thin + thick": "SHUFFLE",
    "four": "CONCATENATION",
    "fc": "CONVOLUTION",
    "reshape_after_fc": "SHUFFLE",
    "y": "SOFTMAX",
}


@pytest.mark.parametrize("opset", OPSETS)
def test_the_same_layers_in_every_opset(opset: int) -> None:
    proto = net(opset)
    onnx.checker.check_model(proto, full_check=True)
    found = [shown(layer) for layer in layers(canonical(proto, None)).layers]
    newest = [shown(layer) for layer in layers(canonical(net(OPSETS[-1]), None)).layers]
    assert found == newest
    assert {name: kind for kind, name, *_ in found} == KINDS
