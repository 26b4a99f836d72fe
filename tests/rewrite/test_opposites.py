"""Rewrites that move transpositions and a Resize past each other come to an end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from edgekit.placement import forecast
from edgekit.rewrite import rewrite
from edgekit.rewrite.deconvolution._resize_axes import ResizeChannelsLast
from edgekit.rewrite.layout._merge_transposes import MergeTransposes
from edgekit.rewrite.layout._sink_transpose import SinkTranspose
from edgekit.targets import get
from tests.rewrite.nets import assert_rewrites, assert_same, net, node, ops, weight

ORIN = get("jetson-agx-orin-64gb")


def resized(perm, scales, back, around):
    """Transpose, Resize, Transpose, with a convolution or nothing at both ends."""
    resize = helper.make_node(
        "Resize", ["t", "", "s"], ["u"], "resize", mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    first = node("Conv", "x w", "c") if around else node("Relu", "x", "c")
    return net(
        [first, node("Transpose", "c", "t", perm=perm), resize,
         node("Transpose", "u", "v", perm=back), node("Sigmoid", "v", "y")],
        {"x": (1, 4, 6, 8)}, ["y"],
        {**({"w": weight(4, 4, 1, 1)} if around else {}), "s": np.float32(scales)},
    )  # fmt: skip


@settings(max_examples=10, deadline=None)
@given(
    perm=st.permutations([1, 2, 3]), back=st.permutations([1, 2, 3]),
    scales=st.lists(st.sampled_from([1.0, 2.0]), min_size=3, max_size=3), around=st.booleans(),
)  # fmt: skip
def test_the_pair_comes_to_an_end_and_the_engine_too(perm, back, scales, around):
    model = resized([0, *perm], [1.0, *scales], [0, *back], around)
    after, _, notes = rewrite(
        model, ORIN, precision="fp16",
        cost=lambda network, judgement: forecast(network, judgement, ORIN),
    )  # fmt: skip
    assert notes == ()
    assert_same(model, after)


@pytest.mark.parametrize("around", [True, False])
def test_channels_last_is_undone_around_a_resize(around):
    model = resized([0, 2, 3, 1], [1, 2, 2, 1], [0, 3, 1, 2], around)
    items = (MergeTransposes(), ResizeChannelsLast(), SinkTranspose())
    assert "Transpose" not in ops(assert_rewrites(model, *items))
