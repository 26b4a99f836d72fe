"""A network is cut at the modules that stay in PyTorch."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.network.left_modules import CompiledPart, LeftModule, parts


def left(call: int, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
    return helper.make_node(
        "Module", inputs, outputs, domain="edgekit.pytorch", module=f"m{call}", call=call
    )


def network(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    names = {name for node in nodes for name in node.output}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in names]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in outputs],
        [numpy_helper.from_array(np.full((2, 3), 3, np.float32), "w")],
        value_info=values,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("edgekit.pytorch", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """Runs the steps; a left-out module adds its call's number plus one to its first input."""
    known = {"x": x}
    for step in parts(model):
        if isinstance(step, LeftModule):
            for name in step.outputs:
                known[name] = known[step.inputs[0]] + np.float32(step.call + 1)
        else:
            session = ort.InferenceSession(step.model.SerializeToString())
            feeds = {name: known[name] for name in step.inputs}
            known.update(zip(step.outputs, session.run(step.outputs, feeds), strict=True))
    return {value.name: known[value.name] for value in model.graph.output}


def test_a_network_without_left_out_modules_is_one_part() -> None:
    model = network([helper.make_node("Mul", ["x", "w"], ["y"])], ["y"])
    (part,) = parts(model)
    assert isinstance(part, CompiledPart)
    assert (part.inputs, part.outputs) == (("x",), ("y",))


def test_parts_are_as_large_as_the_left_out_modules_allow() -> None:
    model = network(
        [
            helper.make_node("Mul", ["x", "w"], ["a"]),
            left(0, ["a"], ["b", "c"]),
            helper.make_node("Neg", ["x"], ["d"]),  # needs no left-out module: the first part's
            helper.make_node("Add", ["b", "d"], ["e"]),
            left(1, ["e"], ["f"]),
            helper.make_node("Sub", ["f", "c"], ["y"]),
        ],
        ["y", "d"],
    )
    steps = parts(model)
    assert [(step.inputs, step.outputs) for step in steps] == [
        (("x",), ("a", "d")),
        (("a",), ("b", "c")),
        (("b", "d"), ("e",)),
        (("e",), ("f",)),
        (("f", "c"), ("y",)),
    ]
    assert steps[1].bytes == 3 * 2 * 3 * 4
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = run(model, x)
    np.testing.assert_array_equal(found["y"], (3 * x + 1 - x + 2) - (3 * x + 1))
    np.testing.assert_array_equal(found["d"], -x)


def test_left_out_modules_at_the_ends_and_in_a_row_make_no_empty_part() -> None:
    model = network([left(0, ["x"], ["a"]), left(1, ["a"], ["b"]), left(2, ["b"], ["y"])], ["y"])
    assert [type(step) for step in parts(model)] == [LeftModule] * 3
    np.testing.assert_array_equal(run(model, np.zeros((2, 3), np.float32))["y"], np.full((2, 3), 6))


@pytest.mark.parametrize("outer", ["a", "b"])
def test_a_body_reads_tensors_around_it(outer: str) -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", [outer], ["inner"])],
        "body",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [2, 3])],
    )
    flag = numpy_helper.from_array(np.array(True), "flag")
    model = network(
        [
            helper.make_node("Mul", ["x", "w"], ["a"]),
            left(0, ["a"], ["b"]),
            helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body),
        ],
        ["y"],
    )
    model.graph.initializer.append(flag)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(model, x)["y"], -3 * x if outer == "a" else -3 * x - 1)
