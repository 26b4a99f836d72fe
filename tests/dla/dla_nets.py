"""Published networks for the tests, built with onnx.helper; every weight is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.network.model import Network
from tests.dla.builder import Builder


def resnet50(path: Path) -> Network:
    """torchvision's ResNet-50 as its exporter names it, BatchNorm folded into the convolutions."""
    b = Builder(input=(1, 3, 224, 224))
    x = b.add("Relu", "/relu/Relu", b.conv("/conv1/Conv", "input", 3, 64, 7, 2))
    x = b.add("MaxPool", "/maxpool/MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = _bottlenecks(b, x)
    x = b.add("GlobalAveragePool", "/avgpool/GlobalAveragePool", x)
    x = b.add("Flatten", "/Flatten", x)
    fc = (b.weight("fc.weight", (1000, 2048)), b.weight("fc.bias", (1000,)))
    x = b.add("Gemm", "/fc/Gemm", x, *fc, transB=1)
    return b.network(path, x)


def mlperf_resnet50(path: Path) -> Network:
    """MLPerf's: average pool of 7x7, the classifier as a 1x1 convolution, TopK at the end."""
    b = Builder(input=(2, 3, 224, 224))
    x = b.add("Relu", "relu1", b.conv("conv1", "input", 3, 64, 7, 2))
    x = b.add("MaxPool", "pool1", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = b.add("AveragePool", "avg_pool", _bottlenecks(b, x), kernel_shape=[7, 7])
    x = b.conv("fc_replaced", x, 2048, 1001, 1)
    b.add("TopK", "topk", x, b.constant("k", [1]), axis=1)
    b.nodes[-1].output.append("index")
    return b.network(path, "index")


def _bottlenecks(b: Builder, x: str) -> str:
    channels = 64
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], start=1):
        for block in range(blocks):
            at = f"/layer{stage}/layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            y = b.add("Relu", f"{at}/relu/Relu", b.conv(f"{at}/conv1/Conv", x, channels, width, 1))
            y = b.conv(f"{at}/conv2/Conv", y, width, width, 3, stride)
            y = b.add("Relu", f"{at}/relu_1/Relu", y)
            y = b.conv(f"{at}/conv3/Conv", y, width, 4 * width, 1)
            if block == 0:
                name = f"{at}/downsample/downsample.0/Conv"
                x = b.conv(name, x, channels, 4 * width, 1, stride)
            x = b.add("Relu", f"{at}/relu_2/Relu", b.add("Add", f"{at}/Add", y, x))
            channels = 4 * width
    return x


