"""Plugins from a configuration to a board that builds, deploys and runs with them."""

from __future__ import annotations

import hashlib
import json
import shutil

import onnx
import pytest
from onnx import helper

from edgekit.errors import BoardError
from edgekit.tensorrt import plugin_library
from tests.pipeline.test_board_build import board, config_of, pipeline
from tests.tensorrt.plugin_toys import plugin


@pytest.fixture(autouse=True)
def boards_like_this_machine(monkeypatch):
    """The boards of these tests are this machine."""
    monkeypatch.setattr(plugin_library, "BOARD_MACHINE", "x86-64")


def with_plugin(path, section, **attributes):
    """Puts ``acme::MyOp`` at the end of the small network, and its section into the file."""
    file = path.parent / "small.onnx"
    model = onnx.load(file)
    model.graph.node.append(
        helper.make_node("MyOp", ["y"], ["z"], "mine", domain="acme", **attributes)
    )
    model.graph.output[0].name = "z"
    model.opset_import.append(helper.make_opsetid("acme", 1))
    onnx.save(model, file)
    text = path.read_text().replace("onnx: small.onnx", f"onnx: small.onnx, plugins: [{section}]")
    path.write_text(text)
    return path


@pytest.mark.boards
@pytest.mark.slow
def test_a_library_travels_in_the_bundle_and_is_loaded_before_the_engine(tmp_path):
    library = plugin(tmp_path / "config" / "libmine.so", "MyOp|2|acme|V3")
    with board(tmp_path, "10.3.0") as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", "{version_compatible: true}", precision="fp16")
        section = '{operator: "acme::MyOp", library: libmine.so}'
        with_plugin(path, section, plugin_version="2", plugin_namespace="acme")
        with pipeline(path, tmp_path) as one:
            document = one.run().document.to_json()
    assert document["backend"] == "tensorrt"
    manifest = json.loads(next((tmp_path / "lab/apps").glob("*/current/manifest.json")).read_text())
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    assert manifest["plugins"] == [
        {
            "operator": "MyOp",
            "version": "2",
            "namespace": "acme",
            "library": digest,
            "file": "libmine.so",
        }
    ]
    assert manifest["blobs"][digest]["kind"] == "library"
    assert all(engine["plugins_embedded"] for engine in manifest["engines"].values())
    notes = " ".join(document["notes"])
    assert "the engines need libmine.so" in notes
    assert "names no libnvinfer" in notes
    assert "only with engine_host_code_allowed" in notes


@pytest.mark.boards
@pytest.mark.slow
def test_a_creator_that_the_board_lacks_ends_the_build_before_it_begins(tmp_path):
    with board(tmp_path, "10.3.0") as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", "{}", precision="fp16")
        with_plugin(path, "MyOp")
        with pipeline(path, tmp_path) as one, pytest.raises(BoardError) as caught:
            one.build()
    assert caught.value.code == "plugin.creator"
    assert "'MyOp' (version '1') is registered" in caught.value.message
    assert "library or source" in caught.value.hint


@pytest.mark.boards
@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_board_builds_what_a_function_computes_on_the_host(tmp_path, precision):
    plugin(tmp_path / "config" / "libmine.so", "MyOp|1||V3")
    (tmp_path / "config" / "mine.py").write_text("def double(x):\n    return x * 2\n")
    with board(tmp_path, "10.3.0") as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", "{}", precision=precision)
        section = '{operator: MyOp, library: libmine.so, python: "mine:double"'
        with_plugin(path, section + ', formats: ["int8:chw", "fp16:chw"]}')
        with pipeline(path, tmp_path) as one:
            document = one.run().document
    assert document.backend == "tensorrt"
    (entry,) = (one for one in document.plan.layers if one.name == "mine")
    assert entry.device == "GPU"
    # the accuracy is that of the whole network, through the plugin
    assert document.accuracy.per_segment[-1].tensor == "z"
    assert document.accuracy.cosine > 0.99


CMAKE = """\
cmake_minimum_required(VERSION 3.13)
project(mine LANGUAGES C)
add_library(mine SHARED mine.c)
"""
SOURCE = """\
const char edgekit_test_creators[] = "MyOp|1||V3";
void *getCreators(int *n) { *n = 0; return 0; }
"""


@pytest.mark.boards
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_a_board_compiles_a_plugins_folder(tmp_path):
    folder = tmp_path / "config" / "myop"
    folder.mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "mine.c").write_text(SOURCE)
    with board(tmp_path, "10.3.0") as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", "{}", precision="fp16")
        with_plugin(path, "{operator: MyOp, source: myop/}")
        with pipeline(path, tmp_path) as one:
            document = one.run().document.to_json()
        kinds = [
            json.loads(file.read_text())["kind"]
            for file in (tmp_path / "lab").glob("jobs/*/request.json")
        ]
        log = next(
            file.with_name("log.txt").read_text()
            for file in (tmp_path / "lab").glob("jobs/*/request.json")
            if json.loads(file.read_text())["kind"] == "plugin"
        )
        # the same again compiles nothing
        with pipeline(path, tmp_path) as two:
            steps = {step["name"]: step["status"] for step in two.build().to_json()["steps"]}
        assert steps["build"] == "reused"
        # sources that do not compile are the board's error
        (folder / "mine.c").write_text("int getCreators(void) { return missing; }\n")
        with pipeline(path, tmp_path) as three, pytest.raises(BoardError) as caught:
            three.build()
    assert document["backend"] == "tensorrt"
    assert kinds.count("plugin") == 1
    assert "Linking C shared library libmine.so" in log
    manifest = json.loads(next((tmp_path / "lab/apps").glob("*/current/manifest.json")).read_text())
    (entry,) = manifest["plugins"]
    assert entry["file"] == "libmine.so"
    assert manifest["blobs"][entry["library"]]["kind"] == "library"
    assert caught.value.code == "plugin.compile"
    assert "undeclared" in caught.value.message
