"""`edgekit explain-log`: what ends a run is in the headline, with what to do; kernel logs; unknown
operators; status numbers by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgekit.cli import main
from edgekit.pipeline.log_explanation import explain_log


def explained(text: str, folder: Path) -> dict[str, Any]:
    path = folder / "pasted.log"
    path.write_text(text)
    return explain_log(path).to_json()


def ids(document: dict[str, Any]) -> list[str]:
    return [one["id"] for one in document["errors"]]


def asymmetric(words: str, version: str = "v8502") -> str:
    return (
        f"&&&& RUNNING TensorRT.trtexec [TensorRT {version}] # trtexec --onnx=m.onnx --int8\n"
        "[E] [TRT] ModelImporter.cpp:726: While parsing node number 4 [QuantizeLinear]:\n"
        "[E] [TRT] ModelImporter.cpp:732: ERROR: builtin_op_importers.cpp:1235 In function "
        f"QuantDequantLinearHelper:\n[6] Assertion failed: {words}\n[E] Failed to parse onnx file\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        'shiftIsAllZeros(zeroPoint) && "TRT only supports symmetric quantization - zeroPt must be '
        'all zeros"',
        "shiftIsAllZeros(zeroPoint): Non-zero zero point is not supported. Please set "
        "kENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLAto enable asymmetric quantization",
        'isZero && "Found asymmetric quantization"',
        'valid && "Zero point must be zero"',
    ],
)
def test_asymmetric_quantisation_is_told_how_to_be_symmetric(words: str, tmp_path: Path) -> None:
    found = explained(asymmetric(words), tmp_path)
    (error,) = found["errors"]
    assert error["id"] == "parser.asymmetric"
    assert error["node"]["number"] == 4
    assert "ActivationSymmetric" in error["remedy"]
    assert "modelopt" in error["remedy"]
    assert "edgekit calibrate MODEL" in error["remedy"]
    assert "The run failed" in found["headline"]
    newer = explained(asymmetric(words, "v110100"), tmp_path)["errors"][0]
    assert "edgekit calibrate to-qdq" in newer["remedy"]


def refused(operator: str, version: str, capability: str = "8.7") -> str:
    return (
        f"&&&& RUNNING TensorRT.trtexec [TensorRT {version}] # trtexec --onnx=m.onnx\n"
        f"[I] Compute Capability: {capability}\n"
        f'[E] [TRT] ModelImporter.cpp:726: While parsing node number 7 [{operator} -> "y"]:\n'
        "[E] [TRT] ModelImporter.cpp:732: ERROR: builtin_op_importers.cpp:3773 In function "
        'importFallbackPluginImporter:\n[8] Assertion failed: creator && "Plugin not found, are '
        'the plugin name, version, and namespace correct?"\n[E] Failed to parse onnx file\n'
    )


@pytest.mark.parametrize(
    ("operator", "version", "causes", "remedies"),
    [
        (
            "LayerNormalization",
            "v8502",
            ["8.5.2 has no importer", "8.6 is the first"],
            ["JetPack 6.0 brings 8.6.2", "opset 16"],
        ),
        ("Unique", "v100300", ["no release has one"], ["--outputs"]),
        (
            "Swish",
            "v100300",
            ["11.0 is the first"],
            ["JetPack 7.2.2 brings 11.4.1", "Sigmoid and Mul"],
        ),
        ("Relu", "v100300", ["imports Relu"], ["libnvonnxparser"]),
        ("NonMaxSuppression", "v7103", ["7.1.3 has no importer"], ["8.4 or newer"]),
        ("EfficientNMS_TRT", "v8502", ["ships the plugin"], ["initLibNvInferPlugins"]),
        ("MyOp", "v8502", ["no plugin creator"], ["--plugins=LIBRARY"]),
    ],
)
def test_an_unknown_operator_is_answered_for_release_and_board(
    operator: str, version: str, causes: list[str], remedies: list[str], tmp_path: Path
) -> None:
    found = explained(refused(operator, version), tmp_path)
    (error,) = found["errors"]
    assert error["id"] == "network.unknown-operator"
    assert f"{operator} at node 7" in error["cause"]
    assert all(words in error["cause"] for words in causes)
    assert all(words in error["remedy"] for words in remedies)
    assert found["headline"][1].startswith("TensorRT does not know an operator or plugin (line 3)")
    assert found["headline"][2] == f"What to do: {error['remedy']}"


def test_a_release_that_no_jetpack_of_the_board_has(tmp_path: Path) -> None:
    (error,) = explained(refused("LayerNormalization", "v8502", "7.2"), tmp_path)["errors"]
    assert "no JetPack of the board has it (the newest, 5.1" in error["cause"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[TRT] [E] No importer registered for op: GridSample", "8.5 is the first"),
        ("[8] No importer registered for op: NonMaxSuppression", "does not name its TensorRT"),
        (
            "[TRT] [E] 3: getPluginCreator could not find plugin: EfficientNMS_TRT version: 2",
            "asks for version 2",
        ),
    ],
)
def test_an_operator_in_one_line(line: str, says: str, tmp_path: Path) -> None:
    (error,) = explained(f"[TRT] x\n{line}\n", tmp_path)["errors"]
    assert says in error["cause"]


def test_an_import_as_a_plugin_that_succeeds_is_no_error(tmp_path: Path) -> None:
    text = (
        "[TRT] No importer registered for op: EfficientNMS_TRT. Attempting to import as plugin.\n"
        "[TRT] Successfully created plugin: EfficientNMS_TRT\n"
    )
    assert ids(explained(text, tmp_path)) == []


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("6: The engine plan file is not compatible with this version of TensorRT, expecting "
         "library version 10.3.0 got 8.5.2, please rebuild.\n[TRT] [E] 4: [runtime.cpp::"
         "deserializeCudaEngine::50] Error Code 4: Internal Error (Engine deserialization "
         "failed.)", "engine.other-release",
         "built with TensorRT 8.5.2, loaded by TensorRT 10.3.0"),
        ("coreReadArchive.cpp (41) - Serialization Error in verifyHeader: 0 (Version tag does not "
         "match. Note: Current Version: 96, Serialized Engine Version: 97)",
         "engine.other-release", "number 97, and the library reads 96"),
        ("IRuntime::deserializeCudaEngine: Error Code 1: Internal Error\nUnexpected call to stub "
         "loadRunner for ReformatRunner", "engine.lean", "lean runtime"),
        ("The engine plan file is generated on an incompatible device, expecting compute 8.7 got "
         "compute 7.2, please rebuild.", "engine.other-gpu", "capability 7.2, loaded on 8.7"),
        ("TensorRT mismatch. Compiled against version 3.0.4, but loaded 4.0.1.",
         "libraries.tensorrt", "made for TensorRT 3.0.4, finds 4.0.1"),
        ("Linked TensorRT version: (8, 4, 3)\n[W] Loaded TensorRT version: (8, 6, 1)",
         "libraries.tensorrt", "made for TensorRT 8.4.3, finds 8.6.1"),
        ("Linked TensorRT version 8.5.2, loaded library version 10.3.0", "libraries.tensorrt",
         "finds 10.3.0"),
        ("Network must have at least one output\n[TRT] [E] Network validation failed.",
         "network.no-output", "marked as an output"),
        ("Network has no outputs", "network.no-output", "parser failed"),
        ("Cannot deserialize with an empty memory buffer.", "engine.no-data", "not found"),
        ("CUDA initialization failure with error: 35", "cuda.init", "cudaErrorInsufficientDriver"),
    ],
)  # fmt: skip
def test_what_ends_a_run_is_in_the_headline(
    text: str, error: str, says: str, tmp_path: Path
) -> None:
    found = explained(f"[TRT] [E] {text}\n", tmp_path)
    assert ids(found) == [error]
    assert says in found["headline"][1]
    assert found["headline"][2] == f"What to do: {found['errors'][0]['remedy']}"
    assert found["unknown_errors"] == []


@pytest.mark.parametrize(
    "line",
    [
        "Linked TensorRT version: (8, 6, 1)\nLoaded TensorRT version: (8, 6, 1)",
        "cudlaSubmitTask returned 0",
        "number of cudla devices = 2",
        "[TRT] [I] cuDLA error: 7",
    ],
)
def test_what_fits_is_no_error(line: str, tmp_path: Path) -> None:
    assert ids(explained(f"[TRT] [I] x\n{line}\n", tmp_path)) == []


def test_a_crash_after_an_empty_engine_has_one_remedy(tmp_path: Path) -> None:
    found = explained(
        "[E] [TRT] Parameter check failed at: runtime.cpp::deserializeCudaEngine::36, condition: "
        "(blob) != nullptr\nSegmentation fault (core dumped)\n",
        tmp_path,
    )
    assert ids(found) == ["engine.no-data"]
    assert found["passed"] is False
    assert [line for line in found["headline"] if line.startswith("The run crashed after line 1")]


@pytest.mark.parametrize(
    ("line", "error", "name"),
    [
        ("cudlaModuleLoadFromMemory failed: 7", "cudla.no-loadable", "cudlaErrorUmd"),
        ("cudlaModuleLoadFromMemory() returned 301", "cudla.file", "cudaErrorFileNotFound"),
        (
            "cudlaModuleLoadFromMemory failed, status=12",
            "cudla.no-loadable",
            "cudlaErrorInvalidModule",
        ),
        ("cudlaCreateDevice failed with error code 3", "cudla.device", "cudlaErrorCreationFailed"),
        ("cudlaSubmitTask failed: 0x40000006", "cudla.timeout", "cudlaErrorDlaErrEngineTimeout"),
        ("Asynchronous error in HW = 1073741827", "cudla.resources", "cudlaErrorDlaErrNoMem"),
        ("Asynchronous error in HW = 1073741831", "cudla.hardware", "DlaErrDataMismatch"),
        (
            "[TRT] [E] 1: [cudlaUtils.cpp::resolveModule::100] Error Code 1: Cudla (CUDLA_ERROR 7)",
            "cudla.no-loadable",
            "status 7, cudlaErrorUmd",
        ),
        ("CUDLA ERR: 13", "cudla.unsupported", "cudlaErrorUnsupportedOperation"),
        ("cudlaMemRegister returned 99", "cudla.other", "no name"),
        ("Cuda failure: 719", "cuda.fault", "cudaErrorLaunchFailure"),
    ],
)
def test_a_status_has_its_name(line: str, error: str, name: str, tmp_path: Path) -> None:
    (found,) = explained(f"{line}\n", tmp_path)["errors"]
    assert found["id"] == error
    assert name in found["cause"]


STARTED = """\
[   10.7] nothing of ours
[   10.714680] nvdla 15880000.nvdla0: Adding to iommu group 37
[   10.758399] nvdla 158c0000.nvdla1: Adding to iommu group 39
"""


def test_a_kernel_log_without_a_fault(tmp_path: Path) -> None:
    found = explained(STARTED, tmp_path)
    assert found["program"] == "kernel"
    assert found["headline"][1] == (
        "The kernel's driver has nvdla0 and nvdla1, and this log has no fault of the DLA"
    )
    assert not found["errors"] + found["notes"]
    other = explained("[    3.1234] nvgpu: 17000000.gpu: loaded\n", tmp_path)
    assert "does not name the DLA" in other["headline"][1]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (
            "arm-smmu 12000000.iommu: Unhandled context fault: fsr=0x402, iova=0x2b1000, "
            "fsynr=0x11, cbfrsynra=0x42b, cb=4",
            "kernel.smmu",
        ),
        ("mc-err: (255) csr_dla0rdb: EMEM address decode error", "kernel.memory-controller"),
        (
            "cma: cma_alloc: linux,cma: alloc failed, req-size: 62864 pages, ret: -12",
            "kernel.contiguous-memory",
        ),
        ("nvdla: probe of 15880000.nvdla0 failed with error -110", "nvdla.other"),
        ("host1x 13e00000.host1x: syncpt 24 timeout", "kernel.host1x"),
    ],
)
@pytest.mark.parametrize(
    "prefix",
    ["[  412.123456] ", "Nov 21 07:00:00 orin kernel: [  1.0] ", "[Sat Nov 21 07:00:00 2026] "],
)
def test_a_fault_in_a_kernel_log(line: str, error: str, prefix: str, tmp_path: Path) -> None:
    found = explained(f"{STARTED}{prefix}{line}\n", tmp_path)
    assert found["program"] == "kernel"
    assert ids(found) == [error]
    assert "fault of the DLA or of its memory (line 4)" in found["headline"][1]
    assert all(source["where"] for source in found["errors"][0]["sources"])


def test_a_fault_with_a_cause_leads_a_kernel_log(tmp_path: Path) -> None:
    found = explained(
        "[  112.345678] nvdla 15880000.nvdla0: task submit failed, err -22\n"
        "[  114.0] nvdla0: engine timeout detected\n",
        tmp_path,
    )
    assert ids(found) == ["nvdla.other", "nvdla.timeout"]
    assert "(line 2): The kernel's driver reset the DLA" in found["headline"][1]


@pytest.mark.parametrize("says", ["Out of memory", "Memory cgroup out of memory"])
def test_the_kernel_kills_trtexec(says: str, tmp_path: Path) -> None:
    killed = f"[  104] {says}: Killed process 4321 (trtexec) total-vm:1234kB\n"
    found = explained(
        "[  103] tegra-mc 2c00000.memory-controller: dla0rda: SMMU page fault\n" + killed, tmp_path
    )
    assert found["program"] == "kernel"
    assert ids(found) == ["kernel.memory-controller", "crash.memory"]
    assert found["headline"][-1] == "The kernel killed trtexec (line 2): out of memory"
    alone = explained(killed, tmp_path)
    assert alone["headline"][-1] == "The kernel killed trtexec (line 1): out of memory"


def test_one_error_has_one_remedy(tmp_path: Path) -> None:
    """A layer's rule and the error about it do not advise against each other."""
    for line in (
        "[E] Error[4]: DLA Standalone is enabled but layer: '/c/_input_quantizer/Constant_1' is "
        "not supported on DLA.",
        "[E] Error[4]: DLA Standalone is enabled but layer: '/neck/Pad' is not supported on DLA.",
        "[W] [TRT] Node: /c/Conv cannot run in INT8 mode due to missing scale and zero point. This "
        "node will not run on DLA.",
    ):
        found = explained(
            f"{line}\n{line.replace('/c/', '/d/').replace('Pad', 'Tile')}\n", tmp_path
        )
        (error,), (rule,) = found["errors"], found["rules"]
        assert (rule["fix"], rule["fixes"]) == (error["remedy"], [])
        assert len(rule["layers"]) == 2


