"""Detectors that the cost model is checked on, as layer graphs written by hand.

SSD with ResNet-34 at 1200 x 1200 and RetinaNet with ResNeXt-50 32x4d at 800 x 800 (MLPerf
inference, vision reference models), YOLOv8 n, s, m (Ultralytics, cfg/models/v8/yolov8.yaml), YOLOX
nano, tiny, s, m, l (Megvii-BaseDetection/YOLOX, yolox/models), YOLOv5 s (Ultralytics v7.0,
models/yolov5s.yaml), YOLOv3 (Redmon, darknet, cfg/yolov3.cfg), YOLOv7 (WongKinYiu,
cfg/deploy/yolov7.yaml) and CenterPoint (Yin et al., 2021, with VoxelNet at 0.075 m on nuScenes).
"""

from __future__ import annotations

from anchor_networks import Graph

from edgekit.network.model import Network

__all__ = [
    "centerpoint",
    "retinanet",
    "ssd_resnet34",
    "yolov3",
    "yolov5s",
    "yolov7",
    "yolov8",
    "yolox",
]

YOLOX = {
    "n": (1, 0.25),
    "t": (1, 0.375),
    "s": (1, 0.5),
    "m": (2, 0.75),
    "l": (3, 1),
}  # depth / 3, width
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
    levels: list[str] = []
    top = ""
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


