"""Operators that TensorRT's parser writes with several layers: kinds, functions and shapes.

Expected are the layers of TensorRT for RTX 1.7's parser for the same nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgekit.dla.judge import judge
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Network
from edgekit.targets.loader import get
from tests.network.onnx_making import make, node, values, write

X = [1, 4, 8, 8]
LINE = [1, 1, 8, 8]


def graph(
    tmp_path: Path, one: onnx.NodeProto, inputs: dict[str, list[int]], opset: int = 17, **more: Any
) -> Network:
    outputs = [name for name in one.output if name]
    return layers(load(write(make([one], inputs, outputs, opset=opset, **more), tmp_path)))


def own(network: Network) -> list[tuple[str, list[int]]]:
    """Kinds or functions, and shapes, of the layers that stand for the node."""
    return [
        (
            str(layer.params.get("function") or layer.kind),
            list(network.tensors[layer.outputs[0]].shape),
        )
        for layer in network.layers
        if layer.nodes
    ]


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (node("LpNormalization", "x", "y", axis=1),
         [("PROD", X), ("SUM", LINE), ("SQRT", LINE), ("EQUAL", LINE), ("SUM", LINE), ("DIV", X)]),
        (node("LpNormalization", "x", "y", axis=1, p=1),
         [("ABS", X), ("SUM", LINE), ("EQUAL", LINE), ("SUM", LINE), ("DIV", X)]),
        (node("LpPool", "x", "y", kernel_shape=[2, 2], strides=[2, 2]),
         [("PROD", X), ("POOLING", [1, 4, 4, 4]), ("PROD", [1, 4, 4, 4]), ("SQRT", [1, 4, 4, 4])]),
        (node("LpPool", "x", "y", kernel_shape=[2, 2], p=1),
         [("ABS", X), ("POOLING", [1, 4, 7, 7]), ("PROD", [1, 4, 7, 7])]),
        (node("GlobalLpPool", "x", "y"), [("SUM", [1, 4, 1, 1])]),
        (node("MeanVarianceNormalization", "x", "y"),
         [("AVG", [1, 4, 1, 1]), ("SUB", X), ("PROD", X), ("AVG", [1, 4, 1, 1]),
          ("SQRT", [1, 4, 1, 1]), ("SUM", [1, 4, 1, 1]), ("DIV", X)]),
        (node("Shrink", "x", "y", bias=0.5),
         [("GREATER", X), ("SUB", X), ("SELECT", X), ("LESS", X), ("SUM", X), ("SELECT", X)]),
        (node("Celu", "x", "y"),
         [(name, X) for name in ("DIV", "EXP", "MAX", "SUB", "PROD", "MIN", "SUM")]),
        (node("Trilu", "x", "y", upper=1),
         [("LESS", LINE), ("EQUAL", LINE), ("OR", LINE), ("SELECT", X)]),
        (node("Trilu", "x", "y", upper=0),
         [("GREATER", LINE), ("EQUAL", LINE), ("OR", LINE), ("SELECT", X)]),
        (node("Hardmax", "x", "y", axis=1), [("MAX", LINE), ("ONE_HOT", X)]),
        (node("IsInf", "x", "y"), [("ISINF", X)]),
        (node("IsInf", "x", "y", detect_negative=0), [("GREATER", X), ("ISINF", X), ("AND", X)]),
        (node("IsInf", "x", "y", detect_positive=0), [("LESS", X), ("ISINF", X), ("AND", X)]),
        (node("ArgMax", "x", "y", axis=1, select_last_index=1),
         [("MAX", LINE), ("SUB", LINE), ("SUB", LINE)]),
        (node("Mod", "x x", "y", fmod=1),
         [("DIV", X), ("GREATER", X), ("EQUAL", X), ("OR", X), ("SELECT", X)]),
        (node("GreaterOrEqual", "x x", "y"), [("GREATER", X), ("EQUAL", X), ("OR", X)]),
        (node("LessOrEqual", "x x", "y"), [("LESS", X), ("EQUAL", X), ("OR", X)]),
    ],
)  # fmt: skip
def test_layers_of_a_node(
    tmp_path: Path, one: onnx.NodeProto, expected: list[tuple[str, list[int]]]
) -> None:
    network = graph(tmp_path, one, {"x": X})
    assert own(network) == expected
    (name,) = {name for layer in network.layers for name in layer.nodes}
    assert name in {layer.name for layer in network.layers}
    assert not any(layer.opaque for layer in network.layers)
    # what one layer writes the next ones read; the last one writes the output
    written = {name for layer in network.layers for name in layer.outputs}
    assert {name for layer in network.layers for name in layer.inputs} <= {"x", *written}
    assert "y" in network.layers[-1].outputs


def test_both_comparisons_have_the_constant(tmp_path: Path) -> None:
    one = node("LessOrEqual", "x c", "y", name="n")
    network = graph(tmp_path, one, {"x": X}, constants={"c": np.full(1, 2, np.float32)})
    less, equal, either = network.layers
    for compares in (less, equal):
        assert compares.params["constant_operand"] == (1, 1, 1, 1)
        assert compares.params["uniform_constant"] is True
    assert either.inputs == (*less.outputs, *equal.outputs)


def test_a_hardmax_of_an_old_opset_flattens_first(tmp_path: Path) -> None:
    network = graph(tmp_path, node("Hardmax", "x", "y", axis=1), {"x": X}, opset=11)
    assert own(network) == [("SHUFFLE", [1, 256]), ("MAX", [1, 1]), ("ONE_HOT", [1, 256])]
    assert list(network.tensors["y"].shape) == X


def test_only_the_shape_of_an_eye_s_input_counts(tmp_path: Path) -> None:
    network = graph(tmp_path, node("EyeLike", "x", "y"), {"x": [5, 6]})
    assert [(layer.kind, layer.inputs) for layer in network.layers] == [("CONSTANT", ())]


def test_scores_are_transposed_before_they_are_suppressed(tmp_path: Path) -> None:
    one = node("NonMaxSuppression", "boxes scores most", "y", name="nms")
    network = graph(
        tmp_path,
        one,
        {"boxes": [1, 20, 4], "scores": [1, 3, 20]},
        constants={"most": np.array([5])},
    )
    turned, suppressed = network.layers
    assert (turned.kind, turned.params["perm"]) == ("SHUFFLE", (0, 2, 1))
    assert network.tensors[turned.outputs[0]].shape == (1, 20, 3)
    assert (suppressed.kind, suppressed.name) == ("NMS", "nms")
    assert suppressed.inputs[1] == turned.outputs[0]
    assert network.opaque == ("nms",)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"alpha": 0.5, "beta": 2.0},
            [("MATRIX_MULTIPLY", [4, 6]), ("PROD", [4, 6]), ("PROD", [6]), ("SUM", [4, 6])],
        ),
        ({"alpha": 0.5}, [("MATRIX_MULTIPLY", [4, 6]), ("PROD", [4, 6]), ("SUM", [4, 6])]),
        ({}, [("MATRIX_MULTIPLY", [4, 6]), ("SUM", [4, 6])]),
    ],
)
def test_factors_of_a_product_are_layers(
    tmp_path: Path, given: dict[str, float], expected: list[tuple[str, list[int]]]
) -> None:
    one = node("Gemm", "a b c", "y", **given)
    network = graph(tmp_path, one, {"a": [4, 8], "b": [8, 6], "c": [6]})
    assert own(network) == expected


@pytest.mark.parametrize(
    ("given", "pads", "sizes"),
    [
        # (deconvolution's padding, its result, and what the slice makes of it)
        ({"output_padding": [1, 1], "pads": [1, 1, 1, 1]}, (1, 1, 0, 0), [(16, 16)]),
        ({"output_padding": [1, 1]}, (0, 0, 0, 0), [(17, 17), (18, 18)]),
        ({"output_padding": [0, 1]}, (0, 0, 0, 0), [(17, 17), (17, 18)]),
        ({"output_shape": [17, 17], "output_padding": [1, 1]}, (0, 0, 0, 0), [(17, 17)]),
        ({"output_shape": [18, 18]}, (0, 0, 0, 0), [(17, 17), (18, 18)]),
        ({"output_shape": [16, 16]}, (0, 0, 1, 1), [(16, 16)]),
    ],
)
def test_output_padding(
    tmp_path: Path, given: dict[str, Any], pads: tuple[int, ...], sizes: list[tuple[int, int]]
) -> None:
    one = node("ConvTranspose", "x w b", "y", strides=[2, 2], name="up", **given)
    weights = {"w": values([4, 3, 3, 3]), "b": values([3])}
    network = graph(tmp_path, one, {"x": X}, constants=weights)
    up, *rest = network.layers
    assert (up.kind, up.name, up.params["pads"]) == ("DECONVOLUTION", "up", pads)
    appended = len(sizes) > 1
    assert [layer.kind for layer in rest] == ["SLICE", "ELEMENTWISE"] * appended
    assert up.params["bias"] is not appended
    shapes = [network.tensors[layer.outputs[0]].shape[2:] for layer in network.layers]
    assert shapes[: len(sizes)] == sizes
    assert up.macs == 4 * 8 * 8 * 3 * 9
    if appended:
        assert rest[0].params["mode"] == "FILL"
        assert "b" in rest[1].weights
        verdicts = judge(network, target=get("jetson-agx-orin-64gb"), precision="fp16").verdicts
        reasons = {reason.rule for reason in verdicts[rest[0].name].reasons}
        assert "slice.out_of_bounds" in reasons


def test_a_line_is_appended_to_in_two_dimensions(tmp_path: Path) -> None:
    one = node("ConvTranspose", "x w", "y", strides=[2], output_padding=[1], name="up")
    network = graph(tmp_path, one, {"x": [1, 4, 8]}, constants={"w": values([4, 3, 3])})
    kinds = [layer.kind for layer in network.layers]
    assert kinds == ["SHUFFLE", "DECONVOLUTION", "SLICE", "SHUFFLE"]
    shapes = [network.tensors[layer.outputs[0]].shape for layer in network.layers]
    assert shapes == [(1, 4, 8, 1), (1, 3, 17, 1), (1, 3, 18, 1), (1, 3, 18)]


def test_the_last_of_equal_values_is_searched_backwards(tmp_path: Path) -> None:
    one = node("ArgMin", "x", "y", axis=2, keepdims=0, select_last_index=1)
    network = graph(tmp_path, one, {"x": X})
    back = network.layers[0]
    assert (back.kind, back.nodes, back.params["strides"]) == ("SLICE", (), (1, 1, -1, 1))
    assert back.params["starts"] == (0, 0, 7, 0)
    assert [layer.kind for layer in network.layers[1:]] == ["TOPK", "ELEMENTWISE", "ELEMENTWISE"]


@pytest.mark.parametrize(
    ("one", "inputs", "opset", "kinds"),
    [
        (node("CastLike", "x t", "y"), {"x": X, "t": [1]}, 17, ["CAST"]),
        (
            node("RMSNormalization", "x s", "y"),
            {"x": X, "s": [8]},
            23,
            [
                "ELEMENTWISE",
                "REDUCE",
                "ELEMENTWISE",
                "UNARY",
                "ELEMENTWISE",
                "SHUFFLE",
                "ELEMENTWISE",
            ],
        ),
        (node("Attention", "x x x", "y"), {"x": X}, 23, ["ATTENTION_OUTPUT"]),
        (node("Swish", "x", "y"), {"x": X}, 24, ["ELEMENTWISE", "ACTIVATION", "ELEMENTWISE"]),
    ],
)
def test_operators_of_newer_parsers_need_no_plugin(
    tmp_path: Path, one: onnx.NodeProto, inputs: dict[str, list[int]], opset: int, kinds: list[str]
) -> None:
    network = graph(tmp_path, one, inputs, opset=opset)
    assert [layer.kind for layer in network.layers] == kinds
    assert not network.opaque


def test_a_remainder_of_whole_numbers_divides_down(tmp_path: Path) -> None:
    model = make([node("Mod", "a b", "y")], {"a": [4], "b": [4]}, ["y"])
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.INT32
    network = layers(load(write(model, tmp_path)))
    functions = [layer.params["function"] for layer in network.layers]
    assert functions == ["FLOOR_DIV", "PROD", "SUB"]
