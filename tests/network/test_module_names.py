"""Modules of PyTorch's networks, as the metadata or the names of ONNX nodes have them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Network
from edgekit.network.module_names import common_module
from edgekit.network.writing import save
from tests.network.onnx_making import make, node, values, write
from tests.network.torch_files import (
    CONV,
    SEQUENTIAL,
    dynamo_nodes,
    legacy_nodes,
    lenet,
    scoped,
)

OPERATORS = {"CONVOLUTION", "ACTIVATION", "POOLING"}
MODULES = [
    "feat.conv1",
    "feat",
    "feat",
    "feat.conv2",
    "feat",
    "classifier.0",
    "classifier.1",
    "classifier.2",
]


def modules_of(network: Network) -> list[str]:
    return [layer.module for layer in network.layers if layer.kind in OPERATORS]


def paths(folder: Path, *nodes: onnx.NodeProto, **constants: np.ndarray) -> dict[str, str]:
    """Returns the modules of a chain of nodes from x to y, by their names."""
    file = write(make(nodes, {"x": [1, 4, 4, 4]}, ["y"], constants), folder)
    names = load(file).graph.modules
    assert names is not None
    return dict(names.nodes)


@pytest.mark.parametrize("form", ["dynamo", "legacy"])
def test_both_exporters_name_the_same_modules(form: str, tmp_path: Path) -> None:
    nodes = dynamo_nodes() if form == "dynamo" else legacy_nodes()
    network = layers(load(lenet(tmp_path, nodes)))
    assert modules_of(network) == MODULES
    assert network.modules is not None
    assert network.modules.exporter == form
    # the importer's reshapes are of the layers that they serve, though one took the Flatten in
    shuffles = {layer.module for layer in network.layers if layer.kind == "SHUFFLE"}
    assert shuffles == {"classifier.0", "classifier.2"}


def test_classes_are_those_of_the_metadata(tmp_path: Path) -> None:
    names = load(lenet(tmp_path, dynamo_nodes())).graph.modules
    assert names is not None
    assert names.classes[""] == "lenet.LeNet"
    assert names.classes["feat.conv1"] == CONV
    assert names.classes["classifier"] == SEQUENTIAL
    # of a Conv that took a BatchNorm in only the BatchNorm's class was written
    assert "feat.conv2" not in names.classes


def test_loading_and_writing_keep_names_and_drop_stack_traces(tmp_path: Path) -> None:
    model = load(lenet(tmp_path, dynamo_nodes()))
    save(model, tmp_path / "again.onnx")
    again = load(tmp_path / "again.onnx")
    assert again.digest == model.digest
    assert modules_of(layers(again)) == MODULES
    assert b"/home/me" not in (tmp_path / "again.onnx").read_bytes()


def test_a_part_keeps_the_names_of_its_nodes(tmp_path: Path) -> None:
    part = load(lenet(tmp_path, dynamo_nodes())).cut(["n3", "n4"], ["p1"], ["p2"])
    assert modules_of(layers(part)) == ["feat.conv2", "feat"]


HOSTILE = [
    "",
    "[]",
    "7",
    "['a'",
    "{'a': 1}",
    "['a', 7]",
    "__import__('os').system('true')",
    "['a', __import__('os')]",
    "['a', 'b'] + ['c']",
    r"['a', '\x1b[2J']",
    "['a', '\x1b[2J', 'x']",
    "['', 'a\nb', 'x']",
    "[" * 5000 + "]" * 5000,
    f"['{'a' * 1000}', 'x']",
    "[" + ", ".join(["'a'"] * 1000) + "]",
    "['" + "a" * 100_000 + "']",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_metadata_is_ignored(text: str, tmp_path: Path) -> None:
    nodes = dynamo_nodes()
    for item in nodes[0].metadata_props:
        item.value = text
    network = layers(load(lenet(tmp_path, nodes)))
    # of the first Conv only its weight's name is known
    assert modules_of(network)[1:] == MODULES[1:]
    assert network.layers[0].module in {"feat", "feat.conv1"}


def test_names_beyond_bounds_are_no_modules(tmp_path: Path) -> None:
    deep = "/" + "/".join(f"m{number}" for number in range(200)) + "/Relu"
    found = paths(
        tmp_path,
        node("Relu", "x", "a", name=deep),
        node("Relu", "a", "b", name="/m//Relu"),
        node("Relu", "b", "y", name="/m/Relu"),
    )
    assert set(found.values()) == {"m"}


def test_classes_of_another_length_are_ignored(tmp_path: Path) -> None:
    nodes = dynamo_nodes()[:1]
    nodes[0].output[0] = "y"
    nodes[0].metadata_props[1].value = "['lenet.LeNet']"
    names = load(lenet(tmp_path, nodes)).graph.modules
    assert names is not None
    assert names.nodes == {"n0": "feat.conv1"}
    assert names.classes == {}


def test_calls_of_one_module_have_one_path(tmp_path: Path) -> None:
    chain = ["/block/relu/Relu", "/block/relu_1/Relu", "/block/act_1/Relu", "/block/relu_2/Sigmoid"]
    tensors = ["x", "a", "b", "c", "y"]
    found = paths(
        tmp_path,
        *(
            node(name.rpartition("/")[2], one, other, name=name)
            for name, (one, other) in zip(chain, itertools.pairwise(tensors), strict=True)
        ),
    )
    assert found["/block/relu_1/Relu"] == "block.relu"
    # nothing is called "act", and a Sigmoid is no second call of a ReLU
    assert found["/block/act_1/Relu"] == "block.act_1"
    assert found["/block/relu_2/Sigmoid"] == "block.relu_2"


@pytest.mark.parametrize("shared", [True, False])
def test_a_second_call_has_the_same_weights(shared: bool, tmp_path: Path) -> None:
    found = paths(
        tmp_path,
        node("Conv", "x onnx::Conv_1", "a", name="/head/conv/Conv"),
        node("Conv", f"a onnx::Conv_{1 if shared else 2}", "y", name="/head/conv_1/Conv"),
        **{f"onnx::Conv_{number}": values([4, 4, 1, 1], number) for number in (1, 2)},
    )
    assert found["/head/conv_1/Conv"] == ("head.conv" if shared else "head.conv_1")


def test_calls_that_torch_export_counts_are_of_the_module(tmp_path: Path) -> None:
    one = node("Relu", "x", "y", name="n")
    one.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'a@1', 'a@1.b', 'relu']")
    assert paths(tmp_path, one) == {"n": "a.b"}


@pytest.mark.parametrize(
    ("op", "weight", "path", "operator", "module"),
    [
        # a function that takes the weight of a module inside of the caller
        ("MatMul", "att.out_proj.weight", "att", "linear", "att.out_proj"),
        ("MatMul", "fc.weight", "", "linear", "fc"),
        ("Conv", "b.0.weight", "b.1", "_native_batch_norm_legit_no_training", "b.0"),
        # equal weights are stored once, under one of their names
        ("Conv", "b.0.weight", "b.1", "conv2d", "b.1"),
        ("MatMul", "emb.weight", "head", "linear", "head"),
        ("MatMul", "onnx::MatMul_1.x", "", "linear", ""),
        ("MatMul", "val_1", "att", "linear", "att"),
        ("Add", "att.out_proj.bias", "att", "add", "att"),
    ],
)
def test_the_name_of_a_weight(
    op: str, weight: str, path: str, operator: str, module: str, tmp_path: Path
) -> None:
    shape = [4, 4, 1, 1] if op == "Conv" else [4, 4]
    classes = {"": "net.Net", **({path: "net.Part"} if path else {})}
    one = scoped(node(op, f"x {weight}", "y", name="n"), path, operator, classes)
    assert paths(tmp_path, one, **{weight: values(shape)}) == {"n": module}


def test_nodes_that_other_tools_wrote_are_of_their_neighbours(tmp_path: Path) -> None:
    scale, zero = np.float32(0.1), np.int8(0)
    quantised = np.ones([4, 4, 1, 1], np.int8)
    found = paths(
        tmp_path,
        node("QuantizeLinear", "x s z", "xq", name="q0"),
        node("DequantizeLinear", "xq s z", "xd", name="d0"),
        node("DequantizeLinear", "body.conv.weight_q s z", "wd", name="dw"),
        scoped(node("Conv", "xd wd", "c", name="conv"), "body", "conv2d", {"": "N", "body": "B"}),
        node("QuantizeLinear", "c s z", "cq", name="q1"),
        node("DequantizeLinear", "cq s z", "y", name="d1"),
        s=scale,
        z=zero,
        **{"body.conv.weight_q": quantised},
    )
    assert found == dict.fromkeys(["q0", "d0", "dw", "conv", "q1", "d1"], "body.conv")


@pytest.mark.parametrize(
    ("given", "common"),
    [
        ([], ""),
        (["a.b"], "a.b"),
        (["a.b", "a.b.c"], "a.b"),
        (["a.b", "a.c"], "a"),
        (["a.b", "a.bc"], "a"),
        (["a", "b"], ""),
        (["a", ""], ""),
    ],
)
def test_the_module_around_several(given: list[str], common: str) -> None:
    assert common_module(given) == common
    assert common_module(reversed(given)) == common
