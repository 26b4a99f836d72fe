"""Classifiers and backbones that the cost model is checked on, as layer graphs written by hand.

ResNet-18 and 34 (He et al., 2015), a RetinaNet on ResNet-34 (Lin et al., 2017) and the FCN of
dusty-nv/pytorch-segmentation, MobileNet-v1 (Howard et al., 2017), MobileNet-v3 (Howard et al.,
2019, tables 1 and 2), MixNet (Tan and Le, 2019, as in netspresso-trainer), ReduceFormer (Yang et
al., 2024, as in NVIDIA/DL4AGX) and the image encoder of CLIP (ViT-B/32; Dosovitskiy et al., 2020;
Radford et al., 2021).
"""

from __future__ import annotations

from anchor_detr import Transformer
from anchor_networks import Graph

from edgekit.network.model import Network

__all__ = [
    "fcn_resnet18",
    "mixnet",
    "mobilenet",
    "mobilenetv3",
    "reduceformer",
    "resnet18",
    "resnet34",
    "resnet34_backbone",
    "retinanet_resnet34",
    "vit_b32",
]

# kernel, expanded, out, squeeze and excitation, h-swish instead of ReLU, stride
V3_SMALL = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)
V3_LARGE = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)

# blocks, expansion, out, kernels, groups of the expansion and of the projection, stride, swish
# instead of ReLU, input over squeezed channels
MIX_S = (
    (1, 1, 16, (3,), 1, 1, 1, False, 0),
    (1, 6, 24, (3,), 2, 2, 2, False, 0),
    (1, 3, 24, (3,), 2, 2, 1, False, 0),
    (1, 6, 40, (3, 5, 7), 1, 1, 2, True, 2),
    (3, 6, 40, (3, 5), 2, 2, 1, True, 2),
    (1, 6, 80, (3, 5, 7), 1, 2, 2, True, 4),
    (2, 6, 80, (3, 5), 1, 2, 1, True, 4),
    (1, 6, 120, (3, 5, 7), 2, 2, 1, True, 2),
    (2, 3, 120, (3, 5, 7, 9), 2, 2, 1, True, 2),
    (1, 6, 200, (3, 5, 7, 9, 11), 1, 1, 2, True, 2),
    (2, 6, 200, (3, 5, 7, 9), 1, 2, 1, True, 2),
)
MIX_M = (
    (1, 1, 24, (3,), 1, 1, 1, False, 0),
    (1, 6, 32, (3, 5, 7), 2, 2, 2, False, 0),
    (1, 3, 32, (3,), 2, 2, 1, False, 0),
    (1, 6, 40, (3, 5, 7, 9), 1, 1, 2, True, 2),
    (3, 6, 40, (3, 5), 2, 2, 1, True, 2),
    (1, 6, 80, (3, 5, 7), 1, 1, 2, True, 4),
    (3, 6, 80, (3, 5, 7, 9), 2, 2, 1, True, 4),
    (1, 6, 120, (3,), 1, 1, 1, True, 2),
    (3, 3, 120, (3, 5, 7, 9), 2, 2, 1, True, 2),
    (1, 6, 200, (3, 5, 7, 9), 1, 1, 2, True, 2),
    (3, 6, 200, (3, 5, 7, 9), 1, 2, 1, True, 2),
)
REDUCE = {  # widths, blocks of the stages, of the classifier
    "b1": ((16, 32, 64, 128, 256), (1, 2, 3, 3, 4), (1536, 1600)),
    "b3": ((32, 64, 128, 256, 512), (1, 4, 6, 6, 9), (2304, 2560)),
}


def _basic_stages(g: Graph, blocks: tuple[int, ...]) -> list[str]:
    """Adds a ResNet of basic blocks and returns its stages' outputs."""
    x = g.pool(g.conv("input", 64, 7, 2), 2)
    stages = []
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = g.conv(g.conv(x, width, 3, stride), width, 3, relu=False)
            if stage and not block:
                x = g.conv(x, width, 1, stride, relu=False)
            x = g.addition(y, x)
        stages.append(x)
    return stages


