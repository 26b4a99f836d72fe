"""A plain network and its scales as a strongly typed Q/DQ model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgekit.dla.judge import judge
from edgekit.dla.precision import plan_lowering, precisions_by_qdq
from edgekit.errors import DataError, ModelError, UsageError
from edgekit.network.loading.load import canonical
from edgekit.network.lowering import layers as layers_module
from edgekit.network.writing import save
from edgekit.placement.placing import place
from edgekit.placement.segments import cut_segments
from edgekit.quantize.calibration.calibrate import calibrate
from edgekit.quantize.qdq.to_explicit import to_qdq
from edgekit.quantize.qdq.to_implicit import from_qdq
from edgekit.reference.build import build_reference
from edgekit.reference.run import Runner
from edgekit.targets.loader import get
from tests.quantize.qdq_nets import normal, run, snr_db, steps_of
from tests.quantize.quantize_nets import branches, make, node

SCALE = 0.05


def net():
    """Two branches, a sum, a pool, an operator without INT8 in the middle, a classifier."""
    weights = {
        "w1": normal(1, 8, 4, 3, 3),
        "b1": normal(2, 8),
        "w2": normal(3, 8, 8, 1, 1),
        "w3": normal(4, 8, 8, 1, 1),
        "fc": normal(5, 8, 10),
        "fcb": normal(6, 10),
    }
    nodes = [
        node("Conv", "x w1 b1", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "r"),
        node("Conv", "r w2", "b"),
        node("Add", "b r", "s"),
        node("Sigmoid", "s", "g"),
        node("Mul", "g s", "m"),
        node("MaxPool", "m", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p w3", "c"),
        node("GlobalAveragePool", "c", "v"),
        node("Flatten", "v", "f"),
        node("Gemm", "f fc fcb", "y"),
    ]
    return make(nodes, weights, {"x": [1, 4, 8, 8]}, ["y"])


def feeds(count=3):
    return [{"x": normal(seed, 1, 4, 8, 8)} for seed in range(count)]


@pytest.fixture(scope="module")
def lowered():
    model, layers = net()
    scales = calibrate(model, layers, feeds(), method="minmax")
    return model, layers, scales, to_qdq(model, layers, scales.scales, float16=False)


def pairs(model):
    """Scale and axis by what a QuantizeLinear reads, of the file's own constants."""
    constants = {i.name: i for i in model.proto.graph.initializer}

    def value(name):
        given = model.weights.get(name)
        return numpy_helper.to_array(constants[name]) if given is None else given

    return {
        n.input[0]: (value(n.input[1]), value(n.input[2]), [a.i for a in n.attribute])
        for n in model.proto.graph.node
        if n.op_type == "QuantizeLinear"
    }


def test_a_valid_file_of_the_same_inputs_and_outputs(lowered, tmp_path):
    model, _, _, made = lowered
    save(made, tmp_path / "qdq.onnx")
    onnx.checker.check_model(tmp_path / "qdq.onnx", full_check=True)
    for old, new in zip(model.proto.graph.input, made.proto.graph.input, strict=True):
        assert old == new
    assert [v.name for v in made.proto.graph.output] == ["y"]
    assert np.isfinite(run(tmp_path / "qdq.onnx", feeds()[0])[0]).all()


def test_symmetric_with_the_scales_given_bit_for_bit(lowered):
    model, layers, scales, made = lowered
    found = pairs(made)
    tensors = plan_lowering(layers, scales.scales).tensors
    for scale, zero, axis in found.values():
        assert zero.dtype == np.int8
        assert not zero.any()
        assert scale.dtype == np.float32
        assert len(axis) == scale.ndim
    for name in tensors:
        # what leaves the network is quantised before it has its name
        scale, _, _ = found.get(name) or found[f"{name}_float"]
        assert scale == np.float32(scales.scales[name])
    for name, axis in {"w1": 0, "w2": 0, "w3": 0, "fc": 1}.items():
        scale, _, own = found[name]
        assert own == [axis]
        np.testing.assert_array_equal(scale, steps_of(model.weights[name], axis))
    assert len(found) == len(tensors) + 4
    assert not {"b1", "fcb"} & set(found)  # biases stay floats


