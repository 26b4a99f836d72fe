"""Detectors with the structure of the real exports and random weights, small and quick to run.

Each has its score biases set so that about one in a hundred anchors is above the threshold, in the
middle of the others' range: scores below and above differ by the network's noise alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["DETECTORS", "HELD_OUT", "THRESHOLD", "Detector", "build", "images"]

THRESHOLD = 0.25
#: Images behind those of the calibration.
HELD_OUT = 48
# share of the anchors whose best score is above the threshold
_SHARE = 0.0175
# images that the layers are normalised and the biases set on
_SAMPLES = 12
# the logit of an object
_OBJECT = 2.0
# of a transformer's queries, how many find objects
_QUERIES = 5

# outputs, and by score bias which of its values are shifted
_Written = tuple[list[str], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Detector:
    """A kind of detector.

    Attributes:
        name: For people.
        size: Edge of its images.
        images: On how many it is calibrated.
        scores: Scores by anchor and class, of the outputs by name.
        write: Writes the nodes.
    """

    name: str
    size: int
    images: int
    write: Callable[[_Net], _Written]
    scores: Callable[[dict[str, np.ndarray]], np.ndarray]


def images(detector: Detector) -> list[np.ndarray]:
    """Returns its inputs, random patches within [0, 1]; ``HELD_OUT`` of them are held out."""
    return _pictures(detector.size, detector.images + HELD_OUT)


def _pictures(size: int, count: int) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    found = []
    for _ in range(count):
        value = np.full((3, size, size), 0.5)
        for cells in (size // 8, size // 4, size // 2):
            coarse = random.standard_normal((3, cells, cells))
            value += np.kron(coarse, np.ones((size // cells,) * 2)) / 8
        found.append(np.clip(value, 0, 1)[None].astype(np.float32))
    return found


def build(detector: Detector, path: Path) -> None:
    """Writes the network with its biases set."""
    from edgekit.network.loading.load import load
    from edgekit.network.session import session

    net = _Net(detector.size)
    outputs, biases = detector.write(net)
    model = net.model(detector, outputs)
    onnx.save(model, path)
    feeds = _pictures(detector.size, _SAMPLES)
    low, high = -20.0, 20.0
    for _ in range(14):
        middle = (low + high) / 2
        for tensor in model.graph.initializer:
            if tensor.name in biases:
                value = net.weights[tensor.name] + np.float32(middle) * biases[tensor.name]
                tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
        onnx.save(model, path)
        running = session(load(path))
        names = [value.name for value in running.get_outputs()]
        found = np.concatenate(
            [
                detector.scores(dict(zip(names, running.run(None, {"images": x}), strict=True)))
                for x in feeds
            ]
        )
        if (found.max(axis=1) > THRESHOLD).mean() > _SHARE:
            high = middle
        else:
            low = middle


class _Net:
    """A network that is computed as it is written, so that its layers can be normalised."""

    def __init__(self, size: int) -> None:
        self.values: dict[str, list[np.ndarray]] = {"images": _pictures(size, _SAMPLES)}
        self.random = np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.channels: dict[str, int] = {"images": 3}
        self.count = 0

    def model(self, detector: Detector, outputs: Sequence[str]) -> onnx.ModelProto:
        size = [1, 3, detector.size, detector.size]
        graph = helper.make_graph(
            self.nodes,
            detector.name,
            [helper.make_tensor_value_info("images", 1, size)],
            [helper.make_tensor_value_info(name, 1, None) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    def const(self, value: object, kind: type = np.float32) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.asarray(value, kind)
        return name

    def compute(self, node: onnx.NodeProto) -> None:
        """Runs one node on the samples."""
        import onnxruntime

        reads = [name for name in node.input if name in self.values]
        retained = [name for name in node.input if name in self.weights]
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info(n, 1, self.values[n][0].shape) for n in reads],
            [helper.make_tensor_value_info(n, 1, None) for n in node.output],
            [numpy_helper.from_array(self.weights[name], name) for name in retained],
        )
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        running = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        runs = [
            running.run(None, {name: self.values[name][at] for name in reads})
            for at in range(len(self.values["images"]))
        ]
        for at, name in enumerate(node.output):
            self.values[name] = [run[at] for run in runs]

    def normalise(
        self, weight: str, bias: str, y: str, axis: int, gain: float, centre: float = 0
    ) -> None:
        """Gives each channel of a layer's result a mean and a spread, as a trained network has."""
        found = np.concatenate(self.values[y])
        others = tuple(i for i in range(found.ndim) if i != axis)
        mean, spread = found.mean(axis=others), found.std(axis=others) + 1e-3
        size = mean.size
        wanted = self.random.uniform(0.6, 1.4, size) * gain
        offset = self.random.standard_normal(size) * 0.3 * gain + centre
        factor = wanted / spread
        old = self.weights[weight]
        shaped = factor.reshape([-1 if i == 0 else 1 for i in range(old.ndim)])
        # the last axis of a MatMul's weight, the first of a convolution's
        self.weights[weight] = (old * (factor if old.ndim == 2 else shaped)).astype(np.float32)
        self.weights[bias] = ((self.weights[bias] - mean) * factor + offset).astype(np.float32)

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        self.count += 1
        name = f"{kind}_{self.count}"
        made = [name] if outputs == 1 else [f"{name}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), made, name, **attributes))
        self.compute(self.nodes[-1])
        known = [self.channels[i] for i in inputs if i in self.channels]
        for output in made:
            self.channels[output] = known[0] if known else 0
        return name

    def conv(
        self,
        x: str,
        out: int,
        k: int = 1,
        s: int = 1,
        act: str = "SiLU",
        group: int = 1,
        pad: int | None = None,
        gain: float = 1.0,
    ) -> str:
        cin = self.channels[x]
        fan = cin // group * k * k
        weight = self.random.standard_normal((out, cin // group, k, k)) / np.sqrt(fan)
        bias = self.const(self.random.standard_normal(out) * 0.1)
        pad = k // 2 if pad is None else pad
        kernel = self.const(weight)
        y = self.op(
            "Conv",
            x,
            kernel,
            bias,
            kernel_shape=[k, k],
            strides=[s, s],
            pads=[pad] * 4,
            group=group,
        )
        self.normalise(kernel, bias, y, 1, gain, 1.5 if act else 0)
        self.compute(self.nodes[-1])
        self.channels[y] = out
        self.last_bias = bias
        if act == "SiLU":
            return self.op("Mul", y, self.op("Sigmoid", y))
        return self.op(act, y) if act else y

    def concat(self, *parts: str, axis: int = 1) -> str:
        y = self.op("Concat", *parts, axis=axis)
        self.channels[y] = sum(self.channels[p] for p in parts)
        return y

    def split(self, x: str, sizes: Sequence[int], axis: int = 1) -> list[str]:
        y = self.op("Split", x, self.const(sizes, np.int64), outputs=len(sizes), axis=axis)
        parts = [f"{y}.{i}" for i in range(len(sizes))]
        self.channels.update(zip(parts, sizes, strict=True))
        return parts

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.const(shape, np.int64))

    def transpose(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, perm=list(perm))

    def slice(self, x: str, begin: int, end: int, axis: int) -> str:
        ends = [self.const([value], np.int64) for value in (begin, end, axis)]
        return self.op("Slice", x, *ends)

    def up(self, x: str) -> str:
        scales = self.const([1, 1, 2, 2])
        return self.op(
            "Resize",
            x,
            "",
            scales,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    def fit(self, y: str, rows: Sequence[int]) -> None:
        """Lets channels of a layer's result find the objects, which are where images have corners.

        A ridge regression on its inputs, so that scores are what those of a trained head are: far
        below the threshold nearly everywhere, about it at objects, and between them at neighbours.
        """
        node = next(n for n in self.nodes if y in n.output)
        weight, bias = node.input[1], node.input[2]
        kernel = self.weights[weight].shape[-1]
        pad = kernel // 2
        columns, wanted = [], []
        for value in self.values[node.input[0]]:
            n = value.shape[2]
            padded = np.pad(value[0], ((0, 0), (pad, pad), (pad, pad)))
            view = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))
            columns.append(view.transpose(1, 2, 0, 3, 4).reshape(n * n, -1))
            # two corners, one of them a little less
            left = np.minimum(np.arange(n), np.arange(n)[::-1] + 0.5)
            away = np.minimum(np.hypot(np.arange(n)[:, None], left[None]), 2)
            wanted.append(_OBJECT - 4 * away.ravel())
        self._ridge(weight, bias, rows, np.concatenate(columns), np.concatenate(wanted))
        self.compute(node)

    def _ridge(
        self, weight: str, bias: str, rows: Sequence[int], x: np.ndarray, t: np.ndarray
    ) -> None:
        mean = x.mean(0)
        centred = x - mean
        ridge = 0.003 * len(x) * centred.var() * np.eye(x.shape[1])
        found = np.linalg.solve(centred.T @ centred + ridge, centred.T @ (t - t.mean()))
        for row, factor in zip(rows, self.random.uniform(0.9, 1.1, len(rows)), strict=True):
            mine = (
                self.weights[weight].T if self.weights[weight].ndim == 2 else self.weights[weight]
            )
            mine[row] = (found * factor).reshape(mine.shape[1:])
            self.weights[bias][row] = (t.mean() - mean @ found) * factor

    def add_weight(self, x: str, value: np.ndarray, kind: str = "Add") -> str:
        return self.op(kind, x, self.const(value))

    # blocks

    def bottleneck(self, x: str, out: int, add: bool) -> str:
        y = self.conv(self.conv(x, out, 3), out, 3)
        return self.op("Add", x, y) if add and self.channels[x] == out else y

    def c2f(self, x: str, out: int, n: int = 1, add: bool = True, inner: str = "plain") -> str:
        half = out // 2
        parts = self.split(self.conv(x, out), [half, half])
        for _ in range(n):
            last = parts[-1]
            made = (
                self.c3(last, half, 1, add) if inner == "c3" else self.bottleneck(last, half, add)
            )
            parts.append(made)
        return self.conv(self.concat(*parts), out)

    def c3(self, x: str, out: int, n: int = 1, add: bool = True) -> str:
        half = out // 2
        y = self.conv(x, half)
        for _ in range(n):
            y = self.bottleneck(y, half, add)
        return self.conv(self.concat(y, self.conv(x, half)), out)

    def sppf(self, x: str, out: int) -> str:
        parts = [self.conv(x, out // 2)]
        for _ in range(3):
            pads = [2] * 4
            parts.append(self.op("MaxPool", parts[-1], kernel_shape=[5, 5], pads=pads))
        return self.conv(self.concat(*parts), out)

    def psa(self, x: str, size: int) -> str:
        """YOLO11's attention over positions, with its position encoding and two 1x1 layers."""
        c = self.channels[x]
        half = c // 2
        y = self.conv(x, c)
        left, right = self.split(y, [half, half])
        qkv = self.conv(right, 2 * half, act="")
        flat = self.reshape(qkv, 1, 1, 2 * half, size * size)
        q, k, v = self.split(flat, [half // 2, half // 2, half], axis=2)
        scores = self.op("MatMul", self.transpose(q, 0, 1, 3, 2), k)
        weights = self.op("Softmax", self.add_weight(scores, (half / 2) ** -0.5, "Mul"), axis=-1)
        mixed = self.op("MatMul", v, self.transpose(weights, 0, 1, 3, 2))
        value = self.reshape(v, 1, half, size, size)
        self.channels[value] = half
        mixed = self.op(
            "Add",
            self.reshape(mixed, 1, half, size, size),
            self.conv(value, half, 3, act="", group=half),
        )
        self.channels[mixed] = half
        right = self.op("Add", right, self.conv(mixed, half, act=""))
        right = self.op("Add", right, self.conv(self.conv(right, c), half, act=""))
        return self.conv(self.concat(left, right), c)

    def pyramid(self, x3: str, x4: str, x5: str, block: Callable[..., str]) -> list[str]:
        c3, c4, c5 = (self.channels[x] for x in (x3, x4, x5))
        p4 = block(self.concat(self.up(x5), x4), c4)
        p3 = block(self.concat(self.up(p4), x3), c3)
        n4 = block(self.concat(self.conv(p3, c3, 3, 2), p4), c4)
        n5 = block(self.concat(self.conv(n4, c4, 3, 2), x5), c5)
        return [p3, n4, n5]

    def linear(self, x: str, cin: int, out: int, gain: float = 1.0, objects: int = 0) -> str:
        weight = self.random.standard_normal((cin, out)) / np.sqrt(cin)
        kernel, bias = self.const(weight), self.const(np.zeros(out))
        y = self.op("MatMul", x, kernel)
        self.normalise(kernel, bias, y, len(self.values[y][0].shape) - 1, gain)
        if objects:
            found = np.concatenate(self.values[x])
            wanted = np.full(found.shape[:2], -6.0)
            wanted[:, :objects] = _OBJECT
            self._ridge(kernel, bias, range(out), found.reshape(-1, cin), wanted.ravel())
        self.compute(self.nodes[-1])
        self.last_bias = bias
        return self.op("Add", bias, y)


_CLASSES = 12
_STRIDES = (8, 16, 32)


def _anchors(size: int) -> tuple[np.ndarray, np.ndarray]:
    points, strides = [], []
    for stride in _STRIDES:
        n = size // stride
        y, x = np.meshgrid(np.arange(n) + 0.5, np.arange(n) + 0.5, indexing="ij")
        points.append(np.stack([x.ravel(), y.ravel()]))
        strides.append(np.full(n * n, stride))
    return np.concatenate(points, 1)[None], np.concatenate(strides)[None, None]


def _dfl_head(net: _Net, features: list[str], size: int, light: bool) -> _Written:
    """YOLOv8's and YOLO11's head: box distributions and classes, decoded and joined."""
    levels: list[str] = []
    biases: dict[str, np.ndarray] = {}
    for x, stride in zip(features, _STRIDES, strict=True):
        c = net.channels[x]
        box = net.conv(net.conv(net.conv(x, 32, 3), 32, 3), 64, act="")
        classes = x
        for _ in range(2):
            if light:
                classes = net.conv(classes, net.channels[classes], 3, group=net.channels[classes])
                classes = net.conv(classes, max(c, _CLASSES))
            else:
                classes = net.conv(classes, max(c, _CLASSES), 3)
        classes = net.conv(classes, _CLASSES, act="")
        biases[net.last_bias] = np.ones(_CLASSES, np.float32)
        net.fit(classes, range(_CLASSES))
        levels.append(
            net.reshape(net.concat(box, classes), 1, 64 + _CLASSES, (size // stride) ** 2)
        )
    box, classes = net.split(net.concat(*levels, axis=2), [64, _CLASSES])
    points, strides = _anchors(size)
    count = points.shape[2]
    bins = net.transpose(net.reshape(box, 1, 4, 16, count), 0, 2, 1, 3)
    weight = net.const(np.arange(16).reshape(1, 16, 1, 1))
    distances = net.op("Conv", net.op("Softmax", bins, axis=1), weight, kernel_shape=[1, 1])
    distances = net.reshape(distances, 1, 4, count)
    grid = net.const(points)
    first = net.op("Sub", grid, net.slice(distances, 0, 2, 1))
    second = net.op("Add", grid, net.slice(distances, 2, 4, 1))
    centre = net.add_weight(net.op("Add", first, second), np.float32(2), "Div")
    box = net.concat(centre, net.op("Sub", second, first))
    box = net.add_weight(box, strides, "Mul")
    return [net.concat(box, net.op("Sigmoid", classes))], biases


def _yolov8(net: _Net) -> _Written:
    x = net.conv(net.conv("images", 8, 3, 2), 16, 3, 2)
    x = net.c2f(x, 16)
    x3 = net.c2f(net.conv(x, 24, 3, 2), 24, 2)
    x4 = net.c2f(net.conv(x3, 32, 3, 2), 32, 2)
    x5 = net.sppf(net.c2f(net.conv(x4, 48, 3, 2), 48), 48)
    features = net.pyramid(x3, x4, x5, lambda x, c: net.c2f(x, c, add=False))
    return _dfl_head(net, features, _SIZE, light=False)


def _yolo11(net: _Net) -> _Written:
    x = net.conv(net.conv("images", 8, 3, 2), 16, 3, 2)
    x = net.c2f(x, 16)
    x3 = net.c2f(net.conv(x, 24, 3, 2), 24)
    x4 = net.c2f(net.conv(x3, 32, 3, 2), 32, inner="c3")
    x5 = net.sppf(net.c2f(net.conv(x4, 48, 3, 2), 48, inner="c3"), 48)
    x5 = net.psa(x5, _SIZE // 32)
    features = net.pyramid(x3, x4, x5, net.c2f)
    return _dfl_head(net, features, _SIZE, light=True)


def _yolov5(net: _Net) -> _Written:
    x = net.conv(net.conv("images", 8, 6, 2, pad=2), 16, 3, 2)
    x = net.c3(x, 16)
    x3 = net.c3(net.conv(x, 24, 3, 2), 24, 2)
    x4 = net.c3(net.conv(x3, 32, 3, 2), 32, 2)
    x5 = net.sppf(net.c3(net.conv(x4, 48, 3, 2), 48), 48)
    features = net.pyramid(x3, x4, x5, lambda x, c: net.c3(x, c, add=False))
    levels: list[str] = []
    biases: dict[str, np.ndarray] = {}
    width = 5 + _CLASSES
    for x, stride in zip(features, _STRIDES, strict=True):
        n = _SIZE // stride
        raw = net.conv(x, 3 * width, act="")
        # boxes stay; objects become fewer, and each is of a class that is likely
        shift = np.array([0] * 4 + [1] + [0] * _CLASSES, np.float32)
        biases[net.last_bias] = np.tile(shift, 3)
        net.fit(raw, [4, 4 + width, 4 + 2 * width])
        likely = np.array([0] * 5 + [6] * _CLASSES, np.float32)
        net.weights[net.last_bias] += np.tile(likely, 3)
        y = net.transpose(net.reshape(raw, 1, 3, width, n, n), 0, 1, 3, 4, 2)
        xy, wh, rest = net.split(net.op("Sigmoid", y), [2, 2, width - 4], axis=4)
        rows, columns = np.meshgrid(np.arange(n) - 0.5, np.arange(n) - 0.5, indexing="ij")
        grid = np.stack([columns, rows], -1)[None, None]
        xy = net.add_weight(net.add_weight(xy, np.float32(2), "Mul"), grid)
        xy = net.add_weight(xy, np.float32(stride), "Mul")
        wh = net.add_weight(net.add_weight(wh, np.float32(2), "Mul"), np.float32(2), "Pow")
        shapes = np.array([[1.2, 1.6], [2, 3.7], [4.1, 2.8]]) * stride
        wh = net.add_weight(wh, shapes.reshape(1, 3, 1, 1, 2), "Mul")
        levels.append(net.reshape(net.concat(xy, wh, rest, axis=4), 1, 3 * n * n, width))
    return [net.concat(*levels, axis=1)], biases


def _ssd(net: _Net) -> _Written:
    """A backbone of separable convolutions, boxes decoded against priors, scores by Softmax."""

    def separable(x: str, out: int, s: int = 1) -> str:
        x = net.conv(x, net.channels[x], 3, s, "Relu", group=net.channels[x])
        return net.conv(x, out, act="Relu")

    x = net.conv("images", 16, 3, 2, "Relu")
    x = separable(separable(x, 24, 2), 24)
    features = [separable(separable(x, 32, 2), 32)]
    features.append(separable(separable(features[-1], 48, 2), 48))
    for _ in range(2):
        features.append(net.conv(net.conv(features[-1], 32, act="Relu"), 48, 3, 2, "Relu"))
    boxes: list[str] = []
    scores: list[str] = []
    priors: list[np.ndarray] = []
    biases: dict[str, np.ndarray] = {}
    classes = _CLASSES + 1
    n = _SIZE // 8
    for x in features:
        for out, parts in ((4, boxes), (classes, scores)):
            y = net.conv(x, 4 * out, 3, act="")
            if out == classes:
                # each prior finds objects of a class of its own
                net.weights[net.nodes[-1].input[1]] *= np.float32(0.3)
                net.weights[net.last_bias][np.arange(4 * out) % out > 0] -= np.float32(6)
                net.fit(y, [i * out + 1 + i for i in range(4)])
            parts.append(net.reshape(net.transpose(y, 0, 2, 3, 1), 1, 4 * n * n, out))
        shift = np.array([0] + [1] * _CLASSES, np.float32)
        biases[net.last_bias] = np.tile(shift, 4)
        rows, columns = np.meshgrid(
            (np.arange(n) + 0.5) / n, (np.arange(n) + 0.5) / n, indexing="ij"
        )
        for ratio in (0.5, 1, 1.5, 2):
            side = 1.5 / n
            full = np.ones(n * n)
            priors.append(
                np.stack([columns.ravel(), rows.ravel(), full * side, full * side * ratio], -1)
            )
        n = (n + 1) // 2
    prior = np.concatenate(priors)[None] * _SIZE
    box, classed = net.concat(*boxes, axis=1), net.concat(*scores, axis=1)
    centre = net.add_weight(net.slice(box, 0, 2, 2), prior[..., 2:] * 0.1, "Mul")
    centre = net.add_weight(centre, prior[..., :2])
    size = net.op("Exp", net.add_weight(net.slice(box, 2, 4, 2), np.float32(0.2), "Mul"))
    half = net.add_weight(size, prior[..., 2:] / 2, "Mul")
    corners = net.concat(net.op("Sub", centre, half), net.op("Add", centre, half), axis=2)
    return [net.concat(corners, net.op("Softmax", classed, axis=2), axis=2)], biases


def _detr(net: _Net) -> _Written:
    """A residual backbone, one encoder and one decoder layer, queries, classes and boxes."""
    d, queries, classes = 64, 300, _CLASSES

    def residual(x: str, out: int) -> str:
        y = net.conv(net.conv(x, out, 3, 2, "Relu"), out, 3, act="")
        return net.op("Relu", net.op("Add", y, net.conv(x, out, 1, 2, "")))

    def norm(x: str) -> str:
        scale, bias = net.const(np.ones(d)), net.const(np.zeros(d))
        return net.op("LayerNormalization", x, scale, bias, axis=-1)

    def attention(query: str, key: str, value: str, rows: int, columns: int) -> str:
        heads = 4
        q, k, v = (net.linear(x, d, d) for x in (query, key, value))
        q = net.transpose(net.reshape(q, 1, rows, heads, d // heads), 0, 2, 1, 3)
        k = net.transpose(net.reshape(k, 1, columns, heads, d // heads), 0, 2, 3, 1)
        v = net.transpose(net.reshape(v, 1, columns, heads, d // heads), 0, 2, 1, 3)
        scores = net.add_weight(net.op("MatMul", q, k), (d / heads) ** -0.5, "Mul")
        mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
        joined = net.reshape(net.transpose(mixed, 0, 2, 1, 3), 1, rows, d)
        return net.linear(joined, d, d)

    def feed_forward(x: str) -> str:
        return net.linear(net.op("Relu", net.linear(x, d, 128)), 128, d)

    x = net.conv("images", 16, 7, 2, "Relu")
    for channels in (24, 32, 48):
        x = residual(x, channels)
    side = _SIZE // 16
    x = net.conv(x, d, act="")
    places = side * side
    memory = net.transpose(net.reshape(x, 1, d, places), 0, 2, 1)
    position = net.random.standard_normal((1, places, d)) * 0.5
    placed = net.add_weight(memory, position)
    memory = norm(net.op("Add", memory, attention(placed, placed, memory, places, places)))
    memory = norm(net.op("Add", memory, feed_forward(memory)))
    embedded = net.random.standard_normal((1, queries, d))
    # a few queries look for what there is; some of them find more of it than others
    way = net.random.standard_normal(d) / np.sqrt(d)
    embedded[0, :_QUERIES] += way * net.random.uniform(8, 14, (_QUERIES, 1))
    # as exporters write it: the target begins as zeros and the queries are added to it
    target = norm(net.add_weight(net.op("ReduceMean", memory, axes=[1], keepdims=1), embedded))
    key = net.add_weight(memory, position)
    crossed = attention(net.add_weight(target, embedded), key, memory, queries, places)
    target = norm(net.op("Add", target, crossed))
    target = norm(net.op("Add", target, feed_forward(target)))
    logits = net.linear(target, d, classes, objects=_QUERIES)
    biases = {net.last_bias: np.ones(classes, np.float32)}
    box = net.op("Relu", net.linear(target, d, d))
    box = net.op("Relu", net.linear(box, d, d))
    box = net.add_weight(net.op("Sigmoid", net.linear(box, d, 4)), np.float32(_SIZE), "Mul")
    return [net.op("Sigmoid", logits), box], biases


_SIZE = 64


def _joined(classes_first: int) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    def scores(outputs: dict[str, np.ndarray]) -> np.ndarray:
        (value,) = outputs.values()
        rows = value[0].T if value.shape[1] < value.shape[2] else value[0]
        return rows[:, classes_first:]

    return scores


def _yolov5_scores(outputs: dict[str, np.ndarray]) -> np.ndarray:
    rows = _joined(4)(outputs)
    return rows[:, :1] * rows[:, 1:]


def _detr_scores(outputs: dict[str, np.ndarray]) -> np.ndarray:
    (value,) = [v for v in outputs.values() if v.shape[-1] == _CLASSES]
    return value[0]


#: Every kind.
DETECTORS = {
    one.name: one
    for one in (
        Detector("yolov5n", _SIZE, 48, _yolov5, _yolov5_scores),
        Detector("yolov8n", _SIZE, 24, _yolov8, _joined(4)),
        Detector("yolo11n", _SIZE, 24, _yolo11, _joined(4)),
        Detector("ssd", _SIZE, 48, _ssd, _joined(5)),
        Detector("detr", _SIZE, 24, _detr, _detr_scores),
    )
}
