"""`edgekit explain-log`: refused models, crashes, the DLA's failures, files that are no log."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from edgekit.buildlog.known_errors import known_errors
from edgekit.errors import UsageError
from edgekit.pipeline.log_explanation import explain_log
from tests.pipeline.nets import small_net


def explained(text: str, folder: Path) -> dict[str, Any]:
    path = folder / "pasted.log"
    path.write_text(text)
    return explain_log(path).to_json()


PLUGIN = """\
[E] [TRT] IPluginRegistry::getCreator: Error Code 4: API Usage Error (\
Cannot find plugin: MyNms, version: 1, namespace:.)
[E] [TRT] ModelImporter.cpp:949: While parsing node number 3 [MyNms -> "boxes"]:
[E] [TRT] ModelImporter.cpp:950: --- Begin node ---
[E] [TRT] ModelImporter.cpp:951: --- End node ---
[E] [TRT] ModelImporter.cpp:954: ERROR: onnxOpCheckers.cpp:781 In function \
checkFallbackPluginImporter:
[6] creator && "Plugin not found, are the plugin name, version, and namespace correct?"
[E] Failed to parse onnx file
"""
RESIZE = """\
[E] [TRT] ModelImporter.cpp:726: While parsing node number 17 [Resize -> "up"]:
[E] [TRT] ModelImporter.cpp:727: --- Begin node ---
[E] [TRT] ModelImporter.cpp:728: input: "x"
op_type: "Resize"
[E] [TRT] ModelImporter.cpp:729: --- End node ---
[E] [TRT] ModelImporter.cpp:732: ERROR: builtin_op_importers.cpp:3608 In function importResize:
[8] Assertion failed: scales.is_weights() && "Resize scales must be an initializer!"
[E] Failed to parse onnx file
[E] Parsing model failed
"""
OLD = """\
While parsing node number 5 [Gather]:
ERROR: builtin_op_importers.cpp:1231 In function importGather:
[8] Assertion failed: axis >= 0 && axis < nbDims
[TensorRT] ERROR: Network must have at least one output
"""
PYTHON = (
    "[TRT] [E] In node 9 with name: /head/TopK and operator: TopK (importTopK): UNSUPPORTED_NODE: "
    'Assertion failed: (k.is_weights()) && "The K input must be an initializer."\n'
)
INVALID = """\
[01/02/2026-10:00:00] [TRT] [E] ModelImporter.cpp:836: ERROR: ModelImporter.cpp:194 \
In function parseNode:
[6] Invalid Node - /neck/Conv
[graphShapeAnalyzer.cpp::analyzeShapes::2084] Error Code 4: Shape Error (\
kernel weights has count 9 but 18 was expected)
"""


@pytest.mark.parametrize(
    ("text", "error", "operator", "number", "says"),
    [
        (PLUGIN, "network.unknown-operator", "MyNms", 3, "version 1"),
        (RESIZE, "parser.resize", "Resize", 17, "constant"),
        (RESIZE.replace("[E] [TRT] ", "ERROR: [TRT]: "), "parser.resize", "Resize", 17, "constant"),
        (RESIZE.replace("[E] [TRT] ", "[TensorRT] ERROR: "), "parser.resize", "Resize", 17, ""),
        (
            RESIZE.replace("[E] [TRT] ", "[2026-01-02 10:00:00   ERROR] "),
            "parser.resize",
            "Resize",
            17,
            "constant",
        ),
        (
            RESIZE.replace(
                "[E] [TRT] ",
                "2026-01-02 10:00:00.12345 [E:onnxruntime:Default, "
                "tensorrt_execution_provider.h:86 log] [2026-01-02 10:00:00   ERROR] ",
            ),
            "parser.resize",
            "Resize",
            17,
            "constant",
        ),
        (OLD, "parser.refused", "Gather", 5, "axis >= 0"),
        (PYTHON, "parser.needs-constant", "TopK", 9, "constant"),
        (INVALID, "network.weights-count", "", None, "the shape needs 18"),
    ],
)
def test_a_refused_node_is_one_error(
    text: str, error: str, operator: str, number: int | None, says: str, tmp_path: Path
) -> None:
    found = explained(text, tmp_path)
    (one,) = [each for each in found["errors"] if each["id"].startswith(("parser", "network"))]
    assert one["id"] == error
    assert (one["node"]["operator"], one["node"]["number"]) == (operator or None, number)
    assert one["node"]["assertion"]
    assert says in one["cause"]
    assert not [words for words in found["unknown_errors"] if "Network must" not in words]


def test_two_refused_operators_are_two_errors_and_a_cut_block_is_one(tmp_path: Path) -> None:
    found = explained(RESIZE + PYTHON, tmp_path)["errors"]
    assert [(one["id"], one["node"]["number"]) for one in found] == [
        ("parser.resize", 17),
        ("parser.needs-constant", 9),
    ]
    (one,) = explained(RESIZE.partition("[E] [TRT] ModelImporter.cpp:732")[0], tmp_path)["errors"]
    assert one["node"] == {
        "operator": "Resize",
        "number": 17,
        "output": "up",
        "assertion": None,
    }


@pytest.mark.parametrize(
    ("line", "layer", "rule"),
    [
        (
            "[W] [TRT] Node: /stem/conv/Conv cannot run in INT8 mode due to missing scale and zero "
            "point. This node will not run on DLA.",
            "/stem/conv/Conv",
            "general.fp32",
        ),
        (
            "[E] Error[4]: DLA Standalone is enabled but layer: '/neck/Pad' is not supported "
            "on DLA.",
            "/neck/Pad",
            "general.standalone",
        ),
        (
            "[TRT] [E] 4: DLA Standalone is enabled but layer '/a b' is not supported on DLA.",
            "/a b",
            "general.standalone",
        ),
    ],
)
def test_a_refusal_in_other_words(line: str, layer: str, rule: str, tmp_path: Path) -> None:
    found = explained(f"{line}\n", tmp_path)
    assert [one["layer"] for one in found["log"]["fallbacks"]] == [layer]
    assert [(one["rule"], one["layers"]) for one in found["rules"]] == [(rule, [layer])]
    assert "refused 1 layer" in found["headline"][1]
    assert found["unknown_errors"] == []


@pytest.mark.parametrize(
    ("line", "layer", "reason"),
    [
        ("Dimension: 9000 (/c1/Conv) exceeds maximum dimension 8192. Switching to GPU fallback",
         "/c1/Conv", "Dimension: 9000 (/c1/Conv) exceeds maximum dimension 8192"),
        ("/up/Resize: DLA only supports nearest-neighbor mode. Falling back to GPU.",
         "/up/Resize", "DLA only supports nearest-neighbor mode"),
        ("Layer '/a b' needs more than the DLA has; falling back to the GPU",
         "/a b", "Layer '/a b' needs more than the DLA has"),
        ("(Unnamed Layer* 10) [Slice]: stride is too large. Switching this layer to GPU.",
         "(Unnamed Layer* 10) [Slice]", "stride is too large"),
        ("conv1 + relu1: the kernel is too large, switching to GPU",
         "conv1 + relu1", "the kernel is too large"),
        ("Node: /z/Conv is too deep. Falling back to GPU.", "/z/Conv",
         "Node: /z/Conv is too deep"),
        ("Falling back to GPU for node pool_3.", "pool_3", "Falling back to GPU for node pool_3."),
        ("Layer /m/Conv will not run on DLA because int8 scale is missing.", "/m/Conv",
         "Layer /m/Conv will not run on DLA because int8 scale is missing."),
        ("leaky_1: ActivationLayer (with ActivationType = LEAKY_RELU) not supported for DLA.",
         "leaky_1", "ActivationLayer (with ActivationType = LEAKY_RELU) not supported for DLA."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["[W] [TRT] ", "ERROR: [TRT]: "])
def test_a_refusal_in_words_of_its_own(
    line: str, layer: str, reason: str, prefix: str, tmp_path: Path
) -> None:
    found = explained(f"{prefix}{line}\n", tmp_path)
    assert [(one["layer"], one["words"]) for one in found["log"]["fallbacks"]] == [
        (layer, [reason])
    ]
    assert "refused 1 layer" in found["headline"][1]
    assert not found["errors"] + found["unknown_errors"]


@pytest.mark.parametrize(
    "line",
    [
        "Unsupported layer type. Switching to GPU fallback.",
        "DLA does not support this: see the guide. Switching to GPU.",
        "DLA requests all profiles have same min, max, and opt value. All dla layers are falling "
        "back to GPU",
    ],
)
def test_a_sentence_without_a_layer_is_no_refusal(line: str, tmp_path: Path) -> None:
    assert explained(f"[W] [TRT] {line}\n", tmp_path)["log"]["fallbacks"] == []


@pytest.mark.parametrize(
    "line",
    [
        "Layer /m/Conv will not run on DLA because int8 scale is missing.",
        "/m/Conv: DLA cores do not support that.",
        "DLA LAYER: Batch size 30720 for layer /m/Conv exceeds max batch size allowed of 4096.",
    ],
)
def test_a_line_about_one_layer_explains_no_other(line: str, tmp_path: Path) -> None:
    found = explained(
        f"[W] [TRT] {line}\n[W] [TRT] Layer '/attn/MatMul' (MATRIX_MULTIPLY): Unsupported on DLA. "
        "Switching this layer's device type to GPU.\n[W] [TRT] DLA cores do not support this.\n"
        "[W] [TRT] /m/Conv: DLA is too narrow. Falling back to GPU.\n",
        tmp_path,
    )
    words = {one["layer"]: one["words"] for one in found["log"]["fallbacks"]}
    assert words.keys() == {"/attn/MatMul", "/m/Conv"}
    assert words["/attn/MatMul"] == []
    assert "DLA cores do not support this." not in words["/m/Conv"]


def test_a_refusal_of_tensorrt_7_is_no_error_of_the_parser(tmp_path: Path) -> None:
    found = explained(
        "ERROR: [TRT]: leaky_1: ActivationLayer (with ActivationType = LEAKY_RELU) not supported "
        "for DLA.\nWARNING: [TRT]: Default DLA is enabled but layer leaky_1 is not supported on "
        "DLA, falling back to GPU.\n",
        tmp_path,
    )
    assert [(one["rule"], one["layers"]) for one in found["rules"]] == [
        ("activation.leaky_old", ["leaky_1"])
    ]
    assert not found["errors"] + found["unknown_errors"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("[E] [TRT] ../rtExt/dla/native/dlaExecuteRunner.cpp (135) - Assertion Error in "
         "updateContextResources: 0 (execParams.dlaCore >= 0 && execParams.dlaCore < "
         "core->numEngines())", "dla.core"),
        ("[TRT] [E] 3: [builderConfig.cpp::canRunOnDLA::382] Error Code 3: API Usage Error "
         "(Parameter check failed, condition: dlaEngineCount > 0", "dla.core"),
        ("[E] Error[4]: DLA Standalone is enabled but layer: '/c/_input_quantizer/Constant_1' is "
         "not supported on DLA.", "dla.standalone-qdq"),
        ("[E] Error[2]: [foreignNode.cpp::determineCandidateForeignNodes::895] Error Code 2: "
         "Internal Error (Safety certified DLA should only have one graph for the whole network.)",
         "dla.standalone-graphs"),
        ("[E] [TRT] ../builder/cudnnBuilder2.cpp (1757) - Assertion Error in operator(): 0 "
         "(et.region->getType() == RegionType::kNVM)", "dla.nvm-regions"),
        ("[E] Error[2]: [nvmediaTensorCache.cpp::registerTensor::80] Error Code 2: Internal Error "
         "(Assertion nbTensors <= capacity() failed. Found a case where the cache is too small.)",
         "dla.tensor-cache"),
        ("[E] [TRT] dla/dlaUtils.cpp (171) - DLA Error in deserialize: 7 (Failure to load "
         "program.)", "dla.load"),
        ("NVMEDIA_DLA :  528, ERROR: load from memory failed.", "dla.load"),
        ("NVMEDIA_DLA :  446, ERROR: SetInputTensorDesc failed for tensor: 7. status: 0x0.",
         "dla.submit-tensor"),
        ("NVMEDIA_DLA : 1599, ERROR: registerTensorBuffer failed", "dla.register-tensor"),
        ("NVMEDIA_DLA : 77, ERROR: a new one", "nvmedia.other"),
        ("[E] Error[1]: [cudlaUtils.cpp::submit::95] Error Code 1: DLA (Failed to submit program "
         "to DLA engine.)", "dla.submit"),
        ("[E] Error[1]: [cudlaUtils.cpp::deserialize::95] Error Code 1: DLA (Failed to load "
         "program.)", "dla.load"),
        ("[TRT] [E] 1: [cudlaUtils.cpp::operator()::55] Error Code 1: DLA (Failed to load "
         "program.)", "dla.load"),
        ("[E] Error[1]: [cudlaUtils.cpp::createContext::44] Error Code 1: DLA (Failed to create "
         "DLA runtime context.)", "cudla.device"),
        ("load cuDLA module from memory FAILED in src/cudla_context_hybrid.cpp:96, CUDLA ERR: 7",
         "cudla.no-loadable"),
        ("cudla import external semaphore FAILED 1", "cudla.invalid-parameter"),
        ("cudla error: 10", "cudla.version"),
        ("cudlaErrorOutOfResources", "cudla.resources"),
        ("[  412.000000] 15880000.nvdla0:nvdla_isr: engine timeout detected", "nvdla.timeout"),
        ("Nov 21 07:00:00 orin kernel: [  1.0] 158c0000.nvdla1:nvdla_send_cmd: Command 4 failed",
         "nvdla.submit"),
        ("[ 1027.6] pva 16000000.pva0: Direct firmware load for pva_auth_allowlist failed with "
         "error -2", "pva.firmware"),
    ],
)  # fmt: skip
def test_the_dla_s_own_failures(line: str, error: str, tmp_path: Path) -> None:
    (found,) = explained(f"{line}\n", tmp_path)["errors"]
    assert found["id"] == error
    if "Error Code 1: " in line:  # TensorRT's own number
        assert "cudlaErrorInvalidParam" not in found["cause"]
    assert found["seen"]
    assert all(source["where"] for source in found["sources"])


def test_a_whole_refusal_is_in_the_headline(tmp_path: Path) -> None:
    text = "[E] [TRT] Assertion Error in f: 0 (params.dlaCore < core->numEngines())\n"
    assert "The DLA refused the whole build (line 1)" in explained(text, tmp_path)["headline"][1]


@pytest.mark.parametrize(
    ("version", "says"), [("v8502", "this release supports the DLA"), ("v101600", "no DLA")]
)
def test_the_remedy_is_that_of_the_release(version: str, says: str, tmp_path: Path) -> None:
    text = (
        f"&&&& RUNNING TensorRT.trtexec [TensorRT {version}] # trtexec --useDLACore=0\n"
        "[E] Cannot create DLA engine, 0 not available\n"
    )
    (error,) = explained(text, tmp_path)["errors"]
    assert says in error["remedy"]


def test_every_remedy_of_a_release_can_be_reached() -> None:
    for row in known_errors().rows:
        for one in row.releases:
            assert one.since or one.until, row.id
            inside = one.since or "5.0"
            assert row.remedy_for(inside) == one.text, row.id


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (
            "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
            "std::bad_alloc\nAborted (core dumped)",
            "crash.memory",
        ),
        ("Segmentation fault (core dumped)", "crash.fault"),
        ("./build.sh: line 3:  4711 Segmentation fault      (core dumped) trtexec", "crash.fault"),
        ("Killed", "crash.memory"),
        ("[ERROR] [container-1]: process has died [pid 7, exit code -11, cmd x].", "crash.fault"),
        ("trt-1 exited with code 137", "crash.memory"),
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no\n"
            "Aborted (core dumped)",
            "crash.abort",
        ),
        ("Bus error (core dumped)", "crash.fault"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "edge-1  | "])
def test_a_crash_is_a_failure(end: str, error: str, prefix: str, tmp_path: Path) -> None:
    text = "[I] [TRT] After tensor merging: 83 layers\n\n" + "".join(
        f"{prefix if line != 'Killed' else ''}{line}\n" for line in end.splitlines()
    )
    found = explained(text, tmp_path)
    assert found["passed"] is False
    assert [one["id"] for one in found["errors"]] == [error]
    (said,) = [line for line in found["headline"] if "crashed" in line]
    assert "after line 1: After tensor merging: 83 layers" in said


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (
            "coreReadArchive.cpp (31) - Serialization Error in verifyHeader: 0 (Magic tag does not "
            "match)\nINVALID_STATE: std::exception\nINVALID_CONFIG: Deserialize the cuda engine "
            "failed.",
            "engine.not-an-engine",
        ),
        ("Magic tag does not match", "engine.not-an-engine"),
        (
            "[mmdeploy] [error] TRTNet: 1: [stdArchiveReader.cpp::StdArchiveReader::30] Error Code "
            "1: "
            "Serialization (Serialization assertion magicTagRead == magicTag failed.Magic tag does "
            "not match)",
            "engine.not-an-engine",
        ),
        (
            "[TensorRT] ERROR: coreReadArchive.cpp (38) - Serialization Error in verifyHeader: 0 "
            "(Version tag does not match)",
            "engine.other-release",
        ),
        (
            "1: [stdArchiveReader.cpp::StdArchiveReader::35] Error Code 1: Serialization "
            "(Serialization assertion safeVersionRead == safeSerializationVersion failed.Version "
            "tag does not match.)",
            "engine.other-release",
        ),
    ],
)
def test_an_engine_that_cannot_be_loaded(line: str, error: str, tmp_path: Path) -> None:
    found = explained(f"{line}\n", tmp_path)
    assert [one["id"] for one in found["errors"]] == [error]
    assert found["unknown_errors"] == []


def model(path: Path) -> None:
    small_net(path)


def weights(path: Path) -> None:
    path.write_bytes(
        onnx.helper.make_model(onnx.GraphProto(name="g")).SerializeToString() + bytes(1000)
    )


def written(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (model, "an ONNX model"),
        (weights, "an ONNX model"),
        (written(b"ftrt" + bytes(5000)), "a TensorRT engine"),
        (written(struct.pack("<I", 9) + b'{"a": 1}\n' + b"ftrt" + bytes(999)), "`yolo export`"),
        (written(b"\x14\0\0\0NVDA" + bytes(5000)), "a DLA loadable"),
        (written(b"\x7fELF" + os.urandom(5000)), "a binary file"),
        (written(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), "LFS"),
        (written(b"<!DOCTYPE html>\n<html></html>\n"), "a web page"),
    ],
)
def test_another_file_is_named(write: Callable[[Path], object], what: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    write(path)
    with pytest.raises(UsageError) as caught:
        explain_log(path)
    assert caught.value.code == "log.unknown"
    assert what in caught.value.message
    assert "trtexec --verbose" in str(caught.value.hint)


@pytest.mark.parametrize("piece", ["a line about trees\n", "x", "\xff\0"])
def test_fifty_megabytes_that_are_no_log_are_refused_at_once(piece: str, tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    data = piece.encode("latin-1")
    path.write_bytes(data * (50_000_000 // len(data)))
    began = time.process_time()
    with pytest.raises(UsageError, match="not a TensorRT build log"):
        explain_log(path)
    # reading all of it takes many seconds
    assert time.process_time() - began < 3
