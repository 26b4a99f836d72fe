"""Zero, infinite, tiny and huge numbers in INT8: what comes out is defined."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.errors import BuildError, DataError
from edgekit.network.model import Model
from edgekit.reference.run import Runner
from edgekit.reference.weights import derive_weights, transform_value
from tests.reference.integer_layers import built, found_codes, same
from tests.reference.toy_nets import model_of, node

F = np.float32
NAN, INF = np.nan, np.inf


def identity(shape: int) -> Model:
    return model_of(
        [node("MaxPool", "x", "y", kernel_shape=[1, 1])], {}, {"x": (1, 1, 1, shape)}, ["y"]
    )


@pytest.mark.parametrize("count", [1, 5, 19, 64])
def test_infinities_saturate_and_a_negative_zero_is_zero(count: int) -> None:
    x = np.resize(np.array([INF, -INF, -0.0, 3e38, -3e38, 1e-45, -1e-45, 0.5, 2.5], F), count)
    artefacts = built(identity(count), {"x": 1.0, "y": 1.0})
    y = Runner(artefacts).run({"x": x.reshape(1, 1, 1, -1)})["y"].reshape(-1)
    wanted = np.resize(np.array([127, -128, 0, 127, -128, 0, 0, 0, 2], F), count)
    assert np.array_equal(y, wanted)
    assert not np.signbit(y[y == 0]).any()


def test_what_is_not_a_number_has_a_code_and_harms_nothing_else() -> None:
    x = np.arange(-9, 10, dtype=F)
    x[[0, 7, 18]] = NAN
    y = Runner(built(identity(19), {"x": 1.0, "y": 1.0})).run({"x": x.reshape(1, 1, 1, -1)})["y"]
    numbers = ~np.isnan(x)
    assert np.array_equal(y.reshape(-1)[numbers], x[numbers])
    assert np.isfinite(y).all()
    assert np.abs(y).max() <= 128


@pytest.mark.parametrize("scale", [1e-45, 1e-40, 2.0**-126, 1e-20, 1e20, 2.6e36])
def test_scales_of_any_size(scale: float) -> None:
    for item, weights in (
        (node("MaxPool", "x", "y", kernel_shape=[1, 1]), {}),
        (node("Add", "x x", "y"), {}),
        (node("AveragePool", "x", "y", kernel_shape=[2, 2]), {}),
    ):
        with np.errstate(over="ignore"):
            same(item, {"x": (1, 2, 4, 5)}, weights, {"x": scale, "y": scale}, 4)


@pytest.mark.parametrize("scale", [0.0, -0.1, NAN, INF, 3e36])
@pytest.mark.parametrize("tensor", ["x", "y"])
def test_a_scale_that_is_none_is_refused_by_the_tensors_name(scale: float, tensor: str) -> None:
    with pytest.raises(BuildError) as caught:
        built(identity(3), {"x": 1.0, "y": 0.5, tensor: scale})
    assert caught.value.code == "build.scale"
    assert caught.value.where == tensor


def test_channels_of_zeros_and_of_denormals_give_their_bias() -> None:
    w = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(F)
    w[1], w[2] = 0, 1e-44
    b = np.array([1, 2, -3, 4], F)
    codes = same(
        node("Conv", "x w b", "y"), {"x": (1, 3, 4, 4)}, {"w": w, "b": b}, {"x": 0.1, "y": 0.5}, 1
    )
    assert (codes[:, 1] == 4).all()
    assert (codes[:, 2] == -6).all()
    scales = transform_value(w, "int8-scale:0")
    assert scales[1] == scales[2] == 1
    assert not transform_value(w, "int8:0")[1:3].any()


@pytest.mark.parametrize("magnitude", [1e-36, 1e-30, 1e30, 3.4e38])
def test_weights_of_any_size_use_all_codes(magnitude: float) -> None:
    w = np.random.default_rng(0).uniform(-1, 1, (2, 50)).astype(F)
    w[:, 0] = 1
    w = (w * np.float64(magnitude)).astype(F)
    codes, scales = transform_value(w, "int8:0"), transform_value(w, "int8-scale:0")
    if scales[0] == 1:
        assert magnitude / 127 < np.finfo(F).tiny
        assert not codes.any()
    else:
        assert codes.max() == 127
        assert np.allclose(codes * scales[:, None].astype(np.float64), w, atol=scales[0] / 1.99)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_weights_that_are_not_finite_are_refused_by_name(bad: float) -> None:
    def made(value: float) -> Model:
        w = np.ones((4, 3, 1, 1), F)
        w[2, 1] = value
        return model_of([node("Conv", "x kernel", "y")], {"kernel": w}, {"x": (1, 3, 2, 2)}, ["y"])

    with pytest.raises(DataError, match=r"'kernel'.*output channel 2") as caught:
        built(made(bad), {"x": 1.0, "y": 1.0})
    assert caught.value.code == "weight.not_finite"
    assert caught.value.where == "kernel"
    good = built(made(0.5), {"x": 1.0, "y": 1.0})
    with pytest.raises(DataError, match="'kernel'"):
        derive_weights(good.weights, made(bad))


def test_results_beyond_fp16_are_infinite_on_the_gpu() -> None:
    w = np.full((2, 4), 3e4, F)
    model = model_of([node("Gemm", "x w", "y", transB=1)], {"w": w}, {"x": (1, 4)}, ["y"])
    artefacts = built(model, {"x": 1.0}, device="GPU")
    y = Runner(artefacts).run({"x": np.array([[1, 1, 1, 1]], F)})["y"]
    assert (y == INF).all()
    codes = built(model, {"x": 1.0, "y": 1e4})
    assert (found_codes(Runner(codes).run({"x": np.ones((1, 4), F)})["y"], 1e4) == 12).all()
