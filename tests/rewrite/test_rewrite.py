"""Rewrites: applied where they help, equal, and left alone elsewhere."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgekit.errors import UsageError
from edgekit.network import canonical, session
from edgekit.rewrite import _apply, rewrite, rewrites
from edgekit.targets import get

ORIN = get("jetson-agx-orin-64gb")


def model(*nodes, shape=(1, 16, 7, 7), opset=13, constants=()):
    graph = helper.make_graph(
        list(nodes), "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        list(constants),
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return canonical(proto, None)


def pool_net(**options):
    return model(
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["y"], "pool"),
        **options,
    )


def mean_net(axes, keepdims=1, opset=13, **options):
    constants = []
    node = helper.make_node("ReduceMean", ["x"], ["m"], "mean", keepdims=keepdims)
    if opset >= 18:
        constants = [helper.make_tensor("axes", TensorProto.INT64, [len(axes)], axes)]
        node.input.append("axes")
    else:
        node.attribute.append(helper.make_attribute("axes", axes))
    relu = helper.make_node("Relu", ["m"], ["y"], "relu")
    return model(node, relu, opset=opset, constants=constants, **options)


def apply(source, **options):
    return rewrite(source, ORIN, precision="int8", **options)


def equal(before, after):
    shape = [d.dim_value for d in before.proto.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    a, b = (session(m, optimise=False).run(None, feed)[0] for m in (before, after))
    return a.shape == b.shape and np.abs(a - b).max() <= 1e-5 * np.abs(a).max()


@pytest.mark.parametrize("make", [pool_net, lambda: mean_net([2, 3]), lambda: mean_net([-1, -2]),
                                  lambda: mean_net([2, 3], opset=18)])  # fmt: skip
def test_means_over_the_image_become_pools(make):
    before = make()
    after, applied, notes = apply(before)
    assert len(applied) == 1
    assert notes == ()
    assert {node.op_type for node in after.proto.graph.node} == {"AveragePool", "Relu"}
    assert equal(before, after)
    onnx.checker.check_model(after.proto, full_check=False)
    assert [o.name for o in after.proto.graph.output] == ["y"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: pool_net(shape=(1, 16, 9, 9)),  # a window over 8 runs on no DLA
        lambda: mean_net([1]),
        lambda: mean_net([2]),
        lambda: mean_net([2, 3], keepdims=0),
        lambda: pool_net(shape=(1, 16, 7)),
    ],
)
def test_what_would_not_help_stays(make):
    before = make()
    after, applied, _ = apply(before)
    assert after is before
    assert applied == ()


def test_a_board_without_a_dla_changes_nothing():
    before = pool_net()
    after, applied, _ = rewrite(before, get("jetson-orin-nano-8gb"), precision="int8")
    assert after is before
    assert applied == ()


def test_rewrites_are_chosen_by_name():
    assert apply(pool_net(), enable=["reduce-mean"])[1] == ()
    assert apply(pool_net(), enable="none")[1] == ()
    assert apply(pool_net(), disable=["global-average-pool"])[1] == ()
    assert len(apply(pool_net(), enable=["global-average-pool"])[1]) == 1
    with pytest.raises(UsageError) as caught:
        apply(pool_net(), disable=["global-avg-pool"])
    assert "global-average-pool" in caught.value.hint


def test_a_rewrite_whose_proof_fails_is_left_out_and_told(monkeypatch):
    monkeypatch.setattr(_apply, "prove", lambda *a: 0.5)
    before = pool_net()
    after, applied, notes = apply(before)
    assert after is before
    assert applied == ()
    assert "global-average-pool" in notes[0]
    assert "report" in notes[0]


def test_every_rewrite_has_a_name_and_a_reason():
    names = [item.name for item in rewrites()]
    assert len(set(names)) == len(names)
    assert all(item.reason for item in rewrites())
