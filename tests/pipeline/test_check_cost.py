"""The work of a check grows with the number of nodes and not faster; counted, not timed."""

import sys

import onnx
import pytest
from onnx import TensorProto, helper

from edgekit.pipeline import check_model

SHAPE = [1, 8, 16, 16]


def chain(count):
    """Returns layers one after the other, with an operator in between that no DLA runs."""
    nodes, last = [], "x"
    for index in range(count // 4):
        for op, more in (("Conv", ["w"]), ("Relu", []), ("Add", ["x"]), ("Erf", [])):
            nodes.append(helper.make_node(op, [last, *more], [f"{op}{index}"]))
            last = f"{op}{index}"
    return nodes, last


def fan(count):
    """Returns branches side by side whose sum is one node: many layers of one name."""
    nodes = []
    for index in range(count // 2):
        nodes.append(helper.make_node("Conv", ["x", "w"], [f"c{index}"]))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"], name="same"))
    ends = [f"r{index}" for index in range(count // 2)]
    return [*nodes, helper.make_node("Sum", ends, ["sum"])], "sum"


def lines_of_a_check(path):
    """Returns how many lines of edgekit's own code a check runs."""
    count = 0

    def line(frame, event, argument):
        nonlocal count
        count += event == "line"
        return line

    def call(frame, event, argument):
        return line if "edgekit" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        check_model(path, target="jetson-agx-orin-64gb")
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("form", [chain, fan])
def test_work_is_linear_in_nodes(form, tmp_path):
    lines = []
    for count in (80, 80, 640):  # the first one reads the rules
        nodes, last = form(count)
        graph = helper.make_graph(
            nodes, "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor_value_info(last, TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor("w", TensorProto.FLOAT, [8, 8, 1, 1], [0.5] * 64)],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, tmp_path / "net.onnx")
        lines.append(lines_of_a_check(tmp_path / "net.onnx"))
    assert lines[2] < 8 * lines[1]
