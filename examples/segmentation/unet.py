"""A small U-Net that finds bright discs on a noisy ground, and its masks on a board.

    python unet.py make       writes out/unet.onnx, and out/images.npz to calibrate on
    python unet.py compare    masks of the deployed network beside those of FP32 on this machine

The last layer is fitted by least squares to discs of known places; the other weights are random.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper

OUT = Path(__file__).parent / "out"
SIZE, SEEN, HELD_OUT = 64, 16, 8

Array = NDArray[np.float32]


def pictures(count: int, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """Returns images (count, 3, SIZE, SIZE), and where their discs are."""
    random = np.random.default_rng(seed)
    images = random.normal(0.3, 0.1, (count, 3, SIZE, SIZE)).astype(np.float32)
    y, x = np.mgrid[:SIZE, :SIZE]
    masks = np.zeros((count, SIZE, SIZE), bool)
    for image, mask in zip(images, masks, strict=True):
        for _ in range(3):
            cy, cx, radius = *random.uniform(8, SIZE - 8, 2), random.uniform(4, 10)
            mask[(y - cy) ** 2 + (x - cx) ** 2 < radius**2] = True
        image[:, mask] += random.uniform(0.3, 0.6)
    return images.clip(0, 1), masks


def make() -> None:
    """Writes the network and the images."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}

    def node(kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def tensor(name: str, *shape: int) -> str:
        scale = (2 / np.prod(shape[1:])) ** 0.5
        weights[name] = random.normal(0, scale, shape).astype(np.float32)
        return name

    def block(x: str, name: str, into: int, out: int, stride: int = 1) -> str:
        x = node(
            "Conv",
            [x, tensor(f"{name}.w", out, into, 3, 3)],
            name,
            kernel_shape=[3, 3],
            strides=[stride] * 2,
            pads=[1] * 4,
        )
        return node("HardSwish", [x], f"{name}.act")

    full = block("image", "e1", 3, 16)
    half = block(full, "e2", 16, 32, 2)
    quarter = block(half, "e3", 32, 64, 2)
    # features of the whole image weigh the channels
    pooled = node("GlobalAveragePool", [quarter], "pool")
    squeeze = node("Conv", [pooled, tensor("squeeze.w", 64, 64, 1, 1)], "squeeze")
    quarter = node("Mul", [quarter, node("Sigmoid", [squeeze], "gate")], "weighed")
    # each channel by itself: a deconvolution of 64 groups
    up = node(
        "ConvTranspose",
        [quarter, tensor("up2.w", 64, 1, 2, 2)],
        "up2",
        kernel_shape=[2, 2],
        strides=[2, 2],
        group=64,
    )
    half = block(node("Concat", [up, half], "skip2", axis=1), "d2", 96, 64)
    up = node("DepthToSpace", [half], "up1", blocksize=2)
    full = block(node("Concat", [up, full], "skip1", axis=1), "d1", 32, 16)
    node("Conv", [full, "last.w", "last.b"], "logits")

    images, masks = pictures(SEEN, 1)
    weights["last.w"], weights["last.b"] = (
        np.zeros((1, 16, 1, 1), np.float32),
        np.zeros(1, np.float32),
    )
    features = _run(_model(nodes, weights, full), images)
    rows = features.transpose(0, 2, 3, 1).reshape(-1, 16)
    found = np.linalg.lstsq(np.c_[rows, np.ones(len(rows))], masks.ravel() * 8.0 - 4, rcond=None)[0]
    weights["last.w"] = found[:16].astype(np.float32).reshape(1, 16, 1, 1)
    weights["last.b"] = found[16:].astype(np.float32)
    OUT.mkdir(exist_ok=True)
    onnx.save(_model(nodes, weights, "logits"), OUT / "unet.onnx")
    np.savez(OUT / "images.npz", image=images)


def _model(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], output: str
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "unet",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _run(model: onnx.ModelProto | Path, images: Array) -> Array:
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"image": image[None]})[0] for image in images])


def compare(app: str | None) -> None:
    """Prints how well the masks agree, on images that were not used for calibration."""
    import edgekit_device

    if app is None:  # where `run` deploys without boards
        from edgekit.knowledge import cache_folder

        app = str(cache_folder() / "board/apps/segmentation")

    images, masks = pictures(HELD_OUT, 2)
    here = _run(OUT / "unet.onnx", images)[:, 0] > 0
    deployed = edgekit_device.load(app)
    there = (
        np.concatenate([deployed({"image": image[None]})["logits"] for image in images])[:, 0] > 0
    )
    print(f"FP32, this machine    IoU with the discs  {_iou(here, masks):.3f}")
    print(f"INT8, deployed        IoU with the discs  {_iou(there, masks):.3f}")
    print(f"                      IoU with FP32       {_iou(there, here):.3f}")


def _iou(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    return float((a & b).sum() / (a | b).sum())


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    else:
        compare(sys.argv[2] if len(sys.argv) > 2 else None)
