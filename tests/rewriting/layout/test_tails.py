"""The ends of real networks, by the engine: what is off the DLA is one reshape at the border."""

import pytest

from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.boards import ORIN, XAVIER, kinds_off
from tests.rewriting.nets import assert_same, net, node, ops, weight


def _engine(model, board=ORIN):
    after, applied, notes, *_ = rewrite(model, get(board), precision="fp16")
    assert notes == ()
    assert_same(model, after)
    return after, [item.rewrite for item in applied]


def _gemm(source, target, rows, columns):
    made = {f"w{target}": weight(columns, rows), f"b{target}": weight(columns)}
    return node("Gemm", [source, *made], target, transB=1), made


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
