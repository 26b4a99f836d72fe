"""What NVIDIA's registry, parser, builder and runtime say of plugins: cause and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import UsageError
from edgekit.pipeline.log_explanation import explain_log

STAMP = "[11/30/2026-04:12:39] "
#: Lines as TensorRT for RTX 1.7.1 and users' reports have them, with id and words of what is said.
LINES = [
    (
        "[E] [TRT] ModelImporter.cpp:139: In node 2 with name: mine and operator: MyOp "
        '(checkFallbackPluginImporter): UNSUPPORTED_NODE: Assertion failed: creator && "Plugin not '
        'found, are the plugin name, version, and namespace correct?"',
        "network.unknown-operator",
        [
            "no plugin creator of that name, version and namespace",
            "plugin_version",
            "--dynamicPlugins",
            "library of model.plugins",
        ],
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
        "[E] [TRT] ModelImporter.cpp:771: ERROR: builtin_op_importers.cpp:5416 In function "
        'importFallbackPluginImporter: [8] Assertion failed: plugin && "Could not create plugin"',
        "plugin.create",
        ["createPlugin returned nothing", "at 009d654"],
    ),
    (
        "[E] Error[9]: [pluginV2Builder.cpp::reportPluginError::23] Error Code 9: Internal Error "
        "(/MultiScaleDeformableAttnTRT: could not find any supported formats consistent with "
        "input/output data types)",
        "plugin.formats",
        ["layer /MultiScaleDeformableAttnTRT", "supportsFormatCombination", "BEVFormer"],
    ),
    (
        "[E] [TRT] IBuilder::buildSerializedNetwork: Error Code 9: Internal Error "
        "(node_of_onnx::Shape_2609: could not find any supported formats consistent with "
        "input/output data types)",
        "plugin.formats",
        ["layer node_of_onnx::Shape_2609", "INT64"],
    ),
    (
        "[TensorRT] ERROR: 9: [pluginV2Builder.cpp::reportPluginError::21] Error Code 9: Internal "
        "Error ((Unnamed Layer* 506) [PluginV2IOExt]: could not find any supported formats "
        "consistent with input/output data types)",
        "plugin.formats",
        ["layer (Unnamed Layer* 506) [PluginV2IOExt]"],
    ),
    (
        "[E] Error[2]: [pluginV2Builder.cpp::deduceTensorFormat::288] Error Code 2: Internal Error "
        "(Assertion format.hasValue() failed. format not recognized or not supported)",
        "plugin.format",
        ["no tensor format", "kLINEAR", "NVIDIA/TensorRT#3482"],
    ),
    (
        "[TensorRT] ERROR: ../builder/cudnnBuilder2.cpp (2032) - Assertion Error in "
        "getSupportedFormats: 0 (!formats.empty())",
        "plugin.format",
        ["no tensor format"],
    ),
    (
        "E0202 09:45:39.455421 2001175 helper.h:114] 4: [pluginV2Builder.cpp::makeRunner::476] "
        "Error Code 4: Internal Error (Internal error: plugin node deformable_conv (Output: "
        "deformable_conv_6.tmp_0804) requires 47628288 bytes of scratch space, but only 33554432 "
        "is available. Try increasing the workspace size with "
        "IBuilderConfig::setMemoryPoolLimit().",
        "plugin.scratch",
        [
            "deformable_conv_6.tmp_0804) needs 47628288 bytes",
            "33554432 are allowed",
            "--memPoolSize=workspace:MIB",
            "build.workspace_mib",
        ],
    ),
    (
        "[E] Uncaught exception detected: Unable to open library: libmyop.so due to ./libmyop.so: "
        "undefined symbol: _ZTIN8nvinfer19IPluginV3E",
        "plugin.library",
        ["libmyop.so: ./libmyop.so: undefined symbol", "c++filt", "NVIDIA/TensorRT#3402"],
    ),
    (
        "[E] Uncaught exception detected: Unable to open library: libnvinfer_plugin.so.8 due to "
        "/opt/TensorRT-8.6.0.12/lib/libnvinfer_plugin.so.8: file too short",
        "plugin.library",
        ["TensorRT's own from its package"],
    ),
    (
        "[E] Uncaught exception detected: Unable to open library: libmyop.so due to "
        "libnvinfer.so.8: cannot open shared object file: No such file or directory",
        "plugin.library",
        ["built for TensorRT N"],
    ),
    (
        "[E] Uncaught exception detected: Unable to open library: libnvinfer_plugin.so.9 due to "
        "libnvinfer_plugin.so.9: cannot open shared object file",
        "libraries.missing",
        ["finds no TensorRT"],
    ),
    (
        "[E] Could not load plugin library: ./libmyop.so, due to: libmyop.so: undefined symbol: x",
        "plugin.library",
        ["./libmyop.so: libmyop.so: undefined symbol: x"],
    ),
    (
        "OSError: ./libmyplugins.so: undefined symbol: getPluginRegistry",
        "plugin.library",
        ["./libmyplugins.so lacks getPluginRegistry"],
    ),
    (
        "[E] [TRT] 3: [libLoader.cpp::nvinfer1::rt::DynamicLibrary::Impl::untypedSymbolAddress::"
        "365] Error Code 3: Internal Error (SymbolAddress for getPluginCreators could not be "
        "loaded, check function name against library symbol)",
        "plugin.entry",
        ["exports no getPluginCreators", "--staticPlugins"],
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
]


def explained(folder: Path, *lines: str) -> list[dict[str, Any]]:
    path = folder / "pasted.log"
    path.write_text("".join(STAMP + line + "\n" for line in lines))
    errors: list[dict[str, Any]] = explain_log(path).to_json()["errors"]
    return errors


@pytest.mark.parametrize(
    ("line", "id", "words"), LINES, ids=[f"{one[1]}-{at}" for at, one in enumerate(LINES)]
)
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


def test_lines_of_one_failure_are_one_error(tmp_path: Path) -> None:
    named = (
        "[E] [TRT] GatherElements_493: could not find any supported formats consistent with "
        "input/output data types"
    )
    unnamed = (
        "[E] [TRT] ../builder/cudnnBuilderGraphNodes.cpp (743) - Misc Error in reportPluginError: "
        "0 (could not find any supported formats consistent with input/output data types)"
    )
    (error,) = explained(tmp_path, named, unnamed, unnamed, "[E] Engine creation failed")
    assert (error["id"], error["count"]) == ("plugin.formats", 3)
    assert error["cause"].startswith("the plugin's layer GatherElements_493: ")


def test_a_plugin_between_dq_and_q_is_one_error(tmp_path: Path) -> None:
    what = (
        "Assertion !n->candidateRequirements.empty() failed. All of the candidates were removed, "
        "which points to the node being incorrectly marked as an int8 node."
    )
    place = "ERROR: 2: [optimizer.cpp::filterQDQFormats::4670] Error Code 2: Internal Error"
    (error,) = explained(tmp_path, f"ERROR: 2: {what}", f"{place} ({what})")
    assert (error["id"], error["count"]) == ("plugin.between-qdq", 2)
    assert "(Q, plugin, DQ)" in error["remedy"]


def test_scratch_of_tensorrt_7_is_no_lack_of_memory_too(tmp_path: Path) -> None:
    needs = "[TensorRT] ERROR: Internal error: plugin node (Unnamed Layer* 2) [PluginV2DynamicExt]"
    needs += "requires 2415919104 bytes of scratch space, but only 1048576000 is available."
    check = "[TensorRT] ERROR: ../builder/cudnnBuilder2.cpp (1176) - OutOfMemory Error in "
    (error,) = explained(tmp_path, needs, check + "checkPluginScratchSize: 0")
    assert error["id"] == "plugin.scratch"
    assert "2415919104 bytes" in error["cause"]


@pytest.mark.parametrize(
    "line",
    [
        "Uncaught exception detected: Unable to open library: libmyop.so due to ./libmyop.so: "
        "undefined symbol: _ZTIN8nvinfer19IPluginV3E",
        "./app: symbol lookup error: ./libops.so: undefined symbol: _ZNK9TRTPlugin12getNbOutputsEv",
    ],
)
def test_a_library_is_explained_from_its_line_alone(line: str, tmp_path: Path) -> None:
    path = tmp_path / "pasted.log"
    path.write_text(line + "\n")
    (error,) = explain_log(path).to_json()["errors"]
    assert error["id"] == "plugin.library"


def test_an_undefined_symbol_of_another_library_is_no_log_of_tensorrt(tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_text("ImportError: ./_C.so: undefined symbol: _ZN2at4_ops5empty\n")
    with pytest.raises(UsageError, match="not a TensorRT build log"):
        explain_log(path)
