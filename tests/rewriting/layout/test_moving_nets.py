"""What the engine chooses where several rewrites of moves would do."""

import numpy as np

from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.boards import refused
from tests.rewriting.nets import assert_same, net, node, ops, weight

_FAR = 2**31 - 1


def engine(model, board="jetson-agx-orin-64gb"):
    """The rewritten model, all of it on the DLA, and the rewrites that were applied."""
    after, applied, notes, *_ = rewrite(model, get(board), precision="fp16")
    assert not notes
    assert not refused(after, board)
    assert_same(model, after)
    return after, {item.rewrite for item in applied}


def test_focus_is_taken_as_a_whole():
    nodes, fixed = [], {"end": np.array([_FAR]), "two": np.array([2]), "three": np.array([3])}
    for index, (row, column) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
        fixed |= {f"r{index}": np.array([row]), f"c{index}": np.array([column])}
        nodes.append(node("Slice", f"x r{index} end two two", f"rows{index}"))
        nodes.append(node("Slice", f"rows{index} c{index} end three two", f"part{index}"))
    nodes += [
        node("Concat", "part0 part1 part2 part3", "k", axis=1),
        node("Conv", "k w", "c", pads=[1, 1, 1, 1]),
        node("Sigmoid", "c", "s"),
        node("Mul", "c s", "y"),
    ]
    model = net(nodes, {"x": (1, 3, 16, 16)}, ["y"], fixed | {"w": weight(8, 12, 3, 3)})
    after, applied = engine(model)
    assert applied == {"focus"}
    assert ops(after) == ["Conv", "Conv", "Sigmoid", "Mul"]


def test_a_unit_of_shufflenet_v2_keeps_one_convolution_for_its_shuffle():
    nodes = [
        node("Split", "x", "a b", axis=1),
        node("Conv", "b w", "c"),
        node("Relu", "c", "r"),
        node("Concat", "a r", "k", axis=1),
        node("Reshape", "k s1", "p"),
        node("Transpose", "p", "q", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "q s2", "z"),
        node("Split", "z", "e f", axis=1),
        node("Conv", "f w2", "g"),
        node("Concat", "e g", "y", axis=1),
    ]
    fixed = {"s1": np.array([1, 2, 8, 6, 6]), "s2": np.array([1, 16, 6, 6])}
    fixed |= {"w": weight(8, 8, 1, 1), "w2": weight(8, 8, 1, 1, seed=1)}
    model = net(nodes, {"x": (1, 16, 6, 6)}, ["y"], fixed)
    after, applied = engine(model)
    assert applied == {"channel-shuffle"}
    assert ops(after).count("Conv") == 3
    assert "Transpose" not in ops(after)


def test_a_gate_that_is_expanded_needs_no_layer_for_it():
    nodes = [
        node("AveragePool", "x", "g", kernel_shape=[6, 6]),
        node("Conv", "g w", "s"),
        node("Sigmoid", "s", "h"),
        node("Expand", "h shape", "e"),
        node("Mul", "x e", "y"),
    ]
    fixed = {"w": weight(8, 8, 1, 1), "shape": np.array([1, 8, 6, 6])}
    after, applied = engine(net(nodes, {"x": (1, 8, 6, 6)}, ["y"], fixed))
    assert applied == {"drop-expand"}
    assert ops(after) == ["AveragePool", "Conv", "Sigmoid", "Mul"]


def test_rows_are_joined_on_xavier_without_transpositions():
    nodes = [
        node("Conv", "x w", "a"),
        node("Conv", "x v", "b"),
        node("Concat", "a b", "k", axis=2),
        node("Conv", "k u", "y"),
    ]
    fixed = {"w": weight(4, 8, 1, 1), "v": weight(4, 8, 1, 1, seed=1), "u": weight(4, 4, 3, 3)}
    model = net(nodes, {"x": (1, 8, 6, 6)}, ["y"], fixed)
    after, applied = engine(model, "jetson-agx-xavier")
    assert applied == {"concat-sum"}
    assert "Transpose" not in ops(after)
