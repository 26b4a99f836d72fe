"""A small detector of the YOLO kind, and the part of it that stays on the host.

    python detector.py make      writes out/detector.onnx: backbone, neck, head, decoding
    python detector.py decode    runs the deployed network and decodes its outputs here

The weights are random: shapes and operators are those of a real export, the boxes mean nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

OUT = Path(__file__).parent / "out"
SIZE, CLASSES, BINS = 160, 8, 16
STRIDES = (8, 16)

Array = NDArray[np.float32]


def make(path: Path) -> None:
    """Writes the network with its decoding, as exporters do."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}

    def node(kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(value: object, name: str, kind: type = np.float32) -> str:
        weights[name] = np.asarray(value, kind)
        return name

    def conv(x: str, name: str, into: int, out: int, kernel: int = 3, stride: int = 1) -> str:
        scale = (2 / (into * kernel * kernel)) ** 0.5
        weight = constant(random.normal(0, scale, (out, into, kernel, kernel)), f"{name}.w")
        bias = constant(random.normal(0, 0.1, out), f"{name}.b")
        return node("Conv", [x, weight, bias], name, kernel_shape=[kernel] * 2,
                    strides=[stride] * 2, pads=[kernel // 2] * 4)  # fmt: skip

    def block(x: str, name: str, into: int, out: int, stride: int = 1) -> str:
        return node("Relu", [conv(x, name, into, out, stride=stride)], f"{name}.relu")

    x = block("images", "stem", 3, 16, 2)
    x = block(x, "c2", 16, 32, 2)
    fine = block(x, "c3", 32, 64, 2)
    coarse = block(fine, "c4", 64, 96, 2)
    scales = constant([1, 1, 2, 2], "twice")
    up = node("Resize", [coarse, "", scales], "up", mode="nearest",
              coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    fine = block(node("Concat", [up, fine], "neck", axis=1), "n3", 160, 64)

    rows = []
    for level, (features, width) in enumerate(((fine, 64), (coarse, 96))):
        box = conv(block(features, f"box{level}.0", width, 64), f"box{level}", 64, 4 * BINS, 1)
        score = conv(block(features, f"cls{level}.0", width, 32), f"cls{level}", 32, CLASSES, 1)
        both = node("Concat", [box, score], f"head{level}", axis=1)
        shape = constant([1, 4 * BINS + CLASSES, -1], f"flat{level}", np.int64)
        rows.append(node("Reshape", [both, shape], f"rows{level}"))
    every = node("Concat", rows, "rows", axis=2)

    # the decoding: expectation over the bins, anchors, strides
    parts = constant([4 * BINS, CLASSES], "parts", np.int64)
    nodes.append(helper.make_node("Split", [every, parts], ["bins", "logits"], axis=1))
    bins = node("Reshape", ["bins", constant([1, 4, BINS, -1], "dfl.shape", np.int64)], "dfl.in")
    soft = node("Softmax", [bins], "dfl.soft", axis=2)
    steps = constant(np.arange(BINS).reshape(1, 1, BINS, 1), "dfl.steps")
    axis = constant([2], "dfl.axis", np.int64)
    mean = node("ReduceSum", [node("Mul", [soft, steps], "dfl.mul"), axis], "dfl", keepdims=0)
    anchors, strides = grid()
    sides = constant([2, 2], "sides", np.int64)
    nodes.append(helper.make_node("Split", [mean, sides], ["near", "far"], axis=1))
    low = node("Sub", [constant(anchors[None], "anchors"), "near"], "low")
    high = node("Add", ["anchors", "far"], "high")
    corners = node("Concat", [low, high], "corners", axis=1)
    boxes = node("Mul", [corners, constant(strides[None, None], "strides")], "boxes")
    output = node("Concat", [boxes, node("Sigmoid", ["logits"], "scores")], "output", axis=1)

    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model, strict_mode=True), path)


def grid() -> tuple[Array, Array]:
    """Returns the anchors' centres (2, N) in cells, and the stride of each (N), in pixels."""
    centres, strides = [], []
    for stride in STRIDES:
        cells = SIZE // stride
        y, x = np.mgrid[:cells, :cells].reshape(2, -1) + 0.5
        centres.append(np.stack([x, y]))
        strides.append(np.full(cells * cells, stride))
    return np.hstack(centres).astype(np.float32), np.hstack(strides).astype(np.float32)


def decode(outputs: dict[str, Array]) -> Array:
    """Returns boxes and scores (1, 4 + classes, N) of the outputs before the decoding."""
    rows = [outputs[f"head{level}"].reshape(1, 4 * BINS + CLASSES, -1) for level in (0, 1)]
    bins, logits = np.split(np.concatenate(rows, axis=2), [4 * BINS], axis=1)
    bins = bins.reshape(1, 4, BINS, -1)
    soft = np.exp(bins - bins.max(axis=2, keepdims=True))
    distances = (soft / soft.sum(axis=2, keepdims=True)).transpose(0, 1, 3, 2) @ np.arange(BINS)
    anchors, strides = grid()
    corners = np.concatenate([anchors - distances[:, :2], anchors + distances[:, 2:]], axis=1)
    return np.concatenate([corners * strides, 1 / (1 + np.exp(-logits))], axis=1)


def keep(found: Array, least: float = 0.5, overlap: float = 0.45) -> list[tuple[int, float, Array]]:
    """Returns class, score and box of what is left after non-maximum suppression."""
    boxes, scores = found[0, :4].T, found[0, 4:]
    classes, best = scores.argmax(axis=0), scores.max(axis=0)
    kept: list[int] = []
    for one in np.argsort(-best):
        if best[one] < least:
            break
        near = [k for k in kept if classes[k] == classes[one]]
        if all(_overlap(boxes[k], boxes[one]) < overlap for k in near):
            kept.append(int(one))
    return [(int(classes[k]), float(best[k]), boxes[k]) for k in kept]


def _overlap(a: Array, b: Array) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    both = float(np.prod(np.clip(high - low, 0, None)))
    areas = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]))
    return both / (areas - both)


def main() -> None:
    """Runs one of the two commands."""
    if sys.argv[1:] == ["make"]:
        OUT.mkdir(exist_ok=True)
        make(OUT / "detector.onnx")
        return
    import edgekit_device

    if len(sys.argv) > 2:
        app = sys.argv[2]
    else:  # where `run` deploys without boards
        from edgekit.knowledge import cache_folder

        app = str(cache_folder() / "board/apps/detection")
    try:
        model = edgekit_device.load(app)
    except edgekit_device.DeviceError as error:
        sys.exit(f"{error}\nfirst: edgekit run examples/detection/detection.yaml")
    image = np.random.default_rng(1).random((1, 3, SIZE, SIZE), np.float32)
    for kind, score, box in keep(decode(model({"images": image})))[:10]:
        print(f"class {kind}  {score:.2f}  " + " ".join(f"{side:6.1f}" for side in box))


if __name__ == "__main__":
    main()