def yolox(name: str, size: int, batch: int = 1, classes: int = 80) -> Network:
    """YOLOX ``n`` (depthwise), ``t``, ``s``, ``m`` or ``l``, at size x size.

    13.4 GMAC for s and 36.9 for m at 640 x 640, 3.2 for t and 0.54 for n at 416 x 416. ``s_leaky``
    has LeakyReLU.
    """
    name, _, variant = name.partition("_")
    depth, share = YOLOX[name]
    g = Graph(f"yolox{name}", (batch, 3, size, size))
    g.silu = variant != "leaky"
    base = int(64 * share)

    def wide(x: str, out: int, stride: int = 1) -> str:
        if name != "n":
            return g.conv(x, out, 3, stride)
        channels = g.tensors[x].shape[1]
        return g.conv(g.conv(x, channels, 3, stride, groups=channels), out, 1)

    def block(x: str, out: int, count: int, shortcut: bool = False) -> str:
        left, right = g.conv(x, out // 2, 1), g.conv(x, out // 2, 1)
        for _ in range(count):
            y = wide(g.conv(left, out // 2, 1), out // 2)
            left = g.addition(y, left, relu=False) if shortcut else y
        return g.conv(g.concat(left, right), out, 1)

    focus = (batch, 3, size // 2, size // 2)
    x = g.conv(g.concat(*(g.add("SLICE", ("input",), focus) for _ in range(4))), base, 3)
    maps = []
    for times, count in ((2, depth), (4, 3 * depth), (8, 3 * depth)):
        x = block(wide(x, times * base, 2), times * base, count, True)
        maps.append(x)
    x = g.conv(wide(x, 16 * base, 2), 8 * base, 1)
    x = g.conv(g.concat(x, *(g.pool(x, 1) for _ in range(3))), 16 * base, 1)
    deep = g.conv(block(x, 16 * base, depth), 8 * base, 1)
    middle = block(g.concat(g.resize(deep, 2), maps[2]), 8 * base, depth)
    middle = g.conv(middle, 4 * base, 1)
    small = block(g.concat(g.resize(middle, 2), maps[1]), 4 * base, depth)
    middle = block(g.concat(wide(small, 4 * base, 2), middle), 8 * base, depth)
    deep = block(g.concat(wide(middle, 8 * base, 2), deep), 16 * base, depth)
    levels = []
    for feature in (small, middle, deep):
        x = g.conv(feature, 4 * base, 1)
        kinds, boxes = (wide(wide(x, 4 * base), 4 * base) for _ in range(2))
        scores = [g.conv(y, out, 1, relu=False) for y, out in ((boxes, 1), (kinds, classes))]
        sure = [g.add("ACTIVATION", (y,), g.tensors[y].shape, function="SIGMOID") for y in scores]
        level = g.concat(g.conv(boxes, 4, 1, relu=False), *sure)
        shape = g.tensors[level].shape
        flat = (batch, shape[1], shape[2] * shape[3])
        levels.append(g.add("SHUFFLE", (level,), flat, mode="RESHAPE"))
    cells = sum(g.tensors[level].shape[2] for level in levels)
    return g.network(g.add("CONCATENATION", tuple(levels), (batch, 5 + classes, cells)))


def yolov3(size: int, batch: int = 1) -> Network:
    """32.9 GMAC at 416 x 416; without box decoding."""
    g = Graph("yolov3", (batch, 3, size, size))
    x = g.conv("input", 32, 3)
    maps = []
    for out, count in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        x = g.conv(x, out, 3, 2)
        for _ in range(count):
            x = g.addition(g.conv(g.conv(x, out // 2, 1), out, 3), x, relu=False)
        maps.append(x)
    heads = []
    for width in (512, 256, 128):
        for _ in range(2):
            x = g.conv(g.conv(x, width, 1), 2 * width, 3)
        x = g.conv(x, width, 1)
        heads.append(g.conv(g.conv(x, 2 * width, 3), 255, 1, relu=False))
        if width > 128:
            x = g.concat(g.resize(g.conv(x, width // 2, 1), 2), maps[width // 256 + 1])
    return g.network(*heads)


def yolov5s(size: int, batch: int = 1) -> Network:
    """8.2 GMAC at 640 x 640; without box decoding, as for the DLA in cuDLA-samples."""
    g = Graph("yolov5s", (batch, 3, size, size))
    g.silu = True

    def block(x: str, out: int, count: int, shortcut: bool = True) -> str:
        left, right = g.conv(x, out // 2, 1), g.conv(x, out // 2, 1)
        for _ in range(count):
            y = g.conv(g.conv(left, out // 2, 1), out // 2, 3)
            left = g.addition(y, left, relu=False) if shortcut else y
        return g.conv(g.concat(left, right), out, 1)

    x = g.conv("input", 32, 6, 2)
    maps = []
    for out, count in ((64, 1), (128, 2), (256, 3), (512, 1)):
        x = block(g.conv(x, out, 3, 2), out, count)
        maps.append(x)
    pools = [g.conv(x, 256, 1)]
    for _ in range(3):
        pools.append(g.pool(pools[-1], 1))
    deep = g.conv(g.conv(g.concat(*pools), 512, 1), 256, 1)
    middle = g.conv(block(g.concat(g.resize(deep, 2), maps[2]), 256, 1, False), 128, 1)
    small = block(g.concat(g.resize(middle, 2), maps[1]), 128, 1, False)
    middle = block(g.concat(g.conv(small, 128, 3, 2), middle), 256, 1, False)
    deep = block(g.concat(g.conv(middle, 256, 3, 2), deep), 512, 1, False)
    return g.network(*(g.conv(x, 255, 1, relu=False) for x in (small, middle, deep)))


def yolov7(size: int, batch: int = 1) -> Network:
    """52 GMAC at 640 x 640, with its box decoding."""
    g = Graph("yolov7", (batch, 3, size, size))
    g.silu = True

    def block(x: str, inner: int, out: int) -> str:
        parts = [g.conv(x, inner, 1), g.conv(x, inner, 1)]
        for _ in range(2):
            parts.append(g.conv(g.conv(parts[-1], inner, 3), inner, 3))
        return g.conv(g.concat(*reversed(parts)), out, 1)

    def joined(x: str, out: int) -> str:
        parts = [g.conv(x, out, 1), g.conv(x, out, 1)]
        for _ in range(4):
            parts.append(g.conv(parts[-1], out // 2, 3))
        return g.conv(g.concat(*reversed(parts)), out, 1)

    def down(x: str, out: int, *more: str) -> str:
        pooled = g.conv(g.pool(x, 2), out, 1)
        return g.concat(g.conv(g.conv(x, out, 1), out, 3, 2), pooled, *more)

    x = g.conv(g.conv("input", 32, 3), 64, 3, 2)
    x = block(g.conv(g.conv(x, 64, 3), 128, 3, 2), 64, 256)
    maps = []
    for inner, out in ((128, 512), (256, 1024), (256, 1024)):
        x = block(down(x, g.tensors[x].shape[1] // 2), inner, out)
        maps.append(x)
    y = g.conv(g.conv(g.conv(x, 512, 1), 512, 3), 512, 1)
    y = g.conv(g.conv(g.concat(y, *(g.pool(y, 1) for _ in range(3))), 512, 1), 512, 3)
    deep = g.conv(g.concat(y, g.conv(x, 512, 1)), 512, 1)
    up = g.resize(g.conv(deep, 256, 1), 2)
    middle = joined(g.concat(g.conv(maps[1], 256, 1), up), 256)
    up = g.resize(g.conv(middle, 128, 1), 2)
    small = joined(g.concat(g.conv(maps[0], 128, 1), up), 128)
    middle = joined(down(small, 128, middle), 256)
    deep = joined(down(middle, 256, deep), 512)
    levels = []
    for feature, out in ((small, 256), (middle, 512), (deep, 1024)):
        x = g.conv(g.conv(feature, out, 3), 255, 1, relu=False)
        height, width = g.tensors[x].shape[2:]
        shape = (batch, 3, height, width, 85)
        x = g.add("SHUFFLE", (x,), shape, mode="TRANSPOSE")
        x = g.add("ACTIVATION", (x,), shape)
        parts = [g.add("SLICE", (x,), (*shape[:4], part)) for part in (2, 2, 81)]
        parts[:2] = [
            g.add("ELEMENTWISE", (y,), g.tensors[y].shape, function="PROD") for y in parts[:2]
        ]
        x = g.add("CONCATENATION", tuple(parts), shape)
        levels.append(g.add("SHUFFLE", (x,), (batch, 3 * height * width, 85), mode="RESHAPE"))
    cells = sum(g.tensors[level].shape[1] for level in levels)
    return g.network(g.add("CONCATENATION", tuple(levels), (batch, cells, 85)))


def centerpoint(batch: int = 1) -> Network:
    """Its network over the bird's eye view, from 256 channels of 180 x 180: six tasks, 116 GMAC."""
    g = Graph("centerpoint", (batch, 256, 180, 180))
    x, maps = "input", []
    for width, stride in ((128, 1), (256, 2)):
        x = g.conv(x, width, 3, stride)
        for _ in range(5):
            x = g.conv(x, width, 3)
        maps.append(x)
    deep = g.deconv(maps[1], 256, 2)
    deep = g.add("ACTIVATION", (deep,), g.tensors[deep].shape)
    x = g.conv(g.concat(g.conv(maps[0], 256, 1), deep), 64, 3)
    heads = []
    for classes in (1, 2, 2, 1, 2, 2):
        for out in (2, 1, 3, 2, 2, classes):
            heads.append(g.conv(g.conv(x, 64, 3), out, 3, relu=False))
    return g.network(*heads)
