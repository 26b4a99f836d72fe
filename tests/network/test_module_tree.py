"""The tree of a network's PyTorch modules: totals, and which modules are lines of their own."""

from __future__ import annotations

from pathlib import Path

import onnx

from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.module_tree import LayerPlace, ModuleTotals, module_totals, tree_rows
from tests.network.onnx_making import make, node, values, write
from tests.network.torch_files import CONV, dynamo_nodes, lenet, scoped


def totals(folder: Path) -> tuple[ModuleTotals, ...]:
    """LeNet's, with convolutions on a DLA core and a rule against the pooling."""
    network = layers(load(lenet(folder, dynamo_nodes())))
    places = {
        one.name: LayerPlace("DLA0", 2.0)
        if one.kind == "CONVOLUTION"
        else LayerPlace("GPU", 1.0, ["a.b"] if one.kind == "POOLING" else [])
        for one in network.layers
    }
    return module_totals(network, places, {"feat.conv1": 5.0})


def test_modules_have_the_totals_of_what_is_inside(tmp_path: Path) -> None:
    found = {one.module: one for one in totals(tmp_path)}
    assert list(found)[:4] == ["", "feat", "feat.conv1", "feat.conv2"]
    assert list(found)[4:] == ["classifier", "classifier.0", "classifier.1", "classifier.2"]
    feat = found["feat"]
    assert (feat.layers, feat.us, feat.clock) == (5, 7.0, "predicted")
    assert feat.devices == {"DLA0": 2, "GPU": 3}
    assert feat.rules == {"a.b": 2}
    conv = found["feat.conv1"]
    assert (conv.kind, conv.us, conv.clock) == (CONV, 5.0, "board-measured")
    assert found[""].layers == sum(found[name].layers for name in ("feat", "classifier"))
    assert found[""].macs == sum(found[name].macs for name in ("feat", "classifier"))


def names(modules: tuple[ModuleTotals, ...], most: int | None = None) -> list[str]:
    return [row["module"].strip() for row in tree_rows(modules, most)]


def test_modules_are_opened_where_their_layers_differ(tmp_path: Path) -> None:
    found = totals(tmp_path)
    assert names(found)[:5] == ["(the network)", "feat", "feat.conv1", "feat.conv2", "(itself)"]
    rows = {row["module"].strip(): row for row in tree_rows(found)}
    assert rows["(itself)"]["why not on the DLA"] == "a.b (2)"
    assert rows["(itself)"]["µs"] == ""  # one module is measured, the others are predicted
    assert rows["feat.conv1"]["on"] == "DLA0"
    # only the first level fits
    assert names(found, 3) == ["(the network)", "feat", "classifier"]
    assert tree_rows(()) == []


def test_alike_modules_of_a_list_are_one_line_named_by_their_glob(tmp_path: Path) -> None:
    classes = {"": "n.Net", "net": "n.Body"}
    nodes: list[onnx.NodeProto] = []
    for number in range(3):
        block = f"net.blocks.{number}"
        classes |= {block: "n.Block", f"{block}.conv": CONV}
        before = "x" if not number else f"t{number - 1}"
        nodes += [
            scoped(
                node("Conv", f"{before} w", f"c{number}", name=f"c{number}"),
                f"{block}.conv",
                "conv2d",
                classes,
            ),
            scoped(
                node("Relu", f"c{number}", f"t{number}", name=f"r{number}"), block, "relu", classes
            ),
        ]
    nodes[-1].output[0] = "y"
    model = make(nodes, {"x": [1, 4, 8, 8]}, ["y"], {"w": values([4, 4, 1, 1])})
    network = layers(load(write(model, tmp_path)))
    places = {
        one.name: LayerPlace("GPU" if one.kind == "ACTIVATION" else "DLA", 1.0)
        for one in network.layers
    }
    rows = tree_rows(module_totals(network, places))
    shown = [(row["module"].strip(), row["layers"], row["on"]) for row in rows]
    assert shown == [
        ("(the network)", "6", "DLA 3, GPU 3"),
        ("net", "6", "DLA 3, GPU 3"),
        ("net.blocks", "6", "DLA 3, GPU 3"),
        ("net.blocks.*", "6", "DLA 3, GPU 3"),
        ("net.blocks.*.conv", "3", "DLA"),
        ("(itself)", "3", "GPU"),
    ]


def test_made_up_depths_count_for_a_module_that_is_as_deep_as_networks_are(tmp_path: Path) -> None:
    deep = ".".join(["m"] * 200)
    nodes = [scoped(node("Relu", "x", "y", name="n"), deep, "relu", {"": "n.Net", deep: "n.M"})]
    network = layers(load(write(make(nodes, {"x": [1, 4, 8, 8]}, ["y"]), tmp_path)))
    found = module_totals(network, {"n": LayerPlace("GPU", 1.0)})
    assert len(found) < 20
    assert {one.layers for one in found} == {1}
