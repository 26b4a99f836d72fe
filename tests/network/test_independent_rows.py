"""Which networks compute the entries of a batch one by one: a smaller batch may be padded then."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.network.independent_rows import mixing_node
from edgekit.network.loading.load import canonical

SHAPE = [4, 3, 8, 8]


def network(
    *nodes: onnx.NodeProto, shape: list[int] | None = None, **constants: np.ndarray
) -> onnx.ModelProto:
    """Nodes from "x" to "y"."""
    graph = helper.make_graph(
        list(nodes),
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape or SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def fault(model: onnx.ModelProto) -> str:
    return mixing_node(canonical(model, None).graph)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def longs(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


NODE = helper.make_node
INDEPENDENT = {
    "conv": network(NODE("Conv", ["x", "w"], ["y"], "n"), w=floats(5, 3, 3, 3)),
    "residual": network(NODE("Relu", ["x"], ["r"], "a"), NODE("Add", ["x", "r"], ["y"], "n")),
    "bias": network(NODE("Add", ["x", "b"], ["y"], "n"), b=floats(1, 3, 1, 1)),
    "classifier": network(
        NODE("GlobalAveragePool", ["x"], ["g"], "a"),
        NODE("Flatten", ["g"], ["f"], "b"),
        NODE("Gemm", ["f", "w"], ["l"], "c", transB=1),
        NODE("Softmax", ["l"], ["y"], "n", axis=1),
        w=floats(10, 3),
    ),
    "attention": network(
        NODE("Reshape", ["x", "s"], ["r"], "a"),
        NODE("Transpose", ["r"], ["t"], "b", perm=[0, 2, 1]),
        NODE("MatMul", ["r", "t"], ["y"], "n"),
        s=longs(4, 3, 64),
    ),
    "mean": network(NODE("ReduceMean", ["x"], ["y"], "n", axes=[2, 3])),
    "channels": network(
        NODE("Slice", ["x", "b", "e", "a"], ["y"], "n"), b=longs(0), e=longs(2), a=longs(1)
    ),
}
MIXING = {
    "mean": (network(NODE("ReduceMean", ["x"], ["y"], "n", axes=[0])), "not its first axis"),
    "whole": (network(NODE("ReduceMax", ["x"], ["y"], "n")), "is not its first axis"),
    "softmax": (network(NODE("Softmax", ["x"], ["y"], "n", axis=0)), "axis is the batch"),
    "constant": (
        network(NODE("Add", ["x", "b"], ["y"], "n"), b=floats(4, 3, 1, 1)),
        "differs along the batch",
    ),
    "moved": (
        network(NODE("Transpose", ["x"], ["y"], "n", perm=[1, 0, 2, 3])),
        "not its first axis",
    ),
    "merged": (network(NODE("Reshape", ["x", "s"], ["y"], "n"), s=longs(12, 64)), "first axis"),
    "gram": (
        network(
            NODE("Flatten", ["x"], ["f"], "a"),
            NODE("Transpose", ["f"], ["t"], "b", perm=[1, 0]),
            NODE("MatMul", ["f", "t"], ["y"], "n"),
        ),
        "not its first axis",
    ),
    "reversed": (
        network(
            NODE("Slice", ["x", "b", "e", "a", "s"], ["y"], "n"),
            b=longs(-1),
            e=longs(-9),
            a=longs(0),
            s=longs(-1),
        ),
        "cuts the batch",
    ),
    "running sum": (
        network(NODE("CumSum", ["x", "a"], ["y"], "n"), a=np.array(0, np.int64)),
        "not known",
    ),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_operators_that_compute_each_entry_alone_are_known(name):
    assert fault(INDEPENDENT[name]) == ""


@pytest.mark.parametrize("name", MIXING)
def test_what_may_mix_the_entries_is_named(name):
    model, why = MIXING[name]
    found = fault(model)
    assert why in found


def test_a_batch_of_one_proves_nothing():
    one = network(NODE("Relu", ["x"], ["y"], "n"), shape=[1, 3, 8, 8])
    assert "first axis of input 'x'" in fault(one)
