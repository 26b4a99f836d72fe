"""What a check says of strongly typed releases beside its verdicts."""

from dataclasses import replace

import pytest

from edgekit.dla.judge import judge, release_notes, release_warnings
from edgekit.errors import UsageError
from edgekit.network.model import Network
from edgekit.targets.loader import get
from edgekit.targets.releases import supports_dla, unstated_dla_reason
from tests.dla.one_layer import network_of
from tests.dla.test_quantization import QUANTIZED

ORIN = get("jetson-agx-orin-64gb")
RELU = network_of("ACTIVATION", function="RELU")


def half(net: Network) -> Network:
    """The same network with FLOAT16 tensors."""
    types = {"float32": "float16"}
    tensors = {
        name: replace(t, dtype=types.get(t.dtype, t.dtype)) for name, t in net.tensors.items()
    }
    return replace(net, tensors=tensors)


def warnings_of(net: Network, precision: str = "fp16", tensorrt: str = "11.4.1") -> tuple[str, ...]:
    return release_warnings(net, judge(net, ORIN, precision=precision, tensorrt=tensorrt), ORIN)


def test_an_fp32_model_is_taken_as_cast_and_it_says_so() -> None:
    (one,) = warnings_of(RELU)
    assert "TensorRT 11.4.1 is strongly typed: 1 layer is FP32" in one
    # ModelOpt 0.47.0 has the DLA's flag in quantization alone
    assert "modelopt.onnx.autocast --low_precision_type fp16 --onnx_path MODEL" in one
    assert "modelopt.onnx.quantization --target_dla --quantize_mode int8" in one
    assert "(general.strongly_typed)" in one
    assert warnings_of(half(RELU)) == ()


def test_a_release_whose_notes_do_not_name_jetpack_is_said_to_be_unstated() -> None:
    newer, unstated = warnings_of(half(RELU), tensorrt="11.5")
    assert "the rules of 11.4.1 are used" in newer
    assert "supports the DLA of jetson-agx-orin-64gb is not stated" in unstated
    assert "18 November 2026" in unstated
    for board, stated in ((ORIN, True), (get("jetson-orin-nx-16gb"), False)):
        assert supports_dla(board, "11.4.1") is stated
        assert not unstated_dla_reason(board, "11.4.1")
        assert bool(unstated_dla_reason(board, "11.5")) is stated


@pytest.mark.parametrize("tensorrt", ["7.1", "99", "9.1", "10.99", "8.3"])
def test_a_tensorrt_that_no_orin_has_is_refused_with_those_it_has(tensorrt: str) -> None:
    with pytest.raises(UsageError) as caught:
        judge(RELU, ORIN, precision="fp16", tensorrt=tensorrt)
    assert caught.value.code == "tensorrt.unknown"
    assert "8.4.0, 8.4.1, 8.5.2, 8.6.2, 10.3.0, 10.16.1 or 10.16.2, 11.4.1" in caught.value.hint
    assert "from 8.4.0 to 11.5" in caught.value.hint


def test_an_older_board_has_older_releases() -> None:
    for tensorrt in ("5.1.6", "6.0.1", "7.1"):
        judge(RELU, get("jetson-agx-xavier"), precision="fp16", tensorrt=tensorrt)
    for tensorrt in ("10.3.0.30", "11.6", "12.0"):
        judge(RELU, ORIN, precision="fp16", tensorrt=tensorrt)


@pytest.mark.parametrize("board", ["jetson-agx-xavier", "jetson-agx-orin-64gb"])
@pytest.mark.parametrize("tensorrt", ["8", "10", "11", "12"])
def test_a_major_release_alone_is_refused_for_every_board(board: str, tensorrt: str) -> None:
    with pytest.raises(UsageError) as caught:
        judge(RELU, get(board), precision="fp16", tensorrt=tensorrt)
    assert caught.value.code == "tensorrt.version"


def test_a_major_release_alone_is_answered_with_those_of_the_board() -> None:
    with pytest.raises(UsageError) as caught:
        judge(RELU, ORIN, precision="fp16", tensorrt="10")
    assert caught.value.hint == "write 10.3.0 or 10.16.1 or 10.16.2"


@pytest.mark.parametrize(
    ("board", "tensorrt", "says"),
    [
        ("jetson-agx-xavier", "8.6", "JetPack 5.1.6 with 8.5.2"),
        ("jetson-agx-xavier", "10.3", "the last for this board"),
        ("jetson-xavier-nx", "11.6", "the last for this board"),
        ("jetson-agx-orin-64gb", "10.14", "no JetPack for jetson-agx-orin-64gb brings"),
        ("jetson-agx-orin-64gb", "8.6", ""),
        # can be installed on JetPack 6.1 and later
        ("jetson-agx-orin-64gb", "10.7", ""),
        ("jetson-agx-orin-64gb", "10.16.1", ""),
        # older than the JetPacks that are listed
        ("jetson-agx-xavier", "7.1", ""),
        ("drive-orin", "8.5.10", ""),
    ],
)
def test_a_release_that_no_jetpack_brings_to_the_board_is_noted(
    board: str, tensorrt: str, says: str
) -> None:
    notes = [note for note in release_notes(get(board), tensorrt) if "no JetPack" in note]
    assert bool(notes) is bool(says)
    assert all(says in note for note in notes)


@pytest.mark.parametrize("tensorrt", ["11.5", "11.6", "12.0"])
def test_every_release_newer_than_the_sources_has_the_same_notes(tensorrt: str) -> None:
    newer, unstated = release_notes(ORIN, tensorrt)
    assert "newer than the newest release" in newer
    assert "not stated" in unstated


@pytest.mark.parametrize("tensorrt", ["8.6", "10.3", "10.7"])
def test_weakly_typed_releases_cast_by_themselves(tensorrt: str) -> None:
    assert warnings_of(RELU, tensorrt=tensorrt) == warnings_of(RELU, "fp32", tensorrt) == ()


def test_layers_between_dq_and_q_are_int8_and_not_counted() -> None:
    """Of conv, relu and late only "late" is outside."""
    for precision in ("int8", "fp16"):
        (one,) = warnings_of(QUANTIZED, precision)
        assert ": 1 layer is FP32" in one


def test_a_refused_network_makes_no_promise_to_take_back() -> None:
    assert warnings_of(RELU, "int8") == ()  # no Q/DQ nodes: refused as a whole
    assert warnings_of(RELU, "fp32") == ()
    gelu = network_of("ACTIVATION", function="GELU_ERF")
    assert not judge(gelu, ORIN, precision="fp16", tensorrt="11.4.1").verdicts["x"].ok
    assert warnings_of(gelu) == ()


def test_fp32_requested_of_an_fp16_model() -> None:
    (one,) = warnings_of(half(RELU), "fp32")
    assert "1 layer is FP16 in this model" in one
    assert "--precision fp16 judges this one (general.typed_fp16)" in one


def test_a_board_without_a_dla_has_no_warning() -> None:
    thor = get("jetson-agx-thor")
    found = judge(RELU, thor, precision="fp16", tensorrt="11.4.1")
    assert release_warnings(RELU, found, thor) == ()
