"""The end of a network, where values of different range meet: precision, scales and accuracy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import edgekit
from edgekit.cli import main
from edgekit.config.loader import load_config
from edgekit.dla.precision import float_tail
from edgekit.errors import GateError
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.accuracy import pass_accuracy_gate
from edgekit.pipeline.steps.calibrate import with_measured_ranges
from edgekit.pipeline.steps.method import plan_scales
from edgekit.pipeline.steps.plan import plan, with_plan
from edgekit.quantize.caches import make_cache, write_cache
from edgekit_device.runtime.deviation import Deviation
from edgekit_device.runtime.golden import compare
from tests.pipeline.nets import small_net

PLACES = 144


def write(path, nodes, weights, output=(1, 6, PLACES)):
    graph = helper.make_graph(
        nodes,
        "head",
        [helper.make_tensor_value_info("x", 1, [1, 8, 12, 12])],
        [helper.make_tensor_value_info("y", 1, output)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def head(path):
    """Boxes of up to hundreds and scores of up to 1, of one convolution each, in one tensor."""
    random = np.random.default_rng(1)
    weights = {
        "stem.w": random.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8,
        "box.w": random.standard_normal((4, 8, 1, 1)).astype(np.float32),
        "cls.w": random.standard_normal((2, 8, 1, 1)).astype(np.float32),
        "cls.b": np.full(2, -2, np.float32),
        "boxes": np.array([1, 4, PLACES]),
        "classes": np.array([1, 2, PLACES]),
        "pixels": np.float32(100),
    }
    nodes = [
        helper.make_node("Conv", ["x", "stem.w"], ["s"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["s"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "box.w"], ["b"], "box"),
        helper.make_node("Conv", ["r", "cls.w", "cls.b"], ["c"], "cls"),
        helper.make_node("Reshape", ["b", "boxes"], ["b3"], "boxes3"),
        helper.make_node("Reshape", ["c", "classes"], ["c3"], "classes3"),
        helper.make_node("Mul", ["b3", "pixels"], ["bp"], "scaled"),
        helper.make_node("Sigmoid", ["c3"], ["p"], "scores"),
        helper.make_node("Concat", ["bp", "p"], ["y"], "join", axis=1),
    ]
    write(path, nodes, weights)


def config(folder, target="jetson-agx-orin-64gb", more=""):
    (folder / "net.yaml").write_text(
        "version: 1\nname: net\nmodel: {onnx: net.onnx}\n"
        f"target: {target}\nprecision: int8\n"
        + (more if "calibration" in more else f"calibration: {{count: 8}}\n{more}")
    )
    return folder / "net.yaml"


@pytest.mark.parametrize("target", ["jetson-agx-orin-64gb", "jetson-orin-nano-8gb"])
def test_the_joined_end_stays_in_fp16_and_keeps_both_of_its_parts(tmp_path, target, capsys):
    head(tmp_path / "net.onnx")
    path = config(tmp_path, target)
    plan = edgekit.plan(path)
    precision = {layer.name: layer.precision for layer in plan.layers}
    assert [precision[n] for n in ("join", "boxes3")] == ["fp16"] * 2
    assert [precision[n] for n in ("stem", "box", "cls")] == ["int8"] * 3
    (note,) = [note for note in plan.notes if "the network's end" in note]
    assert "boxes3" in note
    document = edgekit.build(path).to_json()
    wide, narrow = document["accuracy"]["groups"]
    assert (wide["channels"], narrow["channels"]) == ([[0, 3]], [[4, 5]])
    assert wide["range"] > 100
    assert narrow["range"] <= 1
    assert min(wide["snr_db"], narrow["snr_db"]) > 15
    assert narrow["worst"]["channel"] in (4, 5)
    assert document["accuracy"]["failures"] == []
    with pytest.raises(SystemExit) as caught:
        main.main(["build", str(path)])
    assert caught.value.code == 0
    assert "of output 'y', channels" in capsys.readouterr().out


def test_only_what_joins_or_decodes_at_the_end_is_retained_in_fp16(tmp_path):
    small_net(tmp_path / "plain.onnx")
    assert float_tail(layers(load(tmp_path / "plain.onnx"))) == frozenset()
    head(tmp_path / "net.onnx")
    found = float_tail(layers(load(tmp_path / "net.onnx")))
    assert found == {"boxes3", "classes3", "scaled", "scores", "join"}


def test_scores_that_one_scale_takes_to_zero_fail_the_gate_by_name(tmp_path):
    head(tmp_path / "net.onnx")
    path = config(tmp_path, more="accuracy: {metric: cosine, min: 0.9, fallback: none}")
    with Pipeline(load_config(path)) as pipeline:
        context = with_measured_ranges(pipeline.context)
        placed = plan(context)
        forced = tuple(replace(layer, precision="int8") for layer in placed.layers)
        share = replace(placed.plans[0], layers=forced)
        with pytest.raises(GateError) as caught:
            pass_accuracy_gate(with_plan(context, replace(placed, layers=forced, plans=(share,))))
    assert caught.value.code == "accuracy.below-gate"
    assert "channels 4 to 5 of output 'y' collapse" in caught.value.message
    accuracy = caught.value.extra["accuracy"]
    assert accuracy["cosine"] > 0.99, "the whole hides it"


def test_a_segment_below_a_cosine_of_09_is_an_error_with_the_tensor(tmp_path):
    small_net(tmp_path / "net.onnx")
    names = [n for n in layers(load(tmp_path / "net.onnx")).tensors if n != "y"]
    # one step is more than the tensor's values: half of them become 0, the others one step
    scales = {name: 0.05 if name != "p1" else 4.0 for name in names}
    write_cache(make_cache(scales, "8.6.2"), tmp_path / "net.cache")
    more = (
        "calibration: {cache: net.cache, missing: fp16, count: 3}\n"
        "placement: {pin: [{layers: conv1, device: DLA0}, {layers: pool, device: DLA0}, "
        "{layers: conv2, device: GPU}, {layers: relu2, device: GPU}]}\n"
    )
    with pytest.raises(GateError) as caught:
        edgekit.build(config(tmp_path, more=more + "accuracy: {fallback: none}"))
    assert "of tensor 'p1' of segment" in caught.value.message
    assert "below 0.9" in caught.value.message
    # with FP16 allowed the layer is found and kept
    document = edgekit.build(config(tmp_path, more=more)).to_json()
    assert document["accuracy"]["failures"] == []
    assert any(note.startswith("kept in FP16") for note in document["notes"])


def test_parts_of_a_concatenation_share_a_scale_only_where_the_plan_has_it_on_a_dla(tmp_path):
    random = np.random.default_rng(2)

    def weight(gain):
        return (random.standard_normal((16, 8, 1, 1)) * gain).astype(np.float32)

    nodes = [
        helper.make_node("Conv", ["x", "small.w"], ["a"], "small"),
        helper.make_node("Conv", ["x", "large.w"], ["b"], "large"),
        helper.make_node("Concat", ["a", "b"], ["j"], "join", axis=1),
        helper.make_node("Conv", ["j", "last.w"], ["y"], "last"),
    ]
    last = random.standard_normal((8, 32, 1, 1)).astype(np.float32)
    weights = {"small.w": weight(0.2), "large.w": weight(1), "last.w": last}
    write(tmp_path / "net.onnx", nodes, weights, (1, 8, 12, 12))

    def changed(device):
        path = config(tmp_path, more=f"placement: {{pin: [{{layers: '*', device: {device}}}]}}")
        with Pipeline(load_config(path)) as pipeline:
            scales = plan_scales(pipeline.context).scales
            return scales["a"] == scales["b"]

    assert changed("DLA0")
    assert not changed("GPU")


def neck(path, gain):
    """A small part and a large one, joined for a convolution that reads as much of either."""
    random = np.random.default_rng(2)

    def weight(out, into, gain):
        return (random.standard_normal((out, into, 1, 1)) * gain).astype(np.float32)

    weights = {
        "small.w": weight(16, 8, gain),
        "large.w": weight(16, 8, 1),
        "mix.w": np.concatenate([weight(8, 16, 1 / gain), weight(8, 16, 0.1)], axis=1),
        "last.w": weight(8, 8, 1),
    }
    nodes = [
        helper.make_node("Conv", ["x", "small.w"], ["a"], "small"),
        helper.make_node("Conv", ["x", "large.w"], ["b"], "large"),
        helper.make_node("Concat", ["a", "b"], ["j"], "join", axis=1),
        helper.make_node("MaxPool", ["j"], ["p"], "pool", kernel_shape=[1, 1]),
        helper.make_node("Conv", ["p", "mix.w"], ["m"], "mix"),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "last.w"], ["y"], "last"),
    ]
    write(path, nodes, weights, (1, 8, 12, 12))


DLA = "placement: {pin: [{layers: '*', device: DLA0}]}\nrewrite: {enable: none}\n"


@pytest.mark.parametrize("more", [DLA, "rewrite: {enable: none}\n"])
def test_a_concatenation_of_much_different_ranges_is_planned_in_fp16_and_said(tmp_path, more):
    neck(tmp_path / "net.onnx", 0.01)
    document = edgekit.build(config(tmp_path, more=more)).to_json()
    (note,) = [note for note in document["notes"] if "'join' joins" in note]
    assert "'a' (up to 0." in note
    assert "with 'b' (up to " in note
    assert note.startswith(f"in FP16 on {'DLA0' if more == DLA else 'GPU'}: join, ")
    # the plan has it so: nothing had to be found by trials
    assert not any("kept in FP16" in note for note in document["notes"])
    assert document["accuracy"]["snr_db"] > 25


def test_alike_parts_stay_in_int8_and_a_cache_says_what_is_alike(tmp_path):
    alike, apart = tmp_path / "alike", tmp_path / "apart"
    found = {}
    for folder, gain in ((alike, 0.5), (apart, 0.01)):
        folder.mkdir()
        neck(folder / "net.onnx", gain)
        edgekit.calibrate(config(folder, more=DLA), save=folder / "net.cache")
        more = DLA + "calibration: {cache: net.cache}\n"
        plan = edgekit.plan(config(folder, more=more))
        found[folder] = {x.name for x in plan.layers if x.precision == "fp16"}
        assert any("'join' joins" in note for note in plan.notes) == (folder == apart)
    assert found[alike] == set()
    assert found[apart] == {"join", "pool", "mix", "relu"}


@pytest.mark.parametrize(("box", "floats"), [(4.0, True), (0.02, False), (0.008, True)])
def test_the_end_follows_the_ranges_where_they_are_known(tmp_path, box, floats):
    head(tmp_path / "net.onnx")
    tensors = layers(load(tmp_path / "net.onnx")).tensors
    scales = {name: 0.008 if name in ("p", "c", "c3") else box for name in tensors}
    write_cache(make_cache({**scales, "y": max(box, 0.008)}, "8.6.2"), tmp_path / "net.cache")
    plan = edgekit.plan(
        config(tmp_path, more="calibration: {cache: net.cache}\nrewrite: {enable: none}\n")
    )
    end = {x.name: x.precision for x in plan.layers if x.name in ("scaled", "join")}
    # equal scales are what a DLA asks of a cache: they say nothing of the ranges
    assert end == dict.fromkeys(("scaled", "join"), "fp16" if floats else "int8")


def test_channels_are_grouped_by_range_and_a_lost_group_is_seen():
    random = np.random.default_rng(0)
    wanted = np.concatenate(
        [random.uniform(0, 600, (1, 4, 100)), random.uniform(0, 1, (1, 3, 100))], 1
    ).astype(np.float32)
    near = wanted + np.float32(0.01)
    lost = np.concatenate([wanted[:, :4], np.zeros((1, 3, 100), np.float32)], 1)
    for found, collapsed in ((near, [False, False]), (lost, [False, True])):
        for a, b in ((wanted, found), (wanted.transpose(0, 2, 1), found.transpose(0, 2, 1))):
            parts = Deviation(by_channel=True)
            parts.add(a, b)
            assert [g.channels for g in parts.groups()] == [((0, 3),), ((4, 6),)]
            assert [g.collapsed for g in parts.groups()] == collapsed
    # within the tolerance of the widest channels, and still nothing of the others is left
    assert compare(near, wanted, 0.02).ok
    assert not compare(lost, wanted, 0.02).ok
    alike = Deviation(by_channel=True)
    alike.add(wanted[:, :4], near[:, :4])
    assert alike.groups() == []


def test_a_detectors_scores_are_counted_at_their_places():
    scores = np.zeros((1, 2, 100), np.float32)
    scores[0, 0, :24] = 0.5
    found = scores.copy()
    found[0, 0, :3] = 0.2
    parts = Deviation(by_channel=True)
    parts.add(scores, found)
    assert parts.scores() == (24, 21)
    few = Deviation(by_channel=True)
    few.add(scores[:, :, 10:80], found[:, :, 10:80])
    assert few.scores() is None
