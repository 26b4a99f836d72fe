"""Blocks between space and depth: SpaceToDepth, DepthToSpace and their reshape forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.rewriting.boards import ORIN, XAVIER, refused
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops
from tests.tries import tries


def reshaped(shape, middle, perm, result):
    nodes = [
        node("Reshape", "x first", "a"),
        node("Transpose", "a", "b", perm=list(perm)),
        node("Reshape", "b last", "y"),
    ]
    fixed = {"first": np.array(middle), "last": np.array(result)}
    return net(nodes, {"x": shape}, ["y"], fixed)


def attribute(proto, name):
    return next((list(a.ints) or a.i for a in proto.attribute if a.name == name), None)


@pytest.mark.parametrize("mode", [{"mode": "DCR"}, {"mode": "CRD"}, {}])
def test_depth_to_space_is_a_deconvolution(mode):
    nodes = [node("DepthToSpace", "x", "y", blocksize=2, **mode)]
    before = net(nodes, {"x": (2, 12, 5, 4)}, ["y"])
    after = assert_rewrites(before, "depth-to-space")
    assert ops(after) == ["ConvTranspose"]
    assert refused(before)
    assert all(not refused(after, board) for board in (ORIN, XAVIER))


def test_pixel_unshuffle_is_depthwise():
    # as PyTorch exports it: channels outside, the block's rows and columns inside
    before = reshaped((1, 4, 6, 6), (1, 4, 3, 2, 3, 2), (0, 1, 3, 5, 2, 4), (1, 16, 3, 3))
    after = assert_rewrites(before, "space-to-depth")
    (made,) = after.proto.graph.node
    assert attribute(made, "group") == 4


def test_a_block_beyond_the_stride_takes_two_steps():
    before = net([node("SpaceToDepth", "x", "y", blocksize=12)], {"x": (1, 2, 24, 24)}, ["y"])
    after = assert_rewrites(before, "space-to-depth")
    assert ops(after) == ["Conv", "Conv"]
    assert not refused(after)
    # 11 has no factors within the stride
    prime = net([node("SpaceToDepth", "x", "y", blocksize=11)], {"x": (1, 1, 22, 11)}, ["y"])
    assert_untouched(prime, "space-to-depth")


def test_large_blocks_to_space_go_by_rows_and_columns():
    nodes = [node("DepthToSpace", "x", "y", blocksize=24)]
    before = net(nodes, {"x": (1, 576, 1, 2)}, ["y"])
    after = assert_rewrites(before, "depth-to-space")
    assert ops(after) == ["ConvTranspose"] * 2
    assert not refused(after)


@settings(max_examples=tries(25))
@given(
    batch=st.integers(1, 2),
    channels=st.integers(1, 3),
    rows=st.integers(1, 3),
    columns=st.integers(1, 3),
    sides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    order=st.permutations([1, 3, 5]),
)
def test_blocks_of_any_shape_and_order(batch, channels, rows, columns, sides, order):
    height, width = sides
    shape = (batch, channels, height * rows, width * columns)
    middle = (batch, channels, height, rows, width, columns)
    result = (batch, channels * rows * columns, height, width)
    there = reshaped(shape, middle, (0, *order, 2, 4), result)
    # the way back: where each dimension of `middle` stands in the reordered one
    turned = [0, *order, 2, 4]
    back = [turned.index(dim) for dim in range(6)]
    blocks = tuple(middle[dim] for dim in turned)
    here = reshaped(result, blocks, back, shape)
    moves = (rows > 1 or columns > 1) and (height > 1 or width > 1)
    if moves and (rows == 1 or height > 1) and (columns == 1 or width > 1):
        assert set(ops(assert_rewrites(there, "space-to-depth"))) == {"Conv"}
        assert set(ops(assert_rewrites(here, "depth-to-space"))) == {"ConvTranspose"}


@pytest.mark.parametrize(
    ("middle", "perm", "result"),
    [
        ((1, 4, 3, 2, 3, 2), (0, 1, 3, 5, 4, 2), (1, 16, 3, 3)),  # H and W exchanged
        ((1, 4, 2, 3, 2, 3), (0, 1, 2, 4, 3, 5), (1, 16, 3, 3)),  # parts of the image, not pixels
        ((1, 4, 3, 2, 3, 2), (0, 2, 4, 1, 3, 5), (9, 4, 2, 2)),  # windows become the batch
        ((1, 4, 36, 1), (0, 2, 1, 3), (1, 36, 2, 2)),  # H and W become channels
    ],
)
def test_other_moves_stay(middle, perm, result):
    before = reshaped((1, 4, 6, 6), middle, perm, result)
    assert_untouched(before, "space-to-depth", "depth-to-space")


def test_whole_numbers_and_results_in_between_stay():
    nodes = [node("SpaceToDepth", "x", "y", blocksize=2)]
    whole = net(nodes, {"x": ((1, 1, 4, 4), TensorProto.INT64)}, {"y": TensorProto.INT64})
    assert_untouched(whole, "space-to-depth")
    nodes = [
        node("Reshape", "x first", "a"),
        node("Transpose", "a", "b", perm=[0, 1, 3, 5, 2, 4]),
        node("Reshape", "b last", "y"),
        node("Relu", "a", "z"),
    ]
    fixed = {"first": np.array((1, 1, 2, 2, 2, 2)), "last": np.array((1, 4, 2, 2))}
    assert_untouched(net(nodes, {"x": (1, 1, 4, 4)}, ["y", "z"], fixed), "space-to-depth")


def test_several_transpositions_make_one_move():
    # the reorganisation of YOLOv2 as its PyTorch versions write it
    nodes = [
        node("Reshape", "x s0", "a"),
        node("Transpose", "a", "b", perm=[0, 1, 2, 4, 3, 5]),
        node("Reshape", "b s1", "c"),
        node("Transpose", "c", "d", perm=[0, 1, 3, 2]),
        node("Reshape", "d s2", "e"),
        node("Transpose", "e", "f", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "f s3", "y"),
    ]
    shapes = [(1, 3, 4, 2, 5, 2), (1, 3, 20, 4), (1, 3, 4, 4, 5), (1, 12, 4, 5)]
    fixed = {f"s{index}": np.array(shape) for index, shape in enumerate(shapes)}
    after = assert_rewrites(net(nodes, {"x": (1, 3, 8, 10)}, ["y"], fixed), "space-to-depth")
    assert ops(after) == ["Conv"]
    assert not refused(after)
    # where another reads the middle, what stands behind it stays
    seen = net(nodes, {"x": (1, 3, 8, 10)}, ["y", "e"], fixed)
    assert_untouched(seen, "space-to-depth", "depth-to-space")


@settings(max_examples=tries(20))
@given(sizes=st.tuples(*[st.integers(1, 3)] * 4), data=st.data())
def test_moves_through_channels_in_two_steps(sizes, data):
    one, two = (data.draw(st.permutations(range(1, 4))) for _ in range(2))
    a, b, c, side = sizes
    channels = a * b * c
    inner = (a, b, c)
    turned = tuple(inner[axis - 1] for axis in one)
    nodes = [
        node("Reshape", "x s0", "p"),
        node("Transpose", "p", "q", perm=[0, *one, 4, 5]),
        node("Reshape", "q s1", "r"),
        node("Transpose", "r", "s", perm=[0, *two, 4, 5]),
        node("Reshape", "s s2", "y"),
    ]
    regrouped = (turned[0], turned[1] * turned[2], 1)
    fixed = {
        "s0": np.array((2, *inner, side, 2)),
        "s1": np.array((2, *regrouped, side, 2)),
        "s2": np.array((2, channels, side, 2)),
    }
    model = net(nodes, {"x": (2, channels, side, 2)}, ["y"], fixed)
    moved = np.arange(channels).reshape(inner).transpose([d - 1 for d in one])
    moved = moved.reshape(regrouped).transpose([d - 1 for d in two]).ravel()
    if (moved == np.arange(channels)).all():
        return
    assert "Transpose" not in ops(assert_rewrites(model, "channel-shuffle"))