def resnet18(
    batch: int = 1, height: int = 224, width: int = 224, *, classes: int = 1000
) -> Network:
    """1.8 GMAC at 224 x 224."""
    g = Graph("resnet18", (batch, 3, height, width))
    return g.network(g.head(_basic_stages(g, (2, 2, 2, 2))[-1], classes))


def resnet34(
    batch: int = 1, height: int = 224, width: int = 224, *, classes: int = 1000
) -> Network:
    """3.7 GMAC at 224 x 224."""
    g = Graph("resnet34", (batch, 3, height, width))
    return g.network(g.head(_basic_stages(g, (3, 4, 6, 3))[-1], classes))


def resnet34_backbone(batch: int = 1, height: int = 224, width: int = 224) -> Network:
    """Without its mean over pixels and its classes."""
    g = Graph("resnet34_backbone", (batch, 3, height, width))
    return g.network(_basic_stages(g, (3, 4, 6, 3))[-1])


def retinanet_resnet34(batch: int = 1, height: int = 768, width: int = 1280) -> Network:
    """Five levels of 256 channels, 9 anchors, 3 classes; without box decoding."""
    g = Graph("retinanet_resnet34", (batch, 3, height, width))
    stages = _basic_stages(g, (3, 4, 6, 3))[1:]
    levels: list[str] = []
    top = ""
    for x in reversed(stages):
        side = g.conv(x, 256, 1, relu=False)
        top = g.addition(side, g.resize(top, 2), relu=False) if top else side
        levels.insert(0, g.conv(top, 256, 3, relu=False))
    levels.append(g.conv(stages[-1], 256, 3, 2, relu=False))
    rectified = g.add("ACTIVATION", (levels[-1],), g.tensors[levels[-1]].shape)
    levels.append(g.conv(rectified, 256, 3, 2, relu=False))
    heads = []
    for level in levels:
        for out in (9 * 3, 9 * 4):
            x = level
            for _ in range(4):
                x = g.conv(x, 256, 3)
            heads.append(g.conv(x, out, 3, relu=False))
    return g.network(*heads)


def fcn_resnet18(batch: int, height: int, width: int) -> Network:
    """ResNet-18 and two convolutions for 21 classes on its grid, which is not enlarged."""
    g = Graph("fcn_resnet18", (batch, 3, height, width))
    x = g.conv(_basic_stages(g, (2, 2, 2, 2))[-1], 128, 3)
    return g.network(g.conv(x, 21, 1, relu=False))


def mobilenet(batch: int = 1) -> Network:
    """MobileNet-v1 at 224 x 224, 0.57 GMAC; the softmax at its end is left out."""
    g = Graph("mobilenet", (batch, 3, 224, 224))
    x = g.conv("input", 32, 3, 2)
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    for number, out in enumerate(widths):
        channels = g.tensors[x].shape[1]
        x = g.conv(x, channels, 3, 2 if number in (1, 3, 5, 11) else 1, groups=channels)
        x = g.conv(x, out, 1)
    return g.network(g.head(x, 1001))


