"""YOLO11, its variant for the DLA and three of its loadables, YOLOv10 and YOLO26, written by hand.

YOLO11 and YOLO26 n, s, m, l, x and YOLOv10 n, s, m: Ultralytics, cfg/models/11/yolo11.yaml,
cfg/models/26/yolo26.yaml, cfg/models/v10 and nn/modules. The variant and the loadables:
IntelligentSystemsLabUTV/yolo11_dla.
"""

from __future__ import annotations

from anchor_detr import Transformer

from edgekit.network.model import Network, Tensor

__all__ = ["yolo11", "yolo26", "yolov10"]

YOLO11 = {  # depth / 2, width, limit
    "n": (1, 0.25, 1024),
    "s": (1, 0.5, 1024),
    "m": (1, 1.0, 512),
    "l": (2, 1.0, 512),
    "x": (2, 1.5, 512),
}
YOLOV10 = {
    "n": (1, 0.25, 1024),
    "s": (1, 0.5, 1024),
    "m": (2, 0.75, 768),
}  # depth / 3, width, limit


class Yolo11(Transformer):
    """Adds the blocks of YOLO11 (Ultralytics, nn/modules/block.py)."""

    def __init__(self, name: str, size: int, batch: int = 1) -> None:
        super().__init__(name, (batch, 3, size, size))
        self.silu = True

    def add_input(self, name: str, shape: tuple[int, ...]) -> str:
        """Adds an input."""
        self.tensors[name] = Tensor(name, shape, "float32")
        return name

    def network(self, *outputs: str) -> Network:
        written = {layer.outputs[0] for layer in self.layers}
        inputs = tuple(name for name in self.tensors if name not in written)
        return Network(self.name, tuple(self.layers), self.tensors, inputs, outputs)

    def bottleneck(self, x: str, out: int, share: float) -> str:
        y = self.conv(self.conv(x, int(out * share), 3), out, 3)
        return self.addition(y, x, relu=False)

    def c3k2(self, x: str, out: int, count: int, inner: bool, share: float = 0.5) -> str:
        each = int(out * share)
        x = self.conv(x, 2 * each, 1)
        parts = [self.part(x, each), self.part(x, each)]
        for _ in range(count):
            y = parts[-1]
            if inner:  # a C3k: two bottlenecks beside a shortcut
                side, y = self.conv(y, each // 2, 1), self.conv(y, each // 2, 1)
                for _ in range(2):
                    y = self.bottleneck(y, each // 2, 1)
                y = self.conv(self.concat(y, side), each, 1)
            else:
                y = self.bottleneck(y, each, 0.5)
            parts.append(y)
        return self.conv(self.concat(*parts), out, 1)

    def c2f(self, x: str, out: int, count: int, shortcut: bool, kernel: int = 0) -> str:
        """A C2f; with a kernel, the blocks are inverted ones of YOLOv10 with that kernel inside."""
        each = out // 2
        x = self.conv(x, out, 1)
        parts = [self.part(x, each), self.part(x, each)]
        for _ in range(count):
            y = parts[-1]
            if kernel:
                y = self.conv(self.conv(y, each, 3, groups=each), out, 1)
                y = self.conv(self.conv(y, out, kernel, groups=out), each, 1)
                y = self.conv(y, each, 3, groups=each)
            else:
                y = self.conv(self.conv(y, each, 3), each, 3)
            parts.append(self.addition(y, parts[-1], relu=False) if shortcut else y)
        return self.conv(self.concat(*parts), out, 1)

    def down(self, x: str, out: int) -> str:
        """Halves the map with a pointwise and a depthwise convolution."""
        return self.conv(self.conv(x, out, 1), out, 3, 2, groups=out, relu=False)

    def pyramid(self, x: str, out: int, *, shortcut: bool = False) -> str:
        pools = [self.conv(x, out // 2, 1, relu=not shortcut)]
        for _ in range(3):
            pools.append(self.pool(pools[-1], 1))
        y = self.conv(self.concat(*pools), out, 1)
        return self.addition(y, x, relu=False) if shortcut else y

    def attention_end(self, x: str, out: int) -> str:
        """The last block of YOLO26: one bottleneck and attention."""
        x = self.conv(x, out, 1)
        parts = [self.part(x, out // 2), self.part(x, out // 2)]
        y = self.bottleneck(parts[1], out // 2, 0.5)
        parts.append(self.residual_feed_forward(y, self.attention_block(y)))
        return self.conv(self.concat(*parts), out, 1)

    def edges(self, boxes: list[str], scores: list[str]) -> str:
        """Boxes from their distances, which are no distributions, and scores of all levels."""
        batch = self.shape(boxes[0])[0]
        joined = []
        for levels in (boxes, scores):
            flat = [(batch, self.shape(x)[1], self.shape(x)[2] * self.shape(x)[3]) for x in levels]
            parts = [
                self.add("SHUFFLE", (x,), shape, mode="RESHAPE")
                for x, shape in zip(levels, flat, strict=True)
            ]
            shape = (batch, flat[0][1], sum(tensor[2] for tensor in flat))
            joined.append(self.add("CONCATENATION", tuple(parts), shape))
        cells = self.shape(joined[0])[2]
        sides = [self.part(joined[0], 2) for _ in range(2)]
        sides = [self.add("ELEMENTWISE", (x,), (batch, 2, cells)) for x in sides]
        x = self.add("CONCATENATION", tuple(sides), (batch, 4, cells))
        x = self.add("ELEMENTWISE", (x,), (batch, 4, cells))
        sure = self.add("ACTIVATION", (joined[1],), self.shape(joined[1]))
        return self.add("CONCATENATION", (x, sure), (batch, 4 + self.shape(sure)[1], cells))

    def best(self, x: str, count: int = 300) -> str:
        """The best boxes by their best class, then the best of their classes."""
        batch, channels, cells = self.shape(x)
        x = self.turn(x, (batch, cells, channels))
        scores = self.add("SLICE", (x,), (batch, cells, channels - 4))
        best = self.add("REDUCE", (scores,), (batch, cells))
        best = self.add("TOPK", (best,), (batch, count))
        boxes = self.add("SLICE", (x,), (batch, cells, 4))
        boxes = self.add("GATHER", (boxes, best), (batch, count, 4))
        scores = self.add("GATHER", (scores, best), (batch, count, channels - 4))
        flat = (batch, count * (channels - 4))
        best = self.add(
            "TOPK", (self.add("SHUFFLE", (scores,), flat, mode="RESHAPE"),), (batch, count)
        )
        boxes = self.add("GATHER", (boxes, best), (batch, count, 4))
        return self.add("CONCATENATION", (boxes, best), (batch, count, 6))

    def attention_block(self, x: str) -> str:
        """Attention over all cells with a depthwise convolution of the values beside it."""
        batch, width, height, wide = self.shape(x)
        heads, cells = (batch, width // 64), height * wide
        each = width // (width // 64)
        y = self.conv(x, 2 * width, 1, relu=False)
        query = self.turn(self.part(y, width // 2), (*heads, cells, each // 2))
        key = self.turn(self.part(y, width // 2), (*heads, each // 2, cells))
        value = self.part(y, width)
        scores = self.matmul(query, key)
        scores = self.add("ELEMENTWISE", (scores,), self.shape(scores))
        scores = self.add("SOFTMAX", (scores,), self.shape(scores), axis=3)
        value_turned = self.turn(value, (*heads, cells, each))
        y = self.matmul(self.turn(scores, self.shape(scores)), value_turned)
        return self.project(self.turn(y, (batch, width, height, wide)), value)

    def project(self, x: str, value: str) -> str:
        """Adds a depthwise convolution of the values, and projects."""
        width = self.shape(x)[1]
        place = self.conv(value, width, 3, groups=width, relu=False)
        return self.conv(self.addition(x, place, relu=False), width, 1, relu=False)

    def mixer_block(self, x: str) -> str:
        """The mixer on the DLA: a softmax over channels and a depthwise convolution."""
        width = self.shape(x)[1]
        key = self.conv(x, max(width // 4, 8), 1, relu=False)
        value = self.conv(x, width, 1, relu=False)
        y = self.conv(self.add("SOFTMAX", (key,), self.shape(key)), width, 1, relu=False)
        return self.project(y, value)

    def residual_feed_forward(self, x: str, mixed: str) -> str:
        """Adds the attention's result, then two pointwise convolutions."""
        width = self.shape(x)[1]
        x = self.addition(mixed, x, relu=False)
        wide = self.conv(self.conv(x, 2 * width, 1), width, 1, relu=False)
        return self.addition(wide, x, relu=False)

    def c2psa(self, x: str, count: int, dla: bool) -> str:
        out = self.shape(x)[1]
        x = self.conv(x, out, 1)
        left, y = self.part(x, out // 2), self.part(x, out // 2)
        for _ in range(count):
            y = self.residual_feed_forward(
                y, self.mixer_block(y) if dla else self.attention_block(y)
            )
        return self.conv(self.concat(left, y), out, 1)

    def boxes(self, x: str, inner: int, out: int = 64) -> str:
        return self.conv(self.conv(self.conv(x, inner, 3), inner, 3), out, 1, relu=False)

    def classes(self, x: str, inner: int, count: int) -> str:
        for _ in range(2):
            channels = self.shape(x)[1]
            x = self.conv(self.conv(x, channels, 3, groups=channels), inner, 1)
        return self.conv(x, count, 1, relu=False)


def yolo11(name: str, size: int, batch: int = 1, count: int = 80) -> Network:
    """YOLO11 ``n`` to ``x`` with box decoding, at size x size.

    ``n_dla``: with C2DLA and three raw maps, wholly on a DLA (yolo11_dla in anchors.yaml).
    ``n_backbone``, ``n_neck`` and ``n_classes``: the contents of three of TensorRT's loadables: up
    to the first product of the attention, from the second one to the boxes, and the towers that
    find the classes.
    3.2, 10.8, 34.0, 43.5, 97.5 GMAC for n, s, m, l, x at 640 x 640.
    """
    scale, _, variant = name.partition("_")
    depth, share, limit = YOLO11[scale]
    inner = scale in "mlx"
    g = Yolo11(f"yolo11{name}", size, batch)

    def width(channels: int) -> int:
        return -(-int(min(channels, limit) * share) // 8) * 8

    box, score = max(16, width(256) // 4, 64), max(width(256), min(count, 100))
    if variant in ("neck", "classes"):
        del g.tensors["input"]
    if variant == "classes":
        small, middle, deep = (
            g.add_input(f"map_{level}", (batch, width(channels), *2 * (size // (8 << level),)))
            for level, channels in enumerate((256, 512, 1024))
        )
        return g.network(*(g.classes(x, score, count) for x in (small, middle, deep)))
    half = width(1024) // 2
    if variant == "neck":
        maps = [
            "",
            *(
                g.add_input(f"map_{level}", (batch, width(512), *2 * (size // (8 << level),)))
                for level in range(2)
            ),
        ]
        names = ("left", "right", "value", "product")
        left, x, value, product = (g.add_input(n, (batch, half, *2 * (size // 32,))) for n in names)
        deep_map = g.conv(
            g.concat(left, g.residual_feed_forward(x, g.project(product, value))), 2 * half, 1
        )
    else:
        x, maps = _add_backbone(g, [width(c) for c in (64, 128, 256, 512, 1024)], depth, inner)
        if variant == "backbone":
            x = g.conv(x, 2 * half, 1)
            left, right = g.part(x, half), g.part(x, half)
            return g.network(*maps[1:], left, right, g.conv(right, 2 * half, 1, relu=False))
        deep_map = g.c2psa(x, depth, variant == "dla")
    middle = g.c3k2(g.concat(g.resize(deep_map, 2), maps[2]), width(512), depth, inner)
    small = g.c3k2(g.concat(g.resize(middle, 2), maps[1]), width(256), depth, inner)
    joined = g.concat(g.conv(small, width(256), 3, 2), middle)
    middle = g.c3k2(joined, width(512), depth, inner)
    joined = g.concat(g.conv(middle, width(512), 3, 2), deep_map)
    features = (small, middle, g.c3k2(joined, 2 * half, depth, True))
    if variant == "neck":
        return g.network(*features, *(g.boxes(x, box) for x in features))
    levels = [g.concat(g.boxes(x, box), g.classes(x, score, count)) for x in features]
    return g.network(*levels) if variant == "dla" else g.network(g.decode(levels, count))


def yolo26(name: str, size: int, batch: int = 1, count: int = 80) -> Network:
    """YOLO26 ``n`` to ``x`` with its 300 best boxes.

    2.7, 10.3, 34.1, 43.2, 97.0 GMAC for n, s, m, l, x at 640 x 640.
    """
    depth, share, limit = YOLO11[name]
    g = Yolo11(f"yolo26{name}", size, batch)
    widths = [int(min(out, limit) * share) for out in (64, 128, 256, 512, 1024)]
    x, maps = _add_backbone(g, widths, depth, name in "mlx", shortcut=True)
    deep = g.c2psa(x, depth, dla=False)
    middle = g.c3k2(g.concat(g.resize(deep, 2), maps[2]), widths[3], depth, True)
    small = g.c3k2(g.concat(g.resize(middle, 2), maps[1]), widths[2], depth, True)
    x = g.concat(g.conv(small, widths[2], 3, 2), middle)
    middle = g.c3k2(x, widths[3], depth, True)
    deep = g.attention_end(g.concat(g.conv(middle, widths[3], 3, 2), deep), widths[4])
    features = (small, middle, deep)
    boxes = [g.boxes(x, max(16, widths[2] // 4), 4) for x in features]
    inner = max(widths[2], min(count, 100))
    return g.network(g.best(g.edges(boxes, [g.classes(x, inner, count) for x in features])))


def _add_backbone(
    g: Yolo11, widths: list[int], depth: int, inner: bool, *, shortcut: bool = False
) -> tuple[str, list[str]]:
    """Returns the output of the pooling pyramid and the maps of strides 4, 8 and 16."""
    x = g.conv(g.conv("input", widths[0], 3, 2), widths[1], 3, 2)
    maps = []
    for stage in range(4):
        out = widths[min(stage + 2, 4)] if stage != 2 else widths[3]
        x = g.c3k2(x, out, depth, inner or stage > 1, 0.5 if stage > 1 else 0.25)
        if stage < 3:
            maps.append(x)
            x = g.conv(x, widths[stage + 2], 3, 2)
    return g.pyramid(x, widths[4], shortcut=shortcut), maps


def yolov10(name: str, size: int, batch: int = 1) -> Network:
    """YOLOv10 ``n``, ``s`` or ``m`` with its 300 best boxes; 3.4, 10.8, 29.6 GMAC at 640 x 640."""
    depth, share, limit = YOLOV10[name]
    g = Yolo11(f"yolov10{name}", size, batch)
    widths = [int(min(out, limit) * share) for out in (64, 128, 256, 512, 1024)]
    large, inverted = (0 if name == "m" else 7), name != "n"
    x = g.conv(g.conv("input", widths[0], 3, 2), widths[1], 3, 2)
    x = g.conv(g.c2f(x, widths[1], depth, True), widths[2], 3, 2)
    small = g.c2f(x, widths[2], 2 * depth, True)
    middle = g.c2f(g.down(small, widths[3]), widths[3], 2 * depth, True)
    x = g.c2f(g.down(middle, widths[4]), widths[4], depth, True, (large or 3) * inverted)
    deep = g.c2psa(g.pyramid(x, widths[4]), 1, dla=False)
    middle = g.c2f(g.concat(g.resize(deep, 2), middle), widths[3], depth, False)
    small = g.c2f(g.concat(g.resize(middle, 2), small), widths[2], depth, False)
    x = g.concat(g.conv(small, widths[2], 3, 2), middle)
    middle = g.c2f(x, widths[3], depth, name == "m", 3 * (name == "m"))
    deep = g.c2f(g.concat(g.down(middle, widths[3]), deep), widths[4], depth, True, large or 3)
    box, score = max(16, widths[2] // 4, 64), max(widths[2], 80)
    features = (small, middle, deep)
    levels = [g.concat(g.boxes(x, box), g.classes(x, score, 80)) for x in features]
    return g.network(g.best(g.decode(levels)))
