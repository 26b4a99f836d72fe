"""The ends of real networks, by the engine: what is off the DLA is one reshape at the border."""

import numpy as np
import pytest

from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.layout.boards import ORIN, XAVIER, kinds_off
from tests.rewriting.nets import assert_same, net, node, ops, weight

IN, OUT = [0, 3, 1, 2], [0, 2, 3, 1]


def _engine(model, board=ORIN):
    after, applied, notes, *_ = rewrite(model, get(board), precision="fp16")
    assert notes == ()
    assert_same(model, after)
    return after, [item.rewrite for item in applied]


def _gemm(source, target, rows, columns):
    made = {f"w{target}": weight(columns, rows), f"b{target}": weight(columns)}
    return node("Gemm", [source, *made], target, transB=1), made


@pytest.mark.parametrize(("board", "left"), [(ORIN, ["SHUFFLE"]), (XAVIER, ["SOFTMAX", "SHUFFLE"])])
def test_vgg(board, left):
    """Flatten, three Gemms with Relu between, Softmax."""
    one, w1 = _gemm("f", "a", 6 * 49, 16)
    two, w2 = _gemm("ar", "d", 16, 12)
    three, w3 = _gemm("dr", "e", 12, 10)
    model = net(
        [
            node("MaxPool", "x", "p", kernel_shape=[2, 2], strides=[2, 2]),
            node("Flatten", "p", "f"),
            one,
            node("Relu", "a", "ar"),
            two,
            node("Relu", "d", "dr"),
            three,
            node("Softmax", "e", "y"),
        ],
        {"x": (1, 6, 14, 14)},
        ["y"],
        {**w1, **w2, **w3},
    )
    after, _ = _engine(model, board)
    expected = ["MaxPool", "Conv", "Relu", "Conv", "Relu", "Conv", "Softmax", "Reshape"]
    assert ops(after) == expected
    assert kinds_off(after, board) == left


def test_resnet_and_mobilenet():
    """A global average, dimensions dropped, Gemm."""
    gemm, made = _gemm("f", "y", 8, 10)
    for pool in (
        [node("GlobalAveragePool", "r", "p"), node("Flatten", "p", "f")],
        [node("ReduceMean", "r", "f", axes=[2, 3], keepdims=0)],
    ):
        model = net(
            [node("Conv", "x w", "c"), node("Relu", "c", "r"), *pool, gemm],
            {"x": (1, 3, 7, 7)},
            ["y"],
            {**made, "w": weight(8, 3, 1, 1)},
        )
        after, _ = _engine(model)
        assert kinds_off(after) == ["SHUFFLE"]


@pytest.mark.parametrize("flat", [False, True])
def test_squeezenet(flat):
    """Softmax of the pooled maps: nothing off the DLA, or the reshape to a 2-D result."""
    nodes = [node("Conv", "x w", "c"), node("GlobalAveragePool", "c", "p")]
    nodes += (
        [node("Flatten", "p", "f"), node("Softmax", "f", "y")]
        if flat
        else [node("Softmax", "p", "y", axis=1)]
    )
    model = net(nodes, {"x": (1, 3, 6, 6)}, ["y"], {"w": weight(10, 3, 1, 1)})
    after, _ = _engine(model)
    assert kinds_off(after) == (["SHUFFLE"] if flat else [])
    assert ops(after)[2] == "Softmax"


@pytest.mark.parametrize("board", [ORIN, XAVIER])
def test_squeeze_and_excitation(board):
    """Two Gemms between Flatten and Reshape: no reshape is left."""
    one, w1 = _gemm("f", "a", 8, 4)
    two, w2 = _gemm("ar", "d", 4, 8)
    model = net(
        [
            node("Conv", "x w", "c"),
            node("GlobalAveragePool", "c", "p"),
            node("Flatten", "p", "f"),
            one,
            node("Relu", "a", "ar"),
            two,
            node("Sigmoid", "d", "s"),
            node("Reshape", "s up", "g"),
            node("Mul", "c g", "y"),
        ],
        {"x": (1, 3, 6, 6)},
        ["y"],
        {**w1, **w2, "w": weight(8, 3, 1, 1), "up": [1, 8, 1, 1]},
    )
    after, _ = _engine(model, board)
    assert kinds_off(after, board) == []


@pytest.mark.parametrize("board", [ORIN, XAVIER])
def test_channels_last(board):
    """As TensorFlow's exporters write it: one transposition at the input, none inside."""
    one, w1 = _gemm("f", "d", 64, 16)
    two, w2 = _gemm("dr", "y", 16, 10)
    same = {"pads": [1, 1, 1, 1]}
    model = net(
        [
            node("Transpose", "x", "xi", perm=IN),
            node("Conv", "xi w1", "c1", **same),
            node("Transpose", "c1", "c1o", perm=OUT),
            node("Add", "c1o b1", "a1"),
            node("Relu", "a1", "r1"),
            node("Transpose", "r1", "r1i", perm=IN),
            node("Conv", "r1i w2", "c2", **same),
            node("Transpose", "c2", "c2o", perm=OUT),
            node("Add", "c2o r1", "s"),
            node("Transpose", "s", "si", perm=IN),
            node("MaxPool", "si", "p", kernel_shape=[2, 2], strides=[2, 2]),
            node("Transpose", "p", "po", perm=OUT),
            node("Reshape", "po flat", "f"),
            one,
            node("Relu", "d", "dr"),
            two,
        ],
        {"x": (1, 8, 8, 3)},
        ["y"],
        {
            **w1,
            **w2,
            "w1": weight(4, 3, 3, 3),
            "b1": weight(4),
            "w2": weight(4, 4, 3, 3),
            "flat": [1, 64],
        },
    )
    after, applied = _engine(model, board)
    assert ops(after).count("Transpose") == 1
    assert ops(after)[0] == "Transpose"
    assert "transpose-into-weights" in applied
    assert kinds_off(after, board) == ["SHUFFLE"]


