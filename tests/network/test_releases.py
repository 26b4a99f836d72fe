"""Layers whose kind depends on the TensorRT release, by what edgekit.check says of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from tests.network.onnx_making import make, node, values, write

BOARD = "jetson-agx-orin-64gb"
IMAGE = [1, 8, 8, 8]


def checked(proto: onnx.ModelProto, folder: Path, release: str) -> dict[str, dict[str, Any]]:
    document = edgekit.check(write(proto, folder), target=BOARD, precision="fp16", tensorrt=release)
    return {name: layer for layer in document["layers"] for name in layer["nodes"]}


def reshaping() -> onnx.ModelProto:
    return make(
        [
            node("Conv", "x w", "c", name="conv"),
            node("CumSum", "c one", "s", name="sum"),
            node("Squeeze", "s zero", "q", name="thin"),
            node("Relu", "q", "r", name="relu"),
            node("Unsqueeze", "r zero", "y", name="thick"),
        ],
        {"x": IMAGE}, ["y"],
        {"w": values((8, 8, 1, 1)), "one": np.array(1), "zero": np.array([0])},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("release", "cumsum", "squeeze", "unsqueeze"),
    [
        ("10.3", "LOOP", "SHUFFLE", "SHUFFLE"),
        ("10.7", "LOOP", "SQUEEZE", "UNSQUEEZE"),
        ("11.4.1", "CUMULATIVE", "SQUEEZE", "UNSQUEEZE"),
    ],
)
def test_kinds_follow_the_release(
    tmp_path: Path, release: str, cumsum: str, squeeze: str, unsqueeze: str
) -> None:
    found = checked(reshaping(), tmp_path, release)

    kinds = {name: layer["kind"] for name, layer in found.items()}
    assert (kinds["sum"], kinds["thin"], kinds["thick"]) == (cumsum, squeeze, unsqueeze)
    assert f"Found: {cumsum} " in found["sum"]["dla"]["reasons"][0]["message"]
    rules = {reason["rule"] for reason in found["thin"]["dla"]["reasons"]}
    assert "shuffle.rank" in rules


def padded(pads: list[int]) -> onnx.ModelProto:
    return make(
        [
            node("Conv", "x w", "c", name="one"),
            node("Pad", "c p", "d", name="pad"),
            node("Conv", "d w", "y", name="two"),
        ],
        {"x": IMAGE}, ["y"], {"w": values((8, 8, 1, 1)), "p": np.array(pads)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("release", "pads", "kind"),
    [
        ("10.3", [0] * 8, "SLICE"),
        ("11.4.1", [0, 0, 1, 1, 0, 0, 1, 1], "SLICE"),
        # the builder removes the identity: the next layer stands for the node
        ("11.4.1", [0] * 8, "CONVOLUTION"),
    ],
)
def test_a_pad_of_zeros_is_no_layer_from_11_on(
    tmp_path: Path, release: str, pads: list[int], kind: str
) -> None:
    assert checked(padded(pads), tmp_path, release)["pad"]["kind"] == kind


def test_a_pad_of_zeros_that_several_layers_read_goes_to_all_of_them(tmp_path: Path) -> None:
    proto = make(
        [
            node("Pad", "x p", "d", name="pad"),
            node("Relu", "d", "r", name="relu"),
            node("Sigmoid", "d", "s", name="sigmoid"),
            node("Add", "r s", "y", name="add"),
        ],
        {"x": IMAGE}, ["y"], {"p": np.array([0] * 8)},
    )  # fmt: skip
    network = layers(load(write(proto, tmp_path)), "11.4")

    assert [(layer.name, layer.inputs, "pad" in layer.nodes) for layer in network.layers] == [
        ("relu", ("x",), True), ("sigmoid", ("x",), True), ("add", ("r", "s"), False),
    ]  # fmt: skip


def test_a_pad_of_zeros_at_the_end_stays_an_identity(tmp_path: Path) -> None:
    proto = make(
        [node("Relu", "x", "r", name="relu"), node("Pad", "r p", "y", name="pad")],
        {"x": IMAGE}, ["y"], {"p": np.array([0] * 8)},
    )  # fmt: skip

    assert checked(proto, tmp_path, "11.4.1")["pad"]["kind"] == "IDENTITY"
