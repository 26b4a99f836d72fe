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
    document = edgekit.check(
        write(proto, folder), target=BOARD, precision="fp16", tensorrt=release
    ).to_json()
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
        {"x": IMAGE},
        ["y"],
        {"w": values((8, 8, 1, 1)), "one": np.array(1), "zero": np.array([0])},
    )


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
        {"x": IMAGE},
        ["y"],
        {"w": values((8, 8, 1, 1)), "p": np.array(pads)},
    )


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
        {"x": IMAGE},
        ["y"],
        {"p": np.array([0] * 8)},
    )
    network = layers(load(write(proto, tmp_path)), "11.4")

    assert [(layer.name, layer.inputs, "pad" in layer.nodes) for layer in network.layers] == [
        ("relu", ("x",), True),
        ("sigmoid", ("x",), True),
        ("add", ("r", "s"), False),
    ]


def test_a_pad_of_zeros_at_the_end_stays_an_identity(tmp_path: Path) -> None:
    proto = make(
        [node("Relu", "x", "r", name="relu"), node("Pad", "r p", "y", name="pad")],
        {"x": IMAGE},
        ["y"],
        {"p": np.array([0] * 8)},
    )

    assert checked(proto, tmp_path, "11.4.1")["pad"]["kind"] == "IDENTITY"


FLAT = [1, 8, 16]


@pytest.mark.parametrize(
    ("one", "constants", "after"),
    [
        (node("Conv", "x w", "y"), {"w": values((8, 8, 3))}, "SQUEEZE"),
        (node("ConvTranspose", "x w", "y"), {"w": values((8, 8, 3))}, "SQUEEZE"),
        (node("MaxPool", "x", "y", kernel_shape=[2]), {}, "SQUEEZE"),
        (node("AveragePool", "x", "y", kernel_shape=[2]), {}, "SQUEEZE"),
        (node("BatchNormalization", "x w w w w", "y"), {"w": np.ones(8, np.float32)}, "SHUFFLE"),
    ],
    ids=lambda one: getattr(one, "op_type", None),
)
def test_what_the_parser_puts_around_a_layer_of_few_dimensions(
    tmp_path: Path, one: onnx.NodeProto, constants: dict[str, np.ndarray], after: str
) -> None:
    one.name = "n"
    model = load(write(make([one], {"x": FLAT}, ["y"], constants), tmp_path))

    older, newer = ([la.kind for la in layers(model, release).layers] for release in ("10.3", "11"))

    assert (older[0], older[-1]) == ("SHUFFLE", "SHUFFLE")
    assert (newer[0], newer[-1]) == ("UNSQUEEZE", after)


def test_a_1_d_convolution_is_judged_alike_whatever_the_kind_is_called(tmp_path: Path) -> None:
    """The reshapes of a convolution compute nothing, so that INT8 passes through them."""
    proto = make(
        [
            node("QuantizeLinear", "x s z", "a", name="q"),
            node("DequantizeLinear", "a s z", "b", name="d"),
            node("Conv", "b w", "y", name="conv"),
        ],
        {"x": FLAT},
        ["y"],
        {"w": values((8, 8, 3)), "s": np.float32(0.1), "z": np.int8(0)},
    )
    path = write(proto, tmp_path)
    found = [
        edgekit.check(path, target=BOARD, tensorrt=release).to_json()
        for release in ("10.3", "11.4.1")
    ]
    assert [len(one["layers"]) for one in found] == [3, 5]
    assert found[1]["layers"][2]["kind"] == "UNSQUEEZE"


@pytest.mark.parametrize("release", ["8.5.2", "11.4.1"])
def test_another_domain_s_operator_of_onnx_s_name_is_left_to_the_parser(
    tmp_path: Path, release: str
) -> None:
    one = node("Attention", "x w b", "y", name="attention", domain="com.microsoft")
    constants = {"w": values((8, 8, 1, 1)), "b": values((8,))}
    proto = make([one], {"x": IMAGE}, ["y"], constants, domains=["com.microsoft"])
    proto.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, IMAGE)
    )

    document = edgekit.check(write(proto, tmp_path), target=BOARD, tensorrt=release).to_json()

    assert [one["node"] for one in document["parse"]["problems"]] == ["attention"]
    assert [one["why"] for one in document["unknown_cost"]] == ["formula"]


