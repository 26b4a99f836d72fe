"""Every INT8 layer gives the codes of integer arithmetic, bit for bit."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from tests.reference.integer_layers import same
from tests.reference.toy_nets import node
from tests.tries import tries

F = np.float32
SEEDS = st.integers(0, 2**20)
# not powers of two, so that nothing is exact by chance; those too, so that much is a tie
SCALES = st.one_of(st.floats(1e-3, 0.5), st.sampled_from([2.0**-6, 2.0**-3, 2.0**-4]))
OPSETS = st.sampled_from([9, 13])
few = settings(max_examples=tries(20))
# ONNX Runtime before 1.29 counts what lies beyond the padding, too, below opset 19
COUNTS_BEYOND = Version(onnxruntime.__version__) < Version("1.29")


def normal(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 1)
    return values.astype(F)


def pads(draw: st.DrawFn, below: int) -> list[int]:
    return [draw(st.integers(0, below - 1)) for _ in range(4)]


@st.composite
def convolutions(draw: st.DrawFn, transposed: bool = False) -> tuple:
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    inner, outer = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    kernel = [draw(st.integers(1, 4)), draw(st.integers(1, 4))]
    strides = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    dilations = [draw(st.integers(1, 2)), draw(st.integers(1, 2))]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = [draw(st.integers(span, span + 6)) for span in spans]
    known = {"strides": strides, "dilations": dilations, "group": groups, "kernel_shape": kernel}
    known["pads"] = pads(draw, min(spans))
    if transposed:
        total = [(n - 1) * s + span for n, s, span in zip(size, strides, spans, strict=True)]
        assume(all(t > known["pads"][a] + known["pads"][a + 2] for a, t in enumerate(total)))
    weight = (groups * inner, outer) if transposed else (groups * outer, inner)
    return known, (draw(st.integers(1, 2)), groups * inner, *size), (*weight, *kernel)


@few
@given(
    convolutions(),
    SCALES,
    st.floats(0.01, 3),
    SEEDS,
    OPSETS,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_convolution(case, sx, sy, seed, opset, biased, relu, optimise) -> None:  # type: ignore[no-untyped-def]
    known, shape, kernel = case
    weights = {"w": normal(seed, *kernel)}
    if biased:
        weights["b"] = normal(seed + 1, kernel[0])
    conv = node("Conv", "x w b" if biased else "x w", "y", **known)
    same(
        conv,
        {"x": shape},
        weights,
        {"x": sx, "y": sy},
        seed,
        opset=opset,
        relu=relu,
        optimise=optimise,
    )


@few
@given(convolutions(transposed=True), SCALES, st.floats(0.01, 3), SEEDS, st.booleans())
def test_deconvolution(case, sx, sy, seed, relu) -> None:  # type: ignore[no-untyped-def]
    known, shape, kernel = case
    weights = {"w": normal(seed, *kernel), "b": normal(seed + 1, kernel[1] * known["group"])}
    deconv = node("ConvTranspose", "x w b", "y", **known)
    same(deconv, {"x": shape}, weights, {"x": sx, "y": sy}, seed, relu=relu)


@few
@given(
    st.integers(1, 3),
    st.integers(1, 40),
    st.integers(1, 20),
    SCALES,
    st.floats(0.01, 3),
    SEEDS,
    OPSETS,
    st.booleans(),
    st.booleans(),
    st.sampled_from([1.0, 0.5, 0.3]),
)
def test_fully_connected(n, k, m, sx, sy, seed, opset, trans_a, trans_b, alpha) -> None:  # type: ignore[no-untyped-def]
    weights = {"w": normal(seed, *((m, k) if trans_b else (k, m))), "b": normal(seed + 1, m)}
    gemm = node(
        "Gemm", "x w b", "y", transA=int(trans_a), transB=int(trans_b), alpha=alpha, beta=0.7
    )
    shape = (k, n) if trans_a else (n, k)
    same(gemm, {"x": shape}, weights, {"x": sx, "y": sy}, seed, opset=opset)
    same(
        node("MatMul", "x w", "y"),
        {"x": (2, n, k)},
        {"w": normal(seed, k, m)},
        {"x": sx, "y": sy},
        seed,
        relu=trans_a,
    )


@few
@given(
    st.sampled_from(["Add", "Sub", "Sum", "Mul", "Max", "Min"]),
    SCALES,
    SCALES,
    SCALES,
    st.sampled_from(["different", "equal inputs", "all equal"]),
    SEEDS,
    st.booleans(),
)
def test_two_operands(op, sa, sb, sy, scales, seed, relu) -> None:  # type: ignore[no-untyped-def]
    sb = sb if scales == "different" else sa
    sy = sa if scales == "all equal" else sy
    shape = (2, 5, 4, 3)
    same(
        node(op, "a b", "y"),
        {"a": shape, "b": shape},
        {},
        {"a": sa, "b": sb, "y": sy},
        seed,
        # a ReLU is no part of a maximum's kernel
        relu=relu and op not in ("Max", "Min"),
    )


@few
@given(st.sampled_from(["Add", "Sub", "Mul"]), SCALES, SCALES, SEEDS)
def test_an_operand_of_weights(op: str, sx: float, sy: float, seed: int) -> None:
    shape = (1, 5, 4, 3)
    same(node(op, "x c", "y"), {"x": shape}, {"c": normal(seed, 5, 1, 1)}, {"x": sx, "y": sy}, seed)


@few
@given(st.lists(SCALES, min_size=1, max_size=3), st.integers(0, 3), SCALES, SEEDS, st.booleans())
def test_concatenation(inputs, axis, sy, seed, equal) -> None:  # type: ignore[no-untyped-def]
    names = [f"x{i}" for i in range(len(inputs))]
    scales = dict.fromkeys(names, sy) if equal else dict(zip(names, inputs, strict=True))
    same(
        node("Concat", " ".join(names), "y", axis=axis),
        dict.fromkeys(names, (2, 3, 4, 2)),
        {},
        {**scales, "y": sy},
        seed,
    )


@st.composite
def pools(draw: st.DrawFn) -> tuple:
    kernel = [draw(st.integers(1, 5)), draw(st.integers(1, 5))]
    strides = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    size = [draw(st.integers(k, k + 7)) for k in kernel]
    known = {"kernel_shape": kernel, "strides": strides, "ceil_mode": draw(st.integers(0, 1))}
    known["pads"] = pads(draw, min(kernel))
    if known["ceil_mode"]:
        for axis in range(2):
            # a last window that starts in the padding: runtimes disagree whether there is one
            free = size[axis] + known["pads"][axis] + known["pads"][axis + 2] - kernel[axis]
            last = -(-free // strides[axis]) * strides[axis]
            assume(last < size[axis] + known["pads"][axis])
    return known, (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *size)


@settings(max_examples=tries(40))
@given(pools(), st.sampled_from([0, 1]), SCALES, SCALES, st.booleans(), SEEDS, st.booleans())
def test_average_pooling(case, include, sx, sy, equal, seed, optimise) -> None:  # type: ignore[no-untyped-def]
    known, shape = case
    assume(not (COUNTS_BEYOND and include and known["ceil_mode"]))
    pool = node("AveragePool", "x", "y", count_include_pad=include, **known)
    scales = {"x": sx, "y": sx if equal else sy}
    same(pool, {"x": shape}, {}, scales, seed, optimise=optimise)


@few
@given(pools(), SCALES, SCALES, st.booleans(), SEEDS, st.booleans())
def test_maximum_pooling(case, sx, sy, equal, seed, optimise) -> None:  # type: ignore[no-untyped-def]
    known, shape = case
    scales = {"x": sx, "y": sx if equal else sy}
    same(node("MaxPool", "x", "y", **known), {"x": shape}, {}, scales, seed, optimise=optimise)


@few
@given(st.integers(1, 20), st.integers(1, 20), SCALES, SCALES, st.booleans(), SEEDS, OPSETS)
def test_global_average(height, width, sx, sy, equal, seed, opset) -> None:  # type: ignore[no-untyped-def]
    scales = {"x": sx, "y": sx if equal else sy}
    shape = (2, 3, height, width)
    same(node("GlobalAveragePool", "x", "y"), {"x": shape}, {}, scales, seed, opset=opset)


@few
@given(
    st.sampled_from(["Relu", "LeakyRelu", "PRelu", "Clip"]), SCALES, SCALES, st.booleans(), SEEDS
)
def test_activations(op, sx, sy, equal, seed) -> None:  # type: ignore[no-untyped-def]
    weights = {"slope": np.abs(normal(seed, 3, 1, 1))} if op == "PRelu" else {}
    if op == "Clip":
        weights = {"low": np.array(-1.7, F), "high": np.array(6, F)}
    scales = {"x": sx, "y": sx if equal else sy}
    same(node(op, " ".join(["x", *weights]), "y"), {"x": (2, 3, 4, 5)}, weights, scales, seed)


@few
@given(st.integers(1, 3), SCALES, SCALES, st.booleans(), SEEDS)
def test_nearest_resize(factor, sx, sy, equal, seed) -> None:  # type: ignore[no-untyped-def]
    weights = {"roi": np.zeros(0, F), "factors": np.array([1, 1, factor, factor], F)}
    resize = node("Resize", "x roi factors", "y", mode="nearest", nearest_mode="floor")
    resize.attribute.add(name="coordinate_transformation_mode", type=3, s=b"asymmetric")
    same(resize, {"x": (1, 2, 3, 4)}, weights, {"x": sx, "y": sx if equal else sy}, seed)


@pytest.mark.parametrize("count", [2, 4, 6, 8])
def test_an_average_half_way_between_two_codes_goes_to_the_even_one(count: int) -> None:
    shape = (1, 4096, 1, count)
    for scale in (0.1, 0.0371, 1 / 3):
        codes = same(
            node("AveragePool", "x", "y", kernel_shape=[1, count]),
            {"x": shape},
            {},
            {"x": scale, "y": scale},
            count,
        )
        assert codes.size == 4096
