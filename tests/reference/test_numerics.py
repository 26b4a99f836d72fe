"""The target's numerics against slow NumPy: FP16 rounding, INT32 accumulation, rounding rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
import pytest

from edgekit.errors import BuildError
from edgekit.network.model import Model
from edgekit.placement.segments import cut_segments
from edgekit.quantize.scales import Scales
from edgekit.reference.artefacts import Artefacts
from edgekit.reference.build import build_reference
from edgekit.reference.run import Runner
from tests.reference.toy_nets import model_of, network_of, node, place_all, plan_of

F = np.float32


def scales_of(values: Mapping[str, float]) -> Scales:
    return Scales({k: float(F(v)) for k, v in values.items()}, "minmax", "by hand", "0")


def built(
    model: Model,
    precision: str,
    scales: Mapping[str, float] | None = None,
    size: int = 99,
    device: str = "DLA0",
) -> Artefacts:
    network = network_of(model)
    plan = plan_of(place_all(network, precision, lambda i: i // size, lambda _: device))
    return build_reference(
        cut_segments(model, network, plan), scales_of(scales) if scales else None
    )


def half(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, F).astype(np.float16).astype(F)


def codes(array: np.ndarray, scale: float) -> np.ndarray:
    return np.clip(np.rint(array / F(scale)), -128, 127).astype(np.int64)


def weight_codes(array: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    rest = tuple(i for i in range(array.ndim) if i != axis)
    scale = np.abs(array).max(axis=rest) / F(127)
    scale[scale == 0] = 1
    spread = scale.reshape([-1 if i == axis else 1 for i in range(array.ndim)])
    return np.clip(np.rint(array / spread), -127, 127).astype(np.int64), scale


def conv_int(x: np.ndarray, w: np.ndarray, stride: int, pad: int, groups: int = 1) -> np.ndarray:
    """A convolution in integers, one output value at a time."""
    n, _, height, width = x.shape
    out, per_group, kh, kw = w.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    rows, columns = (height + 2 * pad - kh) // stride + 1, (width + 2 * pad - kw) // stride + 1
    y = np.zeros((n, out, rows, columns), np.int64)
    for k in range(out):
        first = k // (out // groups) * per_group
        for i in range(rows):
            for j in range(columns):
                top, left = i * stride, j * stride
                window = padded[:, first : first + per_group, top : top + kh, left : left + kw]
                y[:, k, i, j] = (window * w[k]).sum(axis=(1, 2, 3))
    return y


def spread(values: np.ndarray) -> np.ndarray:
    return values.reshape(1, -1, 1, 1)


RANDOM = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F)


@pytest.mark.parametrize("size", [1, 99])
@pytest.mark.parametrize("optimise", [False, True])
def test_fp16_rounds_inputs_weights_and_every_layer(size: int, optimise: bool) -> None:
    weights = {"a": normal(1, 6), "b": normal(1, 6), "c": normal(1, 6)}
    nodes = [node("Mul", "x a", "p"), node("Add", "p b", "q"), node("Mul", "q c", "y")]
    model = model_of(nodes, weights, {"x": [64, 6]}, ["y"])
    x = normal(64, 6)
    runner = Runner(built(model, "fp16", size=size), optimise=optimise)
    expected = half(x) * half(weights["a"])
    expected = half(half(expected) + half(weights["b"]))
    expected = half(expected * half(weights["c"]))
    found = runner.run({"x": x}, observe=True)
    assert np.array_equal(found["y"], expected)
    plain = (x * weights["a"] + weights["b"]) * weights["c"]
    assert not np.array_equal(found["y"], half(plain))


def test_fp16_overflow_is_infinity_as_on_the_hardware() -> None:
    model = model_of([node("Add", "x x", "y")], {}, {"x": [3]}, ["y"])
    y = Runner(built(model, "fp16")).run({"x": np.array([1, 40000, -40000], F)})["y"]
    assert y.tolist() == [2.0, np.inf, -np.inf]


def test_batch_normalisation_keeps_fp32_parameters_in_fp16() -> None:
    weights = {"g": normal(2), "b": normal(2), "m": normal(2), "v": np.array([1e6, 1e-9], F)}
    nodes = [node("BatchNormalization", "x g b m v", "y")]
    model = model_of(nodes, weights, {"x": [1, 2, 3, 3]}, ["y"])
    artefacts = built(model, "fp16")
    assert {w.transform for w in artefacts.weights.values()} == {"none"}
    assert np.isfinite(Runner(artefacts).run({"x": normal(1, 2, 3, 3)})["y"]).all()


def test_int8_matmul_and_its_bias_are_one_kernel() -> None:
    w, b = normal(40, 24), normal(24)
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "y")]
    model = model_of(nodes, {"w": w, "b": b}, {"x": [2, 5, 40]}, ["y"])
    x = normal(2, 5, 40)
    found = Runner(built(model, "int8", {"x": 0.02, "y": 0.2})).run({"x": x})["y"]
    wq, sw = weight_codes(w, 1)
    raw = (codes(x, 0.02) @ wq).astype(F) * (sw * F(0.02)) + b
    assert np.array_equal(found, codes(raw, 0.2).astype(F) * F(0.2))


def test_codes_round_half_to_even_and_saturate() -> None:
    model = model_of([node("Add", "x z", "y")], {}, {"x": [9], "z": [9]}, ["y"])
    artefacts = built(model, "int8", {"x": 1.0, "z": 1.0, "y": 1.0})
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 300.0, -300.0], F)
    found = Runner(artefacts).run({"x": x, "z": np.zeros(9, F)})["y"]
    assert found.tolist() == [0, 2, 2, 0, -2, -2, 126, 127, -128]


def chain() -> tuple[Model, dict[str, np.ndarray], dict[str, float]]:
    weights = {
        "w": normal(4, 3, 1, 1),
        "g": normal(4),
        "s": normal(4),
        "m": normal(4),
        "v": normal(4) ** 2 + 1,
        "u": normal(4, 3, 1, 1),
    }
    nodes = [
        node("Conv", "x u", "short"),
        node("Conv", "x w", "c"),
        node("BatchNormalization", "c g s m v", "n"),
        node("Add", "n short", "a"),
        node("Relu", "a", "y"),
    ]
    scales = {"x": 0.02, "short": 0.03, "y": 0.04, "c": 0.5, "n": 0.5, "a": 0.5}
    return model_of(nodes, weights, {"x": [1, 3, 5, 5]}, ["y"]), weights, scales


def test_a_fused_kernel_rounds_once_at_its_end() -> None:
    model, weights, scales = chain()
    x = normal(1, 3, 5, 5)
    found = Runner(built(model, "int8", scales), optimise=False).run({"x": x})["y"]
    xq = codes(x, 0.02)

    def conv(name: str) -> np.ndarray:
        wq, sw = weight_codes(weights[name], 0)
        return conv_int(xq, wq, 1, 0).astype(F) * spread(sw * F(0.02))

    short = codes(conv("u"), 0.03).astype(F) * F(0.03)
    g, s, m, v = (spread(weights[k]) for k in "gsmv")
    normalised = (conv("w") - m) / np.sqrt(v + F(1e-5)) * g + s
    expected = codes(np.maximum(normalised + short, 0), 0.04)
    # batch normalisation in another order of operations may move a value across a tie
    assert np.abs(np.rint(found / F(0.04)) - expected).max() <= 1
    assert np.mean(np.rint(found / F(0.04)) == expected) > 0.98


def test_a_segment_border_inside_a_chain_rounds_there() -> None:
    model, _, scales = chain()
    x = {"x": normal(1, 3, 5, 5)}
    found = Runner(built(model, "int8", scales, size=3)).run(x, observe=True)
    assert np.array_equal(found["n"], codes(found["n"], 0.5).astype(F) * F(0.5))
    assert not np.array_equal(found["y"], Runner(built(model, "int8", scales)).run(x)["y"])


def test_operators_without_int8_kernels_run_in_fp16() -> None:
    nodes = [node("Relu", "x", "r"), node("Softmax", "r", "y")]
    model = model_of(nodes, {}, {"x": [2, 10]}, ["y"])
    x = normal(2, 10)
    artefacts = built(model, "int8", {"x": 0.02, "r": 0.02, "y": 1 / 127})
    found = Runner(artefacts).run({"x": x})["y"]
    rounded = half(codes(np.maximum(x, 0), 0.02).astype(F) * F(0.02))
    exponent = np.exp(rounded - rounded.max(axis=1, keepdims=True))
    expected = exponent / exponent.sum(axis=1, keepdims=True)
    assert np.array_equal(found, half(found))
    assert np.abs(found - expected).max() < 1e-3
    assert artefacts.notes == ()


def test_what_only_moves_a_result_in_fp16_does_not_round_it_to_int8() -> None:
    nodes = [
        node("Relu", "x", "r"),
        node("Softmax", "r", "s", axis=1),
        node("Flatten", "s", "y"),
    ]
    model = model_of(nodes, {}, {"x": [2, 10, 1, 1]}, ["y"])
    artefacts = built(model, "int8", {"x": 0.02, "r": 0.02, "s": 1 / 127, "y": 1 / 127})
    found = Runner(artefacts).run({"x": normal(2, 10, 1, 1)})["y"]
    assert np.array_equal(found, half(found))
    assert not np.allclose(found * 127, np.rint(found * 127), atol=1e-3)


def test_on_the_gpu_a_result_that_no_int8_layer_reads_is_a_float() -> None:
    w, b = normal(12, 6), normal(6)
    nodes = [node("Gemm", "x w b", "logits"), node("Softmax", "logits", "y")]
    model = model_of(nodes, {"w": w, "b": b}, {"x": [4, 12]}, ["logits", "y"])
    x = normal(4, 12)
    wq, sw = weight_codes(w, 1)
    raw = (codes(x, 0.02) @ wq).astype(F) * (sw * F(0.02)) + b
    # no scale for the logits is needed
    gpu = built(model, "int8", {"x": 0.02}, device="GPU")
    assert np.array_equal(Runner(gpu).run({"x": x})["logits"], half(raw))
    dla = built(model, "int8", {"x": 0.02, "logits": 0.1})
    found = Runner(dla).run({"x": x})["logits"]
    assert np.array_equal(found, codes(raw, 0.1).astype(F) * F(0.1))
    assert gpu.notes == dla.notes == ()


def test_a_tensor_without_a_scale_sends_its_layers_to_fp16_and_a_note_says_so() -> None:
    nodes = [node("Conv", "x w", "c"), node("MaxPool", "c", "p", kernel_shape=[2, 2])]
    nodes.append(node("Conv", "p w2", "y"))
    weights = {"w": normal(4, 3, 1, 1), "w2": normal(4, 4, 1, 1)}
    model = model_of(nodes, weights, {"x": [1, 3, 4, 4]}, ["y"])
    artefacts = built(model, "int8", {"x": 0.02, "c": 0.03, "y": 0.04})
    assert set(artefacts.weights) == {"w#int8", "w#scale", "w2#fp16"}
    (note,) = artefacts.notes
    assert "2 INT8 layers run in FP16" in note
    assert "(p)" in note
    none = built(model, "int8")
    assert set(none.weights) == {"w#fp16", "w2#fp16"}
    fp16 = built(model, "fp16")
    assert none.engines == fp16.engines


def test_tensors_that_only_move_values_inherit_their_scale() -> None:
    nodes = [node("Flatten", "x", "f"), node("Dropout", "f", "d"), node("Gemm", "d w", "y")]
    model = model_of(nodes, {"w": normal(12, 4)}, {"x": [2, 3, 2, 2]}, ["y"])
    artefacts = built(model, "int8", {"x": 0.02, "y": 0.04})
    assert set(artefacts.weights) == {"w#int8", "w#scale"}
    assert artefacts.notes == ()


def test_a_weight_read_along_two_axes_has_two_int8_forms() -> None:
    nodes = [node("Gemm", "x w", "h"), node("Gemm", "h w", "y", transB=1)]
    w = normal(6, 4)
    model = model_of(nodes, {"w": w}, {"x": [3, 6]}, ["y"])
    artefacts = built(model, "int8", {"x": 0.03, "h": 0.06, "y": 0.3})
    assert {name: v.transform for name, v in artefacts.weights.items()} == {
        "w#int8": "int8:1",
        "w#scale": "int8-scale:1",
        "w#int8@0": "int8:0",
        "w#scale@0": "int8-scale:0",
    }
    x = normal(3, 6)
    found = Runner(artefacts).run({"x": x})["y"]
    (w1, s1), (w0, s0) = weight_codes(w, 1), weight_codes(w, 0)
    h = codes((codes(x, 0.03) @ w1).astype(F) * (s1 * F(0.03)), 0.06)
    raw = (h @ w0.T).astype(F) * (s0 * F(0.06))
    assert np.array_equal(found, codes(raw, 0.3).astype(F) * F(0.3))


def test_old_opsets_are_refused_where_rounding_is_needed() -> None:
    model, _, scales = chain()
    old = onnx.ModelProto()
    old.CopyFrom(model.proto)
    old.opset_import[0].version = 6
    with pytest.raises(BuildError, match="opset 6") as caught:
        built(replace(model, proto=old), "int8", scales)
    assert caught.value.code == "build.opset"
