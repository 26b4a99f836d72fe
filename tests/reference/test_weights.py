"""Transforms, digests, and refitting with other values."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import DataError
from edgekit.network.model import Model
from edgekit.placement.segments import cut_segments
from edgekit.quantize.scales import Scales
from edgekit.reference.artefacts import Artefacts
from edgekit.reference.build import build_reference
from edgekit.reference.run import run
from edgekit.reference.weights import derive_weights, transform_value, weight_digest
from tests.reference.toy_nets import model_of, network_of, node, place_all, plan_of
from tests.tries import tries

F = np.float32
SCALES = Scales({"x": 0.02, "c": 0.05, "y": 0.05}, "minmax", "by hand", "0")
X = {"x": np.random.default_rng(1).standard_normal((1, 3, 6, 6)).astype(F)}


def small(seed: int, *, channels: int = 4, names: str = "w b v") -> Model:
    rng = np.random.default_rng(seed)
    w, b, v = names.split()
    weights = {
        w: rng.standard_normal((channels, 3, 3, 3)).astype(F),
        b: rng.standard_normal(channels).astype(F),
        v: rng.standard_normal((2, channels, 1, 1)).astype(F),
    }
    nodes = [
        node("Conv", f"x {w} {b}", "c"),
        node("LeakyRelu", "c", "r"),
        node("Conv", f"r {v}", "y"),
    ]
    return model_of(nodes, weights, {"x": [1, 3, 6, 6]}, ["y"])


def built(model: Model, precision: str) -> Artefacts:
    network = network_of(model)
    scales = replace(SCALES, scales={**SCALES.scales, "r": 0.05})
    return build_reference(
        cut_segments(model, network, plan_of(place_all(network, precision, lambda i: i // 2))),
        scales,
    )


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_refit_equals_a_fresh_build(precision: str) -> None:
    first, second = built(small(0), precision), built(small(1), precision)
    weights, values = derive_weights(first.weights, small(1))
    refitted = replace(first, weights=weights, values=values)
    assert first.engines == second.engines
    assert weights == second.weights
    assert np.array_equal(run(refitted, X)["y"], run(second, X)["y"])
    assert not np.array_equal(run(refitted, X)["y"], run(first, X)["y"])


def test_only_changed_tensors_get_new_digests() -> None:
    model = small(0)
    changed = replace(model, weights={**model.weights, "v": model.weights["v"] * F(2)})
    artefacts = built(model, "int8")
    weights, _ = derive_weights(artefacts.weights, changed)
    different = {n for n in weights if weights[n].digest != artefacts.weights[n].digest}
    # twice the values are the same codes at twice the scale
    assert different == {"v#scale"}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_other_shapes_are_refused_by_name(precision: str) -> None:
    with pytest.raises(DataError) as caught:
        derive_weights(built(small(0), precision).weights, small(0, channels=5))
    assert caught.value.code == "refit.mismatch"
    assert "w (shape [5, 3, 3, 3], built with [4, 3, 3, 3])" in caught.value.hint
    assert "v (shape [2, 5, 1, 1], built with [2, 4, 1, 1])" in caught.value.hint
    assert caught.value.message.startswith("3 weights")


def test_missing_extra_and_mistyped_weights_are_refused_by_name() -> None:
    weights = built(small(0), "int8").weights
    with pytest.raises(DataError) as caught:
        derive_weights(weights, small(0, names="w b other"))
    assert "v (missing)" in caught.value.hint
    assert "other (not in the build)" in caught.value.hint
    model = small(0)
    double = replace(model, weights={n: a.astype(np.float64) for n, a in model.weights.items()})
    with pytest.raises(DataError, match="3 weights") as caught:
        derive_weights(weights, double)
    assert "w (type float64, built with float32)" in caught.value.hint


def test_long_lists_of_faults_are_cut_with_a_count() -> None:
    many = {f"w{i}": np.zeros(3, F) for i in range(50)}
    with pytest.raises(DataError, match="53 weights") as caught:
        derive_weights(built(small(0), "fp32").weights, replace(small(0), weights=many))
    assert "and 33 more" in caught.value.hint


def test_digest_is_of_the_little_endian_c_order_bytes() -> None:
    array = np.arange(6, dtype=F).reshape(2, 3)
    expected = hashlib.sha256(array.astype("<f4").tobytes()).hexdigest()
    assert weight_digest(array) == expected
    assert weight_digest(np.asfortranarray(array)) == expected
    assert weight_digest(array.astype(">f4")) == expected
    assert weight_digest(np.float32(1)) == hashlib.sha256(np.float32(1).tobytes()).hexdigest()
    assert weight_digest(np.zeros(0, F)) == hashlib.sha256(b"").hexdigest()


@settings(max_examples=tries(40))
@given(
    axis=st.integers(0, 2),
    shape=st.tuples(*[st.integers(1, 7)] * 3),
    seed=st.integers(0, 2**16),
    exponent=st.integers(-20, 20),
)
def test_int8_codes_are_within_half_a_step(
    axis: int, shape: tuple[int, ...], seed: int, exponent: int
) -> None:
    value = np.random.default_rng(seed).standard_normal(shape).astype(F) * F(2.0**exponent)
    codes = transform_value(value, f"int8:{axis}")
    scale = transform_value(value, f"int8-scale:{axis}")
    spread = scale.reshape([-1 if i == axis else 1 for i in range(3)])
    rest = tuple(i for i in range(3) if i != axis)
    assert codes.dtype == np.int8
    assert (np.abs(codes).max(axis=rest) == 127).all()
    assert (np.abs(codes * spread - value) <= spread * F(0.5001)).all()


def test_int8_transform_in_blocks_equals_the_whole() -> None:
    value = np.random.default_rng(0).standard_normal((2500, 2100)).astype(F)
    for axis in (0, 1):
        scale = np.abs(value).max(axis=1 - axis) / F(127)
        expected = np.rint(value / np.expand_dims(scale, 1 - axis)).astype(np.int8)
        assert np.array_equal(transform_value(value, f"int8:{axis}"), expected)
        assert np.array_equal(transform_value(value, f"int8-scale:{axis}"), scale)


def test_zero_channels_and_half_overflow() -> None:
    value = np.zeros((2, 3), F)
    assert transform_value(value, "int8-scale:0").tolist() == [1.0, 1.0]
    assert not transform_value(value, "int8:0").any()
    big = transform_value(np.array([1e5, -1e5, 1 / 3], F), "fp16")
    assert big.tolist() == [np.inf, -np.inf, float(np.float16(1 / 3))]
