"""Which layers of a plain network become INT8 between Q/DQ nodes, and where those stand."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.dla.judge import judge
from edgekit.dla.precision import plan_lowering
from edgekit.network.lowering.layers import layers
from edgekit.targets.loader import get
from tests.quantize.qdq_nets import Sheet, normal
from tests.quantize.quantize_nets import make, node

ORIN = "jetson-agx-orin-64gb"


def net(*nodes, outputs=("y",), **weights):
    return make(nodes, weights, {"x": [1, 4, 8, 8]}, list(outputs))[1]


def residual():
    return net(
        node("Conv", "x w1", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "r"),
        node("Conv", "r w2", "b", pads=[1, 1, 1, 1]),
        node("Add", "b r", "s"),
        node("Relu", "s", "t"),
        node("Softmax", "t", "y", axis=1),
        w1=normal(1, 4, 4, 3, 3),
        w2=normal(2, 4, 4, 3, 3),
    )


def test_pairs_stand_around_kernels_and_on_both_branches_of_a_sum():
    found = plan_lowering(residual())
    assert found.tensors == ("x", "r", "b", "t")
    assert found.precisions.pop("y") == "fp16"
    assert set(found.precisions.values()) == {"int8"}
    assert found.missing == ()


def test_what_is_read_twice_or_by_the_caller_is_outside_of_the_kernel():
    def nodes(reads):
        return (
            node("Conv", "x w1", "a", pads=[1, 1, 1, 1]),
            node("Relu", "a", "r"),
            node("Conv", f"{reads} w2", "y", pads=[1, 1, 1, 1]),
        )

    weights = {"w1": normal(1, 4, 4, 3, 3), "w2": normal(2, 4, 4, 3, 3)}
    assert "a" not in plan_lowering(net(*nodes("r"), **weights)).tensors
    assert "a" in plan_lowering(net(*nodes("a"), outputs=("y", "r"), **weights)).tensors
    assert "a" in plan_lowering(net(*nodes("r"), outputs=("y", "a"), **weights)).tensors


def test_a_missing_scale_takes_the_layers_at_both_its_ends_out():
    found = plan_lowering(residual(), {"x", "r", "t"})
    # the sum's own activation loses the kernel that it was a part of
    assert found.missing == ("b", "s")
    assert {n for n, p in found.precisions.items() if p == "int8"} == {"a", "r"}
    assert found.tensors == ("x", "r")


def test_a_layer_can_be_excluded():
    found = plan_lowering(residual(), None, {"a"})
    assert found.precisions["a"] == "fp16"
    assert "x" not in found.tensors
    assert "a" in found.tensors  # what the activation reads crosses a border now


def test_what_moves_floats_for_floats_stays_a_float():
    network = net(
        node("Sigmoid", "x", "s"),
        node("Transpose", "s", "m", perm=[0, 2, 3, 1]),
        node("Transpose", "m", "n", perm=[0, 3, 1, 2]),
        node("Tanh", "n", "y"),
    )
    found = plan_lowering(network)
    assert set(found.precisions.values()) == {"fp16"}
    assert found.tensors == ()


def test_a_product_of_two_activations_has_no_int8():
    network = net(node("MatMul", "x x", "y"))
    assert plan_lowering(network).precisions == {"y": "fp16"}


def test_judged_as_what_it_becomes_where_that_is_requested():
    network, board = residual(), get(ORIN)
    refused = judge(network, board, tensorrt="11.4.1")
    assert {r.rule for v in refused.verdicts.values() for r in v.reasons} == {
        "general.implicit_int8"
    }
    found = judge(network, board, tensorrt="11.4.1", lowers=True)
    assert found.precisions == plan_lowering(network).precisions
    assert found.verdicts["b"].ok
    assert found.verdicts["b"].precision == "int8"
    # scales are no calibration cache there
    scaled = judge(network, board, tensorrt="11.4.1", scales={"x": 1.0}, lowers=True)
    assert "int8" not in scaled.precisions.values()
    assert scaled.verdicts["b"].precision == "fp16"


@pytest.mark.parametrize("tensorrt", ["10.3", "10.8", "11.3"])
def test_other_releases_do_not_care(tensorrt):
    network, board = residual(), get(ORIN)
    plain = judge(network, board, tensorrt=tensorrt)
    lowered = judge(network, board, tensorrt=tensorrt, lowers=True)
    assert plain.verdicts == lowered.verdicts
    assert plain.precisions == lowered.precisions


def test_every_tensor_of_an_int8_layer_has_nodes_or_is_inside_a_kernel():
    network = residual()
    found = plan_lowering(network)
    consumers = network.consumers()
    bare = {
        name
        for layer in network.layers
        if found.precisions[layer.name] == "int8"
        for name in (*layer.inputs, *layer.outputs)
        if name not in found.tensors and name not in network.views
    }
    assert bare
    for name in bare:
        (reader,) = consumers[name]
        assert found.precisions[reader.name] == "int8"
        assert len(reader.inputs) == 1
    assert np.unique(found.tensors).size == len(found.tensors)


def test_q_dq_nodes_between_gpu_layers_are_no_loadable():
    sheet = Sheet()
    x = sheet.input("x", 1, 4, 8, 8)
    first = sheet.node("Exp", x, "before")
    sheet.node("Exp", sheet.qdq(first, 0.1), "after")
    network = layers(sheet.model("after"))
    judgement = judge(network, get(ORIN), tensorrt="11.4.1")
    assert not judgement.verdicts["before"].ok
    assert judgement.verdicts["before_q"].ok
    assert judgement.candidates == ()
    assert set(judgement.placed.values()) == {"GPU"}
