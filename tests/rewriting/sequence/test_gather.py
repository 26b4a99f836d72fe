"""Gathering and scattering at constant indices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.boards import refused
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

_ORIN = "jetson-agx-orin-64gb"
_GATHERS = "gather", "gather-shaped"
_SCATTERS = ("scatter-elements",)


def gather(shape, indices, axis):
    nodes = [node("Gather", "x i", "y", axis=axis)]
    return net(nodes, {"x": shape}, ["y"], {"i": np.array(indices)})


@pytest.mark.parametrize(
    ("shape", "indices", "axis", "expected"),
    [
        ((1, 8, 4, 4), [2, 3, 4], 1, ["Slice"]),
        ((1, 3, 4, 4), [2, 1, 0], 1, ["Conv"]),
        ((1, 256, 2, 2), [*range(200, 256), *range(100)], 1, ["Slice", "Slice", "Concat"]),
        ((1, 3, 8, 4), [0, 2, 4, 6], 2, ["MaxPool"]),
        ((1, 3, 8, 4), [-3, -2], 2, ["Slice"]),
        ((1, 3, 4, 8), [5, 0, 5], -1, ["Transpose", "Conv", "Transpose"]),
    ],
)
def test_constant_indices_select_on_the_dla(shape, indices, axis, expected):
    before = gather(shape, indices, axis)
    after = assert_rewrites(before, *_GATHERS)
    assert ops(after) == expected
    assert "GATHER" in refused(before)
    assert not refused(after)


def test_an_index_that_drops_a_dimension_is_a_slice_and_a_reshape():
    after = assert_rewrites(gather((1, 8, 4, 4), 3, 1), *_GATHERS)
    assert ops(after) == ["Slice", "Reshape"]
    assert refused(after) == ["SHUFFLE"]
    # the only image of a batch
    assert ops(assert_rewrites(gather((1, 8, 4, 4), 0, 0), *_GATHERS)) == ["Reshape"]
    assert_untouched(gather((2, 8, 4, 4), 0, 0), *_GATHERS)


@settings(max_examples=tries(25))
@given(data=st.data(), shape=st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_any_axis_rank_and_indices(data, shape):
    axis = data.draw(st.integers(1, len(shape) - 1))
    size = shape[axis]
    sides = data.draw(st.lists(st.integers(1, 3), max_size=2))
    indices = data.draw(
        st.lists(
            st.integers(-size, size - 1),
            min_size=int(np.prod(sides, dtype=int)),
            max_size=int(np.prod(sides, dtype=int)),
        )
    )
    model = gather(tuple(shape), np.array(indices).reshape(sides), axis)
    assert "GATHER" not in refused(assert_rewrites(model, *_GATHERS, gone=["Gather"]))


def test_gathers_that_stay():
    # an embedding: computed indices into a table
    nodes = [node("Gather", "w x", "y")]
    table = net(nodes, {"x": ((1, 3), TensorProto.INT64)}, ["y"], {"w": weight(9, 4)})
    assert_untouched(table, *_GATHERS)
    nodes = [node("Gather", "d x", "y", axis=1)]
    inputs = {"d": (1, 4, 3, 3), "x": ((2,), TensorProto.INT64)}
    assert_untouched(net(nodes, inputs, ["y"]), *_GATHERS)
    kind = TensorProto.INT64
    nodes = [node("Gather", "x i", "y", axis=1)]
    inputs = {"x": ((1, 4, 3, 3), kind)}
    assert_untouched(net(nodes, inputs, {"y": kind}, {"i": np.array([2, 1])}), *_GATHERS)


def scatter(shape, picks, axis, opset=16, updates=None, **attrs):
    size = [*shape[:axis], len(picks), *shape[axis + 1 :]]
    line = np.array(picks).reshape([-1 if at == axis else 1 for at in range(len(shape))])
    fixed = {"i": np.broadcast_to(line, size)}
    inputs = {"x": shape, "u": tuple(size)}
    if updates is not None:
        fixed["u"] = updates
        del inputs["u"]
    nodes = [node("ScatterElements", "x i u", "y", axis=axis, **attrs)]
    return net(nodes, inputs, ["y"], fixed, opset=opset)


@settings(max_examples=tries(25))
@given(data=st.data(), shape=st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_any_scattered_axis(data, shape):
    axis = data.draw(st.integers(1, len(shape) - 1))
    every = range(shape[axis])
    picks = data.draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
    kind = data.draw(st.sampled_from(["none", "add"]))
    model = scatter(tuple(shape), picks, axis, reduction=kind)
    assert "SCATTER" not in refused(assert_rewrites(model, *_SCATTERS, gone=["ScatterElements"]))


def test_scatters_that_stay():
    assert_untouched(scatter((1, 8, 4, 4), [2, 2], 1, reduction="add"), *_SCATTERS)
    assert_untouched(scatter((1, 8, 4, 4), [2, 3], 1, reduction="mul"), *_SCATTERS)
    assert_untouched(scatter((4, 8, 4, 4), [2], 0), *_SCATTERS)
    nodes = [node("ScatterElements", "x i u", "y", axis=1)]
    computed = {"x": (1, 2, 2, 2), "u": (1, 1, 2, 2), "i": ((1, 1, 2, 2), TensorProto.INT64)}
    assert_untouched(net(nodes, computed, ["y"]), *_SCATTERS)


def test_the_old_scatter_is_raised_and_rewritten():
    indices = np.broadcast_to(np.array([3, 1]).reshape(1, 2, 1, 1), (1, 2, 2, 2))
    nodes = [node("Scatter", "x i u", "y", axis=1)]
    inputs = {"x": (1, 4, 2, 2), "u": (1, 2, 2, 2)}
    before = net(nodes, inputs, ["y"], {"i": indices}, opset=10)
    after, applied, notes, *_ = rewrite(before, get(_ORIN), precision="fp16")
    assert [item.rewrite for item in applied] == ["raise-opset", "scatter-elements"]
    assert not notes
    assert not refused(after)
    assert_same(before, after)
