"""sink-transpose and merge-transposes: networks exported in N, H, W, C."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.boards import kinds_off
from tests.rewriting.nets import (
    assert_rewrites,
    assert_same,
    assert_untouched,
    net,
    node,
    ops,
    rewritten,
    weight,
)
from tests.tries import tries

ALL = ("identity-removal", "merge-transposes", "merge-reshapes", "share-layout", "sink-transpose")
IN, OUT = [0, 3, 1, 2], [0, 2, 3, 1]


def _conv(source, target, before, after, **more):
    """A convolution as tf2onnx writes it: transposed in, transposed out."""
    nodes = [
        node("Transpose", source, f"{target}in", perm=IN),
        node("Conv", [f"{target}in", f"w{target}"], f"{target}c", **more),
        node("Transpose", f"{target}c", target, perm=OUT),
    ]
    return nodes, {f"w{target}": weight(after, before, 3, 3)}


def test_residual_net_ends_with_one_transposition_at_each_end():
    """Conv, BiasAdd, Relu, residual Add, Concat, Pad, pool: two Transposes are left of eleven."""
    same = {"pads": [1, 1, 1, 1]}
    one, w1 = _conv("x", "a", 3, 4, **same)
    two, w2 = _conv("r", "b", 4, 4, **same)
    three, w3 = _conv("p", "c", 8, 5)
    model = net(
        [
            *one,
            node("Add", "a bias", "ab"),
            node("Relu", "ab", "r"),
            *two,
            node("Add", "r b", "s"),
            node("Concat", "s r", "t", axis=3),
            node("Pad", "t pads", "p"),
            *three,
            node("Clip", "c low high", "k"),
            node("Mul", "k six", "y"),
        ],
        {"x": (1, 8, 8, 3)},
        ["y"],
        {
            **w1,
            **w2,
            **w3,
            "bias": weight(4),
            "pads": [0, 1, 1, 0, 0, 1, 1, 0],
            "low": np.float32(0),
            "high": np.float32(6),
            "six": np.float32(1 / 6),
        },
    )
    after = assert_rewrites(model, *ALL)
    assert ops(after).count("Transpose") == 2
    assert [ops(after)[0], ops(after)[-1]] == ["Transpose", "Transpose"]
    concat = next(n for n in after.proto.graph.node if n.op_type == "Concat")
    assert concat.attribute[0].i == 1
    assert set(kinds_off(after)) <= {"SHUFFLE", "SLICE"}


def test_an_input_that_is_transposed_anyway_is_read_there():
    """The skip connection around the first layer: its other summand is the input in N, C, H, W."""
    nodes, made = _conv("x", "a", 3, 3, pads=[1, 1, 1, 1])
    model = net(
        [*nodes, node("Add", "a x", "s"), node("Relu", "s", "y")], {"x": (1, 6, 6, 3)}, ["y"], made
    )
    after = assert_rewrites(model, *ALL)
    assert ops(after) == ["Transpose", "Conv", "Add", "Relu", "Transpose"]


@pytest.mark.parametrize(
    ("last", "weights", "left"),
    [
        (node("Softmax", "t", "y", axis=-1), {}, 1),
        (node("ArgMax", "t", "y", axis=3, keepdims=0), {}, 0),
        (node("ArgMax", "t", "y", axis=1), {}, 1),
        (node("ReduceMax", "t", "y", axes=[2], keepdims=0), {}, 1),
        (node("ReduceSum", "t axes", "y"), {"axes": [1]}, 1),
        (
            node("Slice", "t first end axis step", "y"),
            {"first": [3, 0], "end": [0, 9], "axis": [2, -1], "step": [-1, 2]},
            1,
        ),
        (node("Slice", "t first end", "y"), {"first": [0, 1], "end": [1, 3]}, 1),
        (node("Split", "t", "y z", axis=3), {}, 2),
        (node("Tile", "t times", "y"), {"times": [1, 2, 1, 3]}, 1),
        (
            node("Resize", ["t", "", "scales"], "y"),
            {"scales": np.array([1.0, 2.0, 3.0, 1.0], np.float32)},
            1,
        ),
        (node("Resize", ["t", "", "", "sizes"], "y", mode="linear"), {"sizes": [1, 5, 8, 6]}, 1),
        (node("Gather", "t index", "y", axis=3), {"index": [2, 0]}, 1),
        (node("Gather", "t index", "y", axis=2), {"index": np.array(1)}, 1),
        (node("PRelu", "t slope", "y"), {"slope": weight(1, 1, 6)}, 1),
        (node("Where", "mask t zero", "y"), {"mask": np.arange(6) > 2, "zero": np.zeros(1)}, 1),
        (node("Sum", "t t k", "y"), {"k": weight(3, 4, 6)}, 1),
    ],
    ids=lambda item: getattr(item, "op_type", ""),
)
def test_axes_are_mapped(last, weights, left):
    """The operation runs on N, C, H, W; what it drops needs no transposition."""
    dtype = {"ArgMax": 7}.get(last.op_type, 1)
    model = net(
        [node("Conv", "x w", "c"), node("Transpose", "c", "t", perm=OUT), last],
        {"x": (1, 3, 3, 4)},
        dict.fromkeys(last.output, dtype),
        {"w": weight(6, 3, 1, 1), **weights},
    )
    after = assert_rewrites(model, *ALL)
    assert ops(after) == ["Conv", last.op_type, *["Transpose"] * left]


@st.composite
def _nets(draw):
    rank = draw(st.integers(2, 5))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    first = draw(st.permutations(range(rank)))
    nodes, weights = [node("Transpose", "x", "t0", perm=first)], {}
    known = ["t0"]
    sizes = {"t0": [shape[i] for i in first]}
    for index in range(1, draw(st.integers(2, 6))):
        name, source = f"t{index}", draw(st.sampled_from(known))
        kind = draw(st.sampled_from(["Relu", "Transpose", "Mul", "Add", "Softmax"]))
        size = sizes[source]
        if kind == "Transpose":
            perm = draw(st.permutations(range(rank)))
            nodes.append(node(kind, [source], name, perm=perm))
            size = [size[i] for i in perm]
        elif kind == "Mul":
            full = draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
            part = [s if k else 1 for s, k in zip(size, full, strict=True)]
            weights[f"k{index}"] = weight(*part[draw(st.integers(0, rank - 1)) :], seed=index)
            nodes.append(node(kind, [source, f"k{index}"], name))
        elif kind == "Add":
            other = draw(st.sampled_from([n for n in known if sizes[n] == size]))
            nodes.append(node(kind, [other, source], name))
        else:
            more = {"axis": draw(st.integers(-rank, rank - 1))} if kind == "Softmax" else {}
            nodes.append(node(kind, [source], name, **more))
        known.append(name)
        sizes[name] = size
    return net(nodes, {"x": shape}, known[-2:], weights)


@given(_nets())
@settings(max_examples=tries(25))
def test_any_network_is_equal_and_ends(model):
    """Branches, several readers and outputs: each step proved, and no chain of Transposes."""
    after = rewritten(model, *ALL)
    assert_same(model, after)
    made = {n.output[0]: n for n in after.proto.graph.node if n.op_type == "Transpose"}
    assert not any(n.input[0] in made for n in made.values())


@pytest.mark.parametrize(
    "nodes",
    [
        # the other summand is as it is
        [node("Transpose", "x", "t", perm=OUT), node("Add", "t z", "y")],
        # a batch normalisation of what is no longer the channels
        [node("Transpose", "x", "t", perm=OUT), node("BatchNormalization", "t s s s v", "y")],
        [node("Transpose", "x", "t", perm=OUT), node("MatMul", "t k", "y")],
        [node("Transpose", "x", "t", perm=OUT), node("Reshape", "t to", "y")],
        [node("Transpose", "x", "t", perm=OUT), node("Concat", "t z", "y", axis=1)],
    ],
)
def test_left_alone(nodes):
    """Where the operation has no form before the transposition."""
    weights = {"s": weight(4), "v": np.ones(4), "k": weight(3, 2), "to": [1, 20, 3]}
    more = {"z": (1, 4, 5, 3)}
    read = {n for item in nodes for n in item.input}
    model = net(
        nodes,
        {"x": (1, 3, 4, 5), **{k: v for k, v in more.items() if k in read}},
        ["y"],
        {k: v for k, v in weights.items() if k in read},
    )
    assert_untouched(model, "sink-transpose", "merge-transposes")