def cifar(path: Path, pool: str) -> Network:
    """The net of NVIDIA's jetson_dla_tutorial: four strided convolutions, a pool and a Gemm.

    Named as in its first export, in which five nodes compute the shape of the flattening.

    Args:
        path: As for :meth:`Builder.network`.
        pool: "GlobalAveragePool", or "AveragePool" (of 2x2).
    """
    b = Builder(input=(32, 3, 32, 32))
    x, channels = "input", 3
    for index, maps in enumerate([64, 128, 256, 512]):
        x = b.conv(f"Conv_{2 * index}", x, channels, maps, 3, 2)
        x = b.add("Relu", f"Relu_{2 * index + 1}", x)
        channels = maps
    window = {} if pool.startswith("Global") else {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = b.add(pool, f"{pool}_8", x, **window)
    rows = b.add("Gather", "Gather_11", b.add("Shape", "Shape_9", x), b.constant("zero", 0))
    rows = b.add("Unsqueeze", "Unsqueeze_12", rows, b.constant("axes", [0]))
    rows = b.add("Concat", "Concat_13", rows, b.constant("rest", [-1]), axis=0)
    x = b.add("Reshape", "Reshape_14", x, rows)
    fc = (b.weight("linear.weight", (10, 512)), b.weight("linear.bias", (10,)))
    return b.network(path, b.add("Gemm", "Gemm_15", x, *fc, transB=1))


# 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection (Szegedy et al. 2014, table 1)
_INCEPTION = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def googlenet(path: Path) -> Network:
    """GoogLeNet by its Caffe names; the classifier is a 1x1 convolution, as Caffe's parser has it.

    Dropout is there, as in a training file, and does nothing.
    """
    b = Builder(data=(1, 3, 224, 224))
    x = _conv_relu(b, "conv1/7x7_s2", "data", 3, 64, 7, 2)
    x = b.add("LRN", "pool1/norm1", _halve(b, "pool1/3x3_s2", x), size=5)
    x = _conv_relu(b, "conv2/3x3_reduce", x, 64, 64, 1)
    x = b.add("LRN", "conv2/norm2", _conv_relu(b, "conv2/3x3", x, 64, 192), size=5)
    x, channels = _halve(b, "pool2/3x3_s2", x), 192
    for name, (one, three_in, three, five_in, five, proj) in _INCEPTION.items():
        if name in {"4a", "5a"}:
            x = _halve(b, f"pool{int(name[0]) - 1}/3x3_s2", x)
        at = f"inception_{name}"
        parts = [_conv_relu(b, f"{at}/1x1", x, channels, one, 1)]
        y = _conv_relu(b, f"{at}/3x3_reduce", x, channels, three_in, 1)
        parts.append(_conv_relu(b, f"{at}/3x3", y, three_in, three))
        y = _conv_relu(b, f"{at}/5x5_reduce", x, channels, five_in, 1)
        parts.append(_conv_relu(b, f"{at}/5x5", y, five_in, five, 5))
        y = b.add("MaxPool", f"{at}/pool", x, kernel_shape=[3, 3], pads=[1] * 4)
        parts.append(_conv_relu(b, f"{at}/pool_proj", y, channels, proj, 1))
        x = b.add("Concat", f"{at}/output", *parts, axis=1)
        channels = one + three + five + proj
    x = b.add("AveragePool", "pool5/7x7_s1", x, kernel_shape=[7, 7])
    x = b.add("Dropout", "pool5/drop_7x7_s1", x)
    x = b.conv("loss3/classifier", x, channels, 1000, 1)
    return b.network(path, b.add("Softmax", "prob", x, axis=1))


def _conv_relu(
    b: Builder, name: str, x: str, channels: int, maps: int, kernel: int = 3, stride: int = 1
) -> str:
    folder, _, last = name.rpartition("/")
    return b.add("Relu", f"{folder}/relu_{last}", b.conv(name, x, channels, maps, kernel, stride))


def _halve(b: Builder, name: str, x: str) -> str:
    # Caffe rounds up
    return b.add("MaxPool", name, x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)


def detr_like(path: Path, blocks: int) -> Network:
    """Convolutions, then blocks of attention: three Gemms side by side, then single ones."""
    b = Builder(image=(1, 3, 16, 16), position=(16, 32))
    x = b.add("Relu", "stem_relu", b.conv("stem", "image", 3, 16, 3, 2))
    x = b.add("Relu", "body_relu", b.conv("body", x, 16, 32, 3, 2))
    x = b.add("Reshape", "tokens", x, b.constant("rows", [32, 16]))
    x = b.add("Transpose", "to_rows", x, perm=[1, 0])
    for i in range(blocks):
        placed = b.add("Add", f"place_{i}", x, "position")
        q, k = (_linear(b, f"{part}_{i}", placed) for part in "qk")
        v = _linear(b, f"v_{i}", x)
        scores = b.add("MatMul", f"scores_{i}", q, b.add("Transpose", f"turn_{i}", k, perm=[1, 0]))
        y = b.add("MatMul", f"mix_{i}", b.add("Softmax", f"soft_{i}", scores, axis=-1), v)
        x = b.add("Add", f"again_{i}", _linear(b, f"out_{i}", y), x)
        y = b.add("Tanh", f"bend_{i}", _linear(b, f"up_{i}", x))
        x = b.add("Add", f"more_{i}", _linear(b, f"down_{i}", y), x)
    return b.network(path, x)


def _linear(b: Builder, name: str, x: str) -> str:
    return b.add("Gemm", name, x, b.weight(f"{name}.w", (32, 32)), b.weight(f"{name}.b", (32,)))


def yolo_trimmed(path: Path) -> Network:
    """YOLOv5's parts up to its three detection convolutions, what comes behind cut off."""
    b = Builder(images=(1, 3, 64, 64))
    x = _silu(b, "stem", "images", 3, 16, 6, 2)
    levels = []
    for index, maps in enumerate([32, 64, 128]):
        x = _silu(b, f"down_{index}", x, maps // 2, maps, 3, 2)
        x = _c3(b, f"c3_{index}", x, maps, maps)
        levels.append(x)
    y = _silu(b, "sppf_in", x, 128, 64, 1)
    pools = [y]
    for index in range(3):
        pools.append(
            b.add("MaxPool", f"sppf_{index}", pools[-1], kernel_shape=[5, 5], pads=[2] * 4)
        )
    x = _silu(b, "sppf_out", b.add("Concat", "sppf_cat", *pools, axis=1), 256, 128, 1)
    heads = [x]
    for index, maps in ((1, 64), (0, 32)):
        x = _silu(b, f"lateral_{index}", x, 2 * maps, maps, 1)
        none = b.constant(f"none_{index}", [], np.float32)
        twice = b.constant(f"twice_{index}", [1, 1, 2, 2], np.float32)
        x = b.add(
            "Resize",
            f"up_{index}",
            x,
            none,
            twice,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        x = b.add("Concat", f"cat_{index}", x, levels[index], axis=1)
        x = _c3(b, f"merge_{index}", x, 2 * maps, maps)
        heads.append(x)
    outs = [b.conv(f"detect_{i}", head, 128 >> i, 255, 1) for i, head in enumerate(heads)]
    return b.network(path, *outs)


def _silu(
    b: Builder, name: str, x: str, channels: int, maps: int, kernel: int = 3, stride: int = 1
) -> str:
    y = b.conv(f"{name}/conv", x, channels, maps, kernel, stride)
    return b.add("Mul", f"{name}/mul", y, b.add("Sigmoid", f"{name}/sigmoid", y))


def _c3(b: Builder, name: str, x: str, channels: int, maps: int) -> str:
    half = maps // 2
    y = _silu(b, f"{name}/cv1", x, channels, half, 1)
    z = _silu(b, f"{name}/m1", y, half, half, 1)
    y = b.add("Add", f"{name}/add", y, _silu(b, f"{name}/m2", z, half, half))
    both = b.add("Concat", f"{name}/cat", y, _silu(b, f"{name}/cv2", x, channels, half, 1), axis=1)
    return _silu(b, f"{name}/cv3", both, maps, maps, 1)
