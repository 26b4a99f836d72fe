"""The work of a check grows with the number of nodes and not faster; counted, not timed."""

from dataclasses import replace

import onnx
import pytest
from onnx import TensorProto, helper

from edgekit.network.lowering import layers as layers_module
from edgekit.placement.check import check_model
from tests.counted_work import lines_of

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


def squeezes(count):
    """Returns squeeze-and-excite blocks, whose pool a rewrite would help."""
    nodes, last = [], "x"
    for index in range(count // 2):
        nodes.append(helper.make_node("GlobalAveragePool", [last], [f"p{index}"]))
        nodes.append(helper.make_node("Mul", [last, f"p{index}"], [f"m{index}"]))
        last = f"m{index}"
    return nodes, last


def means(count):
    """Returns the same with ReduceMean and axes of its own in each."""
    nodes, last = [], "x"
    for index in range(count // 2):
        nodes.append(helper.make_node("ReduceMean", [last], [f"p{index}"], axes=[2, 3]))
        nodes.append(helper.make_node("Mul", [last, f"p{index}"], [f"m{index}"]))
        last = f"m{index}"
    return nodes, last


def batches(count):
    """Returns convolutions of one batch size and of another in turn."""
    nodes, last = [], "x"
    for index in range(count // 4):
        for at, (op, more) in enumerate(
            [("Reshape", "two"), ("Conv", "w"), ("Reshape", "one"), ("Conv", "w")]
        ):
            nodes.append(helper.make_node(op, [last, more], [f"n{index}_{at}"]))
            last = f"n{index}_{at}"
    return nodes, last


def refusals(count):
    """Returns layers that break many rules, each with numbers of its own in the reason."""
    nodes, last = [], "x"
    for index in range(count // 4):
        for op, values in (
            ("LRN", {"size": 5 + 2 * index}),
            ("MaxPool", {"kernel_shape": [9, 9], "pads": [4] * 4}),
            ("Elu", {"alpha": 1.0 + index}),
            ("Softplus", {}),
        ):
            nodes.append(helper.make_node(op, [last], [f"{op}{index}"], **values))
            last = f"{op}{index}"
    return nodes, last


def lines_of_a_check(path):
    """Returns how many lines of edgekit a check runs: the same on every machine."""
    return lines_of(lambda: check_model(path, target="jetson-agx-orin-64gb"))


@pytest.mark.few(2)
@pytest.mark.parametrize("form", [chain, fan, squeezes, means, batches, refusals])
def test_work_is_linear_in_nodes(form, tmp_path):
    lines = []
    for count in (80, 80, 640):  # the first one reads the rules
        nodes, last = form(count)
        graph = helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor_value_info(last, TensorProto.FLOAT, SHAPE)],
            [
                helper.make_tensor("w", TensorProto.FLOAT, [8, 8, 1, 1], [0.5] * 64),
                helper.make_tensor("one", TensorProto.INT64, [4], SHAPE),
                helper.make_tensor("two", TensorProto.INT64, [4], [2, 8, 8, 16]),
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, tmp_path / "net.onnx")
        lines.append(lines_of_a_check(tmp_path / "net.onnx"))
    assert lines[2] < 8 * lines[1]


class Unsearched(tuple):
    def __contains__(self, name):
        raise AssertionError("searched from its start: quadratic when it is as long as the network")


def test_inputs_and_outputs_of_a_network_are_never_searched(tmp_path, monkeypatch):
    nodes = [helper.make_node("Conv", ["x", "w"], [f"y{index}"]) for index in range(4)]
    nodes.append(helper.make_node("Erf", ["y3"], ["z"]))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)
            for name in ("y0", "y1", "y2", "z")
        ],
        [helper.make_tensor("w", TensorProto.FLOAT, [8, 8, 1, 1], [0.5] * 64)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    real = layers_module.layers

    def layers(model, release):
        network = real(model, release)
        return replace(
            network, inputs=Unsearched(network.inputs), outputs=Unsearched(network.outputs)
        )

    monkeypatch.setattr(layers_module, "layers", layers)
    found = check_model(tmp_path / "net.onnx", target="jetson-agx-orin-64gb")
    assert found.network.outputs == ("y0", "y1", "y2", "z")
    assert isinstance(found.network.outputs, Unsearched)
