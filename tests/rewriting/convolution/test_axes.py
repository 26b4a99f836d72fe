"""Convolutions of one and of three axes as those of two."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import refused
from tests.rewriting.convolution.refits import assert_refits
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries

ONE, THREE = "conv-1d", "conv-3d"


def conv(shape, weights, bias=True, seed=0, **attrs):
    values = {"w": weight(*weights, seed=seed)}
    if bias:
        values["b"] = weight(weights[0], seed=seed + 10)
    read = "x w b" if bias else "x w"
    return net([node("Conv", read, "y", name="conv", **attrs)], {"x": shape}, ["y"], values)


def test_a_sequence_is_an_image_of_width_one():
    after = assert_rewrites(conv((2, 6, 20), (8, 6, 5), pads=[2, 2], strides=[2]), ONE)
    assert [n.name for n in after.proto.graph.node] == ["conv:image", "conv", "conv:sequence"]
    assert refused(after) == ["SHUFFLE", "SHUFFLE"]


@given(
    st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.tuples(*[st.integers(0, 3)] * 2),
    st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]), st.booleans(),
)  # fmt: skip
@settings(max_examples=tries(25))
def test_any_sequence(kernel, stride, dilation, pads, auto, grouped):
    attrs = {"strides": [stride], "dilations": [dilation], "group": 2 if grouped else 1}
    if auto == "NOTSET":
        attrs["pads"] = list(pads)
    else:
        attrs |= {"auto_pad": auto, "dilations": [1]}
    weights = (4, 2 if grouped else 4, kernel)
    assert_rewrites(conv((1, 4, 17), weights, bias=not grouped, **attrs), ONE)


@given(st.sampled_from(["depth", "front", "back"]), st.integers(1, 4), st.integers(1, 3),
       st.integers(0, 2), st.integers(1, 2))  # fmt: skip
@settings(max_examples=tries(20))
def test_volumes_that_are_images_in_effect(kind, depth, kernel, pad, stride):
    pad = min(pad, kernel - 1)
    if kind == "depth":
        sides, pads, strides = (depth, kernel, 2), [0, pad, 0], [2, stride, 1]
    elif kind == "front":
        sides, pads, strides = (1, 1, kernel), [0, 0, pad], [1, 1, stride]
    else:
        sides, pads, strides = (kernel, 1, 1), [pad, 0, 0], [stride, 1, 1]
    shape = (2, 4, depth if kind == "depth" else max(depth, kernel), 5, 6)
    model = conv(shape, (6, 2, *sides), group=2, pads=pads * 2, strides=strides)
    after = assert_rewrites(model, THREE)
    assert ops(after) == ["Reshape", "Conv", "Reshape"]
    assert set(refused(after)) <= {"SHUFFLE"}


@pytest.mark.parametrize(
    ("weights", "attrs"),
    [
        ((4, 3, 3, 3, 3), {}),
        ((4, 3, 1, 3, 3), {}),
        ((4, 3, 4, 3, 3), {"pads": [1, 0, 0, 0, 0, 0]}),
        ((4, 3, 1, 1, 3), {"strides": [2, 1, 1]}),
        ((4, 3, 3, 1, 1), {"pads": [0, 1, 0, 0, 1, 0]}),
    ],
)
def test_volumes_that_are_none_stay(weights, attrs):
    assert_untouched(conv((1, 3, 4, 6, 6), weights, **attrs), THREE, ONE)


def test_images_and_computed_weights_stay():
    assert_untouched(conv((1, 3, 6, 6), (4, 3, 3, 3)), ONE, THREE)
    computed = net([node("Conv", "x v", "y")], {"x": (1, 3, 8), "v": (4, 3, 3)}, ["y"])
    assert_untouched(computed, ONE)


def test_weights_are_derived():
    assert_refits(lambda seed: conv((1, 6, 20), (8, 6, 5), seed=seed), ONE)
    assert_refits(lambda seed: conv((1, 3, 2, 6, 6), (4, 3, 2, 3, 3), seed=seed), THREE)
