"""Q/DQ nodes and scales by TensorRT release, and the precision that each layer runs in."""

from collections.abc import Sequence
from typing import Any

import pytest

from edgekit.dla.judge import judge
from edgekit.dla.verdicts import Judgement
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Layer, Network, Tensor
from edgekit.targets.loader import get
from tests.dla.one_layer import ORIN, convolution, network_of, rules_of
from tests.quantize.qdq_nets import Sheet

EXPLICIT, IMPLICIT = "11.4.1", "10.3"
CONV = {key: value for key, value in convolution().items() if key not in {"inputs", "output"}}
RELU = {"function": "RELU"}
Step = tuple[str, str, Sequence[str], dict[str, Any]]


def chain(*steps: Step, outputs: Sequence[str] = ()) -> Network:
    """Layers by name, kind, the layers (or "x", the input) that they read, and parameters."""
    shape = (1, 64, 16, 16)
    tensors = {"x": Tensor("x", shape, "float32")}
    layers = []
    for name, kind, reads, params in steps:
        tensors[name] = Tensor(name, shape, "int8" if kind == "QUANTIZE" else "float32")
        layers.append(Layer(name, kind, "", (name,), (name,), tuple(reads), (name,), params))
    return Network("net", tuple(layers), tensors, ("x",), tuple(outputs or [steps[-1][0]]))


QUANTIZED = chain(
    ("q0", "QUANTIZE", ["x"], {}),
    ("d0", "DEQUANTIZE", ["q0"], {}),
    ("conv", "CONVOLUTION", ["d0"], CONV),
    ("relu", "ACTIVATION", ["conv"], RELU),
    ("q1", "QUANTIZE", ["relu"], {}),
    ("d1", "DEQUANTIZE", ["q1"], {}),
    ("late", "CONVOLUTION", ["d1"], CONV),
)


def judged(
    net: Network, tensorrt: str = EXPLICIT, precision: str = "int8", **more: Any
) -> Judgement:
    return judge(net, get(ORIN), precision=precision, tensorrt=tensorrt, **more)


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_q_and_dq_are_no_obstacle_from_11_4_1_on(precision: str) -> None:
    found = judged(QUANTIZED, precision=precision)
    assert all(verdict.ok for verdict in found.verdicts.values())
    assert [len(group.layers) for group in found.candidates] == [7]
    assert {name: v.precision for name, v in found.verdicts.items()} == {
        "q0": "int8",
        "d0": "int8",
        "conv": "int8",
        "relu": "int8",
        "q1": "int8",
        "d1": "int8",
        "late": "fp16",
    }


def test_a_layer_with_a_float_neighbour_runs_in_fp16() -> None:
    net = chain(
        ("q", "QUANTIZE", ["x"], {}),
        ("d", "DEQUANTIZE", ["q"], {}),
        ("conv", "CONVOLUTION", ["d"], CONV),
        ("sigmoid", "ACTIVATION", ["conv"], RELU),
        ("silu", "ELEMENTWISE", ["conv", "sigmoid"], {"function": "PROD"}),
        ("pool", "POOLING", ["d"], {"mode": "MAX", "kernel": (2, 2)}),
        ("sum", "ELEMENTWISE", ["silu", "pool"], {"function": "SUM"}),
        ("q2", "QUANTIZE", ["sum"], {}),
    )
    found = {name: verdict.precision for name, verdict in judged(net).verdicts.items()}
    assert found["conv"] == found["pool"] == found["silu"] == "fp16"


def test_a_layer_whose_floats_are_read_too_runs_in_fp16() -> None:
    """One quantizer is not enough: another reader, or the caller, gets what is not rounded."""
    before = (
        ("q", "QUANTIZE", ["x"], {}),
        ("d", "DEQUANTIZE", ["q"], {}),
        ("pool", "POOLING", ["d"], {"mode": "MAX", "kernel": (2, 2)}),
        ("q2", "QUANTIZE", ["pool"], {}),
    )
    softmax = ("softmax", "SOFTMAX", ["pool"], {"axis": 1})
    assert judged(chain(*before)).verdicts["pool"].precision == "int8"
    assert judged(chain(*before, softmax)).verdicts["pool"].precision == "fp16"
    shown = judged(chain(*before, outputs=["q2", "pool"]))
    assert shown.verdicts["pool"].precision == "fp16"


