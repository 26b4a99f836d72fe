"""No node of a file is lost: each is in the layers that stand for it, or it is said why not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgekit.errors import ModelError
from edgekit.network.loading.load import canonical, load
from edgekit.network.lowering.layers import layers
from edgekit.network.lowering.places import NodePlace, places
from edgekit.network.model import Model, Network, Tensor
from tests.network.onnx_making import DATA, light, make, node, values

LIGHT = sorted(path.stem.removeprefix("light_") for path in (DATA / "light").glob("*.onnx"))
REASONS = {"constant", "identity", "branch", "function", "given", "unused"}


def names_in(proto: onnx.ModelProto) -> set[str]:
    """Names as the rule gives them where the file has none; the files here have no clashes."""
    return {n.name or f"{n.op_type}_{i}" for i, n in enumerate(proto.graph.node)}


def check(proto: onnx.ModelProto, model: Model, network: Network) -> dict[str, NodePlace]:
    found = places(model, network)
    names = {n.name for n in model.proto.graph.node}
    assert names_in(proto) <= set(found)
    order = [layer.name for layer in network.whole.layers]
    for name, place in found.items():
        assert list(place.layers) == [layer for layer in order if layer in place.layers]
        if name in names:
            assert not place.reason
            assert place.layers
            stands = [layer.name for layer in network.layers if name in layer.nodes]
            assert list(place.layers) == stands
        else:
            assert place.reason in REASONS
    for layer in network.layers:
        assert set(layer.nodes) <= names
        assert layer.origin
        assert set(layer.nodes) <= set(layer.origin) <= names
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize("name", LIGHT)
def test_light(name: str) -> None:
    model = load(light(name))
    network = layers(model)
    found = check(onnx.load(light(name)), model, network)
    # no node of these is there for nothing
    assert all(place.layers for place in found.values())
    assert {place.reason for place in found.values()} <= {"", "constant", "identity"}


def test_models_of_the_onnx_package() -> None:
    seen = 0
    for path in sorted(DATA.glob("*/*/model.onnx")):
        proto = onnx.load(path)
        try:
            model = canonical(proto, path.parent)
        except ModelError:
            continue
        check(proto, model, layers(model))
        seen += 1
    assert seen > 100


def test_a_weights_arithmetic_is_in_the_layer_that_reads_it() -> None:
    proto = make(
        [
            node("Unsqueeze", "scale axes", "wide", name="widen"),
            node("Mul", "wide two", "double", name="twice"),
            node("Mul", "x double", "y", name="scale"),
            node("Add", "y double", "z", name="shift"),
        ],
        {"x": [1, 4, 3, 3]},
        ["z"],
        {
            "scale": values([4]),
            "axes": np.array([1, 2], np.int64),
            "two": np.array(2, np.float32),
        },
    )
    model = canonical(proto, None)
    network = layers(model)
    assert [(layer.kind, layer.params["mode"]) for layer in network.layers] == [
        ("SCALE", "CHANNEL"),
        ("SCALE", "CHANNEL"),
    ]
    found = places(model, network)
    both = NodePlace(("scale", "shift"), "constant")
    assert (found["widen"], found["twice"]) == (both, both)
    # read as a tensor it is a layer of the importer, once
    names = [[part.name for part in layer.absorbed] for layer in network.layers]
    assert names == [["double", "ONNXTRT_Broadcast"], ["ONNXTRT_Broadcast_1"]]


def test_shape_arithmetic_identity_dropout_and_what_nothing_needs() -> None:
    proto = make(
        [
            node("Identity", "x", "same", name="same"),
            node("Relu", "same", "r", name="relu"),
            node("Dropout", "r", "d", name="drop"),
            node("Shape", "d", "s", name="shape"),
            node("Gather", "s zero", "n", name="first"),
            node("Concat", "n rest", "to", name="to", axis=0),
            node("Reshape", "d to", "flat", name="flat"),
            node("ConstantOfShape", "wanted", "w", name="zeros"),
            node("MatMul", "flat w", "y", name="mm"),
            node("Abs", "r", "nobody", name="nobody"),
        ],
        {"x": [2, 4, 3, 3]},
        ["y"],
        {
            "zero": np.array([0], np.int64),
            "rest": np.array([-1], np.int64),
            "wanted": np.array([36, 5], np.int64),
        },
        opset=17,
    )
    model = canonical(proto, None)
    network = layers(model)
    found = places(model, network)
    shuffle = "flat + reshape_before_mm"
    assert [la.name for la in network.layers] == ["relu", shuffle, "mm", "reshape_after_mm"]
    assert found == {
        "relu": NodePlace(("relu",)),
        "flat": NodePlace((shuffle,)),
        "mm": NodePlace(("mm",)),
        "same": NodePlace(("relu",), "identity"),
        "drop": NodePlace(("relu",), "identity"),
        "shape": NodePlace((shuffle,), "constant"),
        "first": NodePlace((shuffle,), "constant"),
        "to": NodePlace((shuffle,), "constant"),
        "zeros": NodePlace(("mm",), "constant"),
        "nobody": NodePlace((), "unused"),
    }
    # weights made by ConstantOfShape are a view of one value
    assert model.weights["w"].strides == (0, 0)


def test_a_branch_a_function_and_given_values() -> None:
    body = helper.make_graph(
        [node("Relu", "x", "out", name="Relu_1")],
        "then",
        [],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [node("Abs", "x", "out")],
        "else",
        [],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
    )
    proto = make(
        [
            node("If", "yes", "i", name="if", then_branch=body, else_branch=other),
            node("Tanh", "i", "t", name="if/Relu_1"),
            helper.make_node("Twice", ["t"], ["u"], name="call", domain="mine"),
            node("ConstantOfShape", "wanted", "w", name="made"),
            node("Mul", "u w", "y", name="mul"),
        ],
        {"x": [1, 4, 3, 3]},
        ["y"],
        {"yes": np.array(True), "wanted": np.array([4, 1, 1], np.int64)},
        domains=["mine"],
    )
    proto.functions.append(
        helper.make_function(
            "mine",
            "Twice",
            ["a"],
            ["b"],
            [node("Add", "a a", "b", name="inner")],
            [helper.make_opsetid("", 17)],
        )
    )
    model = canonical(proto, None, weights={"w": values([4, 1, 1])})
    network = layers(model)
    found = places(model, network)
    relu, tanh, add, scale = (layer.name for layer in network.layers)
    # the branch's node gets the If's name before its own, and stays apart from the user's
    assert (relu, tanh) == ("if/Relu_1_1", "if/Relu_1")
    assert found["if"] == NodePlace((relu,), "branch")
    assert found["call"] == NodePlace((add,), "function")
    assert found["made"] == NodePlace((scale,), "given")


def test_names_are_unique_though_users_take_generated_ones() -> None:
    proto = make(
        [
            node("Relu", "x", "a"),
            node("Tanh", "a", "b", name="Relu_0"),
            node("Gemm", "b w c", "d", name="reshape_before_Gemm_3"),
            node("Gemm", "d w c", "e"),
            node("Gemm", "e w c", "y", name="Gemm_3"),
            node("Relu", "e", "z", name="Gemm_3"),
        ],
        {"x": [2, 4]},
        ["y", "z"],
        {"w": values([4, 4]), "c": values([4])},
    )
    first, again = canonical(proto, None), canonical(proto, None)
    network = layers(first)
    names = [layer.name for layer in network.layers]
    assert len(set(names)) == len(names)
    assert names == [layer.name for layer in layers(again).layers]
    assert [n.name for n in first.proto.graph.node] == [
        "Relu_0_1",
        "Relu_0",
        "reshape_before_Gemm_3",
        "Gemm_3_1",
        "Gemm_3",
        "Gemm_3_2",
    ]
    assert set(places(first, network)) == {n.name for n in first.proto.graph.node}


def test_a_dropout_counts_among_the_importers_layers(tmp_path: Path) -> None:
    """The unnamed sum of the second Gemm comes after two constants, a product, a broadcast, …"""
    fc = [node("Gemm", "x w c", "a", name="one"), node("Gemm", "b w k", "y", name="two")]
    constants = {"w": values([4, 4]), "c": values([4]), "k": values([4])}
    between = [node("Dropout", "a", "b", name="drop")]
    proto = make([fc[0], *between, fc[1]], {"x": [2, 4]}, ["y"], constants)
    sums = [la.builder_name for la in layers(canonical(proto, None)).layers if la.absorbed]
    # w one c broadcast SUM drop; w is there already: two k broadcast SUM
    assert sums == [
        "one + (Unnamed Layer* 4) [ElementWise]",
        "two + (Unnamed Layer* 9) [ElementWise]",
    ]


def test_joined_shuffles_have_names_of_their_own() -> None:
    proto = make(
        [
            node("Relu", "x", "r", name="a + b"),
            node("Flatten", "r", "f", name="a"),
            node("Reshape", "f to", "y", name="b"),
        ],
        {"x": [2, 4, 3, 3]},
        ["y"],
        {"to": np.array([3, 24], np.int64)},
    )
    relu, joined = layers(canonical(proto, None)).layers
    assert (relu.name, joined.name) == ("a + b", "a + b_1")
    # the importer wrote both, and its log warns about both
    assert [part.name for part in joined.absorbed] == ["a", "b"]


@pytest.mark.parametrize("op", ["PRelu", "Where", "Max"])
def test_constants_read_as_tensors_are_the_importers_layers(op: str) -> None:
    inputs, constant = {
        "PRelu": ("x k", values([4, 1, 1])),
        "Where": ("k x x", values([4, 1, 1]) > 0),
        "Max": ("k x", values([4, 1, 1])),
    }[op]
    proto = make([node(op, inputs, "y")], {"x": [1, 4, 3, 3]}, ["y"], {"k": constant})
    network = layers(canonical(proto, None))
    (layer,) = network.layers
    parts = [(part.kind, part.name, part.fused) for part in layer.absorbed]
    assert parts[-1] == ("SHUFFLE", "ONNXTRT_Broadcast", False)
    # slopes are a parametric ReLU's own; operands of others stay layers
    assert (("CONSTANT", "k", False) in parts) is (op == "PRelu")
    assert [constant.name for constant in network.constants] == ([] if op == "PRelu" else ["k"])
    assert layer.builder_name == layer.name


def test_a_retained_constant_stands_before_its_first_reader() -> None:
    proto = make(
        [
            node("Relu", "x", "r", name="relu"),
            node(
                "Constant",
                "",
                "k",
                name="made",
                value=numpy_helper.from_array(values([1, 4, 3, 3])),
            ),
            node("Concat", "r k", "c", name="cat", axis=1),
            node("Max", "x k", "m", name="largest"),
            node("Gather", "c i", "g", name="pick", axis=1),
        ],
        {"x": [1, 4, 3, 3]},
        ["m", "g"],
        {"i": np.array([0, 2], np.int64)},
    )
    model = canonical(proto, None)
    network = layers(model)
    assert [layer.name for layer in network.layers] == ["relu", "cat", "largest", "pick"]
    names = [layer.name for layer in network.whole.layers]
    assert sorted(names) == sorted(["relu", "k", "cat", "largest", "i", "pick"])
    assert names.index("k") == names.index("cat") - 1
    assert names.index("i") == names.index("pick") - 1
    assert [(la.nodes, la.origin) for la in network.constants] == [
        ((), ("cat", "largest")),
        ((), ("pick",)),
    ]
    assert network.fixed["i"] == Tensor("i", (2,), "int64")
    assert not set(network.fixed) & set(network.tensors)
    assert places(model, network)["made"] == NodePlace(("k",), "constant")


def test_activations_of_lower_rank_pass_a_shuffle() -> None:
    proto = make([node("Mul", "x g", "y", name="gate")], {"x": [2, 4, 3, 3], "g": [4, 1, 1]}, ["y"])
    network = layers(canonical(proto, None))
    shuffle, product = network.layers
    assert (shuffle.kind, shuffle.name) == ("SHUFFLE", "ONNXTRT_Broadcast")
    assert (shuffle.nodes, shuffle.origin) == ((), ("gate",))
    assert network.tensors[shuffle.outputs[0]].shape == (1, 4, 1, 1)
    assert product.inputs == ("x", shuffle.outputs[0])
    assert network.views[shuffle.outputs[0]] == "g"
