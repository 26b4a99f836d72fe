"""Rewrites around pools whose last window onnx's inference counts and runtimes drop."""

from tests.rewriting.nets import assert_rewrites, net, node, ops

TURN = [0, 1, 3, 2]


def test_what_stands_before_such_a_pool_is_rewritten():
    """An average that counts padding, along one axis beyond the end, keeps ceil_mode."""
    pool = node(
        "AveragePool",
        "b",
        "p",
        kernel_shape=[3, 1],
        strides=[2, 3],
        ceil_mode=1,
        pads=[1, 0, 0, 0],
        count_include_pad=1,
    )
    nodes = [
        node("Transpose", "x", "a", perm=TURN),
        node("Transpose", "a", "b", perm=TURN),
        pool,
        node("Sigmoid", "p", "y"),
    ]
    model = net(nodes, {"x": (1, 2, 5, 14)}, ["y"])
    assert [a.i for a in model.proto.graph.node[2].attribute if a.name == "ceil_mode"] == [1]
    after = assert_rewrites(model, "merge-transposes", "identity-removal")
    assert ops(after) == ["AveragePool", "Sigmoid"]


def test_a_pool_of_one_dimension():
    pool = node("MaxPool", "x", "y", kernel_shape=[2], strides=[3], ceil_mode=1)
    after = assert_rewrites(net([pool], {"x": (1, 4, 3)}, ["y"]), "pool-1d")
    assert ops(after) == ["Reshape", "MaxPool", "Reshape"]
