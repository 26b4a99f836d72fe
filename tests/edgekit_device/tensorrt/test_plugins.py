"""Plugins on a board: libraries loaded before a model is parsed or an engine deserialised."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import BlobEntry, PluginEntry
from edgekit_device.runtime.model import open_model
from edgekit_device.tensorrt.plugins import (
    Creator,
    library_paths,
    load_plugins,
    nearest_creator,
    plugin_files,
)
from edgekit_device.trust.bundle import Checked
from tests.edgekit_device.build import toys
from tests.edgekit_device.build.board import Board
from tests.edgekit_device.tensorrt import toys as device_trt_toys
from tests.tensorrt.plugin_toys import compiled, plugin
from tests.trt_double import double

FAMILY = {"8.6.1": "V2"}
VERSIONS = ["8.6.1", "10.3.0", "10.16.1", "11.4.0"]


def library(folder: Path, version: str = "10.3.0", creators: str = "", **more: Any) -> bytes:
    text = creators or f"MyOp|1||{FAMILY.get(version, 'V3')}"
    return plugin(folder / "libmine.so", text, **more).read_bytes()


def model(version: str) -> bytes:
    return toys.own_plugin_onnx("float16" if version.startswith("11") else "float32")


@pytest.mark.few(2)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_with_a_plugin_is_built_loaded_and_run(
    version: str, make: Any, tmp_path: Path
) -> None:
    on, data = make(version), library(tmp_path, version)
    result = on.run(toys.own_plugin(version, data), data, model(version))
    (entry,) = result["engines"]
    assert [one["name"] for one in entry["layers"]][-2:] == ["relu", "mine"]
    assert "plugins_embedded" not in entry
    found = np.frombuffer(on.blob(result["golden"][0]["outputs"]["y"]["digest"]), "uint8")
    assert found.any()
    assert on.offences() == []


@pytest.mark.few(2)
@pytest.mark.parametrize("version", ["8.6.1", "10.3.0"])
@pytest.mark.parametrize("lean", [True, False])
def test_a_version_compatible_plan_carries_the_library(
    version: str, lean: bool, make: Any, tmp_path: Path
) -> None:
    on, data = make(version), library(tmp_path, version)
    request = toys.own_plugin(version, data)
    flags = ["VERSION_COMPATIBLE", *([] if lean else ["EXCLUDE_LEAN_RUNTIME"])]
    request["engines"][0]["attempts"] = [{"flags": flags, "gives_up": ""}]
    (entry,) = on.run(request, data, model(version))["engines"]
    assert entry["plugins_embedded"]
    assert entry["lean_embedded"] == lean
    assert on.offences() == []


def failure(on: Board, request: dict[str, Any], *blobs: bytes) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        on.run(request, *blobs)
    return caught.value


@pytest.mark.parametrize(
    ("creators", "said", "hint"),
    [
        (
            "MyOp|2|acme|V3",
            "'MyOp' (version '2', namespace 'acme')",
            "write in model.plugins, and in the model, version: '2' (the node's plugin_version) "
            "and namespace: 'acme' (the node's plugin_namespace)",
        ),
        (
            "MyOp|1|acme|V3",
            "'MyOp' (version '1', namespace 'acme')",
            "write in model.plugins, and in the model, namespace: 'acme' (the node's "
            "plugin_namespace)",
        ),
        ("My0p|1||V3", "'My0p' (version '1')", "did you mean 'My0p'?"),
        ("", "no creator", "getCreators"),
    ],
    ids=["version and namespace", "namespace", "name", "none"],
)
def test_a_creator_that_is_missing_is_named_with_the_nearest(
    creators: str, said: str, hint: str, make: Any, tmp_path: Path
) -> None:
    data = plugin(tmp_path / "libmine.so", creators).read_bytes()
    request = toys.own_plugin("10.3.0", data, file="libmine.so")
    error = failure(make("10.3.0"), request, data, model("10.3.0"))
    assert error.code == "plugin.creator"
    assert error.message == (
        "no creator of the plugin 'MyOp' (version '1') is registered; libmine.so registers " + said
    )
    assert hint in error.hint


def test_a_plugin_without_a_library_must_be_in_the_boards_tensorrt(make: Any) -> None:
    request = toys.own_plugin("10.3.0", None)
    error = failure(make("10.3.0"), request, model("10.3.0"))
    assert (error.code, error.where) == ("plugin.creator", "plugins")
    assert "the registry has 3 creators, none like it" in error.message
    assert "DeepStream" in error.hint
    assert "Isaac ROS" in error.hint
    request["plugins"][0]["operator"] = "EfficientNMS_TTR"
    error = failure(make("10.3.0"), request, model("10.3.0"))
    assert "the nearest 'EfficientNMS_TRT' (version '1')" in error.message
    assert "did you mean 'EfficientNMS_TRT'?" in error.hint


def test_8_6_does_not_know_v3_creators(make: Any, tmp_path: Path) -> None:
    data = library(tmp_path, creators="MyOp|1||V3")
    error = failure(make("8.6.1"), toys.own_plugin("8.6.1", data), data, model("8.6.1"))
    assert "registers no creator" in error.message
    # nor their entry point
    data = library(tmp_path, creators="MyOp|1||V2", entries=["getCreators"])
    error = failure(make("8.6.1"), toys.own_plugin("8.6.1", data), data, model("8.6.1"))
    assert "before TensorRT 10 getPluginCreators" in error.hint


def test_a_symbol_that_nothing_gives_is_named(make: Any, tmp_path: Path) -> None:
    more = "extern int _ZN8nvinfer13newEv(void); int use(void) { return _ZN8nvinfer13newEv(); }"
    data = library(tmp_path, more=more)
    request = toys.own_plugin("10.3.0", data, file="libmine.so")
    error = failure(make("10.3.0"), request, data, model("10.3.0"))
    assert error.code == "plugin.load"
    assert "libmine.so: undefined symbol: _ZN8nvinfer13newEv" in error.message
    assert "nm -D" in error.hint


def test_a_needed_library_that_the_board_lacks_is_named(make: Any, tmp_path: Path) -> None:
    path = plugin(tmp_path / "libmine.so", "MyOp|1||V3", needed=["libnvinfer.so.8"])
    (tmp_path / "libnvinfer.so.8").unlink()
    data = path.read_bytes()
    error = failure(make("10.3.0"), toys.own_plugin("10.3.0", data), data, model("10.3.0"))
    assert error.code == "plugin.load"
    assert "libnvinfer.so.8: cannot open shared object file" in error.message
    assert "ldd" in error.hint


def test_a_library_of_another_machine_is_one_error(make: Any, tmp_path: Path) -> None:
    data = compiled(tmp_path / "lib.so", machine=40).read_bytes()
    error = failure(make("10.3.0"), toys.own_plugin("10.3.0", data), data, model("10.3.0"))
    assert error.code == "plugin.load"
    assert "is built for another processor" in error.message
    assert "source: FOLDER" in error.hint


def test_a_library_that_crashes_when_it_is_opened_is_one_error(make: Any, tmp_path: Path) -> None:
    crash = (
        "#include <signal.h>\n"
        "__attribute__((constructor)) static void start(void) { raise(SIGKILL); }"
    )
    data = library(tmp_path, more=crash)
    error = failure(make("10.3.0"), toys.own_plugin("10.3.0", data), data, model("10.3.0"))
    assert error.code == "plugin.crashed"
    assert error.message.endswith("libraries died: SIGKILL")


def test_a_plugin_that_nobody_named_is_the_parsers_error(make: Any) -> None:
    request = toys.own_plugin("10.3.0", None)
    del request["plugins"]
    error = failure(make("10.3.0"), request, model("10.3.0"))
    assert error.code == "build.parser"
    assert "'mine' (MyOp)" in error.message
    assert "model.plugins" in error.hint


def test_a_node_that_asks_for_another_version_is_the_parsers_error(
    make: Any, tmp_path: Path
) -> None:
    data = library(tmp_path)
    request = toys.own_plugin("10.3.0", data)
    asks = toys.own_plugin_onnx(plugin_version="2")
    request["engines"][0]["model"] = toys.sha(asks)
    error = failure(make("10.3.0"), request, data, asks)
    assert error.code == "build.parser"
    assert "plugin_version" in error.hint


# A bundle.


def bundle(here: Any, data: bytes, *, signer: str | None = "tests") -> Checked:
    """A bundle of the toy of ``device_trt_toys``, which says that it needs a plugin."""
    here.has("10.3.0")
    return _with_library(device_trt_toys.plan("10.3.0"), data, signer=signer)


def _with_library(plan: bytes, data: bytes, *, signer: str | None, **about: Any) -> Checked:
    entry = device_trt_toys.entry("10.3.0", **about)
    checked = device_trt_toys.checked(plan, entry, signer=signer)
    digest = toys.sha(data)
    checked.files.blobs.values[digest] = data  # type: ignore[attr-defined]
    manifest = replace(
        checked.manifest,
        plugins=(PluginEntry("MyOp", "1", "", digest, "libmine.so"),),
        blobs={**checked.manifest.blobs, digest: BlobEntry(len(data), "library")},
    )
    return replace(checked, manifest=manifest)


def test_a_signed_bundles_library_is_loaded_before_its_engine(here: Any, tmp_path: Path) -> None:
    checked = bundle(here, library(tmp_path))
    open_model(checked)
    double_of = here.modules["full"]._double
    assert ("MyOp", "1", "") in double_of.creators
    # a library is loaded once for a process
    open_model(checked)
    assert len(double_of.libraries) == 1


def plan_with_plugin(data: bytes, *flags: str) -> bytes:
    """A plan of ``own_plugin_onnx``, with the library inside where it is version compatible."""
    trt = double.module("10.3.0")
    logger = trt.Logger(trt.Logger.ERROR)
    files = plugin_files([PluginEntry("MyOp", "1", "", toys.sha(data))], lambda _: data)
    load_plugins(trt, logger, files)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    assert trt.OnnxParser(network, logger).parse(toys.own_plugin_onnx())
    config = builder.create_builder_config()
    for flag in flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    config.plugins_to_serialize = library_paths(files) if flags else []
    return bytes(memoryview(builder.build_serialized_network(network, config)))


Y = replace(device_trt_toys.X, name="y")


def test_an_engine_whose_plugin_no_manifest_names_says_which(here: Any, tmp_path: Path) -> None:
    here.has("10.3.0")
    plan = plan_with_plugin(library(tmp_path))
    with pytest.raises(DeviceError) as caught:
        open_model(device_trt_toys.checked(plan, device_trt_toys.entry("10.3.0")))
    assert caught.value.code == "plugin.creator"
    assert "Cannot find plugin: MyOp, version: 1" in caught.value.message
    assert "model.plugins" in caught.value.hint


def test_the_lean_runtime_may_run_the_libraries_that_a_signed_plan_carries(
    here: Any, tmp_path: Path
) -> None:
    here.has("10.3.0", ("lean",))
    data = library(tmp_path)
    plan = plan_with_plugin(data, "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME")
    about = {"version_compatible": True, "outputs": (Y,)}
    open_model(_with_library(plan, data, signer="tests", plugins_embedded=True, **about))
    # a manifest that does not say so leaves the plan's code alone
    with pytest.raises(DeviceError) as caught:
        open_model(_with_library(plan, data, signer="tests", **about))
    assert caught.value.code == "engine.host-code"


def test_an_unsigned_bundles_library_is_never_loaded(here: Any, tmp_path: Path) -> None:
    marks = tmp_path / "loaded"
    mark = f'#include <stdio.h>\n__attribute__((constructor)) static void start(void) {{ fclose(fopen("{marks}", "w")); }}'  # noqa: E501
    data = library(tmp_path, more=mark)
    with pytest.raises(DeviceError) as caught:
        open_model(bundle(here, data, signer=None))
    assert caught.value.code == "plugin.unsigned"
    assert not marks.exists()
    open_model(bundle(here, data))
    assert marks.exists()


def test_a_library_that_was_changed_is_not_loaded(here: Any, tmp_path: Path) -> None:
    checked = bundle(here, library(tmp_path))
    digest = checked.manifest.plugins[0].library
    other = library(tmp_path / "other", creators="MyOp|1||V3;Evil|1||V3")
    checked.files.blobs.values[digest] = other  # type: ignore[attr-defined]
    with pytest.raises(DeviceError) as caught:
        open_model(checked)
    assert caught.value.code == "blob.digest-mismatch"


# The parts.


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (("A", "1", ""), ("A", "1", "x")),
        (("A", "2", "y"), ("A", "2", "x")),
        (("A", "3", "x"), ("A", "1", "x")),
        (("Other", "1", ""), None),
        (("longname", "1", ""), ("LongName", "1", "")),
    ],
)
def test_the_nearest_creator_has_the_name_then_the_namespace_then_the_version(
    wanted: tuple[str, str, str], found: tuple[str, str, str] | None
) -> None:
    known = [("A", "1", "x"), ("A", "2", "x"), ("LongName", "1", "")]
    near = nearest_creator(Creator(*wanted), [Creator(*one) for one in known])
    assert near == (None if found is None else Creator(*found))


def test_a_library_without_entry_points_registers_itself(tmp_path: Path) -> None:
    trt = double.module("10.3.0")
    data = plugin(tmp_path / "lib.so", "MyOp|1||V3", entries=[]).read_bytes()
    files = plugin_files([PluginEntry("MyOp", "1", "", toys.sha(data))], lambda _: data)
    # what the constructor of a static registrar does
    trt._double.creators["MyOp", "1", ""] = "V3"
    load_plugins(trt, trt.Logger(trt.Logger.INFO), files)
    assert trt._double.libraries == []


def test_a_library_stays_open_under_its_own_path(tmp_path: Path) -> None:
    """Two libraries one after the other in one process are two: the linker goes by paths."""
    code = """
import sys
from edgekit_device.protocol.manifest import PluginEntry
from edgekit_device.tensorrt.plugins import plugin_files
paths = []
for name in sys.argv[1:]:
    data = open(name, "rb").read()
    paths += [one.path for one in plugin_files([PluginEntry("A", "1", "", name)], lambda _: data)]
print(len(set(paths)))
"""
    files = [str(library_file(tmp_path, n)) for n in "ab"]
    done = subprocess.run(
        [sys.executable, "-c", code, *files], check=True, capture_output=True, text=True
    )
    assert done.stdout == "2\n"


def library_file(folder: Path, name: str) -> Path:
    return plugin(folder / name / "lib.so", f"{name}|1||V3")
