"""INT32 sums that float32 does not hold: exact whatever the weights, by the layer's shape alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from edgekit.network.model import Model
from edgekit.reference.artefacts import Artefacts
from edgekit.reference.build import full_engine
from edgekit.reference.run import Runner
from edgekit.reference.segment_model import EXACT_PRODUCTS, HIGHEST_CODE, LOWEST_CODE
from edgekit.reference.weights import derive_weights
from tests.reference.integer_layers import built
from tests.reference.integer_reference import attributes, conv, deconv, weight_codes
from tests.reference.toy_nets import model_of, node

F = np.float32
INTEGERS = {"ConvInteger", "MatMulInteger"}


def engine_of(artefacts: Artefacts) -> onnx.ModelProto:
    (digest,) = artefacts.engines
    return onnx.ModelProto.FromString(full_engine(artefacts, digest))


def ops(artefacts: Artefacts) -> set[str]:
    return {item.op_type for item in engine_of(artefacts).graph.node}


def accumulator(artefacts: Artefacts, feed: Mapping[str, np.ndarray]) -> np.ndarray:
    """Runs the engine and reads the sums of products before any scale."""
    engine = engine_of(artefacts)
    engine.graph.output.append(onnx.helper.make_tensor_value_info("y#raw#acc", 1, None))
    session = ort.InferenceSession(engine.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y#raw#acc"], dict(feed))[0])


def there_and_back(shape: Sequence[int], inner: int) -> np.ndarray:
    """Weights that sum up far beyond 2**24 over half of the inner axis, and down again."""
    rng = np.random.default_rng(shape[0])
    weight = rng.integers(118, 127, shape).astype(F)
    view = np.moveaxis(weight, inner, 0)
    view[len(view) // 2 :] *= -1
    view[0] = 127  # all channels have scale 1
    return weight


def inputs(shape: Sequence[int]) -> np.ndarray:
    values = np.random.default_rng(3).integers(118, 128, shape).astype(F)
    values.flat[0] = -1000  # saturates at -128
    return values


def model_and_sums(
    item: onnx.NodeProto, shape: Sequence[int], kernel: Sequence[int], opset: int = 13
) -> tuple[Model, np.ndarray, np.ndarray]:
    """Returns a model of the layer, its input, and its sums in integers."""
    known = attributes(item)
    conv_like = "Conv" in item.op_type
    inner = {"Conv": 1, "ConvTranspose": 0, "Gemm": int(bool(known.get("transB"))), "MatMul": 0}
    outer = {"Conv": 0, "ConvTranspose": 1}.get(item.op_type, 1 - inner[item.op_type])
    weight = there_and_back(kernel, inner[item.op_type])
    x = inputs(shape)
    codes = np.clip(np.rint(x), -128, 127).astype(np.int64)
    w, scales = weight_codes(weight, outer)
    assert (scales == 1).all()
    if conv_like:
        total = (conv if item.op_type == "Conv" else deconv)(codes, w, known)
    else:
        left = codes.T if known.get("transA") else codes
        total = left @ (w.T if known.get("transB") else w)
    return model_of([item], {"w": weight}, {"x": shape}, ["y"], opset), x, total


LARGE = [
    (node("Conv", "x w", "y"), (1, 2400, 3, 3), (4, 2400, 1, 1)),
    (node("Conv", "x w", "y", pads=[1, 0, 2, 1], strides=[2, 1]), (2, 270, 5, 6), (4, 270, 3, 3)),
    (node("Conv", "x w", "y", group=2, dilations=[2, 1]), (1, 540, 7, 5), (4, 270, 3, 3)),
    (node("Conv", "x w", "y", auto_pad="SAME_UPPER"), (1, 270, 5, 5), (3, 270, 3, 3)),
    (node("Gemm", "x w", "y"), (3, 2500), (2500, 5)),
    (node("Gemm", "x w", "y", transA=1, transB=1), (2500, 3), (5, 2500)),
    (node("MatMul", "x w", "y"), (2, 3, 2400), (2400, 5)),
    (node("ConvTranspose", "x w", "y", strides=[2, 2]), (1, 600, 3, 3), (600, 2, 4, 4)),
    (node("ConvTranspose", "x w", "y", group=2), (1, 1200, 3, 3), (1200, 2, 2, 2)),
]


@pytest.mark.parametrize("number", range(len(LARGE)))
@pytest.mark.parametrize("opset", [9, 13])
def test_large_sums_are_exact(number: int, opset: int) -> None:
    item, shape, kernel = LARGE[number]
    if "auto_pad" in attributes(item):
        shown = node("Conv", "x w", "y", pads=[1, 1, 1, 1])
        _, x, total = model_and_sums(shown, shape, kernel)
        model = model_of([item], {"w": there_and_back(kernel, 1)}, {"x": shape}, ["y"], opset)
    else:
        gemm = item.op_type == "Gemm" and opset < 11
        bias = {"b": np.zeros(5, F)} if gemm else {}
        model, x, total = model_and_sums(item, shape, kernel, 13)
        copy = onnx.NodeProto()
        copy.CopyFrom(item)
        copy.input.extend(bias)
        model = model_of([copy], {**model.weights, **bias}, {"x": shape}, ["y"], opset)
    artefacts = built(model, {"x": 1.0, "y": 1e4})
    if item.op_type != "ConvTranspose":
        assert ops(artefacts) & INTEGERS
    assert artefacts.notes == ()
    assert np.array_equal(accumulator(artefacts, {"x": x}), total.astype(F))


@pytest.mark.parametrize("number", [2, 4, 5, 6])
def test_an_engine_that_cannot_be_of_opset_10_adds_exact_parts(number: int) -> None:
    item, shape, kernel = LARGE[number]
    model, x, total = model_and_sums(item, shape, kernel)
    # Slice is another operator from opset 10 on
    bias = {"b": np.zeros(5, F)} if item.op_type == "Gemm" else {}
    copy = onnx.NodeProto()
    copy.CopyFrom(item)
    copy.input.extend(bias)
    nodes = [copy, node("Slice", "x", "z", starts=[0], ends=[1], axes=[0])]
    old = model_of(nodes, {**model.weights, **bias}, {"x": shape}, ["y", "z"], 9)
    artefacts = built(old, {"x": 1.0, "y": 1e4, "z": 1.0})
    assert not ops(artefacts) & INTEGERS
    assert engine_of(artefacts).opset_import[0].version == 9
    assert np.array_equal(accumulator(artefacts, {"x": x}), total.astype(F))


def test_the_form_follows_from_the_shape_not_from_the_weights() -> None:
    assert EXACT_PRODUCTS * -LOWEST_CODE * HIGHEST_CODE <= 2**24
    assert (EXACT_PRODUCTS + 1) * -LOWEST_CODE * HIGHEST_CODE > 2**24
    small = {}
    for products in (EXACT_PRODUCTS, EXACT_PRODUCTS + 1):
        for seed in (0, 1):
            w = np.random.default_rng(seed).standard_normal((products, 3)).astype(F)
            w *= 1e-3 if seed else 1e3
            model = model_of([node("MatMul", "x w", "y")], {"w": w}, {"x": (1, products)}, ["y"])
            small[products, seed] = built(model, {"x": 0.1, "y": 0.1})
    assert not ops(small[EXACT_PRODUCTS, 0]) & INTEGERS
    assert ops(small[EXACT_PRODUCTS + 1, 0]) & INTEGERS
    for products in (EXACT_PRODUCTS, EXACT_PRODUCTS + 1):
        assert small[products, 0].engines == small[products, 1].engines


def test_a_layer_with_large_sums_refits() -> None:
    def made(seed: int) -> Model:
        w = np.random.default_rng(seed).standard_normal((4, 130, 3, 3)).astype(F)
        return model_of([node("Conv", "x w", "y")], {"w": w}, {"x": (1, 130, 5, 5)}, ["y"])

    x = {"x": np.random.default_rng(9).standard_normal((1, 130, 5, 5)).astype(F)}
    scales = {"x": 0.03, "y": 0.3}
    first, second = built(made(0), scales), built(made(1), scales)
    weights, values = derive_weights(first.weights, made(1))
    assert weights == second.weights
    refitted = Artefacts(**{**vars(first), "weights": weights, "values": values})
    assert np.array_equal(Runner(refitted).run(x)["y"], Runner(second).run(x)["y"])
    assert not np.array_equal(Runner(first).run(x)["y"], Runner(second).run(x)["y"])
