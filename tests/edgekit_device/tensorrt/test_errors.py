"""TensorRT's own words become our codes: texts that real runtimes gave."""

from __future__ import annotations

import pytest

from edgekit_device.tensorrt.bindings import ErrorListener, explain
from tests.trt_double import double

# from tensorrt_lean 10.16.1.11 and 11.4.0.106 (scripts/lean_check.py), and from issues 2783, 4106
# and 4790 of github.com/NVIDIA/TensorRT
RECEIVED = {
    "createInferRuntime: Error Code 6: API Usage Error (CUDA initialization failure with error: 35 "
    "In checkCudaInstallation at /_src/runtime/dispatch/runtime.cpp:811)": "board.no-gpu",
    "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
    "header.magicTag == kEXPECTED_MAGIC_TAG failed.Trying to load an engine created with "
    "incompatible serialization version (372039965 != 1953657958). Check that the engine was not "
    "created using safety runtime, same OS was used and version compatibility parameters were set "
    "accordingly and that it is a TRT engine file. In throwUnlessHeaderOk": "engine.invalid",
    "IRuntime::deserializeCudaEngine: Error Code 3: API Usage Error (Cannot deserialize with an "
    "empty memory buffer. In deserializeCudaEngineEx": "engine.truncated",
    "[runtime.cpp::readHeader::618] Error Code 2: Internal Error (Assertion bufferSize >= "
    "minBufferSize failed. In readHeader": "engine.truncated",
    "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
    "plan.header.size == blobSize failed. In parsePlan": "engine.truncated",
    "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
    "header.pad == expectedPlatformTag failed.Platform specific tag mismatch detected. TensorRT "
    "plan files are only supported on the target runtime platform they were created "
    "on. In throwUnlessHeaderOk": "engine.other-board",
    "IRuntime::deserializeCudaEngine: Error Code 1: Internal Error\nUnexpected call to stub "
    "loadRunner for ReformatRunner": "engine.not-version-compatible",
    "Error[9]: Cannot deserialize serialized engine built with EngineCapability::kDLA_STANDALONE, "
    "use cuDLA APIs instead.": "engine.is-loadable",
    "3: [refit.cpp::createInferRefitter_INTERNAL::1209] Error Code 3: API Usage Error (Parameter "
    "check failed at: optimizer/std/refit.cpp::createInferRefitter_INTERNAL::1209, condition: "
    "e.isRefittable()": "engine.not-refittable",
    "dla/dlaUtils.cpp (171) - DLA Error in deserialize: 7 (Failure to load program.)": "engine.dla",
}


@pytest.mark.parametrize(("text", "code"), RECEIVED.items(), ids=range(len(RECEIVED)))
def test_a_known_text_has_its_code_and_stays_whole(text: str, code: str) -> None:
    error = explain("it cannot", "engine.failed", lines=[("ERROR", text)])
    assert error.code == code
    assert " ".join(text.split()) in error.message
    assert error.hint


def test_an_unknown_text_keeps_the_callers_code() -> None:
    error = explain("it cannot", "engine.failed", lines=[("ERROR", "something else")])
    assert (error.code, error.message) == ("engine.failed", "it cannot: something else")


def test_what_recorder_and_logger_both_say_is_reported_once() -> None:
    recorded: list[tuple[str, str]] = []
    recorded.append(("INTERNAL_ERROR", "Assertion x failed. In f at a.cpp:1"))
    lines = [("ERROR", "[a.cpp::f::1] Error Code 2: (Assertion x failed. In f at a.cpp:1)")]
    assert explain("no", "c", recorded, lines).message.count("Assertion") == 1


def test_a_failed_allocation_is_known_by_its_code() -> None:
    recorded: list[tuple[str, str]] = []
    recorded.append(("FAILED_ALLOCATION", "Requested size was 1 bytes."))
    assert explain("no", "engine.failed", recorded).code == "tensorrt.no-memory"


def test_silence_is_said_and_warnings_are_shown() -> None:
    error = explain("it cannot", "c", lines=[("WARNING", "Using an engine plan file across")])
    assert "gave no reason" in error.message
    assert "Using an engine plan file across" in error.hint


def test_what_was_reported_is_not_reported_of_the_next_failure() -> None:
    trt = double.module("10.3.0")
    listener = ErrorListener(trt)
    listener.logger.log(trt.ILogger.Severity.ERROR, "enqueueV3: out of memory in frame 1")
    recorder = listener.recorder
    recorder.report_error(trt.ErrorCodeTRT.FAILED_ALLOCATION, "Requested size was 9 bytes.")
    assert listener.error("a segment failed", "engine.failed").code == "tensorrt.no-memory"
    listener.recorder.report_error(trt.ErrorCodeTRT.INVALID_ARGUMENT, "a bad address")
    second = listener.error("a segment failed", "engine.failed")
    assert (second.code, second.message) == ("engine.failed", "a segment failed: a bad address")
