"""Data that show no range are refused; what was done to data is said, and what networks want."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgekit.errors import DataError
from edgekit.network.loading.load import load
from edgekit.network.model import Model
from edgekit.quantize.calibration.checks import check_samples
from edgekit.quantize.data.images import ImageOptions
from edgekit.quantize.data.load import load_data
from edgekit.quantize.data.preparation import describe_preprocessing

F = np.float32
RANDOM = np.random.default_rng(0)


def network(path: Path, inputs: dict[str, tuple[int, list[int]]], output: list[int]) -> Model:
    """Sums over all inputs, spread to the output's shape."""
    nodes, sums = [], []
    for name in inputs:
        nodes.append(helper.make_node("Cast", [name], [f"{name}.f"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("ReduceSum", [f"{name}.f"], [f"{name}.s"], keepdims=0))
        sums.append(f"{name}.s")
    shape = helper.make_tensor("shape", TensorProto.INT64, [len(output)], output)
    nodes.append(helper.make_node("Sum", sums, ["total"]))
    nodes.append(helper.make_node("Expand", ["total", "shape"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, *one) for name, one in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [shape],
    )
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.save(model, path)
    return load(path)


def check(folder: Path, arrays: dict[str, np.ndarray], batch: int = 1) -> None:
    types = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
    inputs = {
        name: (types[array.dtype.kind], [batch, *array.shape[1:]]) for name, array in arrays.items()
    }
    model = network(folder / "net.onnx", inputs, [1])
    np.savez(folder / "data.npz", **arrays)
    check_samples(load_data(folder / "data.npz", model), where="data.npz")


def rising(count: int) -> np.ndarray:
    return np.arange(count, dtype=F).reshape(-1, 1, 1, 1)


IMAGE = RANDOM.standard_normal((1, 3, 8, 8)).astype(F)
COLOURS = np.broadcast_to(np.array([0.2, 0.4, 0.9], F).reshape(1, 3, 1, 1), (4, 3, 8, 8))


@pytest.mark.parametrize(
    ("code", "arrays"),
    [
        ("data.constant", {"x": np.zeros((1, 3, 8, 8), F)}),
        ("data.constant", {"x": np.ones((4, 3, 8, 8), F) * rising(4)}),
        ("data.constant", {"x": COLOURS * (1 + rising(4))}),
        ("data.constant", {"x": np.ones((4, 5), F), "mask": np.ones((4, 5), np.int64)}),
        ("data.repeated", {"x": np.repeat(IMAGE, 4, 0)}),
        ("data.repeated", {"x": np.repeat(IMAGE, 2, 0), "mask": np.ones((2, 5), np.int64)}),
    ],
)
@pytest.mark.parametrize("batch", [1, 2])
def test_data_that_show_no_range_are_refused(
    tmp_path: Path, code: str, arrays: dict[str, np.ndarray], batch: int
) -> None:
    with pytest.raises(DataError) as caught:
        check(tmp_path, arrays, batch)
    error = caught.value
    assert (error.code, error.where) == (code, "data.npz")
    assert "'x'" in error.message
    assert "calibration: {data: " in error.hint


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": IMAGE},
        {"x": np.repeat(IMAGE, 4, 0) * (1 + rising(4))},
        {"x": np.repeat(IMAGE, 4, 0) * (1 + rising(4)), "size": np.full((4, 2), 8.0, F)},
        {"ids": np.arange(20).reshape(4, 5), "mask": np.ones((4, 5), F)},
        {"x": np.arange(4, dtype=F).reshape(4, 1)},
        {"ids": np.ones((4, 5), np.int64)},
    ],
)
def test_other_data_are_taken(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    check(tmp_path, arrays)
    if len(arrays) == 1:
        # the last sample's row is repeated to fill the batch: it still counts once
        check(tmp_path, arrays, batch=8)


@pytest.mark.parametrize(
    ("shape", "output", "wanted"),
    [
        ([1, 3, 224, 224], [1, 1000], "Networks of torchvision look like this"),
        ([1, 3, 640, 640], [1, 84, 8400], "calibration: {preset: yolo}"),
        ([1, 224, 224, 3], [1, 1000], "{preset: caffe}"),
        ([1, 96, 96, 3], [1, 2], "calibration: {preset: tf}"),
        ([1, 3, 64, 64], [1, 10], ""),
        ([1, 4, 224, 224], [1, 1000], ""),
    ],
)
def test_what_a_network_usually_wants_is_said(
    tmp_path: Path, shape: list[int], output: list[int], wanted: str
) -> None:
    model = network(tmp_path / "net.onnx", {"x": (TensorProto.FLOAT, shape)}, output)
    for kind in ("synthetic", "arrays", "images"):
        text = describe_preprocessing(model, ImageOptions(), kind)
        assert text.startswith("Preprocessing: ")
        assert "mean and std: none" in text
        assert wanted in text
        assert ("Networks of" in text) == bool(wanted)