@pytest.mark.parametrize("board", [ORIN, XAVIER])
def test_audio(board):
    """Conv1d, BatchNormalization, Relu, MaxPool1d, residual, global average, Gemm."""
    gemm, made = _gemm("f", "y", 8, 5)
    model = net(
        [
            node("Conv", "x w1", "c1", pads=[1, 1]),
            node("BatchNormalization", "c1 s b s v", "n"),
            node("Relu", "n", "r"),
            node("MaxPool", "r", "p", kernel_shape=[2], strides=[2]),
            node("Conv", "p w2", "c2", pads=[1, 1]),
            node("Add", "c2 p", "z"),
            node("Relu", "z", "q"),
            node("GlobalAveragePool", "q", "g"),
            node("Flatten", "g", "f"),
            gemm,
        ],
        {"x": (1, 4, 12)},
        ["y"],
        {
            **made,
            "w1": weight(8, 4, 3),
            "s": weight(8),
            "b": weight(8),
            "v": np.ones(8),
            "w2": weight(8, 8, 3),
        },
    )
    after, _ = _engine(model, board)
    assert kinds_off(after, board) == ["SHUFFLE", "SHUFFLE"]
    assert [ops(after)[0], ops(after)[-1]] == ["Reshape", "Reshape"]


@pytest.mark.parametrize("board", [ORIN, XAVIER])
def test_channels_last_audio(board):
    """Conv1D layers as TensorFlow has them, [N, L, C]: all layers between are 4-D."""
    gemm, made = _gemm("f", "y", 8, 5)
    nodes, last = [], "x"
    for name in ("a", "b"):
        nodes += [
            node("Transpose", last, f"{name}i", perm=[0, 2, 1]),
            node("Conv", [f"{name}i", f"w{name}"], f"{name}c"),
            node("Transpose", f"{name}c", f"{name}o", perm=[0, 2, 1]),
            node("Add", [f"{name}o", f"k{name}"], f"{name}s"),
            node("Relu", f"{name}s", f"{name}r"),
        ]
        last = f"{name}r"
        made |= {f"k{name}": weight(8)}
    nodes += [
        node("Transpose", last, "t", perm=[0, 2, 1]),
        node("GlobalAveragePool", "t", "p"),
        node("Flatten", "p", "f"),
        gemm,
    ]
    model = net(
        nodes, {"x": (1, 12, 4)}, ["y"], {**made, "wa": weight(8, 4, 3), "wb": weight(8, 8, 3)}
    )
    after, _ = _engine(model, board)
    assert set(kinds_off(after, board)) == {"SHUFFLE"}
    assert len(kinds_off(after, board)) <= 3
    assert ops(after).count("Transpose") == 1


def test_vector_input():
    """A normalised vector, two Gemms: reshaped at the input and at the end."""
    one, w1 = _gemm("n", "a", 16, 12)
    two, w2 = _gemm("r", "y", 12, 10)
    model = net(
        [node("Sub", "x mean", "n"), one, node("Relu", "a", "r"), two],
        {"x": (1, 16)},
        ["y"],
        {**w1, **w2, "mean": weight(16)},
    )
    after, _ = _engine(model)
    assert kinds_off(after) == ["SHUFFLE", "SHUFFLE"]
    assert ops(after)[0] == "Reshape"


def test_detector_heads_do_not_block_the_rest():
    """Two heads of rows, joined: their transpositions stay, the convolutions are on the DLA."""
    nodes, weights = [node("MaxPool", "x", "small", kernel_shape=[2, 2], strides=[2, 2])], {}
    for name, source, rows in (("a", "x", 48), ("b", "small", 12)):
        nodes += [
            node("Conv", [source, f"w{name}"], f"c{name}"),
            node("Transpose", f"c{name}", f"t{name}", perm=OUT),
            node("Reshape", f"t{name} to{name}", f"r{name}"),
            node("Sigmoid", f"r{name}", f"s{name}"),
        ]
        weights |= {f"w{name}": weight(15, 6, 1, 1), f"to{name}": [1, rows, 5]}
    model = net([*nodes, node("Concat", "sa sb", "y", axis=1)], {"x": (1, 6, 4, 4)}, ["y"], weights)
    after, _ = _engine(model)
    assert "ACTIVATION" in kinds_off(model)
    assert sorted(kinds_off(after)) == ["CONCATENATION", "SHUFFLE", "SHUFFLE"]
    assert sorted(ops(after)).count("Sigmoid") == 2