def test_a_build_in_int8_is_not_told_to_build_in_int8(tmp_path: Path) -> None:
    found = explained(
        "&&&& RUNNING TensorRT.trtexec [TensorRT v8502] # trtexec --useDLACore=0 --int8\n"
        "[W] [TRT] conv: DLA only supports FP16 and Int8 precision type. Switching this layer's "
        "device type to GPU.\n",
        tmp_path,
    )
    assert "build with --fp16 or --int8" not in json.dumps(found)


@pytest.mark.parametrize(
    ("last", "failed"),
    [
        ("[E] Failed to parse onnx file", True),
        ("[E] Building engine failed", True),
        ("[E] Engine set up failed", True),
        ("Failed to parse onnx file\n&&&& PASSED TensorRT.trtexec # trtexec", False),
        ("[E] something else", False),
    ],
)
def test_the_run_failed(last: str, failed: bool, tmp_path: Path) -> None:
    found = explained(f"[I] [TRT] x\n{last}\n", tmp_path)
    assert ("The run failed" in found["headline"]) == failed


def test_the_terminal_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "load.log"
    path.write_text(
        "[TRT] [E] 6: The engine plan file is not compatible with this version of TensorRT, "
        "expecting library version 10.3.0 got 8.5.2, please rebuild.\n"
    )
    with pytest.raises(SystemExit) as ended:
        main.main(["explain-log", str(path)])
    assert not ended.value.code
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith("The engine cannot be loaded (line 1): built with TensorRT 8.5")
    assert any(line.startswith("What to do: build the engine again") for line in shown)
