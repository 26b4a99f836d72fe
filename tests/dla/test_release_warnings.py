"""What a check says of strongly typed releases beside its verdicts."""

from dataclasses import replace

import pytest

from edgekit import targets
from edgekit.dla import judge, release_warnings
from edgekit.network import Network
from tests.dla.one_layer import network_of
from tests.dla.test_quantization import QUANTIZED

ORIN = targets.get("jetson-agx-orin-64gb")
RELU = network_of("ACTIVATION", function="RELU")


def half(net: Network) -> Network:
    """The same network with FLOAT16 tensors."""
    types = {"float32": "float16"}
    tensors = {
        name: replace(t, dtype=types.get(t.dtype, t.dtype)) for name, t in net.tensors.items()
    }
    return replace(net, tensors=tensors)


def told(net: Network, precision: str = "fp16", tensorrt: str = "11.4.1") -> tuple[str, ...]:
    return release_warnings(net, judge(net, ORIN, precision=precision, tensorrt=tensorrt), ORIN)


def test_an_fp32_model_is_taken_as_cast_and_it_says_so() -> None:
    (one,) = told(RELU)
    assert "TensorRT 11.4.1 is strongly typed: 1 layer is FP32" in one
    assert "modelopt.onnx.autocast --target_dla --low_precision_type fp16" in one
    assert "run on the GPU (general.strongly_typed)" in one
    assert told(half(RELU)) == ()


@pytest.mark.parametrize("tensorrt", ["8.6", "10.3", "10.7"])
def test_weakly_typed_releases_cast_by_themselves(tensorrt: str) -> None:
    assert told(RELU, tensorrt=tensorrt) == told(RELU, "fp32", tensorrt) == ()


def test_layers_between_dq_and_q_are_int8_and_not_counted() -> None:
    """Of conv, relu and late only "late" is outside."""
    for precision in ("int8", "fp16"):
        (one,) = told(QUANTIZED, precision)
        assert ": 1 layer is FP32" in one


def test_a_refused_network_makes_no_promise_to_take_back() -> None:
    assert told(RELU, "int8") == ()  # no Q/DQ nodes: refused as a whole
    assert told(RELU, "fp32") == ()
    gelu = network_of("ACTIVATION", function="GELU_ERF")
    assert not judge(gelu, ORIN, precision="fp16", tensorrt="11.4.1").verdicts["x"].ok
    assert told(gelu) == ()


def test_fp32_asked_of_an_fp16_model() -> None:
    (one,) = told(half(RELU), "fp32")
    assert "1 layer is FP16 in this model" in one
    assert "--precision fp16 judges this one (general.typed_fp16)" in one


def test_a_board_without_a_dla_is_told_nothing() -> None:
    thor = targets.get("jetson-agx-thor")
    found = judge(RELU, thor, precision="fp16", tensorrt="11.4.1")
    assert release_warnings(RELU, found, thor) == ()
