"""The networks, boards and plans of the contracts: their product is what the goldens hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import unwrap
from pathlib import Path

import numpy as np
import onnx

from tests.rewriting import real_nets
from tests.rewriting.real_nets import Net

__all__ = ["BOARDS", "CONSTRUCTED", "LIGHT", "PLANS", "model_of", "plans_of"]

LIGHT = (
    "light_bvlc_alexnet",
    "light_densenet121",
    "light_inception_v1",
    "light_inception_v2",
    "light_resnet50",
    "light_shufflenet",
    "light_squeezenet",
    "light_vgg19",
    "light_zfnet512",
)

BOARDS = {
    "orin-int8": ("jetson-agx-orin-64gb", "int8"),
    "orin-fp16": ("jetson-agx-orin-64gb", "fp16"),
    "xavier-fp16": ("jetson-agx-xavier", "fp16"),
    "nano-fp16": ("jetson-orin-nano-8gb", "fp16"),
}

PLANS = {
    "latency": ("--objective", "latency"),
    "throughput": ("--objective", "throughput", "--dla-cores", "0,1"),
    "energy": ("--objective", "energy"),
    "no-gpu": ("--no-gpu", "--dla-cores", "0,1"),
}


def plans_of(board: str) -> dict[str, tuple[str, ...]]:
    """The plans of a board: without a DLA most are the same."""
    if not board.startswith("nano"):
        return PLANS
    return {"latency": (), "energy": ("--objective", "energy"), "no-gpu": ("--no-gpu",)}


def bert() -> onnx.ModelProto:
    """Two encoder layers: attention of two heads, LayerNormalization and GELU."""
    net = Net((1, 16, 32), opset=17)
    x = "x"
    for _ in range(2):
        heads = []
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            line = net.op("Add", net.op("MatMul", x, net.weight(32, 32)), net.weight(32))
            split = net.op("Reshape", line, net.constant([1, 16, 2, 16], np.int64))
            heads.append(net.op("Transpose", split, perm=perm))
        query, key, value = heads
        scores = net.op("Div", net.op("MatMul", query, key), net.constant(math.sqrt(16)))
        seen = net.op("MatMul", net.op("Softmax", scores, axis=-1), value)
        joined = net.op("Transpose", seen, perm=[0, 2, 1, 3])
        flat = net.op("Reshape", joined, net.constant([1, 16, 32], np.int64))
        x = _normal(net, net.op("Add", x, net.op("MatMul", flat, net.weight(32, 32))))
        inner = net.op("Add", net.op("MatMul", x, net.weight(32, 64)), net.weight(64))
        half = net.op("Erf", net.op("Div", inner, net.constant(math.sqrt(2))))
        gelu = net.op("Mul", inner, net.op("Add", half, net.constant(1.0)))
        gelu = net.op("Mul", gelu, net.constant(0.5))
        x = _normal(net, net.op("Add", x, net.op("MatMul", gelu, net.weight(64, 32))))
    first = net.op("Gather", x, net.constant(0, np.int64), axis=1)
    return net.model(net.op("Gemm", first, net.weight(2, 32), net.weight(2), transB=1))


def _normal(net: Net, x: str) -> str:
    return net.op("LayerNormalization", x, net.weight(32), net.weight(32), axis=-1)


def ssd() -> onnx.ModelProto:
    """Depthwise blocks with ReLU6 and two scales of boxes and classes, channels last, joined."""
    net = Net((1, 3, 96, 96))
    low, high = net.constant(0.0), net.constant(6.0)
    x = "x"
    scales = []
    for maps, stride in ((16, 2), (32, 2), (32, 1), (64, 2), (64, 2)):
        if maps > 16:
            x = net.op(
                "Clip", net.conv(x, net._channels[x], 3, stride, net._channels[x]), low, high
            )
        x = net.op(
            "Clip", net.conv(x, maps, 1 if maps > 16 else 3, 1 if maps > 16 else 2), low, high
        )
        scales.append(x)
    found: dict[int, list[str]] = {4: [], 6: []}
    for x in scales[-2:]:
        for values, parts in found.items():
            raw = net.op("Transpose", net.conv(x, 3 * values, 3), perm=[0, 2, 3, 1])
            shape = net.constant([1, -1, values], np.int64)
            parts.append(net.op("Reshape", raw, shape))
    boxes, classes = (net.op("Concat", *parts, axis=1) for parts in found.values())
    return net.model(boxes, net.op("Softmax", classes, axis=2))


CONSTRUCTED: dict[str, Callable[[], onnx.ModelProto]] = {
    "yolo_v8": unwrap(real_nets.yolo_v8),
    "audio_1d": unwrap(real_nets.audio_1d),
    "bert": bert,
    "mobilenet_v3": unwrap(real_nets.mobilenet_v3),
    "nhwc_classifier": unwrap(real_nets.nhwc_classifier),
    "resnet": unwrap(real_nets.resnet_of_torchvision),
    "ssd": ssd,
    "unet": unwrap(real_nets.unet),
    "yolo_v5": unwrap(real_nets.yolo_v5),
}


def model_of(name: str, folder: Path) -> str:
    """What a command takes as MODEL: a constructed network is written into ``folder``."""
    if name in LIGHT:
        return f"builtin:{name}"
    path = folder / f"{name}.onnx"
    onnx.save(CONSTRUCTED[name](), path)
    return str(path)