def test_a_residual_sum_before_one_quantizer_runs_in_int8() -> None:
    net = chain(
        ("q", "QUANTIZE", ["x"], {}),
        ("d", "DEQUANTIZE", ["q"], {}),
        ("skip", "DEQUANTIZE", ["q"], {}),
        ("conv", "CONVOLUTION", ["d"], CONV),
        ("sum", "ELEMENTWISE", ["conv", "skip"], {"function": "SUM"}),
        ("relu", "ACTIVATION", ["sum"], RELU),
        ("q2", "QUANTIZE", ["relu"], {}),
    )
    found = judged(net)
    assert {verdict.precision for verdict in found.verdicts.values()} == {"int8"}


def test_shuffles_around_a_product_are_seen_through() -> None:
    shuffle = {"mode": "TRANSPOSE", "perm": (0, 1, 3, 2)}
    net = chain(
        ("q", "QUANTIZE", ["x"], {}),
        ("d", "DEQUANTIZE", ["q"], {}),
        ("before", "SHUFFLE", ["d"], shuffle),
        ("product", "CONVOLUTION", ["before"], CONV),
        ("after", "SHUFFLE", ["product"], shuffle),
        ("relu", "ACTIVATION", ["after"], RELU),
        ("q2", "QUANTIZE", ["relu"], {}),
        ("d2", "DEQUANTIZE", ["q2"], {}),
        ("last", "SHUFFLE", ["d2"], shuffle),
        ("open", "CONVOLUTION", ["last"], CONV),
    )
    found = {name: verdict.precision for name, verdict in judged(net).verdicts.items()}
    assert [name for name, precision in found.items() if precision == "fp16"] == ["last", "open"]


@pytest.mark.parametrize("net", [QUANTIZED, network_of("ACTIVATION", function="RELU")])
def test_no_calibration_cache_from_11_4_1_on(net: Network) -> None:
    found = judged(net, precision="fp16", scales={"x": 1.0}).verdicts[net.layers[0].name]
    assert rules_of(found) == {"general.calibration_cache"}


@pytest.mark.parametrize(
    ("params", "rule", "ok"),
    [
        ({"axis": None}, "", True),
        ({"axis": 1}, "general.quantized_axis", False),
        ({"dtype": "uint8"}, "general.quantized_type", True),
    ],
)
def test_what_q_and_dq_may_be(params: dict[str, Any], rule: str, ok: bool) -> None:
    found = judged(network_of("QUANTIZE", **params)).verdicts["x"]
    assert found.ok is ok
    assert rules_of(found) == ({rule} if rule else set())
    assert found.certainty == ("disputed" if rule else "certain")


@pytest.mark.parametrize(
    ("kind", "params", "precision"),
    [
        ("ACTIVATION", {"function": "SIGMOID"}, "fp16"),
        ("ACTIVATION", {"function": "TANH"}, "fp16"),
        ("ACTIVATION", RELU, "int8"),
        ("LRN", {"window": 5}, "fp16"),
        ("SOFTMAX", {"axis": 1}, "fp16"),
        ("SLICE", {}, "fp16"),
        ("CONVOLUTION", CONV, "int8"),
        ("UNARY", {"function": "EXP"}, ""),
    ],
)
def test_what_an_int8_build_computes_in(kind: str, params: dict[str, Any], precision: str) -> None:
    assert judged(network_of(kind, **params), IMPLICIT).verdicts["x"].precision == precision


@pytest.mark.parametrize("where", ["none", "bias", "weight"])
def test_a_float_weight_keeps_its_layer_out_of_int8(where: str) -> None:
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 3, 8, 8), 0.02)
    w, b = sheet.constant("w", weights(4, 3, 3, 3)), sheet.constant("b", weights(4))
    if where == "weight":
        w = sheet.qdq(w, 0.01)
    if where == "bias":
        b = sheet.qdq(b, 0.01)
    c = sheet.node("Conv", f"{x} {w} {b}", "conv")
    y = sheet.qdq(sheet.node("Relu", c, "relu"), 0.03)
    found = judged(layers(sheet.model(y)))
    expected = "int8" if where == "weight" else "fp16"
    assert {name: found.precision_of(name) for name in ("conv", "relu")} == {
        "conv": expected,
        "relu": expected,
    }


def weights(*shape: int) -> Any:
    import numpy as np

    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)
