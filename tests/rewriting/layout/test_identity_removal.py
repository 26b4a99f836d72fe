"""identity-removal, share-layout and merge-reshapes: what changes nothing goes away."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops
from tests.tries import tries


@pytest.mark.parametrize("before", ["Sqrt", "Log", "Reciprocal"])
def test_a_maximum_over_what_may_be_no_number_stays(before):
    """ONNX Runtime's maximum over one NaN is the lowest number."""
    for op, attrs in (("GlobalMaxPool", {}), ("MaxPool", {"kernel_shape": [1, 1]})):
        nodes = [node(before, "x", "c"), node(op, "c", "y", **attrs)]
        assert_untouched(net(nodes, {"x": (2, 3, 1, 1)}, ["y"]), "identity-removal")


def test_global_pools_of_one_element_after_a_norm():
    """The norm is proved with it."""
    nodes = [node("GlobalLpPool", "x", "c", p=3), node("GlobalAveragePool", "c", "y")]
    after = assert_rewrites(net(nodes, {"x": (2, 3, 4, 5)}, ["y"]), "identity-removal")
    assert ops(after) == ["GlobalLpPool"]


def test_a_result_of_several_is_renamed():
    """What writes the source may have other results."""
    nodes = [node("Split", "x", "a b", axis=1), node("Mul", "a one", "y")]
    model = net(nodes, {"x": (1, 4, 2, 2)}, ["y", "b"], {"one": np.float32(1)})
    after = assert_rewrites(model, "identity-removal")
    assert [(n.op_type, list(n.output)) for n in after.proto.graph.node] == [("Split", ["y", "b"])]


@pytest.mark.parametrize(
    ("last", "weights"),
    [
        (node("Mul", "x k", "y"), {"k": np.float32(0.5)}),
        (node("Sub", "k x", "y"), {"k": np.float32(0)}),
        (node("Div", "k x", "y"), {"k": np.float32(1)}),
        # a weight that is all ones now may be different after a refit, so the node stays
        (node("Mul", "x k", "y"), {"k": np.ones((1, 3, 1, 1))}),
        (node("Mul", "x k", "y"), {"k": np.ones((2, 1, 1, 1))}),
        (node("Clip", "x k", "y"), {"k": np.float32(0)}),
        (node("Transpose", "x", "y", perm=[0, 1, 3, 2]), {}),
        (node("Slice", "x k l axes steps", "y"), {"k": [9], "l": [-9], "axes": [3], "steps": [-1]}),
        (node("Concat", "x x", "y", axis=1), {}),
        (node("Sum", "x x", "y"), {}),
        (node("Cast", "x", "y", to=TensorProto.FLOAT16), {}),
        (node("Pad", "x k", "y"), {"k": [0, 0, 1, 0, 0, 0, -1, 0]}),
        (node("MaxPool", "x", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), {}),
        (node("ReduceL1", "x", "y", axes=[0]), {}),
        (node("Resize", ["x", "", "k"], "y"), {"k": np.array([1, 1, 1.1, 1], np.float32)}),
        (node("Identity", "x", "y"), {}),
        (node("Softmax", "x", "y"), {}),
    ],
    ids=lambda item: getattr(item, "op_type", ""),
)
def test_what_changes_something_stays(last, weights):
    """Also an Identity from input to output: something has to write the result."""
    if last.op_type == "Identity":
        last = node("Reshape", "x k", "y")
        weights = {"k": [1, 3, 4, 4]}
    ends = {"y": TensorProto.FLOAT16 if last.op_type == "Cast" else TensorProto.FLOAT}
    model = net([last], {"x": (1, 3, 4, 4)}, ends, weights)
    assert_untouched(model, "identity-removal")


@given(
    st.lists(
        st.sampled_from(["Reshape", "Flatten", "Squeeze", "Unsqueeze"]), min_size=1, max_size=5
    ),
    st.data(),
)
@settings(max_examples=tries(25))
def test_any_chain_of_reshapes_is_one_or_none(kinds, data):
    """Of whatever kinds and shapes."""
    shape = [data.draw(st.sampled_from([1, 2, 3])) for _ in range(4)]
    model_shape, nodes, weights, last = list(shape), [node("Relu", "x", "t")], {}, "t"
    for index, kind in enumerate(kinds):
        name, more, read = f"t{index}", {}, [last]
        if kind == "Flatten":
            more["axis"] = data.draw(st.integers(0, len(shape)))
            head = int(np.prod(shape[: more["axis"]]))
            shape = [head, int(np.prod(shape)) // head]
        else:
            if kind == "Reshape":
                shape = list(data.draw(st.permutations(shape)))
                value = shape
            elif kind == "Squeeze":
                value = [i for i, side in enumerate(shape) if side == 1]
                shape = [side for side in shape if side != 1]
            else:
                value = [data.draw(st.integers(0, len(shape)))]
                shape = [*shape[: value[0]], 1, *shape[value[0] :]]
            weights[f"k{index}"] = np.array(value, np.int64)
            read = [last, f"k{index}"]
        nodes.append(node(kind, read, name, **more))
        last = name
    nodes.append(node("Tanh", [last], "y"))
    model = net(nodes, {"x": model_shape}, ["y"], weights)
    same = shape == model_shape
    if len(kinds) > 1 or same:
        after = assert_rewrites(model, "merge-reshapes", "identity-removal")
        assert len(ops(after)) == (2 if same else 3)


def test_merging_keeps_a_reshape_that_others_read():
    """The second reads past the first; the first stays for its other reader."""
    model = net(
        [
            node("Flatten", "x", "f"),
            node("Reshape", "f to", "g"),
            node("Relu", "f", "y"),
            node("Tanh", "g", "z"),
        ],
        {"x": (2, 3, 4, 1)},
        ["y", "z"],
        {"to": [2, 4, 3]},
    )
    after = assert_rewrites(model, "merge-reshapes")
    reads = {n.op_type: n.input[0] for n in after.proto.graph.node}
    assert reads == {"Flatten": "x", "Reshape": "x", "Relu": "f", "Tanh": "g"}
    assert_untouched(after, "merge-reshapes")


def test_moves_that_differ_or_are_both_returned_stay():
    """Nothing to share."""
    model = net(
        [
            node("Flatten", "x", "f"),
            node("Reshape", "x to", "g"),
            node("Transpose", "x", "a", perm=[0, 2, 1]),
            node("Transpose", "x", "b", perm=[1, 0, 2]),
            node("Relu", "a", "y"),
            node("Relu", "b", "z"),
        ],
        {"x": (1, 1, 3)},
        ["f", "g", "y", "z"],
        {"to": [1, 3]},
    )
    assert_untouched(model, "share-layout")
