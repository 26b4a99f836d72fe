"""Scales folded into the convolution before or normalized them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries

NORM, SCALE, BEFORE = "fold-batch-norm", "fold-scale", "fold-scale-before"
SHAPES = [(), (1,), (4, 1, 1), (1, 4, 1, 1)]


def values(seed=0, groups=1, kernel=3):
    positive = np.abs(weight(4, seed=seed + 4)) + 0.1
    return {
        "w": weight(4, 4 // groups, kernel, kernel, seed=seed),
        "b": weight(4, seed=seed + 5),
        "s": weight(4, seed=seed + 1),
        "t": weight(4, seed=seed + 2),
        "m": weight(4, seed=seed + 3),
        "v": positive,
    }


def normalized(bias=True, groups=1, seed=0, ends=("y",), epsilon=1e-3, **attrs):
    conv = node("Conv", "x w b" if bias else "x w", "h", name="conv", group=groups, pads=[1] * 4)
    norm = node("BatchNormalization", "h s t m v", "y", name="bn", epsilon=epsilon, **attrs)
    return net([conv, norm], {"x": (2, 4, 6, 6)}, list(ends), values(seed, groups))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_batch_normalization_after_it(bias, groups):
    after = assert_rewrites(normalized(bias, groups), NORM)
    assert [n.name for n in after.proto.graph.node] == ["conv"]


def arithmetic(op, shape, turned=False, bias=True, before=False, seed=0, **attrs):
    random = np.random.default_rng(seed)
    operand = (0.5 + random.random(shape)) * np.where(random.random(shape) < 0.5, -1, 1)
    ends = ("x", "h") if before else ("h", "y")
    read = f"c {ends[0]}" if turned else f"{ends[0]} c"
    scale = node(op, read, ends[1], name="scale")
    ends = ("h", "y") if before else ("x", "h")
    conv = node("Conv", f"{ends[0]} w b" if bias else f"{ends[0]} w", ends[1], name="conv", **attrs)
    nodes = [scale, conv] if before else [conv, scale]
    return net(
        nodes, {"x": (1, 4, 6, 6)}, ["y"], {**values(seed, attrs.get("group", 1)), "c": operand}
    )


@given(
    st.sampled_from(["Add", "Sub", "Mul", "Div"]),
    st.sampled_from(SHAPES),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2]),
)
@settings(max_examples=tries(25))
def test_any_arithmetic_after_it(op, shape, turned, bias, groups):
    turned = turned and op != "Div"
    after = assert_rewrites(arithmetic(op, shape, turned, bias, group=groups, pads=[1] * 4), SCALE)
    assert ops(after) == ["Conv"]


@given(
    st.sampled_from(["Add", "Sub", "Mul", "Div"]),
    st.sampled_from(SHAPES),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
@settings(max_examples=tries(25))
def test_any_arithmetic_before(op, shape, turned, bias, groups, pads):
    turned = turned and op != "Div"
    attrs = {"pads": [1, 0, 1, 0]} if pads else {}
    model = arithmetic(op, shape, turned, bias, before=True, group=groups, **attrs)
    if pads and op in {"Add", "Sub"}:
        assert_untouched(model, BEFORE)
    else:
        assert ops(assert_rewrites(model, BEFORE)) == ["Conv"]


def test_a_batch_normalization_before():
    nodes = [node("BatchNormalization", "x s t m v", "h"), node("Conv", "h w b", "y")]
    after = assert_rewrites(net(nodes, {"x": (1, 4, 6, 6)}, ["y"], values()), BEFORE)
    assert ops(after) == ["Conv"]


@pytest.mark.parametrize(
    "model",
    [
        normalized(ends=("h", "y")),
        arithmetic("Mul", (4,)),
        arithmetic("Add", (4, 1, 4)),
        arithmetic("Mul", (1, 4, 4, 4)),
        arithmetic("Div", (), turned=True),
        arithmetic("Div", (4, 1, 1), turned=True, before=True),
        arithmetic("Mul", (6,), before=True),
        net(
            [node("Conv", "x w b", "h"), node("Mul", "h h", "y")],
            {"x": (1, 4, 6, 6)},
            ["y"],
            values(),
        ),
        net(
            [node("Mul", "x c", "h"), node("Conv", "h w", "y"), node("Relu", "h", "z")],
            {"x": (1, 4, 6, 6)},
            ["y", "z"],
            {**values(), "c": np.float32(2)},
        ),
        net(
            [node("Relu", "x", "h"), node("BatchNormalization", "h s t m v", "y")],
            {"x": (1, 4, 6, 6)},
            ["y"],
            values(),
        ),
    ],
)
def test_what_is_no_scale_of_a_convolution_alone_stays(model):
    assert_untouched(model, NORM, SCALE, BEFORE)


def test_half_precision_is_folded_where_statistics_have_it_too():
    half = TensorProto.FLOAT16

    def model(statistics):
        given = {n: v.astype(np.float16) for n, v in values().items()}
        given |= {n: given[n].astype(statistics) for n in "mv"}
        nodes = [node("Conv", "x w b", "h"), node("BatchNormalization", "h s t m v", "y")]
        return net(nodes, {"x": ((1, 4, 6, 6), half)}, {"y": half}, given, opset=15)

    after = assert_rewrites(model(np.float16), NORM, tolerance=1e-2)
    assert ops(after) == ["Conv"]
    assert_untouched(model(np.float32), NORM)
