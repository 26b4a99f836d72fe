"""What NVIDIA's registry, parser, builder and runtime say of plugins: cause and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.pipeline.log_explanation import explain_log

STAMP = "[11/30/2026-04:12:39] "
#: Lines as TensorRT for RTX 1.7.1 and the reports print them, with id and words of what is said.
LINES = [
    (
        "[E] [TRT] ModelImporter.cpp:139: In node 2 with name: mine and operator: MyOp "
        '(checkFallbackPluginImporter): UNSUPPORTED_NODE: Assertion failed: creator && "Plugin not '
        'found, are the plugin name, version, and namespace correct?"',
        "network.unknown-operator",
        ["no plugin creator of that name, version and namespace", "plugin_version",
         "--dynamicPlugins", "library of model.plugins"],
    ),
    (
        "[E] [TRT] IPluginRegistry::getCreator: Error Code 4: API Usage Error (Cannot find plugin: "
        "MyOp, version: 1, namespace:.)",
        "network.unknown-operator",
        ["no plugin creator", "plugin_namespace"],
    ),
    (
        "[W] [TRT] onnxOpImporters.cpp:6521: Attribute kernel not found in plugin node! Ensure "
        "that the plugin creator has a default value defined or the engine may fail to build.",
        "plugin.field",
        ["declares a field", "the field kernel", "getFieldNames", "by position"],
    ),
    (
        "[E] [TRT] ModelImporter.cpp:941: ERROR: onnxOpImporters.cpp:6709 In function "
        "importFallbackPluginImporter: [8] Assertion failed: plugin: Could not create the plugin.",
        "plugin.create",
        ["createPlugin returned nothing", "PluginFieldType"],
    ),
    (
        "[E] [TRT] Error Code: 9: IPluginV3OneBuild output shape computation failed with a "
        "non-zero return code",
        "plugin.shape",
        ["getOutputShapes failed", "`outputs` of its section in model.plugins"],
    ),
    (
        "[E] [TRT] 2: [pluginV2DynamicExtRunner.cpp::execute::115] Error Code 2: Internal Error "
        "(Assertion status == kSTATUS_SUCCESS failed. )",
        "plugin.enqueue",
        ["failed in enqueue", "cudaGetLastError()", "87 Orin"],
    ),
    (
        "[E] [TRT] C:\\source\\rtExt\\cuda\\cudaPluginV2DynamicExtRunner.cpp (108) - Cuda Error in "
        "nvinfer1::rt::cuda::PluginV2DynamicExtRunner::execute: 1 (invalid argument)",
        "plugin.enqueue",
        ["failed in enqueue"],
    ),
    (
        "[E] [TRT] 1: [pluginV2Runner.cpp::load::300] Error Code 1: Serialization (Serialization "
        "assertion creator failed.Cannot deserialize plugin since corresponding IPluginCreator not "
        "found in Plugin Registry)",
        "engine.plugin",
        ["did not load", "DeepStream custom-lib-path", "Isaac ROS custom_plugin_lib"],
    ),
]  # fmt: skip


def explained(folder: Path, *lines: str) -> list[dict[str, Any]]:
    path = folder / "pasted.log"
    path.write_text("".join(STAMP + line + "\n" for line in lines))
    errors: list[dict[str, Any]] = explain_log(path).to_json()["errors"]
    return errors


@pytest.mark.parametrize(("line", "id", "words"), LINES, ids=[one[1] for one in LINES])
def test_each_text_has_its_cause_and_remedy(
    line: str, id: str, words: list[str], tmp_path: Path
) -> None:
    (error,) = explained(tmp_path, line)
    assert error["id"] == id
    said = " ".join(str(value) for value in error.values())
    for word in words:
        assert word in said


def test_a_missing_field_and_what_follows_are_both_there(tmp_path: Path) -> None:
    found = explained(tmp_path, LINES[2][0], LINES[3][0])
    assert [one["id"] for one in found] == ["plugin.field", "plugin.create"]
