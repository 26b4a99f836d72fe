"""Rules that judge a network as a whole, and both sides of those that no ONNX file reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.dla.rules import load_rules
from tests.dla.limits.sheet import Sheet, conv
from tests.dla.limits.test_both_sides import FAMILIES
from tests.dla.one_layer import ORIN, XAVIER, rules_of, verdict

NX, NANO, THOR = "jetson-orin-nx-16gb", "jetson-orin-nano-8gb", "jetson-agx-thor"
CACHE = "general.calibration_cache"
UNKNOWN = "general.release"
QDQ = "general.explicit_quantization"
RELEASE, NO_DLA = "general.tensorrt", "general.no_dla"

# board, TensorRT, precision, Q/DQ in the model, the rule that refuses it, what it finds
NETWORKS: list[tuple[str, str, str, bool, str, str]] = [
    (ORIN, "10.3", "fp32", False, "general.fp32", "fp32"),
    (XAVIER, "8.5.2", "fp32", False, "general.fp32", "fp32"),
    (ORIN, "10.3", "fp16", False, "", ""),
    (ORIN, "10.7", "int8", False, "", ""),
    (ORIN, "10.7.0", "fp16", False, "", ""),
    (ORIN, "10.8", "int8", False, RELEASE, "10.8"),
    (ORIN, "11.3", "fp16", False, RELEASE, "11.3"),
    (ORIN, "11.4.0", "fp16", False, RELEASE, "11.4"),
    (ORIN, "11.4.1", "fp16", False, "", ""),
    (NX, "10.7", "int8", False, "", ""),
    ("jetson-orin-nx-8gb", "10.3", "int8", False, "", ""),
    (NX, "11.4.1", "fp16", False, RELEASE, "11.4.1"),
    (XAVIER, "8.5.2", "int8", False, "", ""),
    (XAVIER, "10.3", "int8", False, RELEASE, "10.3"),
    (NANO, "10.3", "int8", False, NO_DLA, NANO),
    (THOR, "10.13.3", "fp16", False, NO_DLA, THOR),
    (ORIN, "11.4.1", "int8", False, "", ""),
    (ORIN, "11.4.1", "int8", True, "", ""),
    # in INT8 it is translated, and the verdict is that of the plain network
    (ORIN, "10.7", "int8", True, "", ""),
    (ORIN, "10.3", "fp16", True, QDQ, "QuantizeLinear"),
    (XAVIER, "8.5.2", "int8", True, "", ""),
]


def _model(folder: Path, quantized: bool) -> Path:
    sheet = Sheet()
    made = sheet.add("Relu", "relu", sheet.input(1, 4, 2, 2))
    if quantized:
        scale, zero = sheet.constant(0.5), sheet.zero_point()
        made = sheet.add("QuantizeLinear", "quantize", made, scale, zero)
        made = sheet.add("DequantizeLinear", "dequantize", made, scale, zero)
    sheet.add("Sigmoid", "sigmoid", made)
    return sheet.save(folder / "model.onnx", 17)


@pytest.mark.parametrize(("board", "tensorrt", "precision", "quantized", "rule", "found"), NETWORKS)
def test_rules_of_whole_networks(
    tmp_path: Path,
    board: str,
    tensorrt: str,
    precision: str,
    quantized: bool,
    rule: str,
    found: str,
) -> None:
    document = edgekit.check(
        _model(tmp_path, quantized), target=board, precision=precision, tensorrt=tensorrt
    ).to_json()
    assert document["layers"]
    for layer in document["layers"]:
        reasons = {reason["rule"]: reason for reason in layer["dla"]["reasons"]}
        if not rule:
            assert layer["dla"]["ok"], reasons
            continue
        assert not layer["dla"]["ok"]
        assert list(reasons) == [rule]
        assert found in reasons[rule]["found"]
        assert all(reasons[rule].values())
    assert (document["loadables"] > 0) is (not rule)


# rule, kind, a layer inside, a layer outside, and why no ONNX file leads there
HAND_MADE: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    ("scale.mode", "SCALE", {"mode": "CHANNEL"}, {"mode": "ROW"},
     "the importer makes scales of the three modes only"),
    ("scale.power", "SCALE", {"mode": "CHANNEL", "power": 1.0},
     {"mode": "CHANNEL", "power": 2.0}, "a Pow becomes an element-wise layer"),
    ("lrn.region", "LRN", {"window": 5, "region": "ACROSS_CHANNELS"},
     {"window": 5, "region": "WITHIN_CHANNEL"}, "an ONNX LRN is across channels"),
    ("pooling.function", "POOLING", {"mode": "AVERAGE", "kernel": (2, 2)},
     {"mode": "MAX_AVERAGE_BLEND", "kernel": (2, 2)}, "an LpPool becomes an average"),
    ("slice.static", "SLICE", {}, {"inputs": [(1, 64, 16, 16)] * 2},
     "a model with such a slice is refused when it is read"),
    ("operators.since", "UNARY", {"function": "ABS", "op": "Cos", "tensorrt": "8.6.12"},
     {"function": "ABS", "op": "Cos", "tensorrt": "8.6.11"},
     "every operator that came late has a rule of its layer's own, which refuses first"),
]  # fmt: skip


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize(("rule", "kind", "inside", "outside", "_why"), HAND_MADE)
def test_rules_that_no_onnx_file_reaches(
    rule: str, kind: str, inside: dict[str, Any], outside: dict[str, Any], _why: str, precision: str
) -> None:
    assert verdict(kind, precision=precision, **inside).ok
    refused = verdict(kind, precision=precision, **outside)
    assert not refused.ok
    assert rules_of(refused) == {rule}


def test_a_calibration_cache_is_of_no_use_from_11_4_1_on(tmp_path: Path) -> None:
    cache = tmp_path / "calib.cache"
    cache.write_text("TRT-8600-EntropyCalibration2\ninput0: 3c010204\n")
    model = _model(tmp_path, quantized=True)
    for tensorrt, refused in (("10.3", False), ("11.4.1", True)):
        document = edgekit.check(
            model,
            target=ORIN,
            precision="int8",
            tensorrt=tensorrt,
            calibration={"cache": str(cache)},
        ).to_json()
        rules = {r["rule"] for layer in document["layers"] for r in layer["dla"]["reasons"]}
        assert (CACHE in rules) is refused


@pytest.mark.parametrize(
    ("tensors", "refused"), [(("input0", "x:0"), False), (("input0",), True), (("x:0",), True)]
)
def test_a_layer_without_scales_is_held_against_the_limits_of_fp16(
    tmp_path: Path, tensors: tuple[str, ...], refused: bool
) -> None:
    """512 channels, 896 wide, 1x1: 15 banks in INT8, and 1 + 28 in FP16."""
    sheet = Sheet()
    conv(1, 1, channels=512, size=(1, 896))(sheet, "x")
    model = sheet.save(tmp_path / "model.onnx", 17)
    cache = tmp_path / "calib.cache"
    lines = [f"{tensor}: 3c010204\n" for tensor in tensors]
    cache.write_text("TRT-8600-EntropyCalibration2\n" + "".join(lines))
    document = edgekit.check(
        model, target=ORIN, precision="int8", calibration={"cache": str(cache)}
    ).to_json()
    (layer,) = document["layers"]
    found = {reason["rule"]: reason["found"] for reason in layer["dla"]["reasons"]}
    assert layer["dla"]["ok"] is not refused
    assert ("29" in found.get("convolution.cbuf", "")) is refused


@pytest.mark.parametrize(
    ("board", "tensorrt", "known"),
    [
        (XAVIER, "7.1.3", False),
        (XAVIER, "8.2", False),
        (XAVIER, "8.4", True),
        (ORIN, "11.4.1", True),
        (ORIN, "11.4.2", False),
        (ORIN, "12.0", False),
    ],
)
def test_a_release_that_no_source_is_about_is_never_certain(
    tmp_path: Path, board: str, tensorrt: str, known: bool
) -> None:
    document = edgekit.check(
        _model(tmp_path, False), target=board, precision="fp16", tensorrt=tensorrt
    ).to_json()
    for layer in document["layers"]:
        reasons = {reason["rule"]: reason for reason in layer["dla"]["reasons"]}
        assert layer["dla"]["ok"]
        assert (UNKNOWN in reasons) is not known
        assert layer["dla"]["certainty"] == ("certain" if known else "disputed")
        assert known or tensorrt in reasons[UNKNOWN]["found"]


def test_every_rule_is_here() -> None:
    """Each rule that decides a verdict has a layer that passes and one that fails."""
    rules = load_rules()
    deciding = {r.id for r in rules if r.check is not None and (r.kinds or r.network)}
    deciding |= {rule.id for rule in rules if rule.family == "operators"}
    in_tables = {case.rule for cases in FAMILIES.values() for case in cases}
    of_networks = {row[4] for row in NETWORKS if row[4]} | {CACHE, UNKNOWN}
    # a plugin that TensorRT ships: test_opaque_layers.py; a check that adds no Q/DQ nodes:
    # test_quantization.py
    of_networks |= {"general.plugin", "general.implicit_int8"}
    by_hand = {row[0] for row in HAND_MADE}
    assert deciding == in_tables | of_networks | by_hand
    assert not in_tables & by_hand


@pytest.mark.parametrize("kind", ["CONSTANT", "MATRIX_MULTIPLY", "TOPK", "GATHER", "PLUGIN_V2"])
def test_kinds_that_no_dla_has(kind: str) -> None:
    assert not verdict(kind).ok


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("ACTIVATION", {"function": "RELU", "inputs": [(1, 64)], "output": (1, 64)}),
        ("ELEMENTWISE", {"function": "SUM", "inputs": [(1, 9, 8), (1, 9, 8)], "output": (1, 9, 8)}),
    ],
)
def test_below_four_dimensions_the_builder_counts_what_no_plan_places(
    kind: str, params: dict[str, Any]
) -> None:
    found = verdict(kind, **params)
    assert (found.ok, found.placeable, found.certainty) == (True, False, "disputed")
    assert [reason.rule for reason in found.reasons] == ["general.rank_shuffles"]


def test_the_operator_matrix_lends_its_fix() -> None:
    found = verdict("UNARY", function="NEG", op="Neg")
    assert "op_reconstruction/Neg.py" in found.reasons[0].fix