def test_types_give_each_layer_the_precision_of_the_lowering(lowered):
    model, layers, scales, _ = lowered
    wanted = plan_lowering(layers, scales.scales).precisions
    found = precisions_by_qdq(layers_module.layers(to_qdq(model, layers, scales.scales)))
    assert {name for name, own in wanted.items() if own == "fp16"} == {"g"}
    assert {name: found[name] for name in wanted} == wanted


def test_there_and_back(lowered):
    model, layers, scales, made = lowered
    back = from_qdq(made)
    assert set(back.model.weights) == set(model.weights)
    for name, value in model.weights.items():
        np.testing.assert_array_equal(back.model.weights[name], value)
    for name in plan_lowering(layers, scales.scales).tensors:
        assert back.scales[name] == np.float32(scales.scales[name])
    feed = feeds()[0]
    np.testing.assert_array_equal(run(_whole(back.model), feed)[0], run(_whole(model), feed)[0])


def test_layers_outside_of_int8_get_fp16_types(lowered, tmp_path):
    model, layers, scales, wide = lowered
    made = to_qdq(model, layers, scales.scales)
    kinds = {
        v.name: v.type.tensor_type.elem_type
        for v in (*made.proto.graph.value_info, *made.proto.graph.output)
    }
    sigmoid = next(n for n in made.proto.graph.node if n.op_type == "Sigmoid")
    assert kinds[sigmoid.output[0]] == onnx.TensorProto.FLOAT16
    assert kinds["y"] == onnx.TensorProto.FLOAT
    assert sum(n.op_type == "Cast" for n in made.proto.graph.node) == 2
    assert not any(n.op_type == "Cast" for n in wide.proto.graph.node)
    save(made, tmp_path / "half.onnx")
    onnx.checker.check_model(tmp_path / "half.onnx", full_check=True)
    feed = feeds()[0]
    close, exact = run(tmp_path / "half.onnx", feed)[0], run(_whole(wide), feed)[0]
    assert snr_db(exact, close) > 30
    found = precisions_by_qdq(layers_module.layers(made))
    assert found["g"] == "fp16"
    assert found["s"] == "int8"


def test_the_emulated_build_is_what_the_file_computes(lowered):
    model, layers, scales, made = lowered
    plan_scales = replace(scales, quantised=frozenset(plan_lowering(layers, scales.scales).tensors))
    board = get("jetson-agx-orin-64gb")
    judgement = judge(layers, board, tensorrt="11.4.1", lowers=True, scales=scales.scales)
    plan = place(layers, judgement, board, precision="int8")
    runner = Runner(build_reference(cut_segments(model, layers, plan), plan_scales), stripped=False)
    for feed in feeds():
        assert snr_db(run(_whole(made), feed)[0], runner.run(feed)["y"]) > 40


def test_a_constant_that_is_joined_is_quantised_as_the_others():
    nodes = [node("Concat", "x k", "j", axis=1), node("Conv", "j w", "y")]
    weights = {"k": normal(1, 1, 2, 4, 4), "w": normal(2, 3, 6, 1, 1)}
    model, layers = make(nodes, weights, {"x": [1, 4, 4, 4]}, ["y"])
    made = to_qdq(model, layers, dict.fromkeys(["x", "j", "y"], SCALE))
    found = pairs(made)
    assert found["k"][0] == np.float32(SCALE)
    assert "j" in found


def test_one_scale_for_a_whole_weight():
    model, layers = branches()
    scales = dict.fromkeys(layers.tensors, SCALE)
    found = pairs(to_qdq(model, layers, scales, weights="per_tensor"))
    for name in ("small", "large", "last"):
        amax = np.abs(model.weights[name]).max()
        assert found[name][0] == amax / np.float32(127)
        assert found[name][2] == []
    with pytest.raises(UsageError, match="one of per_channel, per_tensor"):
        to_qdq(model, layers, scales, weights="per_row")


