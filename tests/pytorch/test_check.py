"""``edgekit.check`` and ``edgekit.plan`` take modules with an example, and know their modules."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import edgekit
from edgekit.cli.main import app
from edgekit.errors import ConfigError, EdgekitError, UsageError
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


def test_sizes_are_an_argument_and_a_bundle_takes_a_module(
    nets: ModuleType, tmp_path: Path
) -> None:
    sizes = {"x": "1x1x32x32"}
    found = edgekit.check("tests.pytorch.nets:lenet", inputs=sizes, target=ORIN, model=LEGACY)
    assert "by the legacy exporter" in found.warnings[0]
    with pytest.raises(ConfigError, match="'inputs'"):
        edgekit.check("builtin:light_squeezenet", inputs=sizes, target=ORIN)
    wanted = {"target": ORIN, "precision": "fp16", "model": LEGACY}
    by_example = edgekit.bundle(nets.lenet(), (nets.image(),), out=tmp_path / "a", **wanted)
    by_size = edgekit.bundle(nets.lenet(), inputs=sizes, out=tmp_path / "b", **wanted)
    assert Path(by_example.path).is_file()
    assert by_size.stripped_bytes > 0


def test_scales_are_measured_of_the_whole_network(nets: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "lenet.onnx"
    edgekit.export(nets.lenet(), (nets.image(),), target=ORIN, exporter="legacy", save=file)
    command = [str(file), "-t", ORIN, "--leave", "classifer"]
    with pytest.raises(UsageError, match="scales are measured of a whole network") as caught:
        app(["calibrate", *command, "-q"])
    assert caught.value.code == "calibrate.left"
    assert app(["rewrite", *command, "-q"]) == 0
    with pytest.raises(UsageError, match="--verify cannot be combined with --leave"):
        app(["rewrite", str(file), "--leave", "classifer", "--verify", str(file)])


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


def test_left_out_modules_are_pytorchs_in_the_tree(nets: ModuleType) -> None:
    found = edgekit.check(nets.called_twice(), nets.image(), target=ORIN, leave=["middle.*"])
    modules = {one.module: one for one in found.modules}
    assert modules["middle"].devices == {"PyTorch": 2}
    assert modules["middle"].us is None
    assert modules["start"].devices == {"DLA": 1}
    left = [one for one in found.layers if one.opaque == "left"]
    assert [(one.module, one.placed, one.dla.ok) for one in left] == [("middle", None, False)] * 2
    assert "the module 'middle' is left out" in left[0].dla.reasons[0].message
    assert found.summary.dla_layers + found.summary.gpu_layers + len(left) == len(found.layers)
    assert "left out of the network, and in no figure: middle (2 calls)" in found.warnings
    with pytest.raises(UsageError, match="no module matches 'midle'") as caught:
        edgekit.check(nets.called_twice(), nets.image(), target=ORIN, leave=["midle"])
    assert "middle" in caught.value.hint


def test_modules_are_left_out_of_factories_files_and_configurations(
    nets: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    factory, size = "tests.pytorch.nets:lenet", {"x": "1x1x32x32:float32"}
    model = {"inputs": size, **LEGACY}
    planned = edgekit.plan(factory, target=ORIN, precision="fp16", leave=["classifer"], model=model)
    assert "left out of the network, and in no figure: classifer" in planned.notes
    assert [(one.module, one.device) for one in planned.left] == [("classifer", "PyTorch")]
    names = {one.name for one in planned.left}
    assert names.isdisjoint({*planned.unknown_cost, *planned.builder.device_types})
    for share in planned.plans:
        assert names.isdisjoint(one.name for one in share.layers)
        assert sum(one.layers for one in share.devices) == len(share.layers)
    assert edgekit.read_document(planned.to_json()) == planned
    assert not any("no cost model" in note or "constant" in note for note in planned.notes)
    empty = edgekit.plan(
        factory, target=ORIN, precision="fp16", leave=["feat", "classifer"], model=model
    )
    assert (empty.layers, len(empty.left), empty.predicted.latency_us) == ((), 2, None)
    file, config = tmp_path / "lenet.onnx", tmp_path / "lenet.yaml"
    edgekit.export(factory, target=ORIN, inputs=size, exporter="legacy", save=file)
    config.write_text(
        f"version: 1\nname: net\ntarget: {ORIN}\nprecision: fp16\n"
        "model: {onnx: lenet.onnx, leave: [classifer]}\n"
    )
    by_file = edgekit.check(file, target=ORIN, precision="fp16", leave=["classifer"])
    by_config = edgekit.check(config)
    assert {one.module: one.devices for one in by_file.modules}["classifer"] == {"PyTorch": 1}
    assert by_file.modules == by_config.modules
    command = [str(file), "-t", ORIN, "--leave", "classifer"]
    assert app(["check", *command]) == 0
    assert "PyTorch" in capsys.readouterr().out
    assert app(["plan", *command]) == 0
    assert re.search(r"PyTorch +1 +- +left out", capsys.readouterr().out)
    assert app(["plan", *command, "--by-module"]) == 0
    assert re.search(r"classifer +- +1 +PyTorch", capsys.readouterr().out)
    assert app(["plan", *command, "--why", "feat.conv2", "--json"]) == 0
    with pytest.raises(UsageError, match="the module 'classifer' is left out"):
        app(["plan", *command, "--why", "classifer"])
    with pytest.raises(UsageError, match="a build holds the whole network") as caught:
        edgekit.bundle(config, out=tmp_path)
    assert caught.value.code == "build.left"
    with pytest.raises(UsageError, match="no module matches"):
        edgekit.check(file, target=ORIN, leave=["clasifer"])
    with pytest.raises(EdgekitError, match="'leave' is for 'python', 'pt2' and 'onnx'"):
        edgekit.check("builtin:light_squeezenet", target=ORIN, model={"leave": ["a"]})
