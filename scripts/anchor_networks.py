"""The published networks that the cost model is fitted on, as layer graphs written by hand.

They need no weights and no ONNX file: ResNet-50, 101 and 152 (He et al., 2015, stride in the
3x3 convolution), AlexNet (Krizhevsky et al., 2012, Caffe's with two groups), GoogLeNet (Szegedy et
al., 2014, table 1), SSD with MobileNet-v1 at 300 x 300 (Howard et al., 2017; Liu et al., 2015,
heads of the TensorFlow detection zoo, 91 classes) and single operations. More classifiers are in
anchor_classifiers.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from edgekit.network.model import Layer, Network, Tensor

__all__ = [
    "Graph",
    "alexnet",
    "convolution",
    "gemms",
    "googlenet",
    "products",
    "resnet",
    "resnet50",
    "ssd_mobilenet",
]

RESNETS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


class Graph:
    """Adds layers one after the other; every method returns the name of its output tensor."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.layers: list[Layer] = []
        self.silu = (
            False  # SiLU instead of ReLU: a sigmoid and a product, which read the same tensor
        )
        self.tensors = {"input": Tensor("input", shape, "float32")}

    def add(self, kind: str, inputs: tuple[str, ...], shape: tuple[int, ...], **more: Any) -> str:
        name = f"{kind.lower()}_{len(self.layers)}"
        fields = {key: more.pop(key) for key in ("macs", "weight_elements") if key in more}
        self.tensors[name] = Tensor(name, shape, "float32")
        layer = Layer(
            name, kind, kind.title(), (name,), (name,), inputs, (name,), params=more, **fields
        )
        self.layers.append(layer)
        return name

    def conv(
        self, x: str, out: int, kernel: int, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> str:
        batch, channels, height, width = self.tensors[x].shape
        shape = (batch, out, -(-height // stride), -(-width // stride))
        weights = out * (channels // groups) * kernel * kernel
        y = self.add(
            "CONVOLUTION",
            (x,),
            shape,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            groups=groups,
            out_maps=out,
            macs=weights * batch * shape[2] * shape[3],
            weight_elements=weights,
        )
        if not relu:
            return y
        if not self.silu:
            return self.add("ACTIVATION", (y,), shape, function="RELU")
        return self.gated(y)

    def gated(self, x: str, function: str = "SIGMOID") -> str:
        """A tensor times its own activation: SiLU, or HardSwish by ``HARD_SIGMOID``."""
        shape = self.tensors[x].shape
        y = self.add("ACTIVATION", (x,), shape, function=function)
        return self.add("ELEMENTWISE", (x, y), shape, function="PROD")

    def deconv(self, x: str, out: int, stride: int) -> str:
        """Deconvolves with a kernel of its stride."""
        batch, channels, *size = self.tensors[x].shape
        shape = (batch, out, *(stride * side for side in size))
        weights = out * channels * stride * stride
        return self.add(
            "DECONVOLUTION",
            (x,),
            shape,
            kernel=(stride, stride),
            stride=(stride, stride),
            groups=1,
            out_maps=out,
            macs=weights * batch * math.prod(size),
            weight_elements=weights,
        )

    def pool(self, x: str, stride: int) -> str:
        batch, channels, height, width = self.tensors[x].shape
        shape = (batch, channels, -(-height // stride), -(-width // stride))
        return self.add("POOLING", (x,), shape)

    def head(self, x: str, classes: int) -> str:
        batch, channels = self.tensors[x].shape[:2]
        pooled = self.add("REDUCE", (x,), (batch, channels, 1, 1))
        return self.conv(pooled, classes, 1, relu=False)

    def addition(self, x: str, y: str, relu: bool = True) -> str:
        shape = self.tensors[x].shape
        z = self.add("ELEMENTWISE", (x, y), shape, function="SUM")
        return self.add("ACTIVATION", (z,), shape, function="RELU") if relu else z

    def resize(self, x: str, factor: int) -> str:
        batch, channels, height, width = self.tensors[x].shape
        return self.add("RESIZE", (x,), (batch, channels, factor * height, factor * width))

    def concat(self, *parts: str) -> str:
        shapes = [self.tensors[x].shape for x in parts]
        channels = sum(shape[1] for shape in shapes)
        return self.add("CONCATENATION", parts, (shapes[0][0], channels, *shapes[0][2:]))

    def part(self, x: str, channels: int) -> str:
        batch, _, *size = self.tensors[x].shape
        return self.add("SLICE", (x,), (batch, channels, *size))

    def decode(self, levels: list[str], classes: int = 80) -> str:
        """Softmax over 16 distances per side, their mean, boxes, all levels together."""
        batch, channels = self.tensors[levels[0]].shape[:2]
        cells = sum(self.tensors[x].elements // (batch * channels) for x in levels)
        parts = tuple(
            self.add(
                "SHUFFLE",
                (x,),
                (batch, channels, self.tensors[x].elements // (batch * channels)),
                mode="RESHAPE",
            )
            for x in levels
        )
        x = self.add("CONCATENATION", parts, (batch, channels, cells))
        x = self.add("SHUFFLE", (self.part(x, 64),), (batch, 16, 4, cells), mode="TRANSPOSE")
        x = self.conv(self.add("SOFTMAX", (x,), (batch, 16, 4, cells)), 1, 1, relu=False)
        return self.add("ELEMENTWISE", (x,), (batch, 4 + classes, cells))

    def network(self, *outputs: str) -> Network:
        return Network(self.name, tuple(self.layers), self.tensors, ("input",), outputs)


def resnet(
    depth: int, batch: int = 1, height: int = 224, width: int = 224, *, head: bool = True
) -> Network:
    """ResNet-50, 101 or 152: 4.1, 7.8, 11.5 GMAC at 224 x 224."""
    g = Graph(f"resnet{depth}", (batch, 3, height, width))
    x = g.pool(g.conv("input", 64, 7, 2), 2)
    for stage, blocks in enumerate(RESNETS[depth]):
        inner = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = g.conv(g.conv(x, inner, 1), inner, 3, stride)
            y = g.conv(y, 4 * inner, 1, relu=False)
            if not block:
                x = g.conv(x, 4 * inner, 1, stride, relu=False)
            x = g.addition(y, x)
    return g.network(g.head(x, 1000) if head else x)


def resnet50(batch: int = 1, height: int = 224, width: int = 224, *, head: bool = True) -> Network:
    """ResNet-50, 4.09 GMAC at 224 x 224; without its head for the backbone's loadable."""
    return resnet(50, batch, height, width, head=head)


def convolution(
    channels: int, out: int, kernel: int, stride: int, size: int, groups: int = 1
) -> Network:
    """One convolution with ReLU on size x size pixels."""
    g = Graph("convolution", (1, channels, size, size))
    return g.network(g.conv("input", out, kernel, stride, groups))


def googlenet(batch: int = 1) -> Network:
    """GoogLeNet, 1.5 GMAC; the softmax at its end is left out."""
    g = Graph("googlenet", (batch, 3, 224, 224))
    x = g.pool(g.conv("input", 64, 7, 2), 2)
    x = g.add("LRN", (x,), g.tensors[x].shape)
    x = g.conv(g.conv(x, 64, 1), 192, 3)
    x = g.pool(g.add("LRN", (x,), g.tensors[x].shape), 2)
    blocks = (
        (64, 96, 128, 16, 32, 32),
        (128, 128, 192, 32, 96, 64),
        None,
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
        None,
        (256, 160, 320, 32, 128, 128),
        (384, 192, 384, 48, 128, 128),
    )
    for block in blocks:
        if block is None:
            x = g.pool(x, 2)
            continue
        maps_1x1, three_in, three, five_in, five, pooled = block
        parts = (
            g.conv(x, maps_1x1, 1),
            g.conv(g.conv(x, three_in, 1), three, 3),
            g.conv(g.conv(x, five_in, 1), five, 5),
            g.conv(g.pool(x, 1), pooled, 1),
        )
        size = g.tensors[x].shape[2:]
        x = g.add("CONCATENATION", parts, (batch, maps_1x1 + three + five + pooled, *size))
    return g.network(g.head(x, 1000))


def ssd_mobilenet(batch: int = 1) -> Network:
    """SSD-MobileNet-v1 at 300 x 300, 1.2 GMAC; without box decoding and suppression."""
    g = Graph("ssd_mobilenet", (batch, 3, 300, 300))
    x = g.conv("input", 32, 3, 2)
    maps = []
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    for number, out in enumerate(widths):
        stride = 2 if number in (1, 3, 5, 11) else 1
        x = g.conv(x, g.tensors[x].shape[1], 3, stride, groups=g.tensors[x].shape[1])
        x = g.conv(x, out, 1)
        if number in (10, 12):
            maps.append(x)
    for inner, out in ((256, 512), (128, 256), (128, 256), (64, 128)):
        x = g.conv(g.conv(x, inner, 1), out, 3, 2)
        maps.append(x)
    heads = []
    for number, feature in enumerate(maps):
        boxes = 3 if number == 0 else 6
        heads.append(g.conv(feature, 4 * boxes, 1, relu=False))
        heads.append(g.conv(feature, 91 * boxes, 1, relu=False))
    return g.network(*heads)


def alexnet(batch: int = 1) -> Network:
    """Caffe's AlexNet at 227 x 227, 0.7 GMAC; the softmax at its end is left out."""
    g = Graph("alexnet", (batch, 3, 227, 227))
    x = g.conv("input", 96, 11, 4)
    x = g.pool(g.add("LRN", (x,), g.tensors[x].shape), 2)
    x = g.conv(x, 256, 5, groups=2)
    x = g.pool(g.add("LRN", (x,), g.tensors[x].shape), 2)
    x = g.conv(g.conv(g.conv(x, 384, 3), 384, 3, groups=2), 256, 3, groups=2)
    x = g.add("POOLING", (x,), (batch, 256, 6, 6))
    x = g.add("SHUFFLE", (x,), (batch, 9216, 1, 1), mode="RESHAPE")
    return g.network(g.conv(g.conv(g.conv(x, 4096, 1), 4096, 1), 1000, 1, relu=False))


def gemms(rows: int, count: int) -> Network:
    """``count`` fully connected layers of 256 x 256 side by side, on ``rows`` rows."""
    g = Graph("gemms", (rows, 256))
    outputs = []
    for _ in range(count):
        outputs.append(
            g.add(
                "CONVOLUTION",
                ("input",),
                (rows, 256),
                out_maps=256,
                macs=rows * 65536,
                weight_elements=65536,
            )
        )
    layers = tuple(replace(layer, op="Gemm") for layer in g.layers)
    return Network("gemms", layers, g.tensors, ("input",), tuple(outputs))


def products(first: int, second: int) -> Network:
    """Two pointwise products, of 8 x first x 32 and 8 x 32 x second."""
    g = Graph("products", (1, 8, first, 32))
    g.tensors["other"] = Tensor("other", (1, 8, 32, second), "float32")
    outputs = [
        g.add("ELEMENTWISE", (name,), g.tensors[name].shape, function="PROD")
        for name in ("input", "other")
    ]
    return Network("products", tuple(g.layers), g.tensors, ("input", "other"), tuple(outputs))
