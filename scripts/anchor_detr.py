"""DETR as a layer graph written by hand (Carion et al., 2020; facebookresearch/detr).

detr_resnet50: ResNet-50 at 800 x 1066, six encoder and six decoder layers of width 256 with eight
heads and 2,048 hidden features, 100 queries, heads for 92 classes and boxes; batch 1.
"""

from __future__ import annotations

import math
from dataclasses import replace

from anchor_networks import Graph, resnet50

from edgekit.network.model import Network, Tensor

__all__ = ["detr", "detr_loadables"]

WIDTH, HEADS, HIDDEN, QUERIES, LAYERS = 256, 8, 2048, 100, 6


class Transformer(Graph):
    """Adds the parts of a transformer; activations are (rows, features)."""

    def shape(self, x: str) -> tuple[int, ...]:
        return self.tensors[x].shape

    def linear(self, x: str, out: int, *, relu: bool = False) -> str:
        rows, features = self.shape(x)
        weights = features * out
        y = self.add(
            "CONVOLUTION",
            (x,),
            (rows, out),
            out_maps=out,
            macs=rows * weights,
            weight_elements=weights,
        )
        self.layers[-1] = replace(self.layers[-1], op="Gemm")
        return self.add("ACTIVATION", (y,), (rows, out)) if relu else y

    def matmul(self, x: str, y: str) -> str:
        *heads, rows, inner = self.shape(x)
        out = self.shape(y)[-1]
        macs = math.prod(heads) * rows * inner * out
        z = self.add("MATRIX_MULTIPLY", (x, y), (*heads, rows, out), macs=macs)
        self.layers[-1] = replace(self.layers[-1], op="MatMul")
        return z

    def turn(self, x: str, shape: tuple[int, ...]) -> str:
        return self.add("SHUFFLE", (x,), shape, mode="TRANSPOSE")

    def attention(self, query: str, key: str, value: str, *, guarded: bool = False) -> str:
        """``guarded``: rows of the softmax that hold no number become 0, as exported."""
        rows, columns, each = self.shape(query)[0], self.shape(key)[0], WIDTH // HEADS
        q = self.turn(self.linear(query, WIDTH), (HEADS, rows, each))
        k = self.turn(self.linear(key, WIDTH), (HEADS, each, columns))
        v = self.turn(self.linear(value, WIDTH), (HEADS, columns, each))
        q = self.add(
            "ELEMENTWISE", (q,), self.shape(q), function="PROD"
        )  # by the root of 1 / sqrt(32), both
        k = self.add("ELEMENTWISE", (k,), self.shape(k), function="PROD")
        x = self.matmul(q, k)
        x = self.add("SOFTMAX", (x,), self.shape(x))
        if guarded:
            odd = self.add("UNARY", (x,), self.shape(x), function="ISNAN")
            x = self.add("SELECT", (odd, x), self.shape(x))
        x = self.matmul(x, v)
        return self.linear(self.turn(x, (rows, WIDTH)), WIDTH)

    def sum(self, x: str, y: str) -> str:
        return self.add("ELEMENTWISE", (x, y), self.shape(x))

    def normalise(self, x: str, y: str) -> str:
        return self.add("NORMALIZATION", (self.sum(x, y),), self.shape(x))

    def feed_forward(self, x: str) -> str:
        return self.normalise(x, self.linear(self.linear(x, HIDDEN, relu=True), WIDTH))

    def mark(self, name: str, rows: int) -> str:
        """Adds an input: a constant of the exported graph."""
        self.tensors[name] = Tensor(name, (rows, WIDTH), "float32")
        return name


def detr(height: int = 800, width: int = 1066) -> Network:
    """DETR with a ResNet-50, 77 GMAC at 800 x 1066; without softmax and suppression."""
    body = resnet50(1, height, width, head=False)
    g = Transformer("detr", (1, 3, height, width))
    g.layers, g.tensors = list(body.layers), dict(body.tensors)
    features = g.conv(body.outputs[0], WIDTH, 1, relu=False)
    cells = math.prod(g.shape(features)[2:])
    memory = g.turn(features, (cells, WIDTH))
    at, queries, x = g.mark("positions", cells), g.mark("queries", QUERIES), g.mark("zero", QUERIES)
    for _ in range(LAYERS):
        key = g.sum(memory, at)
        memory = g.normalise(memory, g.attention(key, key, memory, guarded=True))
        memory = g.feed_forward(memory)
    key = g.sum(memory, at)
    for _ in range(LAYERS):
        query = g.sum(x, queries)
        x = g.normalise(x, g.attention(query, query, x))
        x = g.normalise(x, g.attention(g.sum(x, queries), key, memory, guarded=True))
        x = g.feed_forward(x)
    x = g.add("NORMALIZATION", (x,), g.shape(x))
    classes = g.linear(x, 92)
    boxes = g.linear(g.linear(g.linear(x, WIDTH, relu=True), WIDTH, relu=True), 4)
    boxes = g.add("ACTIVATION", (boxes,), g.shape(boxes), function="SIGMOID")
    inputs = ("input", "positions", "queries", "zero")
    return Network("detr", tuple(g.layers), g.tensors, inputs, (classes, boxes))


def detr_loadables(network: Network, precision: str) -> list[tuple[str, ...]]:
    """Returns TensorRT 10.3's loadables, according to its log's summary.

    The backbone, and in every encoder and decoder layer the projections of its self-attention that
    are side by side: three in FP16, two in INT8. Three more of its 16 loadables are small and left
    out here.
    """
    layers = network.layers
    neck = next(i for i, x in enumerate(layers) if x.kind == "SHUFFLE") - 1
    found = [tuple(layer.name for layer in layers[:neck])]
    products = [i for i, x in enumerate(layers) if x.kind == "MATRIX_MULTIPLY"]
    own = [*products[: 2 * LAYERS : 2], *products[2 * LAYERS :: 4]]  # of self-attention
    for at in own:
        before = [x.name for x in layers[at - 10 : at] if x.op == "Gemm"][-3:]
        found.append(tuple(before[: 3 if precision == "fp16" else 2]))
    return found
