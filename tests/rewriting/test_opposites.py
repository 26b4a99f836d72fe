"""Rewrites that move transpositions and a Resize past each other come to an end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from edgekit.placement.forecast import forecast
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.nets import (
    assert_rewrites,
    assert_same,
    assert_untouched,
    net,
    node,
    ops,
    weight,
)
from tests.tries import tries

ORIN = get("jetson-agx-orin-64gb")


def resized(perm, scales, back, around):
    """Transpose, Resize, Transpose, with a convolution or nothing at both ends."""
    resize = helper.make_node(
        "Resize",
        ["t", "", "s"],
        ["u"],
        "resize",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    first = node("Conv", "x w", "c") if around else node("Relu", "x", "c")
    return net(
        [
            first,
            node("Transpose", "c", "t", perm=perm),
            resize,
            node("Transpose", "u", "v", perm=back),
            node("Sigmoid", "v", "y"),
        ],
        {"x": (1, 4, 6, 8)},
        ["y"],
        {**({"w": weight(4, 4, 1, 1)} if around else {}), "s": np.float32(scales)},
    )


@pytest.mark.whole
@settings(max_examples=tries(10))
@given(
    perm=st.permutations([1, 2, 3]),
    back=st.permutations([1, 2, 3]),
    scales=st.lists(st.sampled_from([1.0, 2.0]), min_size=3, max_size=3),
    around=st.booleans(),
)
def test_the_pair_comes_to_an_end_and_the_engine_too(perm, back, scales, around):
    model = resized([0, *perm], [1.0, *scales], [0, *back], around)
    after, _, notes, *_ = rewrite(
        model,
        ORIN,
        precision="fp16",
        cost=lambda network, judgement: forecast(network, judgement, ORIN),
    )
    assert notes == ()
    assert_same(model, after)


def sized(mode, sizes=(), scales=(), how="half_pixel", shape=(), before=()):
    """A Resize with or without a Transpose before it, and a Relu behind it."""
    read = ["t", "", "s"] if scales else ["t", "", "", "s"]
    resize = helper.make_node(
        "Resize",
        read,
        ["u"],
        "resize",
        mode=mode,
        coordinate_transformation_mode=how,
        nearest_mode="floor" if mode == "nearest" else None,
    )
    first = node("Transpose", "x", "t", perm=list(before)) if before else node("Relu", "x", "t")
    value = np.float32(scales) if scales else np.int64(sizes)
    return net([first, resize, node("Relu", "u", "y")], {"x": shape}, ["y"], {"s": value})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("perm", [(0, 3, 1, 2), (0, 2, 3, 1), (0, 1, 3, 2), (0, 2, 1, 3)])
def test_transpositions_before_a_resize_come_to_an_end(mode, perm):
    model = sized(mode, scales=(1, 1, 2, 2), shape=(1, 4, 6, 8), before=perm)
    after, _, notes, *_ = rewrite(
        model,
        ORIN,
        precision="fp16",
        cost=lambda network, judgement: forecast(network, judgement, ORIN),
    )
    assert not [text for text in notes if "differs" in text or "please report" in text]
    assert_same(model, after)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_no_resize_comes_to_axes_that_onnx_runtime_does_not_resize(mode):
    """Height and width of what the Transpose gives are not height and width before it."""
    how = "half_pixel" if mode == "cubic" else "half_pixel_symmetric"
    model = sized(mode, sizes=(1, 8, 2, 32), how=how, shape=(1, 16, 8, 1), before=(0, 2, 3, 1))
    assert_untouched(model, "sink-transpose")


def test_a_scale_that_leaves_the_size_is_one_too():
    model = sized("linear", scales=(1, 1, 1.02, 1), shape=(1, 4, 6, 8), before=(0, 2, 1, 3))
    assert_untouched(model, "sink-transpose")
    resized = sized("linear", scales=(1, 1, 1.02, 1), shape=(1, 4, 6, 8), before=(0, 1, 3, 2))
    assert ops(assert_rewrites(resized, "sink-transpose")) == ["Resize", "Relu", "Transpose"]