def test_an_old_opset_is_raised_and_names_stay():
    weights = {"w": normal(1, 4, 3, 1, 1)}
    nodes = [node("Conv", "x w", "c"), node("Softmax", "c", "y", axis=1)]
    graph = make(nodes, weights, {"x": [1, 3, 4, 4]}, ["y"])[0].proto
    proto = _whole(replace(canonical(graph, None, weights=weights), source="old"))
    proto.opset_import[0].version = 9
    model = canonical(proto, None, source="old")
    layers = layers_module.layers(model)
    made = to_qdq(model, layers, dict.fromkeys(layers.tensors, SCALE), float16=False)
    assert next(e.version for e in made.proto.opset_import if not e.domain) == 13
    assert {n.name for n in model.proto.graph.node} <= {n.name for n in made.proto.graph.node}
    assert {"x", "w"} <= set(pairs(made))


def test_without_scales_it_stays_plain():
    model, layers = branches()
    made = to_qdq(model, layers, {})
    assert not pairs(made)


def test_refusals_name_what_is_wrong(lowered):
    model, layers, scales, made = lowered
    with pytest.raises(ModelError) as caught:
        to_qdq(made, layers_module.layers(made), scales.scales)
    assert caught.value.code == "qdq.present"
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(DataError) as refused:
            to_qdq(model, layers, {**scales.scales, "r": bad})
        assert (refused.value.code, refused.value.where) == ("qdq.scale", "r")


def _whole(model):
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for item in proto.graph.initializer:
        if item.name in model.weights:
            item.CopyFrom(numpy_helper.from_array(np.array(model.weights[item.name]), item.name))
    return proto


@pytest.mark.parametrize("ends", [["a"], ["b"], ["a", "b"], ["y", "a"]])
def test_parts_of_a_split_are_outputs(ends):
    weights = {"w": normal(1, 4, 2, 1, 1), "s": np.array([2, 2], np.int64)}
    nodes = [
        node("Conv", "x w", "c"),
        onnx.helper.make_node("Split", ["c", "s"], ["a", "b"], "split", axis=1),
    ]
    if "y" in ends:
        nodes.append(node("Relu", "b", "y"))
    model, layers = make(nodes, weights, {"x": [1, 2, 4, 4]}, ends)
    scales = dict.fromkeys(layers.tensors, SCALE)
    made = to_qdq(model, layers, scales)
    assert [value.name for value in made.proto.graph.output] == ends
    feed = {"x": normal(2, 1, 2, 4, 4)}
    for found, wanted in zip(run(_whole(made), feed), run(_whole(model), feed), strict=True):
        # rounded codes, and not the other part's values
        assert np.abs(found - np.clip(wanted, -128 * SCALE, 127 * SCALE)).max() < 4 * SCALE
        assert np.allclose(found / SCALE, np.rint(found / SCALE), atol=1e-3)


@pytest.mark.parametrize("fp16_layers", [(), ("c", "b")])
def test_there_and_back_by_way_of_fp16_types(lowered, fp16_layers):
    model, layers, scales, _ = lowered
    back = from_qdq(to_qdq(model, layers, scales.scales, fp16_layers=fp16_layers))
    found, wanted = back.model.proto.graph, model.proto.graph
    for mine, given in zip(found.node, wanted.node, strict=True):
        assert (mine.op_type, mine.name) == (given.op_type, given.name)
        assert (mine.input, mine.output) == (given.input, given.output)
    assert set(back.fp16_nodes) >= {"g", *fp16_layers}
    assert not {"a", "y"}.intersection(back.fp16_nodes)
    assert any("as in the file" in note for note in back.notes)
    halved = {"w3", "w2"} if fp16_layers else set()
    for name, value in model.weights.items():
        given = value.astype(np.float16).astype(np.float32) if name in halved else value
        np.testing.assert_array_equal(back.model.weights[name], given)
    again = plan_lowering(layers, scales.scales, fp16_layers).tensors
    assert {name: np.float32(scales.scales[name]) for name in again}.items() <= back.scales.items()


def test_an_fp16_input_keeps_its_cast_and_says_so():
    model, layers = net()
    made = _whole(to_qdq(model, layers, calibrate(model, layers, feeds()).scales))
    made.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    cast = onnx.helper.make_node("Cast", ["x"], ["wide"], "wide", to=1)
    for item in made.graph.node:
        item.input[:] = ["wide" if name == "x" else name for name in item.input]
    made.graph.node.insert(0, cast)
    back = from_qdq(canonical(made, None, source="halves"))
    assert [n.op_type for n in back.model.proto.graph.node].count("Cast") == 3
    assert any("'x' is FP16" in note for note in back.notes)
