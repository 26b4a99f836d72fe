"""transpose-into-weights: classifiers of networks exported in N, H, W, C."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rewriting.nets import assert_rewrites, assert_untouched, net, node, ops, weight
from tests.tries import tries

ITEM = "transpose-into-weights"


def _net(last, weights, flat, shape=(2, 3, 4, 5), perm=(0, 2, 3, 1), more=(), returned=("y",)):
    nodes = [node("Transpose", "x", "t", perm=list(perm))]
    if flat:
        nodes.append(node("Reshape", "t flat", "f"))
        weights = {"flat": list(flat), **weights}
    return net([*nodes, last, *more], {"x": shape}, list(returned), weights)


def test_keras_classifier():
    """Transpose, Flatten, MatMul: the rows of the weights change places."""
    for seed in (1, 2):
        rows = weight(60, 7, seed=seed)
        after = assert_rewrites(_net(node("MatMul", "f w", "y"), {"w": rows}, (2, 60)), ITEM)
        assert ops(after) == ["Reshape", "MatMul"]
        made = after.weights[after.proto.graph.node[1].input[1]]
        expected = rows.reshape(4, 5, 3, 7).transpose(2, 0, 1, 3).reshape(60, 7)
        np.testing.assert_array_equal(made, expected.astype(np.float32))


@given(
    st.permutations([1, 2, 3]), st.booleans(), st.lists(st.integers(1, 4), min_size=4, max_size=4)
)
@settings(max_examples=tries(25))
def test_gemm_of_any_transposition(perm, by_columns, shape):
    """With weights in either order, a bias and factors."""
    order = [0, *perm]
    depth = int(np.prod(shape[1:]))
    size = (5, depth) if by_columns else (depth, 5)
    last = node("Gemm", "f w b", "y", transB=int(by_columns), alpha=0.5, beta=2.0)
    model = _net(last, {"w": weight(*size), "b": weight(5)}, (shape[0], depth), shape, order)
    after = assert_rewrites(model, ITEM)
    assert ops(after) == ["Reshape", "Gemm"]


@pytest.mark.parametrize(
    ("flat", "window"), [(None, (4, 5, 3)), ((2, 60, 1, 1), (60, 1, 1))], ids=["window", "flat"]
)
def test_convolutions_of_the_whole_tensor(flat, window):
    """With a window over everything, and 1x1 on what was flattened to channels."""
    last = node("Conv", [("f" if flat else "t"), "w", "b"], "y", strides=[2, 2])
    model = _net(last, {"w": weight(7, *window), "b": weight(7)}, flat)
    after = assert_rewrites(model, ITEM)
    assert ops(after) == (["Reshape", "Conv"] if flat else ["Conv"])


def test_others_keep_the_transposed_tensor():
    """What else reads it, or the graph's result, stays as it is."""
    last, more = node("MatMul", "f w", "y"), [node("Relu", "f", "z")]
    model = _net(last, {"w": weight(60, 7)}, (2, 60), more=more, returned=("y", "z", "t"))
    after = assert_rewrites(model, ITEM)
    assert sorted(ops(after)) == ["MatMul", "Relu", "Reshape", "Reshape", "Transpose"]


@pytest.mark.parametrize(
    "model",
    [
        # the batch moves
        _net(node("MatMul", "f w", "y"), {"w": weight(60, 7)}, (1, 60), (3, 1, 4, 5), (1, 0, 2, 3)),
        # not all of a sample is summed
        _net(node("MatMul", "f w", "y"), {"w": weight(15, 7)}, (8, 15)),
        _net(node("Conv", "t w", "y"), {"w": weight(7, 4, 4, 3)}, None),
        _net(node("Conv", "t w", "y", pads=[0, 0, 0, 1]), {"w": weight(7, 4, 5, 3)}, None),
        _net(node("Conv", "t w", "y", group=2), {"w": weight(8, 2, 5, 3)}, None),
        _net(node("MatMul", "t w", "y"), {"w": weight(3, 7)}, None),
        # the weights are on the left, or computed
        _net(node("Gemm", "f w", "y", transA=1), {"w": weight(2, 7)}, (2, 60)),
        _net(node("MatMul", "w f", "y"), {"w": weight(7, 2)}, (2, 60)),
        _net(node("Gemm", "f f", "y", transB=1), {}, (2, 60)),
    ],
)
def test_left_alone(model):
    """Where the order of the elements matters."""
    assert_untouched(model, ITEM)
