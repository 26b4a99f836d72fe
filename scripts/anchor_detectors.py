"""Detectors that the cost model is checked on, as layer graphs written by hand.

SSD with ResNet-34 at 1200 x 1200 and RetinaNet with ResNeXt-50 32x4d at 800 x 800 (MLPerf
inference, vision reference models) and YOLOv8 n, s, m (Ultralytics, cfg/models/v8/yolov8.yaml).
"""

from __future__ import annotations

from anchor_networks import Graph

from edgekit.network import Network

__all__ = ["retinanet", "ssd_resnet34", "yolov8"]

YOLO = {"n": (1, 0.25, 1024), "s": (1, 0.5, 1024), "m": (2, 0.75, 768)}  # depth / 3, width, limit


def ssd_resnet34(batch: int = 1) -> Network:
    """About 215 GMAC; the third stage keeps its stride of 8; without box decoding."""
    g = Graph("ssd_resnet34", (batch, 3, 1200, 1200))
    x = g.pool(g.conv("input", 64, 7, 2), 2)
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256))):
        for block in range(blocks):
            stride = 2 if stage == 1 and not block else 1
            y = g.conv(g.conv(x, width, 3, stride), width, 3, relu=False)
            if stage and not block:
                x = g.conv(x, width, 1, stride, relu=False)
            x = g.addition(y, x)
    maps = [x]
    for inner, out, stride in (
        (256, 512, 2),
        (256, 512, 2),
        (128, 256, 2),
        (128, 256, 2),
        (128, 256, 1),
    ):
        x = g.conv(g.conv(x, inner, 1), out, 3, stride)
        maps.append(x)
    heads = []
    for feature, boxes, stride in zip(maps, (4, 6, 6, 6, 4, 4), (3, 3, 3, 3, 3, 3), strict=True):
        heads.append(g.conv(feature, 4 * boxes, 3, stride, relu=False))
        heads.append(g.conv(feature, 81 * boxes, 3, stride, relu=False))
    return g.network(*heads)


def retinanet(batch: int = 1) -> Network:
    """Five levels of 256 channels, 9 anchors, 264 classes; without box decoding."""
    g = Graph("retinanet", (batch, 3, 800, 800))
    x = g.pool(g.conv("input", 64, 7, 2), 2)
    stages = []
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner, out = 128 << stage, 256 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = g.conv(g.conv(g.conv(x, inner, 1), inner, 3, stride, groups=32), out, 1, relu=False)
            if not block:
                x = g.conv(x, out, 1, stride, relu=False)
            x = g.addition(y, x)
        stages.append(x)
    levels, top = [], ""
    for x in reversed(stages[1:]):
        side = g.conv(x, 256, 1, relu=False)
        top = g.addition(side, g.resize(top, 2), relu=False) if top else side
        levels.insert(0, g.conv(top, 256, 3, relu=False))
    levels.append(g.conv(levels[-1], 256, 3, 2))
    levels.append(g.conv(levels[-1], 256, 3, 2))
    heads = []
    for level in levels:
        for out in (9 * 264, 9 * 4):
            x = level
            for _ in range(4):
                x = g.conv(x, 256, 3)
            heads.append(g.conv(x, out, 3, relu=False))
    return g.network(*heads)


def yolov8(name: str, size: int, batch: int = 1) -> Network:
    """YOLOv8 ``n``, ``s`` or ``m`` for 80 classes with its box decoding, at size x size."""
    depth, share, limit = YOLO[name]
    g = Graph(f"yolov8{name}", (batch, 3, size, size))
    g.silu = True

    def width(channels: int) -> int:
        return max(8, round(min(channels, limit) * share / 8) * 8)

    def block(x: str, channels: int, count: int, shortcut: bool = True) -> str:
        out = width(channels)
        x = g.conv(x, out, 1)
        parts = [g.part(x, out // 2), g.part(x, out // 2)]
        for _ in range(count):
            y = g.conv(g.conv(parts[-1], out // 2, 3), out // 2, 3)
            parts.append(g.addition(y, parts[-1], relu=False) if shortcut else y)
        return g.conv(g.concat(*parts), out, 1)

    x = g.conv(g.conv("input", width(64), 3, 2), width(128), 3, 2)
    maps = []
    for channels, count in ((128, depth), (256, 2 * depth), (512, 2 * depth), (1024, depth)):
        if channels > 128:
            x = g.conv(x, width(channels), 3, 2)
        x = block(x, channels, count)
        maps.append(x)
    pools = [g.conv(x, width(1024) // 2, 1)]
    for _ in range(3):
        pools.append(g.pool(pools[-1], 1))
    deep = g.conv(g.concat(*pools), width(1024), 1)
    middle = block(g.concat(g.resize(deep, 2), maps[2]), 512, depth, False)
    small = block(g.concat(g.resize(middle, 2), maps[1]), 256, depth, False)
    down = g.concat(g.conv(small, width(256), 3, 2), middle)
    middle = block(down, 512, depth, False)
    deep = block(g.concat(g.conv(middle, width(512), 3, 2), deep), 1024, depth, False)
    outputs = []
    boxes, classes = max(16, width(256) // 4, 64), max(width(256), 80)
    for x in (small, middle, deep):
        parts = [
            g.conv(g.conv(g.conv(x, inner, 3), inner, 3), last, 1, relu=False)
            for inner, last in ((boxes, 64), (classes, 80))
        ]
        outputs.append(g.concat(*parts))
    return g.network(g.decode(outputs))
