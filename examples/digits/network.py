"""A small convolutional network in NumPy: training, training with rounding, and its ONNX files.

conv 3x3 (16) - ReLU - pool 2 - conv 3x3 (32) - ReLU - pool 2 - fully connected (10), on 8x8 images.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper

__all__ = ["OPSET", "SHAPE", "export", "export_qdq", "forward", "initial", "train"]

OPSET = 17
SHAPE = (1, 8, 8)
CLASSES = 10
# activations that are rounded in training with rounding: the inputs of weighted layers
ROUNDED = ("x", "p1", "p2")
Params = dict[str, np.ndarray]


def initial(seed: int) -> Params:
    """Returns weights by He's rule."""
    rng = np.random.default_rng(seed)
    shapes = {"w1": (16, 1, 3, 3), "w2": (32, 16, 3, 3), "w3": (CLASSES, 32 * 2 * 2)}
    params: Params = {}
    for number, (name, shape) in enumerate(shapes.items(), 1):
        fan_in = int(np.prod(shape[1:]))
        params[name] = (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        params[f"b{number}"] = np.zeros(shape[0], np.float32)
    return params


def forward(
    params: Params, x: np.ndarray, scales: Mapping[str, float] | None = None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns logits and every tensor by name; with ``scales`` as INT8 rounds them.

    Gradients pass the rounding as if it were not there (straight-through estimator).
    """
    t: dict[str, np.ndarray] = {"x": _rounded(x, "x", scales)}
    for number, source in (("1", "x"), ("2", "p1")):
        weight = _rounded_weights(params[f"w{number}"], scales)
        # every 3x3 neighbourhood as a row: [n, h, w, c * 9]
        padded = np.pad(t[source], ((0, 0), (0, 0), (1, 1), (1, 1)))
        rows = sliding_window_view(padded, (3, 3), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)
        rows = rows.reshape(*rows.shape[:3], -1)
        t[f"rows{number}"], t[f"u{number}"] = rows, weight
        y = rows @ weight.reshape(len(weight), -1).T + params[f"b{number}"]
        t[f"r{number}"] = np.maximum(y.transpose(0, 3, 1, 2), 0)
        n, c, h, w = t[f"r{number}"].shape
        blocks = t[f"r{number}"].reshape(n, c, h // 2, 2, w // 2, 2)
        pooled = blocks.max(axis=(3, 5))
        best = blocks == pooled[:, :, :, None, :, None]
        # equal ones share the gradient
        t[f"best{number}"] = best / best.sum(axis=(3, 5), keepdims=True, dtype=x.dtype)
        t[f"p{number}"] = _rounded(pooled, f"p{number}", scales)
    t["u3"] = _rounded_weights(params["w3"], scales)
    return t["p2"].reshape(len(x), -1) @ t["u3"].T + params["b3"], t


def _rounded(values: np.ndarray, name: str, scales: Mapping[str, float] | None) -> np.ndarray:
    if scales is None:
        return values
    step = np.float32(scales[name])
    return np.clip(np.rint(values / step), -128, 127) * step


def _rounded_weights(weight: np.ndarray, scales: Mapping[str, float] | None) -> np.ndarray:
    if scales is None:
        return weight
    steps = weight_scales(weight).reshape(-1, *[1] * (weight.ndim - 1))
    return np.clip(np.rint(weight / steps), -127, 127) * steps


def weight_scales(weight: np.ndarray) -> np.ndarray:
    """Returns one symmetric scale per output channel: its largest magnitude / 127."""
    largest = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    return np.maximum(largest / np.float32(127), np.float32(1e-12))


def gradients(
    params: Params, x: np.ndarray, labels: np.ndarray, scales: Mapping[str, float] | None
) -> Params:
    """Returns the gradients of the mean cross-entropy."""
    logits, t = forward(params, x, scales)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(x)), labels] -= 1
    slope = shares / len(x)
    found = {"w3": slope.T @ t["p2"].reshape(len(x), -1), "b3": slope.sum(axis=0)}
    slope = (slope @ t["u3"]).reshape(t["p2"].shape)
    for number in ("2", "1"):
        blocks = t[f"best{number}"] * slope[:, :, :, None, :, None]
        slope = blocks.reshape(t[f"r{number}"].shape) * (t[f"r{number}"] > 0)
        flat = slope.transpose(0, 2, 3, 1)
        weight, rows = t[f"u{number}"], t[f"rows{number}"]
        product = np.tensordot(flat, rows, axes=([0, 1, 2], [0, 1, 2]))
        found[f"w{number}"] = product.reshape(weight.shape)
        found[f"b{number}"] = flat.sum(axis=(0, 1, 2))
        if number == "2":
            # the convolution turned round: every place of the kernel sends its share back
            shares = (flat @ weight.reshape(len(weight), -1)).reshape(*flat.shape[:3], -1, 3, 3)
            back = np.zeros((len(x), shares.shape[3], 6, 6), x.dtype)
            for i in range(3):
                for j in range(3):
                    back[:, :, i : i + 4, j : j + 4] += shares[..., i, j].transpose(0, 3, 1, 2)
            slope = back[:, :, 1:5, 1:5]
    return found


def train(
    params: Params,
    x: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int,
    rate: float,
    seed: int,
    scales: Mapping[str, float] | None = None,
) -> Params:
    """Trains with Adam on batches of 32, and returns new weights."""
    rng = np.random.default_rng(seed)
    params = {name: value.copy() for name, value in params.items()}
    mean = {name: np.zeros_like(value) for name, value in params.items()}
    square = {name: np.zeros_like(value) for name, value in params.items()}
    step = 0
    for epoch in range(epochs):
        now = rate * 0.5 * (1 + np.cos(np.pi * epoch / epochs))
        order = rng.permutation(len(x))
        for start in range(0, len(x), 32):
            batch = order[start : start + 32]
            step += 1
            for name, slope in gradients(params, x[batch], labels[batch], scales).items():
                mean[name] = 0.9 * mean[name] + 0.1 * slope
                square[name] = 0.999 * square[name] + 0.001 * slope**2
                move = mean[name] / (1 - 0.9**step)
                move /= np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8
                params[name] -= (now * move).astype(np.float32)
    return params


def export(params: Params, path: Path) -> None:
    """Writes the plain network: input "x" [1, 1, 8, 8], output "logits" [1, 10]."""
    _write(params, path, {})


def export_qdq(params: Params, scales: Mapping[str, float], path: Path) -> None:
    """Writes the network as it was trained with rounding: Q/DQ pairs on activations and weights."""
    stored: Params = {"zero": np.zeros((), np.int8)}
    pairs: dict[str, list[onnx.NodeProto]] = {}
    for name in ROUNDED:
        stored[f"{name}_scale"] = np.array(scales[name], np.float32)
        pairs[name] = _pair(name, "zero")
    for name in ("w1", "w2", "w3"):
        stored[f"{name}_scale"] = weight_scales(params[name])
        stored[f"{name}_zero"] = np.zeros(len(params[name]), np.int8)
        pairs[name] = _pair(name, f"{name}_zero", axis=0)
    _write({**params, **stored}, path, pairs)


def _pair(name: str, zero: str, **axis: int) -> list[onnx.NodeProto]:
    scale, codes, values = f"{name}_scale", f"{name}_q", f"{name}_dq"
    return [
        helper.make_node("QuantizeLinear", [name, scale, zero], [codes], name=codes, **axis),
        helper.make_node("DequantizeLinear", [codes, scale, zero], [values], name=values, **axis),
    ]


def _write(stored: Params, path: Path, pairs: Mapping[str, list[onnx.NodeProto]]) -> None:
    nodes = [node for name, pair in pairs.items() if name in stored or name == "x" for node in pair]

    def add(op: str, inputs: str, output: str, **attributes: object) -> None:
        read = [f"{name}_dq" if name in pairs else name for name in inputs.split()]
        nodes.append(helper.make_node(op, read, [output], name=output, **attributes))
        nodes.extend(pairs.get(output, []))

    add("Conv", "x w1 b1", "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    add("Relu", "c1", "r1")
    add("MaxPool", "r1", "p1", kernel_shape=[2, 2], strides=[2, 2])
    add("Conv", "p1 w2 b2", "c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    add("Relu", "c2", "r2")
    add("MaxPool", "r2", "p2", kernel_shape=[2, 2], strides=[2, 2])
    add("Flatten", "p2", "f")
    add("Gemm", "f w3 b3", "logits", transB=1)
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("x", 1, [1, *SHAPE])],
        [helper.make_tensor_value_info("logits", 1, [1, CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
