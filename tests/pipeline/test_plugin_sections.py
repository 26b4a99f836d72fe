"""What is said of a configuration's plugins before any board is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import edgekit
from edgekit.cli.main import app
from edgekit.errors import ConfigError, EnvironmentLack
from edgekit.pipeline.pipeline import Pipeline
from tests.network.onnx_making import make
from tests.tensorrt.plugin_toys import for_machine, plugin

CONFIG = """version: 1
name: net
model: {{onnx: net.onnx, plugins: [{section}]}}
target: {target}
calibration: {{count: 2}}
{more}"""


def config(
    folder: Path, section: str, more: str = "", *, operator: str = "MyOp", target: str = ""
) -> Path:
    """Writes a network of two convolutions with a plugin between, and its configuration."""
    weights = np.random.default_rng(0).standard_normal((8, 8, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node(operator, ["c"], ["m"], name="mine", domain="acme"),
        helper.make_node("Conv", ["m", "w"], ["y"], name="conv2"),
    ]
    model = make(nodes, {"x": [1, 8, 8, 8]}, ["y"], {"w": weights}, domains=["acme"])
    onnx.save(model, folder / "net.onnx")
    (folder / "myop.py").write_text("def compute(x):\n    return x * 2\n")
    path = folder / "net.yaml"
    target = target or "jetson-agx-orin-64gb"
    path.write_text(CONFIG.format(section=section, target=target, more=more))
    return path


LIBRARY = "{operator: acme::MyOp, library: libmyop.so, outputs: [{shape: [1, 8, 8, 8]}]}"
HERE = '{operator: acme::MyOp, python: "myop:compute"}'


def said(path: Path) -> list[str]:
    """What ``check`` and ``plan`` both say."""
    planned = edgekit.plan(path).notes
    return [note for note in edgekit.check(path).warnings if note in planned]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("jetson-agx-orin-64gb", "TensorRT 10.3 takes no Python plugin that is compiled ahead"),
        ("jetson-agx-thor", "edgekit sends no plugin that is written in Python"),
    ],
)
def test_a_plugin_that_nothing_brings_to_a_board_is_named(
    tmp_path: Path, target: str, why: str
) -> None:
    (note,) = (one for one in said(config(tmp_path, HERE, target=target)) if "brings" in one)
    assert note.startswith("no library or source brings the plugin acme::MyOp: the board's")
    assert f"under the name MyOp; {why}" in note


@pytest.mark.parametrize("section", ["MyOp", HERE.replace("}", ", source: myop/}")])
def test_a_plugin_that_the_board_has_or_compiles_is_brought(tmp_path: Path, section: str) -> None:
    (tmp_path / "myop").mkdir()
    (tmp_path / "myop" / "CMakeLists.txt").write_text("project(myop)\n")
    path = config(tmp_path, section)
    assert not [one for one in edgekit.check(path).warnings if "brings" in one]


def test_a_run_without_a_board_does_not_promise_that_one_runs_the_plugin(tmp_path: Path) -> None:
    with Pipeline(edgekit.open_config(config(tmp_path, HERE))) as pipeline:
        end = pipeline.run_as_far_as_possible().notes[-1]
    assert end.startswith("The run ends here")
    assert "no library or source brings the plugin acme::MyOp" in end
    assert "TensorRT runs it" not in end


@pytest.mark.parametrize("command", [edgekit.check, edgekit.plan, edgekit.build, edgekit.run])
@pytest.mark.parametrize("section", [HERE, "MyOp"])
def test_standalone_loadables_take_no_plugin(
    tmp_path: Path, command: Callable[[Path], object], section: str
) -> None:
    path = config(tmp_path, section, "build: {mode: standalone}\n")
    with pytest.raises(ConfigError) as caught:
        command(path)
    assert caught.value.code == "trt.features"
    assert "There is no plugin registry for EngineCapability::kDLA_STANDALONE" in str(caught.value)
    assert "build.mode: hybrid" in caught.value.problems[0].hint


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("", "the plugin's library libmyop.so cannot be read: No such file"),
        ("text", "libmyop.so is no"),
        ("x86-64", "libmyop.so is built for x86-64, but a board has aarch64"),
        ("aarch64", "names no libnvinfer"),
    ],
)
def test_a_library_that_no_board_can_load_is_named_without_a_board(
    tmp_path: Path, machine: str, words: str
) -> None:
    file = tmp_path / "libmyop.so"
    if machine == "text":
        file.write_text("#!/bin/sh\n")
    elif machine:
        data = plugin(file, "MyOp|1||V3").read_bytes()
        file.write_bytes(for_machine(data) if machine == "aarch64" else data)
    assert any(words in note for note in said(config(tmp_path, LIBRARY)))


def test_a_source_without_its_cmake_file_is_named_without_a_board(tmp_path: Path) -> None:
    (tmp_path / "myop").mkdir()
    path = config(tmp_path, HERE.replace("}", ", source: myop/}"))
    assert any("CMakeLists.txt" in note for note in said(path))


def test_a_plugin_of_an_operator_that_the_parser_imports_is_never_looked_for(
    tmp_path: Path,
) -> None:
    section = HERE.replace("MyOp", "Relu")
    (note,) = (one for one in said(config(tmp_path, section, operator="Relu")) if "looks" in one)
    assert note.startswith("TensorRT's parser imports Relu itself and never looks for the plugin")
    assert "another name, in the model" in note


def test_without_a_function_the_error_names_it_as_a_way(tmp_path: Path) -> None:
    path = config(tmp_path, LIBRARY)
    with pytest.raises(EnvironmentLack) as caught:
        edgekit.build(path)
    assert caught.value.code == "build.opaque"
    assert "python: module:function" in caught.value.hint


def test_a_shape_that_nobody_knows_can_be_said_by_the_section(tmp_path: Path) -> None:
    path = config(tmp_path, "MyOp")
    (note,) = (one for one in edgekit.check(path).warnings if "known at run time" in one)
    assert "model.shapes, or with outputs or python of model.plugins" in note


def test_a_plan_has_a_page_where_no_bundle_can_be(tmp_path: Path) -> None:
    path, page = config(tmp_path, HERE), tmp_path / "plan.html"
    with pytest.raises(EnvironmentLack) as caught:
        edgekit.bundle(path)
    assert "edgekit plan --report FILE writes a page" in caught.value.hint
    assert app(["plan", str(path), "--report", str(page)]) == 0
    assert "brings the plugin acme::MyOp" in page.read_text("utf-8")
