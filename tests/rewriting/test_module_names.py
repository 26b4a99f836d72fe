"""Rewritten networks keep the names of their PyTorch modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.network.loading.load import load
from edgekit.network.writing import save
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.network.onnx_making import make, node, values, write
from tests.network.torch_files import dynamo_nodes, legacy_nodes, lenet, scoped

ORIN = get("jetson-agx-orin-64gb")


@pytest.mark.parametrize("form", ["dynamo", "legacy"])
def test_a_rewritten_file_has_the_modules_of_the_one_before(form: str, tmp_path: Path) -> None:
    before = load(lenet(tmp_path, dynamo_nodes() if form == "dynamo" else legacy_nodes()))
    after, applied, *_ = rewrite(before, ORIN, precision="fp16")
    assert "gemm-to-conv" in {one.rewrite for one in applied}
    save(after, tmp_path / "rewritten.onnx")
    names = load(tmp_path / "rewritten.onnx").graph.modules
    assert names is not None
    assert names.exporter == form
    old = before.graph.modules
    assert old is not None
    # a Conv that stands for a Gemm, and the Relu before which a reshape stood
    kept = names.nodes.keys() & old.nodes.keys()
    assert len(kept) == 8
    assert {name: names.nodes[name] for name in kept} == {name: old.nodes[name] for name in kept}
    # the reshape that came is of the module of the last Gemm; the Flatten was outside
    (new,) = names.nodes.keys() - old.nodes.keys()
    assert names.nodes[new] == "classifier.2"
    assert {k: v for k, v in names.classes.items() if v} == old.classes


def test_new_nodes_are_of_the_module_around_all_that_they_replace(tmp_path: Path) -> None:
    classes = {"": "n.Net", "b": "n.Block", "b.mul": "n.Mul", "b.bias": "n.Bias"}
    nodes = [
        scoped(node("MatMul", "x w", "m", name="n0"), "b.mul", "matmul", classes),
        scoped(node("Add", "m v", "a", name="n1"), "b.bias", "add", classes),
        scoped(node("Relu", "a", "y", name="n2"), "", "relu", classes),
    ]
    constants = {"w": values([16, 16]), "v": values([16])}
    before = load(write(make(nodes, {"x": [1, 8, 16]}, ["y"], constants), tmp_path))
    after, applied, *_ = rewrite(before, ORIN, precision="fp16")
    assert {"n0", "n1"} in [set(one.nodes) for one in applied]
    names = after.graph.modules
    assert names is not None
    (conv,) = [one.name for one in after.graph.nodes() if one.op == "Conv"]
    assert names.nodes[conv] == "b"
    assert names.nodes["n2"] == ""
