"""Slices with steps, Focus, and slices of other ranks."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.rewriting.boards import refused
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops
from tests.tries import tries

_ALL = ("strided-slice", "slice-channels")
_FAR = 2**31 - 1
INT64 = TensorProto.INT64


def slices(*spans, source="x", output="y"):
    """A Slice of (start, end, axis, step) and its constants."""
    names = [f"{output}_{part}" for part in ("starts", "ends", "axes", "steps")]
    fixed = dict(zip(names, map(np.array, zip(*spans, strict=True)), strict=True))
    return node("Slice", [source, *names], [output]), fixed


def sliced(shape, *spans):
    item, fixed = slices(*spans)
    return net([item], {"x": shape}, ["y"], fixed)


def test_large_steps_take_several_poolings():
    after = assert_rewrites(sliced((1, 1, 70, 5), (0, _FAR, 2, 32)), *_ALL)
    assert_untouched(sliced((1, 1, 70, 5), (0, _FAR, 2, 19)), *_ALL)
    assert ops(after) == ["MaxPool", "MaxPool"]
    assert not refused(after)


@settings(max_examples=tries(25))
@given(data=st.data(), batch=st.integers(1, 2))
def test_any_slice_that_keeps_the_batch(data, batch):
    shape, spans, steps = [batch], [], []
    for axis in (1, 2, 3):
        size = data.draw(st.integers(1, 7))
        step = data.draw(st.sampled_from([-2, -1, 1, 2, 3] if axis == 1 else [1, 2, 3]))
        start = data.draw(st.integers(0, size - 1))
        count = data.draw(
            st.integers(1, (size - 1 - start if step > 0 else start) // abs(step) + 1)
        )
        end = start + count * step
        spans.append((start, end if end >= 0 else -_FAR, axis, step))
        steps.append(step if count > 1 else 1)
        shape.append(size)
    model = sliced(tuple(shape), *spans)
    if steps == [1, 1, 1]:
        assert_untouched(model, *_ALL)
    else:
        assert not refused(assert_rewrites(model, *_ALL))


def test_slices_that_stay():
    assert_untouched(sliced((1, 3, 8, 8), (1, 5, 2, 1)), *_ALL)
    assert_untouched(sliced((4, 3, 8, 8), (0, _FAR, 0, 2), (0, _FAR, 2, 2)), *_ALL)
    item, fixed = slices((0, _FAR, 2, 2))
    whole = net([item], {"x": ((1, 3, 8, 8), INT64)}, {"y": INT64}, fixed)
    assert_untouched(whole, *_ALL)


def focus(shape=(1, 3, 8, 8), step=2, places=((0, 0), (1, 0), (0, 1), (1, 1)), shared=False):
    """As PyTorch exports it: rows first, then columns, each Slice by itself (or rows shared)."""
    nodes, fixed, rows = [], {}, {}
    for row, column in places:
        name = f"r{row}" if shared else f"r{row}{column}"
        if name not in rows:
            item, more = slices((row, _FAR, 2, step), output=name)
            nodes.append(item)
            fixed |= more
            rows[name] = True
        item, more = slices((column, _FAR, 3, step), source=name, output=f"p{row}{column}")
        nodes.append(item)
        fixed |= more
    parts = [f"p{row}{column}" for row, column in places]
    return [*nodes, node("Concat", parts, ["y"], axis=1)], fixed, {"x": shape}


@settings(max_examples=tries(20))
@given(
    step=st.integers(2, 4),
    data=st.data(),
    channels=st.integers(1, 3),
    sides=st.tuples(st.integers(2, 3), st.integers(2, 3)),
)
def test_any_places_of_the_block(step, data, channels, sides):
    place = st.tuples(st.integers(0, step - 1), st.integers(0, step - 1))
    places = data.draw(st.lists(place, min_size=2, max_size=5, unique=True))
    shape = (1, channels, sides[0] * step, sides[1] * step)
    nodes, fixed, inputs = focus(shape, step, places)
    after = assert_rewrites(net(nodes, inputs, ["y"], fixed), "focus", *_ALL)
    assert ops(after) == ["Conv"]


def test_slices_that_others_read_or_that_differ_stay():
    nodes, fixed, inputs = focus()
    returned = net(nodes, inputs, ["y", "r00"], fixed)
    assert_untouched(returned, "focus")
    # parts of two tensors
    item, more = slices((0, _FAR, 2, 2), (0, _FAR, 3, 2), source="z", output="q")
    nodes = [*nodes[:-1], item, node("Concat", ["p00", "q"], ["y"], axis=1)]
    used = {name for one in nodes for name in one.input}
    fixed = {name: value for name, value in (fixed | more).items() if name in used}
    both = net(nodes, inputs | {"z": (1, 3, 8, 8)}, ["y"], fixed)
    assert_untouched(both, "focus")


def test_slices_without_steps_stay():
    nodes, fixed, inputs = focus(step=1, places=((0, 0), (0, 0)), shared=True)
    parts = [item for item in nodes if item.op_type == "Slice"][:2]
    model = net(
        [*parts, node("Concat", ["p00", "p00"], ["y"], axis=1)],
        inputs,
        ["y"],
        {k: v for k, v in fixed.items() if any(k in p.input for p in parts)},
    )
    assert_untouched(model, "focus")


@settings(max_examples=tries(20))
@given(shape=st.lists(st.integers(2, 5), min_size=2, max_size=6), data=st.data())
def test_slices_of_other_ranks_are_made_on_four_dimensions(shape, data):
    assume(len(shape) != 4)
    axis = data.draw(st.integers(1, len(shape) - 1))
    start = data.draw(st.integers(0, shape[axis] - 1))
    end = data.draw(st.integers(start + 1, shape[axis]))
    assume((start, end) != (0, shape[axis]))
    model = sliced(tuple(shape), (start, end, axis, 1))
    after = assert_rewrites(model, "slice-4d")
    assert ops(after) == ["Reshape", "Slice", "Reshape"]
    assert "SLICE" not in refused(after)


def test_splits_of_other_ranks_are_made_on_four_dimensions():
    nodes = [node("Split", "x sizes", "a b", axis=-2)]
    model = net(nodes, {"x": (2, 6, 5)}, ["a", "b"], {"sizes": np.array([4, 2])})
    after = assert_rewrites(model, "split-4d")
    assert sorted(ops(after)) == ["Reshape", "Reshape", "Reshape", "Split"]
    assert refused(after) == ["SHUFFLE"] * 3
    # along the batch, and what has four dimensions already
    nodes = [node("Split", "x", "a b", axis=0)]
    assert_untouched(net(nodes, {"x": (2, 6, 5)}, ["a", "b"]), "split-4d")
    nodes = [node("Split", "x", "a b", axis=1)]
    assert_untouched(net(nodes, {"x": (2, 6, 5, 5)}, ["a", "b"]), "split-4d")
    assert_untouched(sliced((1, 3, 8, 8), (1, 5, 2, 1)), "slice-4d")
    assert_untouched(sliced((4, 3, 8), (1, 3, 0, 1)), "slice-4d")