@pytest.mark.parametrize(
    ("one", "kind", "params"),
    [
        (
            node("ScaledTanh", "x", "y", alpha=2.0, beta=3.0),
            "ACTIVATION",
            {"function": "SCALED_TANH", "alpha": 2.0, "beta": 3.0},
        ),
        (
            node("ParametricSoftplus", "x", "y", alpha=2.0, beta=3.0),
            "ACTIVATION",
            {"function": "SOFTPLUS", "alpha": 2.0, "beta": 3.0},
        ),
        (node("ImageScaler", "x", "y", scale=2.0, bias=[1.0] * 8), "SCALE", {"mode": "CHANNEL"}),
    ],
    ids=lambda one: getattr(one, "op_type", None),
)
@pytest.mark.parametrize("opset", [6, 17])
def test_operators_that_onnx_gave_up_are_layers(
    tmp_path: Path, one: onnx.NodeProto, kind: str, params: dict[str, Any], opset: int
) -> None:
    path = write(make([one], {"x": IMAGE}, ["y"], opset=opset), tmp_path)

    (layer,) = layers(load(path)).layers
    document = edgekit.check(path, target=BOARD).to_json()

    assert layer.kind == kind
    assert params.items() <= layer.params.items()
    assert document["parse"]["ok"]
    assert not document["unknown_cost"]


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_onnx_runtime_s_normalization_needs_no_domain(tmp_path: Path, domain: str) -> None:
    one = node("SimplifiedLayerNormalization", "x w", "y", axis=-1, name="n", domain=domain)
    proto = make(
        [one], {"x": [1, 8, 16]}, ["y"], {"w": values((16,))}, domains=[domain] if domain else []
    )

    found = layers(load(write(proto, tmp_path)), "11.4.1").layers

    functions = [layer.params["function"] for layer in found]
    assert functions == ["PROD", "AVG", "SUM", "SQRT", "RECIP", "PROD", "PROD"]


def test_a_fourier_transform_of_frames_is_two_convolutions(tmp_path: Path) -> None:
    """As the parser of TensorRT for RTX 1.7 writes it."""
    one = onnx.helper.make_node("STFT", ["x", "step", "", "length"], ["y"], onesided=1)
    constants = {"step": np.array(16), "length": np.array(32)}
    proto = make([one], {"x": [1, 128]}, ["y"], constants)

    found = layers(load(write(proto, tmp_path)), "11.4.1").layers

    assert [layer.kind for layer in found] == [
        "UNSQUEEZE",
        "CONVOLUTION",
        "CONVOLUTION",
        "CONCATENATION",
        "SHUFFLE",
    ]
    # 7 frames of 32 values, for 17 frequencies
    assert [layer.macs for layer in found] == [0, 7 * 32 * 17, 7 * 32 * 17, 0, 0]


@pytest.mark.parametrize(
    ("one", "dtype"),
    [
        (node("BitShift", "x x", "y", direction="LEFT"), onnx.TensorProto.UINT8),
        (node("ConvInteger", "x w", "y"), onnx.TensorProto.INT8),
        (
            node("Attention", "x x x", "y", num_heads=2, domain="com.microsoft"),
            onnx.TensorProto.FLOAT,
        ),
    ],
    ids=["BitShift", "ConvInteger", "Attention"],
)
def test_what_needs_no_plugin_is_not_called_one(
    tmp_path: Path, one: onnx.NodeProto, dtype: int
) -> None:
    attends = one.op_type == "Attention"
    proto = make(
        [one],
        {"x": [1, 8, 16] if attends else IMAGE},
        ["y"],
        {} if "w" not in one.input else {"w": np.ones((8, 8, 1, 1), np.int8)},
        domains=[one.domain] if one.domain else [],
    )
    proto.graph.input[0].type.tensor_type.elem_type = dtype
    document = edgekit.check(write(proto, tmp_path), target=BOARD, precision="fp16").to_json()

    (layer,) = document["layers"]
    assert layer["kind"] != "PLUGIN_V2"
    assert "general.plugin" not in {reason["rule"] for reason in layer["dla"]["reasons"]}
    assert not any("needs the plugin" in warning for warning in document["warnings"])