def mobilenetv3(
    name: str, batch: int = 1, height: int = 224, width: int = 224, *, classes: int = 1000
) -> Network:
    """``small`` (0.06 GMAC) or ``large`` (0.22 GMAC); h-swish is a hard sigmoid and a product."""
    g = Graph(f"mobilenetv3_{name}", (batch, 3, height, width))

    def conv(x: str, out: int, kernel: int, stride: int = 1, *, depth: bool, swish: bool) -> str:
        g.silu = swish
        y = g.conv(x, out, kernel, stride, groups=g.tensors[x].shape[1] if depth else 1)
        g.silu = False
        return y

    x = conv("input", 16, 3, 2, depth=False, swish=True)
    for kernel, inner, out, squeezed, swish, stride in V3_SMALL if name == "small" else V3_LARGE:
        before = g.tensors[x].shape[1]
        y = x if inner == before else conv(x, inner, 1, depth=False, swish=swish)
        y = conv(y, inner, kernel, stride, depth=True, swish=swish)
        if squeezed:
            mean = g.add("REDUCE", (y,), (batch, inner, 1, 1))
            mean = g.conv(mean, max(8, (inner // 4 + 4) // 8 * 8), 1)
            share = g.conv(mean, inner, 1)
            y = g.add("ELEMENTWISE", (y, share), g.tensors[y].shape, function="PROD")
        y = g.conv(y, out, 1, relu=False)
        x = g.addition(y, x, relu=False) if stride == 1 and before == out else y
    wide, hidden = (576, 1024) if name == "small" else (960, 1280)
    x = g.add("REDUCE", (conv(x, wide, 1, depth=False, swish=True),), (batch, wide, 1, 1))
    x = conv(x, hidden, 1, depth=False, swish=True)
    return g.network(g.conv(x, classes, 1, relu=False))


def mixnet(
    name: str, batch: int = 1, height: int = 224, width: int = 224, *, classes: int = 1000
) -> Network:
    """``s``, ``m`` or ``l``, 0.25, 0.35 and 0.56 GMAC; the depthwise kernels differ by channels."""
    g = Graph(f"mixnet_{name}", (batch, 3, height, width))
    share = 1.3 if name == "l" else 1.0

    def wide(channels: int) -> int:
        return channels if share == 1 else int(channels * share + 4) // 8 * 8

    def parts(x: str, count: int) -> list[str]:
        return [g.part(x, g.tensors[x].shape[1] // count) for _ in range(count)]

    def point(x: str, out: int, groups: int, act: bool) -> str:
        if groups == 1:
            return g.conv(x, out, 1, relu=act)
        y = g.concat(*(g.conv(part, out // groups, 1, relu=False) for part in parts(x, groups)))
        return active(y) if act else y

    def active(x: str) -> str:
        y = g.add("ACTIVATION", (x,), g.tensors[x].shape, function="SIGMOID")
        return g.add("ELEMENTWISE", (x, y), g.tensors[x].shape, function="PROD") if g.silu else y

    x = g.conv("input", wide(16 if name == "s" else 24), 3, 2)
    for count, times, out, kernels, expanded, projected, step, swish, ratio in (
        MIX_S if name == "s" else MIX_M
    ):
        for number in range(count):
            g.silu = swish
            before, stride = g.tensors[x].shape[1], 1 if number else step
            inner = before * times
            y = point(x, inner, expanded, act=True) if times > 1 else x
            if len(kernels) == 1:
                y = g.conv(y, inner, kernels[0], stride, groups=inner)
            else:
                each = inner // len(kernels)
                mixed = zip(parts(y, len(kernels)), kernels, strict=True)
                y = g.concat(*(g.conv(a, each, k, stride, each, relu=False) for a, k in mixed))
                y = active(y)
            if ratio:
                mean = g.add("REDUCE", (y,), (batch, inner, 1, 1))
                gate = g.conv(g.conv(mean, before // ratio, 1), inner, 1, relu=False)
                gate = g.add("ACTIVATION", (gate,), (batch, inner, 1, 1), function="SIGMOID")
                y = g.add("ELEMENTWISE", (y, gate), g.tensors[y].shape, function="PROD")
            y = point(y, wide(out), projected, act=False)
            x = g.addition(y, x, relu=False) if stride == 1 and before == wide(out) else y
    g.silu = False
    return g.network(g.head(g.conv(x, 1536, 1), classes))


def reduceformer(name: str, size: int, batch: int = 1) -> Network:
    """``b1`` or ``b3``, 0.52 and 3.87 GMAC at 224 x 224, with h-swish."""
    widths, depths, head = REDUCE[name]
    g = Graph(f"reduceformer_{name}", (batch, 3, size, size))
    g.silu = True

    def local(x: str, out: int, stride: int = 1, times: int = 4) -> str:
        before = g.tensors[x].shape[1]
        y = g.conv(x, before * times, 1) if times > 1 else x
        y = g.conv(y, before * times, 3, stride, groups=before * times)
        y = g.conv(y, out, 1, relu=False)
        return g.addition(y, x, relu=False) if stride == 1 else y

    def context(x: str) -> str:
        _, channels, *rest = g.tensors[x].shape
        qkv = g.conv(x, 3 * channels, 1, relu=False)
        far = g.conv(qkv, 3 * channels, 5, groups=3 * channels, relu=False)
        split = (batch, 3, channels, *rest)
        both = [g.add("SHUFFLE", (y,), split, mode="RESHAPE") for y in (qkv, far)]
        y = g.add("CONCATENATION", tuple(both), (batch, 3, 2 * channels, *rest))
        shape, reduced = (batch, 2 * channels, *rest), (batch, 2 * channels, 1, 1)
        q, k, v = (g.add("SLICE", (y,), shape) for _ in range(3))
        q, k = (g.add("ACTIVATION", (y,), shape) for y in (q, k))
        sum_k = g.add("REDUCE", (k,), reduced)
        sum_v = g.add(
            "REDUCE", (g.add("ELEMENTWISE", (v, sum_k), shape, function="PROD"),), reduced
        )
        sum_kv = g.add(
            "REDUCE", (g.add("ELEMENTWISE", (k, sum_v), shape, function="PROD"),), reduced
        )
        sum_q = g.add("REDUCE", (q,), (batch, 1, *rest))
        top = g.add("ELEMENTWISE", (q, sum_kv), shape, function="PROD")
        under = g.add("ELEMENTWISE", (sum_q, sum_k), shape, function="PROD")
        y = g.add(
            "ELEMENTWISE", (top, g.add("ELEMENTWISE", (under,), shape, function="PROD")), shape
        )
        return g.addition(g.conv(y, channels, 1, relu=False), x, relu=False)

    x = g.conv("input", widths[0], 3, 2)
    for _ in range(depths[0]):
        x = local(x, widths[0], times=1)
    for stage in range(1, 5):
        x = local(x, widths[stage], 2)
        for _ in range(depths[stage] - (stage < 3)):
            x = local(x if stage < 3 else context(x), widths[stage])
    x = g.conv(x, head[0], 1)
    x = g.add("REDUCE", (x,), (batch, head[0], 1, 1))
    x = g.conv(x, head[1], 1, relu=False)
    x = g.add("NORMALIZATION", (x,), g.tensors[x].shape)
    gate = g.add("ACTIVATION", (x,), g.tensors[x].shape, function="SIGMOID")
    x = g.add("ELEMENTWISE", (x, gate), g.tensors[x].shape, function="PROD")
    return g.network(g.conv(x, 1000, 1, relu=False))


def vit_b32(batch: int = 1) -> Network:
    """CLIP's image encoder at 224 x 224: 12 layers of 768 features and 12 heads, 50 tokens."""
    g = Transformer("vit_b32", (batch, 3, 224, 224))
    width, heads, tokens = 768, 12, 50
    patches = g.turn(g.conv("input", width, 32, 32, relu=False), (batch, 49, width))
    x = g.add("CONCATENATION", (patches,), (batch, tokens, width))
    x = g.add("ELEMENTWISE", (x,), (batch, tokens, width))  # positions
    x = g.add("SHUFFLE", (x,), (batch * tokens, width), mode="RESHAPE")
    x = g.add("NORMALIZATION", (x,), g.shape(x))
    for _ in range(12):
        y = g.linear(g.add("NORMALIZATION", (x,), g.shape(x)), 3 * width)
        parts = [g.add("SLICE", (y,), (batch * tokens, width)) for _ in range(3)]
        each = width // heads
        q = g.turn(parts[0], (batch * heads, tokens, each))
        k = g.turn(parts[1], (batch * heads, each, tokens))
        v = g.turn(parts[2], (batch * heads, tokens, each))
        q = g.add("ELEMENTWISE", (q,), g.shape(q), function="PROD")
        y = g.matmul(q, k)
        y = g.matmul(g.add("SOFTMAX", (y,), g.shape(y)), v)
        x = g.sum(x, g.linear(g.turn(y, (batch * tokens, width)), width))
        y = g.linear(g.add("NORMALIZATION", (x,), g.shape(x)), 4 * width)
        gate = g.add("ACTIVATION", (y,), g.shape(y))
        x = g.sum(x, g.linear(g.sum(y, gate), width))
    x = g.add("SLICE", (x,), (batch, width))
    return g.network(g.linear(g.add("NORMALIZATION", (x,), g.shape(x)), 512))
