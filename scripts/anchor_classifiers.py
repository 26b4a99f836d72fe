"""Classifiers and backbones that the cost model is checked on, as layer graphs written by hand.

ResNet-18 and 34 (He et al., 2015), a RetinaNet on ResNet-34 (Lin et al., 2017) and the FCN of
dusty-nv/pytorch-segmentation, MobileNet-v1 (Howard et al., 2017), MobileNet-v3 (Howard et al.,
2019, tables 1 and 2), VGG-19 (Simonyan and Zisserman, 2014), Inception-v4 (Szegedy et al., 2016)
and the image encoder of CLIP (ViT-B/32; Dosovitskiy et al., 2020; Radford et al., 2021).
"""

from __future__ import annotations

from anchor_detr import Transformer
from anchor_networks import Graph

from edgekit.network import Network

__all__ = [
    "fcn_resnet18",
    "inception_v4",
    "mobilenet",
    "mobilenetv3",
    "resnet18",
    "resnet34",
    "resnet34_backbone",
    "retinanet_resnet34",
    "vgg19",
    "vit_b32",
]

# kernel, expanded, out, squeeze and excitation, h-swish instead of ReLU, stride
V3_SMALL = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip
V3_LARGE = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip


def _basic_stages(g: Graph, blocks: tuple[int, ...]) -> list[str]:
    """Adds a ResNet of basic blocks and returns what its stages give."""
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
    levels, top = [], ""
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
            y = g.add("ELEMENTWISE", (y, share), g.tensors[y].shape)
        y = g.conv(y, out, 1, relu=False)
        x = g.addition(y, x, relu=False) if stride == 1 and before == out else y
    wide, hidden = (576, 1024) if name == "small" else (960, 1280)
    x = g.add("REDUCE", (conv(x, wide, 1, depth=False, swish=True),), (batch, wide, 1, 1))
    x = conv(x, hidden, 1, depth=False, swish=True)
    return g.network(g.conv(x, classes, 1, relu=False))


def vgg19(batch: int = 1) -> Network:
    """19.6 GMAC at 224 x 224; the softmax at its end is left out."""
    g = Graph("vgg19", (batch, 3, 224, 224))
    x = "input"
    for out, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            x = g.conv(x, out, 3)
        x = g.pool(x, 2)
    x = g.add("SHUFFLE", (x,), (batch, 512 * 7 * 7, 1, 1), mode="RESHAPE")
    return g.network(g.conv(g.conv(g.conv(x, 4096, 1), 4096, 1), 1000, 1, relu=False))


def inception_v4(batch: int = 1) -> Network:
    """12.3 GMAC at 299 x 299; the softmax at its end is left out."""
    g = Graph("inception_v4", (batch, 3, 299, 299))

    def chain(x: str, *steps: tuple[int, int | tuple[int, int]]) -> str:
        for out, kernel in steps:
            x = g.conv(x, out, kernel)
        return x

    def down(x: str, out: int) -> str:
        return g.conv(x, out, 3, 2, padded=False)

    wide, high = (1, 7), (7, 1)
    x = g.conv(g.conv(down("input", 32), 32, 3, padded=False), 64, 3)
    x = g.concat(g.pool(x, 2, 2), down(x, 96))
    x = g.concat(
        g.conv(g.conv(x, 64, 1), 96, 3, padded=False),
        g.conv(chain(x, (64, 1), (64, wide), (64, high)), 96, 3, padded=False),
    )
    x = g.concat(down(x, 192), g.pool(x, 2, 2))
    for _ in range(4):
        x = g.concat(
            chain(g.pool(x, 1), (96, 1)),
            chain(x, (96, 1)),
            chain(x, (64, 1), (96, 3)),
            chain(x, (64, 1), (96, 3), (96, 3)),
        )
    x = g.concat(g.pool(x, 2, 2), down(x, 384), down(chain(x, (192, 1), (224, 3)), 256))
    for _ in range(7):
        x = g.concat(
            chain(g.pool(x, 1), (128, 1)),
            chain(x, (384, 1)),
            chain(x, (192, 1), (224, wide), (256, high)),
            chain(x, (192, 1), (192, wide), (224, high), (224, wide), (256, high)),
        )
    x = g.concat(
        g.pool(x, 2, 2),
        down(chain(x, (192, 1)), 192),
        down(chain(x, (256, 1), (256, wide), (320, high)), 320),
    )
    for _ in range(3):
        short = chain(x, (384, 1))
        long = chain(x, (384, 1), (448, (1, 3)), (512, (3, 1)))
        x = g.concat(
            chain(g.pool(x, 1), (256, 1)),
            chain(x, (256, 1)),
            chain(short, (256, (1, 3))),
            chain(short, (256, (3, 1))),
            chain(long, (256, (3, 1))),
            chain(long, (256, (1, 3))),
        )
    return g.network(g.head(x, 1000))


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
        q = g.add("ELEMENTWISE", (q,), g.shape(q))
        y = g.matmul(q, k)
        y = g.matmul(g.add("SOFTMAX", (y,), g.shape(y)), v)
        x = g.sum(x, g.linear(g.turn(y, (batch * tokens, width)), width))
        y = g.linear(g.add("NORMALIZATION", (x,), g.shape(x)), 4 * width)
        gate = g.add("ACTIVATION", (y,), g.shape(y))
        x = g.sum(x, g.linear(g.sum(y, gate), width))
    x = g.add("SLICE", (x,), (batch, width))
    return g.network(g.linear(g.add("NORMALIZATION", (x,), g.shape(x)), 512))
