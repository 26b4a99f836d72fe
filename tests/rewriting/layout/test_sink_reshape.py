"""sink-reshape: reshapes from 4-D move behind what reads them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import kinds_off
from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries

ALL = ("identity-removal", "merge-reshapes", "sink-reshape")


def _conv(source, target, channels, made=None):
    made = made or channels
    return node("Conv", [source, f"w{target}"], target), {
        f"w{target}": weight(made, channels, 1, 1)
    }


def _after_conv(nodes, low, returned, weights=None, shape=(1, 6, 1, 1), **more):
    """Conv, Reshape to ``low``, ``nodes`` from "f" on."""
    conv, made = _conv("x", "c", shape[1])
    given = [conv, node("Reshape", "c to", "f"), *nodes]
    return net(
        given, {"x": shape, **more}, returned, {**made, "to": np.array(low), **(weights or {})}
    )


def test_concat_of_flattened_branches():
    """torch.cat of flattened pools runs along the channels of the 4-D tensors."""
    first, made = _conv("x", "c", 3, 5)
    second, more = _conv("x", "d", 3, 2)
    model = net(
        [
            first,
            second,
            node("Flatten", "c", "f"),
            node("Flatten", "d", "g"),
            node("Concat", "f g f", "s", axis=-1),
            node("Relu", "s", "y"),
        ],
        {"x": (1, 3, 2, 3)},
        ["y"],
        {**made, **more},
    )
    after = assert_rewrites(model, *ALL, gone=["Flatten"])
    assert ops(after)[-3:] == ["Concat", "Relu", "Reshape"]
    assert kinds_off(after) == ["SHUFFLE"]


def test_gate_over_the_length():
    """A 1-D gate: the factor of another shape loses its reshape, too."""
    conv, made = _conv("x", "c", 6)
    model = net(
        [
            conv,
            node("AveragePool", "c", "p", kernel_shape=[5, 1]),
            node("Squeeze", "p last", "q"),
            node("Squeeze", "c last", "d"),
            node("Sigmoid", "q", "g"),
            node("Mul", "g d", "y"),
        ],
        {"x": (1, 6, 5, 1)},
        ["y"],
        {**made, "last": [3]},
    )
    after = assert_rewrites(model, *ALL, gone=["Squeeze"])
    assert ops(after) == ["Conv", "AveragePool", "Sigmoid", "Mul", "Reshape"]


@pytest.mark.parametrize(
    ("last", "weights"),
    [
        (node("ReduceMean", "f", "y", axes=[2], keepdims=0), {}),
        (node("ReduceSum", "f axes", "y", keepdims=1), {"axes": [-1]}),
        (node("Transpose", "f", "y", perm=[0, 2, 1]), {}),
        (node("Slice", "f first end axis", "y"), {"first": [1], "end": [5], "axis": [1]}),
        (node("Pad", "f pads", "y"), {"pads": [0, 1, 0, 0, 2, 0]}),
        (node("Softmax", "f", "y", axis=1), {}),
        (node("Clip", "f low", "y"), {"low": np.float32(0.1)}),
        (node("PRelu", "f slope", "y"), {"slope": weight(6, 1)}),
    ],
    ids=lambda item: getattr(item, "op_type", ""),
)
def test_operations_on_flattened_rows(last, weights):
    """What reads [N, C, H*W] works on [N, C, H, W]."""
    model = _after_conv([last], [2, 6, 12], ["y"], weights, shape=(2, 6, 3, 4))
    after = assert_rewrites(model, *ALL)
    assert ops(after) == ["Conv", last.op_type, "Reshape"]


def test_split_gives_each_part_its_reshape():
    """Every result of a Split is reshaped."""
    model = _after_conv(
        [node("Split", "f sizes", "p q", axis=1), node("Mul", "p q", "y")],
        [1, 6, 4],
        ["y", "q"],
        {"sizes": [3, 3]},
        shape=(1, 6, 4, 1),
    )
    after = assert_rewrites(model, *ALL)
    assert sorted(ops(after)) == ["Conv", "Mul", "Reshape", "Reshape", "Split"]


_UNARY = st.sampled_from(["Relu", "Sigmoid", "Tanh", "HardSigmoid", "Neg", "Abs", "LeakyRelu"])
_BINARY = st.sampled_from(["Add", "Sub", "Mul", "Max", "Min"])


@st.composite
def _chains(draw):
    sides = [draw(st.integers(1, 4)) for _ in range(4)]
    rank = draw(st.sampled_from([1, 2, 3, 5, 6]))
    low = {
        1: [-1],
        2: [sides[0], -1],
        3: [*sides[:2], -1],
        5: [*sides[:2], 1, *sides[2:]],
        6: [1, *sides, 1],
    }[rank]
    total = int(np.prod(sides))
    low = [total // max(1, -int(np.prod(low))) if s == -1 else s for s in low]
    nodes, weights, last = [], {}, "f"
    for index in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            nodes.append(node(draw(_UNARY), [last], f"t{index}"))
        else:
            axis = draw(st.integers(-1, len(low) - 1))
            shape = [s if i == axis else 1 for i, s in enumerate(low)] if axis >= 0 else low
            shape = shape[draw(st.integers(0, max(axis, 0))) :]
            weights[f"k{index}"] = weight(*shape, seed=index)
            sides_ = [last, f"k{index}"]
            order = draw(st.permutations(sides_))
            nodes.append(node(draw(_BINARY), order, f"t{index}"))
        last = f"t{index}"
    if draw(st.booleans()) and len(low) > 1:
        nodes.append(node("Softmax", [last], "z", axis=draw(st.integers(-len(low), len(low) - 1))))
        last = "z"
    return sides, low, nodes, weights, last


@given(_chains())
@settings(max_examples=tries(25))
def test_any_chain_is_equal_and_ends(chain):
    """Whatever the shapes: each step proved, and element-wise operations end in 4-D."""
    sides, low, nodes, weights, last = chain
    model = net(
        [node("Relu", "x", "c"), node("Reshape", "c to", "f"), *nodes],
        {"x": sides},
        [last],
        {**weights, "to": low},
    )
    after = assert_rewrites(model, *ALL)
    first = next(n for n in after.proto.graph.node if n.op_type not in {"Reshape"})
    assert first.input[0] == "x"
    unary = [n for n in nodes if len(n.input) == 1 and n.op_type != "Softmax"]
    if len(unary) == len(nodes):
        assert ops(after)[-1] == "Reshape"


@pytest.mark.parametrize(
    ("nodes", "low", "weights"),
    [
        # a part of a merged dimension
        ([node("Add", "f k", "y")], [1, 2, 3, 4], {"k": weight(1, 2, 3, 1)}),
        ([node("Softmax", "f", "y")], [1, 24], {}),
        ([node("Slice", "f one two axis", "y")], [1, 24], {"one": [0], "two": [9], "axis": [1]}),
        ([node("ReduceMean", "f", "y", axes=[1])], [1, 3, 2, 4, 1], {}),
        ([node("MatMul", "f k", "y")], [1, 24], {"k": weight(24, 2)}),
        ([node("Transpose", "f", "y", perm=[0, 2, 1, 3, 4])], [1, 2, 3, 2, 2], {}),
    ],
)
def test_left_alone(nodes, low, weights):
    """Where the operation on N, C, H, W is another one, or the reshape is from 4-D to 4-D."""
    assert_untouched(_after_conv(nodes, low, ["y"], weights, shape=(1, 6, 2, 2)), "sink-reshape")


def test_a_reshape_between_lower_ranks_is_left_alone():
    """Nothing is 4-D there."""
    model = net(
        [node("Reshape", "x to", "f"), node("Relu", "f", "y")],
        {"x": (2, 3, 4)},
        ["y"],
        {"to": [2, 12]},
    )
    assert_untouched(model, "sink-reshape")
