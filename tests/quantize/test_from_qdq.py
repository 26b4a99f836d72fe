"""Q/DQ models become plain networks with the Q/DQ nodes' own scales."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgekit.errors import ModelError, UsageError
from edgekit.network.model import Model
from edgekit.quantize.qdq.to_implicit import from_qdq, has_qdq
from tests.quantize.qdq_nets import Sheet, codes_of, normal, qat, residual, steps_of
from tests.quantize.quantize_nets import branches


def operators(model: Model) -> list[str]:
    return [node.op_type for node in model.proto.graph.node]


def exact(value: float) -> float:
    return float(np.float32(value))


def test_a_residual_block_as_trained_with_quantisers() -> None:
    model = residual().model("last_dq")
    found = from_qdq(model)
    assert operators(found.model) == ["Conv", "Relu", "Conv", "Add", "Relu"]
    assert not has_qdq(found.model)
    # the output keeps the name that it had behind its DequantizeLinear
    assert {v.name for v in found.model.proto.graph.output} == {"last_dq"}
    named = {"x": 0.03, "a_relu": 0.07, "last_dq": 0.2}
    assert {name: found.scales[name] for name in named} == {n: exact(s) for n, s in named.items()}
    assert found.quantizers == 3
    # a sum that only a ReLU reads: the ReLU's scale
    assert {row.tensor: row.scale for row in found.propagated}["sum"] == exact(0.2)
    assert found.fp16_nodes == found.missing == ()
    assert set(found.model.weights) == {"a.weight", "b.weight"}


@pytest.mark.parametrize("factor", [0.7, 1.0005])
def test_other_scales_than_the_largest_weight_give_the_codes_themselves(factor: float) -> None:
    weight = normal(3, 8, 4, 3, 3)
    scales = (steps_of(weight) * np.float32(factor)).astype(np.float32)
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 8, 8), 0.03)
    sheet.qdq(qat(sheet, x, "y", weight, scales), 0.5)
    found = from_qdq(sheet.model("y_dq"))
    codes = np.clip(np.rint(weight / scales.reshape(-1, 1, 1, 1)), -128, 127)
    weights = found.model.weights["y.weight"]
    assert np.array_equal(weights, codes * scales.reshape(-1, 1, 1, 1))
    # clipped weights reach 127 (or -128), so amax / 127 is the scale again unless -128 is met
    again = codes_of(weights, steps_of(weights))
    same = not (codes == -128).any()
    assert (found.other_codes == ()) is same
    if same:
        assert np.array_equal(again, codes)


def test_one_scale_for_all_channels_is_reported_to_give_other_codes() -> None:
    weight = normal(4, 8, 4, 3, 3)
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 8, 8), 0.03)
    sheet.qdq(qat(sheet, x, "y", weight, np.float32(np.abs(weight).max() / 127)), 0.5)
    found = from_qdq(sheet.model("y_dq"))
    assert found.other_codes == ("y.weight",)
    assert any(note.startswith("1 weight (y.weight) has other codes") for note in found.notes)


@pytest.mark.parametrize("opset", [10, 13, 21, 23])
def test_folded_weights_and_biases_are_dequantised(opset: int) -> None:
    weight = normal(5, 6, 4, 1, 1)
    per_channel = opset >= 13
    scales = steps_of(weight) if per_channel else np.float32(np.abs(weight).max() / 127)
    codes = codes_of(weight, np.broadcast_to(scales, 6))
    bias = np.arange(-3, 3, dtype=np.int32) * 1000
    bias_scales = np.float32(0.03) * scales
    more = {"axis": 0} if per_channel else {}
    sheet = Sheet(opset)
    x = sheet.qdq(sheet.input("x", 1, 4, 4, 4), 0.03)
    w = sheet.dq(sheet.constant("conv.weight_quantized", codes), scales, **more)
    shifted = sheet.constant("conv.bias_quantized", bias)
    b = sheet.dq(shifted, bias_scales, zero=np.int32(0), name="conv.bias", **more)
    sheet.qdq(sheet.node("Conv", f"{x} {w} {b}", "y"), 0.5)
    found = from_qdq(sheet.model("y_dq"))
    shape = (-1, 1, 1, 1) if per_channel else ()
    assert set(found.model.weights) == {"conv.weight", "conv.bias"}
    weights = found.model.weights["conv.weight"]
    assert np.array_equal(weights, codes * np.reshape(scales, shape))
    wanted = bias.astype(np.float32) * bias_scales.astype(np.float32)
    assert np.array_equal(found.model.weights["conv.bias"], wanted)
    assert found.scales == {"x": exact(0.03), "y_dq": exact(0.5)}


def test_transposed_weights_of_another_framework_fold() -> None:
    weight = normal(6, 3, 3, 4, 8)
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 8, 8), 0.03)
    w = sheet.constant("kernel", weight.reshape(9, 32))
    shifted = sheet.qdq(w, np.float32(np.abs(weight).max() / 127))
    sheet.constant("shape", np.array([3, 3, 4, 8]))
    shaped = sheet.node("Reshape", f"{shifted} shape", "shaped")
    turned = sheet.node("Transpose", shaped, "turned", perm=[3, 2, 0, 1])
    sheet.qdq(sheet.node("Conv", f"{x} {turned}", "y"), 0.5)
    found = from_qdq(sheet.model("y_dq"))
    assert operators(found.model) == ["Conv"]
    (value,) = found.model.weights.values()
    scale = np.float32(np.abs(weight).max() / 127)
    wanted = np.rint(weight / scale).astype(np.float32) * scale
    assert np.array_equal(value, wanted.transpose(3, 2, 0, 1))


def test_scales_without_an_axis_lie_along_the_second_one() -> None:
    weight = normal(3, 8, 4)
    steps = steps_of(weight, 1)
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 2, 8), 0.03)
    codes = sheet.constant("w", codes_of(weight, steps, 1))
    y = sheet.node("MatMul", f"{x} {sheet.dq(codes, steps, zero=np.zeros(4, np.int8))}", "y")
    (value,) = from_qdq(sheet.model(y)).model.weights.values()
    assert np.array_equal(value, codes_of(weight, steps, 1) * steps)


def test_uint8_around_128_is_int8() -> None:
    sheet = Sheet()
    x = sheet.input("x", 1, 4, 4, 4)
    middle = {"zero": np.uint8(128)}
    sheet.qdq(sheet.node("Relu", sheet.qdq(x, 0.1, **middle), "y"), 0.1, **middle)
    assert from_qdq(sheet.model("y_dq")).scales == {"x": exact(0.1), "y_dq": exact(0.1)}


def test_weights_of_uint8_around_128_are_those_of_int8() -> None:
    weight = normal(4, 8, 4, 1, 1)
    steps = steps_of(weight)
    codes = codes_of(weight, steps)
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 4, 4), 0.1)
    held = sheet.constant("w", (codes.astype(np.int16) + 128).astype(np.uint8))
    sheet.node("Conv", f"{x} {sheet.dq(held, steps, zero=np.uint8(128), axis=0)}", "y")
    (value,) = from_qdq(sheet.model("y")).model.weights.values()
    assert np.array_equal(value, codes * steps.reshape(8, 1, 1, 1))


def test_output_dtype_stands_for_a_zero_point() -> None:
    sheet = Sheet(21)
    x = sheet.input("x", 1, 4, 4, 4)
    codes = sheet.q(x, 0.1, zero=None, output_dtype=onnx.TensorProto.INT8)
    sheet.node("Relu", sheet.dq(codes, 0.1, zero=None), "y")
    assert from_qdq(sheet.model("y")).scales["x"] == exact(0.1)


def test_pairs_on_one_tensor_with_one_scale_are_one() -> None:
    sheet = Sheet()
    sheet.input("x", 1, 4, 4, 4)
    one, two = sheet.qdq("x", 0.1, name="one"), sheet.qdq("x", 0.1, name="two")
    sheet.node("Add", f"{sheet.node('Relu', one, 'a')} {sheet.node('Neg', two, 'b')}", "y")
    found = from_qdq(sheet.model("y"))
    assert found.quantizers == 1
    assert [list(node.input) for node in found.model.proto.graph.node][:2] == [["x"], ["x"]]


def test_pairs_with_different_scales_are_refused_or_the_larger_is_taken() -> None:
    sheet = Sheet()
    sheet.input("x", 1, 4, 4, 4)
    one, two = sheet.qdq("x", 0.1, name="one"), sheet.qdq("x", 0.3, name="two")
    sheet.node("Add", f"{sheet.node('Relu', one, 'a')} {sheet.node('Neg', two, 'b')}", "y")
    model = sheet.model("y")
    with pytest.raises(ModelError) as caught:
        from_qdq(model)
    assert caught.value.code == "qdq.conflict"
    assert all(text in caught.value.message for text in ("'x'", "one_q", "two_q", "0.1", "0.3"))
    assert "--unequal largest" in caught.value.hint
    assert from_qdq(model, unequal="largest").scales["x"] == exact(0.3)
    with pytest.raises(UsageError, match="unequal scales cannot be"):
        from_qdq(model, unequal="mean")


def test_different_scales_after_a_move_are_of_two_tensors() -> None:
    sheet = Sheet()
    sheet.input("x", 1, 4, 4, 4)
    one = sheet.qdq("x", 0.1)
    two = sheet.qdq(sheet.node("Transpose", "x", "turned", perm=[0, 1, 3, 2]), 0.3)
    sheet.node("Add", f"{one} {two}", "y")
    scales = from_qdq(sheet.model("y")).scales
    assert (scales["x"], scales["turned"]) == (exact(0.1), exact(0.3))


def test_requantised_twice_the_last_scale_counts() -> None:
    sheet = Sheet()
    first = sheet.qdq(sheet.input("x", 1, 4, 4, 4), 0.1)
    sheet.node("Relu", sheet.qdq(first, 0.25, name="again"), "y")
    found = from_qdq(sheet.model("y"))
    assert found.scales["x"] == exact(0.25)
    assert any("twice in a row" in note and "x" in note for note in found.notes)


def test_moved_codes_are_moved_floats() -> None:
    sheet = Sheet()
    codes = sheet.q(sheet.input("x", 1, 4, 4, 6), 0.1)
    turned = sheet.node("Transpose", codes, "turned", perm=[0, 1, 3, 2])
    sheet.node("Relu", sheet.dq(turned, 0.1), "y")
    found = from_qdq(sheet.model("y"))
    assert operators(found.model) == ["Transpose", "Relu"]
    assert found.scales["x"] == found.scales["turned"] == exact(0.1)


def test_pools_concat_gates_and_averages_take_what_follows() -> None:
    sheet = Sheet()
    sheet.input("x", 1, 4, 8, 8)
    x = sheet.qdq("x", 0.1)
    pooled = sheet.node("MaxPool", x, "pooled", kernel_shape=[2, 2], strides=[2, 2])
    average = sheet.node("AveragePool", x, "average", kernel_shape=[2, 2], strides=[2, 2])
    joined = sheet.node("Concat", f"{pooled} {average}", "joined", axis=1)
    gate = sheet.node("Sigmoid", joined, "gate")
    sheet.node("Mul", f"{joined} {gate}", "y")
    found = from_qdq(sheet.model("y"))
    s = exact(0.1)
    rules = {row.tensor: row.rule for row in found.propagated}
    assert found.scales["pooled"] == found.scales["average"] == found.scales["joined"] == s
    assert found.scales["gate"] == exact(1 / 127)
    # out = 127 * a * b: as large as the larger factor lets it be
    assert found.scales["y"] == pytest.approx(s, rel=1e-6)
    assert rules == {
        "pooled": "follows",
        "average": "average",
        "joined": "follows",
        "gate": "Sigmoid",
        "y": "Mul",
    }


def test_an_average_hands_no_scale_back() -> None:
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 8, 8), 0.03)
    y = qat(sheet, x, "wide", normal(7, 8, 4, 1, 1))
    average = sheet.node("GlobalAveragePool", sheet.node("Exp", y, "exp"), "average")
    sheet.node("Relu", sheet.qdq(average, 0.01), "y")
    found = from_qdq(sheet.model("y"))
    assert "exp" not in found.scales
    # the average is INT8's to compute, and what it reads has no scale
    assert "exp" in found.missing
    assert "average" in found.fp16_nodes


def test_constants_that_several_read_get_names_of_their_own() -> None:
    weight = normal(9, 4, 4, 1, 1)
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 4, 4), 0.03)
    y = qat(sheet, x, "y", weight, np.float32(0.01))
    sheet.node("Conv", "x y.weight", "z")
    found = from_qdq(sheet.model(y, "z"))
    values = [found.model.weights[node.input[1]] for node in found.model.proto.graph.node]
    clipped = np.clip(np.rint(weight / np.float32(0.01)), -128, 127) * np.float32(0.01)
    assert np.array_equal(values[0], clipped)
    assert np.array_equal(values[1], weight)
    assert any("unquantised" in note and "x" in note for note in found.notes)


def test_a_plain_model_has_nothing_to_translate() -> None:
    with pytest.raises(ModelError) as caught:
        from_qdq(branches()[0])
    assert caught.value.code == "qdq.none"
