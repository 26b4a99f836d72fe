"""Networks of the kinds that people deploy, small in width: detectors, classifiers, segmenters."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from edgekit.network.loading.load import canonical
from edgekit.network.model import Model


class Net:
    """Writes a network layer by layer, as exporters do; each method returns its output tensor."""

    def __init__(self, shape: tuple[int, ...], *, opset: int = 13, seed: int = 0) -> None:
        self._nodes: list[object] = []
        self._weights: list[object] = []
        self._random = np.random.default_rng(seed)
        self._channels = {"x": shape[1]}
        self._shape = shape
        self._opset = opset

    def op(self, kind: str, *inputs: str, channels: int = 0, **attrs: object) -> str:
        """One node of one output."""
        out = f"t{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(kind, inputs, [out], f"{kind.lower()}_{len(self._nodes)}", **attrs)
        )
        self._channels[out] = channels or self._channels[inputs[0]]
        return out

    def several(self, kind: str, source: str, extra: list[str], count: int, **attrs: object):
        """One node of several outputs of equal width."""
        outs = [f"t{len(self._nodes)}_{i}" for i in range(count)]
        self._nodes.append(
            helper.make_node(
                kind, [source, *extra], outs, f"{kind.lower()}_{len(self._nodes)}", **attrs
            )
        )
        self._channels |= dict.fromkeys(outs, self._channels[source] // count)
        return outs

    def constant(self, value: object, kind: type = np.float32) -> str:
        """An initializer."""
        name = f"k{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def weight(self, *shape: int) -> str:
        """Random weights."""
        fan = math.prod(shape[1:]) or 1
        return self.constant(self._random.standard_normal(shape) / math.sqrt(fan))

    def conv(self, x: str, maps: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        """Convolution with a bias and padding that keeps the size."""
        weight = self.weight(maps, self._channels[x] // group, kernel, kernel)
        return self.op(
            "Conv",
            x,
            weight,
            self.weight(maps),
            channels=maps,
            strides=[stride] * 2,
            pads=[kernel // 2] * 4,
            group=group,
        )

    def silu(self, x: str) -> str:
        """x * sigmoid(x), as PyTorch writes it."""
        return self.op("Mul", x, self.op("Sigmoid", x))

    def block(self, x: str, maps: int, kernel: int = 1, stride: int = 1) -> str:
        """Convolution and SiLU."""
        return self.silu(self.conv(x, maps, kernel, stride))

    def join(self, *parts: str) -> str:
        """Concatenation along the channels."""
        return self.op("Concat", *parts, channels=sum(self._channels[p] for p in parts), axis=1)

    def model(self, *outputs: str) -> ModelProto:
        """The file that returns ``outputs``."""
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self._nodes,
            "net",
            [info("x", TensorProto.FLOAT, self._shape)],
            [info(name, TensorProto.FLOAT, None) for name in outputs],
            self._weights,
        )
        opsets = [helper.make_opsetid("", self._opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def loaded(write: Callable[[], ModelProto]) -> Callable[[], Model]:
    """The model as edgekit loads it; ``__wrapped__`` gives the file."""

    @wraps(write)
    def load() -> Model:
        return canonical(write(), None)

    return load


@loaded
def yolo_v5() -> ModelProto:
    """Focus, C3 blocks, SPP with windows of 5, 9 and 13, upsampling, and two detection heads."""
    net = Net((1, 3, 64, 64))
    cuts = []
    for start in ((0, 0), (1, 0), (0, 1), (1, 1)):
        cut = "x"
        for axis, first in enumerate(start, start=2):
            ints = [net.constant([v], np.int64) for v in (first, 2**31 - 1, axis, 2)]
            cut = net.op("Slice", cut, *ints)
        cuts.append(cut)
    x = net.block(net.join(*cuts), 8, 3)
    x = _c3(net, net.block(x, 16, 3, 2), 16)
    early = _c3(net, net.block(x, 32, 3, 2), 32)
    x = net.block(net.block(early, 32, 3, 2), 16)
    pools = [
        net.op("MaxPool", x, kernel_shape=[k, k], pads=[k // 2] * 4, strides=[1, 1])
        for k in (5, 9, 13)
    ]
    x = net.block(net.join(x, *pools), 32)
    scales = net.constant([1, 1, 2, 2])
    up = net.op(
        "Resize",
        net.block(x, 16),
        "",
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    late = _c3(net, net.join(up, early), 16)
    return net.model(_head(net, late, 8), _head(net, x, 4))


def _c3(net: Net, x: str, maps: int) -> str:
    left, right = net.block(x, maps // 2), net.block(x, maps // 2)
    inner = net.block(net.block(left, maps // 2), maps // 2, 3)
    return net.block(net.join(net.op("Add", left, inner), right), maps)


def _head(net: Net, x: str, side: int) -> str:
    raw = net.conv(x, 21)
    shaped = net.op("Reshape", raw, net.constant([1, 3, 7, side, side], np.int64))
    return net.op("Sigmoid", net.op("Transpose", shaped, perm=[0, 1, 3, 4, 2]))


@loaded
def yolo_v8() -> ModelProto:
    """C2f blocks with Split, SPPF, upsampling to sizes, and a head that joins its scales."""
    net = Net((1, 3, 64, 64))
    x = net.block(net.block("x", 8, 3, 2), 16, 3, 2)
    x = _c2f(net, x, 16)
    early = _c2f(net, net.block(x, 32, 3, 2), 32)
    x = net.block(net.block(early, 32, 3, 2), 16)
    first = net.op("MaxPool", x, kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1])
    second = net.op("MaxPool", first, kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1])
    x = net.block(net.join(x, first, second), 32)
    sizes = net.constant([1, 32, 8, 8], np.int64)
    up = net.op(
        "Resize",
        x,
        "",
        "",
        sizes,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    late = _c2f(net, net.join(up, early), 32)
    parts = []
    for scale, cells in ((late, 64), (x, 16)):
        raw = net.join(net.conv(net.block(scale, 8, 3), 16), net.conv(net.block(scale, 8, 3), 5))
        shape = net.constant([1, 21, cells], np.int64)
        parts.append(net.op("Reshape", raw, shape, channels=21))
    return net.model(net.op("Concat", *parts, axis=2))


def _c2f(net: Net, x: str, maps: int) -> str:
    halves = net.constant([maps // 2, maps // 2], np.int64)
    left, right = net.several("Split", net.block(x, maps), [halves], 2, axis=1)
    inner = net.op("Add", right, net.block(net.block(right, maps // 2, 3), maps // 2, 3))
    return net.block(net.join(left, right, inner), maps)


@loaded
def mobilenet_v3() -> ModelProto:
    """HardSwish, squeeze-and-excite with HardSigmoid, a classifier behind a mean."""
    net = Net((1, 3, 64, 64), opset=14)
    x = net.op("HardSwish", net.conv("x", 16, 3, 2))
    for maps in (16, 24):
        inner = net.op("HardSwish", net.conv(net.op("HardSwish", net.conv(x, 32)), 32, 3, 2, 32))
        pooled = net.op("ReduceMean", inner, axes=[2, 3], keepdims=1)
        gate = net.conv(net.op("Relu", net.conv(pooled, 8)), 32)
        inner = net.op("Mul", inner, net.op("HardSigmoid", gate, alpha=1 / 6, beta=0.5))
        x = net.conv(inner, maps)
    x = net.op("GlobalAveragePool", net.op("HardSwish", net.conv(x, 48)))
    x = net.op("Flatten", x, axis=1)
    x = net.op("HardSwish", net.op("Gemm", x, net.weight(64, 48), net.weight(64), transB=1))
    return net.model(net.op("Gemm", x, net.weight(10, 64), net.weight(10), transB=1))


@loaded
def resnet_of_torchvision() -> ModelProto:
    """Two residual blocks, GlobalAveragePool, Flatten, Gemm."""
    net = Net((1, 3, 56, 56))
    x = net.op("Relu", net.conv("x", 16, 7, 2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for maps, stride in ((16, 1), (32, 2)):
        inner = net.conv(net.op("Relu", net.conv(x, maps, 3, stride)), maps, 3)
        x = net.op("Relu", net.op("Add", inner, net.conv(x, maps, 1, stride)))
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    return net.model(net.op("Gemm", x, net.weight(10, 32), net.weight(10), transB=1))


@loaded
def unet() -> ModelProto:
    """Encoder, decoder with padded ConvTranspose, skip connections, a softmax over classes."""
    net = Net((1, 3, 32, 32))
    first = net.op("Relu", net.conv("x", 8, 3))
    second = net.op(
        "Relu", net.conv(net.op("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2]), 16, 3)
    )
    low = net.op(
        "Relu", net.conv(net.op("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2]), 16, 3)
    )
    for skip in (second, first):
        up = net.op(
            "ConvTranspose",
            low,
            net.weight(16, 16, 4, 4),
            net.weight(16),
            channels=16,
            strides=[2, 2],
            pads=[1] * 4,
        )
        low = net.op("Relu", net.conv(net.join(up, skip), 16, 3))
    return net.model(net.op("Softmax", net.conv(low, 4), axis=1))


@loaded
def nhwc_classifier() -> ModelProto:
    """As TensorFlow's exporter writes: channels last outside, transpositions around each step."""
    net = Net((1, 32, 32, 3))
    net._channels["x"] = 3
    x = net.op("Transpose", "x", perm=[0, 3, 1, 2])
    for maps in (8, 16):
        x = net.conv(x, maps, 3, 2)
        x = net.op("Transpose", x, perm=[0, 2, 3, 1])
        x = net.op("Add", x, net.weight(maps))
        x = net.op("Relu", x)
        x = net.op("Transpose", x, perm=[0, 3, 1, 2])
    x = net.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    x = net.op("MatMul", x, net.weight(16, 10))
    return net.model(net.op("Softmax", net.op("Add", x, net.weight(10)), axis=1))


@loaded
def audio_1d() -> ModelProto:
    """Conv1d, BatchNorm, ReLU and MaxPool1d over a waveform; a classifier."""
    net = Net((1, 2, 256))
    x = "x"
    for maps in (8, 16):
        weight = net.weight(maps, net._channels[x], 5)
        x = net.op("Conv", x, weight, net.weight(maps), channels=maps, strides=[2], pads=[2, 2])
        stats = [net.constant(np.abs(net._random.standard_normal(maps)) + 0.5) for _ in range(4)]
        x = net.op("Relu", net.op("BatchNormalization", x, *stats))
        x = net.op("MaxPool", x, kernel_shape=[2], strides=[2])
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    return net.model(net.op("Gemm", x, net.weight(10, 16), net.weight(10), transB=1))
