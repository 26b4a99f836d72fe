"""``edgekit.check`` and ``edgekit.plan`` take modules with an example, and know their modules."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import edgekit
from edgekit.errors import UsageError
from edgekit.placement.plan import Plan

ORIN = "jetson-agx-orin-64gb"
LEGACY = {"exporter": "legacy"}


@pytest.mark.slow
def test_check_of_a_module_prints_as_a_tree(nets: ModuleType) -> None:
    model = nets.lenet()
    report = edgekit.check(model, (nets.image(),), target=ORIN)
    assert report.model == "tests.pytorch.nets.LeNet"
    assert "exported from PyTorch" in report.warnings[0]
    modules = {one.module: one for one in report.modules}
    assert modules["feat"].kind == "tests.pytorch.nets.LeNetFeatExtractor"
    assert modules[""].layers == len(report.layers)
    text = str(report)
    assert "classifer.fc1  Linear" in text
    assert text.index("feat") < text.index("classifer")
    assert report.to_json()["schema"] == "edgekit.check/1"


def test_check_takes_keywords_sizes_and_factories(nets: ModuleType) -> None:
    x = nets.image()
    by_keyword = edgekit.check(nets.lenet(), kwargs={"x": x}, target=ORIN, model=LEGACY)
    sizes = {"inputs": {"x": "1x1x32x32:float32"}, **LEGACY}
    by_size = edgekit.check(nets.lenet(), target=ORIN, model=sizes)
    by_factory = edgekit.check("tests.pytorch.nets:lenet", x, target=ORIN, model=LEGACY)
    assert [one.name for one in by_keyword.layers] == [one.name for one in by_size.layers]
    assert by_factory.modules == by_size.modules
    assert by_factory.model == "tests.pytorch.nets:lenet"
    old = edgekit.check(nets.lenet(), x, target="jetson-agx-xavier", jetpack="5.1", model=LEGACY)
    assert old.tensorrt == "8.5.2"


def test_plan_takes_a_module_and_globs_of_its_modules(nets: ModuleType, tmp_path: Path) -> None:
    def plan(glob: str) -> Plan:
        pins = {"pin": [{"layers": glob, "device": "GPU"}], "objective": "energy"}
        return edgekit.plan(
            nets.lenet(), nets.image(), target=ORIN, precision="fp16", placement=pins, model=LEGACY
        )

    found = plan("feat.*")
    assert "exported from PyTorch" in found.notes[0]
    assert found.constraints.pins[0].layers == "feat.*"
    with pytest.raises(UsageError) as caught:
        plan("feet.conv1")
    assert caught.value.code == "plan.pin"
    assert "feat.conv1" in caught.value.hint


def test_a_network_without_a_target_or_with_a_configuration_is_refused(
    nets: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="needs a target"):
        edgekit.check(nets.lenet(), (nets.image(),))
    with pytest.raises(UsageError, match="is not a path"):
        edgekit.check(5, target=ORIN)
    config = edgekit.open_config("builtin:light_squeezenet", target=ORIN)
    with pytest.raises(UsageError, match="takes no example"):
        edgekit.plan(config, (nets.image(),))


def test_what_a_rewrite_makes_of_several_modules_is_of_the_module_around_them(
    nets: ModuleType, tmp_path: Path
) -> None:
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    x = nets.torch.randn(1, 8, 16)
    edgekit.export(nets.halves(), (x,), target=ORIN, exporter="legacy", save=before)
    made = edgekit.rewrite(before, after, target=ORIN, precision="fp16")
    first = made.rewrites[0]
    assert set(first.nodes) == {"/block/block.0/MatMul", "/block/block.1/Add"}
    found = edgekit.check(after, target=ORIN, precision="fp16")
    modules = {one.kind: one.module for one in found.layers}
    # the convolution is of the module of its weight, inside the one around both nodes
    assert modules["CONVOLUTION"] == "block.0"
    new = {one.module for one in found.layers if set(one.nodes) & set(first.new_nodes)}
    assert "block" in new
    assert "block.1" not in {one.module for one in found.modules}
