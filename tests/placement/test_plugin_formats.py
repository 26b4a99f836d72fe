"""A plugin's declared types and formats: its precision, and the reformats beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.errors import EdgekitError
from edgekit.placement.plan import Plan

RANDOM = np.random.default_rng(0)
CONFIG = """version: 1
name: net
model:
  onnx: net.onnx
  plugins:
    - {operator: acme::Halve, python: "halves:halve", formats: [%s]}
target: jetson-agx-orin-64gb
precision: %s
calibration: {count: 4}
placement: {pin: [{layers: "conv*", device: DLA}]}
"""
HALVES = """
def halve(x):
    assert x.dtype == "float32", x.dtype
    return x / 2
"""
ON_CODES = """
import numpy as np

def halve(x, input_scale=0.0, output_scale=0.0):
    if x.dtype == np.int8:
        codes = x * np.float32(input_scale) / 2 / np.float32(output_scale)
        return np.clip(np.rint(codes), -128, 127).astype(np.int8)
    return x / 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    weights = {n: RANDOM.standard_normal((64, 64, 3, 3)).astype(np.float32) / 24 for n in "vw"}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Halve", ["c"], ["h"], name="halve", domain="acme"),
        helper.make_node("Conv", ["h", "w"], ["y"], name="conv2", pads=[1, 1, 1, 1]),
    ]
    form = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [form("x", TensorProto.FLOAT, [1, 64, 32, 32])],
        [form("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "net.onnx")
    (tmp_path / "halves.py").write_text(HALVES)
    return tmp_path


def planned(folder: Path, formats: Sequence[str], precision: str = "int8") -> Plan:
    path = folder / "net.yaml"
    path.write_text(CONFIG % (", ".join(f'"{one}"' for one in formats), precision))
    return edgekit.plan(path)


def beside(plan: Plan) -> list[tuple[str, str]]:
    """The layouts on the plugin's side of the reformats of what it reads and writes."""
    ours = [one for one in plan.reformats if one.tensor in ("c", "h")]
    return [(one.tensor, one.goal if one.tensor == "c" else one.source) for one in ours]


@pytest.mark.parametrize(
    ("formats", "precision", "runs_in"),
    [
        (["int8:chw32"], "int8", "int8"),
        (["fp16:chw", "int8:chw"], "int8", "int8"),
        (["fp32:chw", "fp16:chw4"], "int8", "fp16"),
        (["fp32:chw"], "int8", "fp32"),
        (["int8:chw32", "fp32:chw"], "fp16", "fp32"),
        (["fp16:hwc8"], "fp16", "fp16"),
    ],
)
def test_a_plugin_runs_on_the_gpu_in_a_type_that_it_declares(
    folder: Path, formats: Sequence[str], precision: str, runs_in: str
) -> None:
    places = {one.name: one for one in planned(folder, formats, precision).layers}
    assert (places["halve"].device, places["halve"].precision) == ("GPU", runs_in)
    assert places["conv"].device == places["conv2"].device == "DLA0"


@pytest.mark.parametrize(
    ("formats", "precision", "found"),
    [
        (["int8:chw32"], "int8", []),
        (["int8:chw", "int8:chw32"], "int8", []),
        (["fp16:hwc8"], "fp16", [("c", "fp16:HWC8"), ("h", "fp16:HWC8")]),
        (["int8:chw"], "int8", [("c", "int8:LINEAR"), ("h", "int8:LINEAR")]),
        (["int8:chw4"], "int8", [("c", "int8:CHW4"), ("h", "int8:CHW4")]),
        (["fp16:hwc8"], "int8", [("c", "fp16:HWC8"), ("h", "fp16:HWC8")]),
        (["fp16:chw4"], "int8", [("c", "fp16:CHW4"), ("h", "fp16:CHW4")]),
    ],
)
def test_reformats_beside_it_follow_its_formats(
    folder: Path, formats: Sequence[str], precision: str, found: list[tuple[str, str]]
) -> None:
    plan = planned(folder, formats, precision)
    assert beside(plan) == found
    assert all(one.us > 0 for one in plan.reformats)


def test_the_format_that_saves_a_reformat_is_proposed(folder: Path) -> None:
    (note,) = (n for n in planned(folder, ["int8:chw"]).notes if "declare it" in n)
    plan = planned(folder, ["int8:chw"])
    us = sum(one.us for one in plan.reformats if one.tensor in ("c", "h"))
    assert "plugin Halve takes int8:chw32" in note
    assert f"the reformat of c, h goes ({us:.3g} µs)" in note
    better = planned(folder, ["int8:chw", "int8:chw32"])
    assert not [n for n in better.notes if "declare it" in n]
    assert better.predicted.gpu_us == pytest.approx(plan.predicted.gpu_us - us, rel=0.05)


def test_check_says_why_no_dla_runs_it(folder: Path) -> None:
    planned(folder, ["int8:chw32"])
    check = edgekit.check(folder / "net.yaml")
    (layer,) = (one for one in check.layers if one.name == "halve")
    assert not layer.dla.ok
    assert [reason.rule for reason in layer.dla.reasons] == ["general.plugin"]
    (uncounted,) = check.unknown_cost
    assert uncounted.plugin == {
        "plugin": "Halve",
        "plugin_version": "1",
        "plugin_namespace": "",
        "formats": ("int8:chw32",),
    }


@pytest.mark.parametrize("code", [HALVES, ON_CODES], ids=["values", "codes"])
def test_int8_keeps_its_scales_across_a_plugin(folder: Path, code: str) -> None:
    (folder / "halves.py").write_text(code)
    planned(folder, ["int8:chw32"])
    scales = edgekit.calibrate(folder / "net.yaml").scales
    # the largest value of the input halved
    assert scales["h"] == pytest.approx(scales["c"] / 2, rel=0.02)
    built = edgekit.build(folder / "net.yaml")
    assert built.accuracy.cosine > 0.999
    assert [one.device for one in built.segments] == ["DLA0", "GPU", "DLA0"]


def test_a_function_for_codes_that_returns_floats_is_told_what_it_gets(folder: Path) -> None:
    code = "def halve(x, input_scale=0.0, output_scale=0.0):\n    return x.astype('float32') / 2\n"
    (folder / "halves.py").write_text(code)
    planned(folder, ["int8:chw32"])
    with pytest.raises(EdgekitError) as caught:
        edgekit.build(folder / "net.yaml")
    assert "returned float32 [1, 64, 32, 32] for output 'h', which is int8" in caught.value.message
    assert "input_scale and output_scale it gets int8 codes" in caught.value.hint


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("formats", "kept"), [(["int8:chw32", "fp16:chw"], True), (["int8:chw32"], False)]
)
def test_a_function_for_codes_gets_both_scales(
    folder: Path, formats: Sequence[str], kept: bool
) -> None:
    # in FP32 it halves; its codes are all 0, so that the build collapses where they are asked
    (folder / "halves.py").write_text(ON_CODES.replace("/ 2 /", "/ 2000 /"))
    planned(folder, formats)
    if kept:
        built = edgekit.build(folder / "net.yaml")
        assert any("kept in FP16: halve" in note for note in built.notes)
        return
    # it has no other type to fall back to
    with pytest.raises(EdgekitError) as caught:
        edgekit.build(folder / "net.yaml")
    assert caught.value.code == "accuracy.below-gate"


def test_between_q_dq_nodes_a_plugin_runs_in_floats(folder: Path) -> None:
    planned(folder, ["int8:chw32", "fp16:chw"])
    path = folder / "net.yaml"
    path.write_text(path.read_text() + "tensorrt: 11.4.1\n")
    places = {one.name: one.precision for one in edgekit.plan(path).layers}
    assert places == {"conv": "int8", "halve": "fp16", "conv2": "int8"}
    assert edgekit.build(path).accuracy.cosine > 0.999


TYPED = "tensorrt: 11.4.1\n"


def typed(folder: Path, formats: Sequence[str], precision: str = "int8") -> Path:
    path = folder / "net.yaml"
    path.write_text(CONFIG % (", ".join(f'"{one}"' for one in formats), precision) + TYPED)
    return path


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_a_plugin_for_int8_alone_is_refused_where_it_gets_floats(
    folder: Path, precision: str
) -> None:
    path = typed(folder, ["int8:chw32"], precision)
    for command in (edgekit.check, edgekit.plan):
        with pytest.raises(
            EdgekitError, match=r"takes INT8 alone, but TensorRT 11\.4\.1"
        ) as caught:
            command(path)
        assert (caught.value.code, caught.value.where) == ("model.plugin", f"{path}:6:7")
        assert "declare fp16 or fp32" in caught.value.hint
        assert "between a QuantizeLinear and a DequantizeLinear" in caught.value.hint


def test_formats_that_no_network_can_have_are_not_proposed(folder: Path) -> None:
    path = typed(folder, ["int8:chw32", "fp16:chw"])
    plan = edgekit.plan(path)
    assert {one.tensor for one in plan.reformats} >= {"c", "h"}
    assert not [note for note in plan.notes if "if the plugin" in note and "int8" in note]
    unused = "gives the plugin acme::Halve floats: its INT8 formats are not used"
    for notes in (plan.notes, edgekit.check(path).warnings):
        assert any(unused in note for note in notes)


def test_a_plugin_between_q_and_dq_of_the_file_takes_int8(folder: Path) -> None:
    model = onnx.load(folder / "net.onnx")
    nodes = {node.name: node for node in model.graph.node}
    nodes["halve"].input[0], nodes["halve"].output[0] = "codes", "halved"
    between = [
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["codes"], name="q"),
        nodes["halve"],
        helper.make_node("DequantizeLinear", ["halved", "s", "z"], ["h"], name="dq"),
    ]
    del model.graph.node[:]
    model.graph.node.extend([nodes["conv"], *between, nodes["conv2"]])
    scale, zero = np.float32(0.05), np.int8(0)
    model.graph.initializer.extend(
        [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")]
    )
    onnx.save(model, folder / "net.onnx")
    (folder / "halves.py").write_text("def halve(x):\n    return (x // 2).astype(x.dtype)\n")
    path = typed(folder, ["int8:chw32"])
    path.write_text(path.read_text().replace("placement:", "#"))
    places = {one.name: one.precision for one in edgekit.plan(path).layers}
    assert places["halve"] == "int8"


@pytest.mark.parametrize("formats", [["int8:chw"], ["int8:chw4"], ["fp16:chw"], ["int8:chw32"]])
def test_check_and_plan_predict_one_time_for_the_gpu_alone(
    folder: Path, formats: Sequence[str]
) -> None:
    plan = planned(folder, formats)
    predicted = edgekit.check(folder / "net.yaml").predicted
    alone = plan.baselines["gpu_only"]
    assert predicted is not None
    assert alone is not None
    assert predicted.gpu_only_us == pytest.approx(alone.latency_us)
