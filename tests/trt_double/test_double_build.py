"""Builds of the double fail, log and place as TensorRT's own do."""

from __future__ import annotations

import json
import struct
import threading
from typing import Any

import pytest

from tests.edgekit_device.build.toys import plugin_onnx
from tests.trt_double import double
from tests.trt_double._plan_format import LOADABLE
from tests.trt_double.double_toys import Setup, dla_toy, setup, toy

DLA_VERSIONS = ("8.6.1", "10.3.0", "10.7.0")
# what the toy's importer makes: ONNX nodes by name, beside them what has no metadata
NAMED = ["conv", "bn", "act", "pool", "flat", "fc"]


def standalone(version: str = "10.3.0", kind: str = "HALF", form: str = "CHW16") -> Setup:
    """Everything that a loadable needs."""
    on = setup(
        version, "FP16" if kind == "HALF" else "INT8", "DIRECT_IO", dla=True, model=dla_toy()
    )
    on.config.engine_capability = on.trt.EngineCapability.DLA_STANDALONE
    for tensor in (on.network.get_input(0), on.network.get_output(0)):
        tensor.dtype = on.trt.DataType.__members__[kind]
        tensor.allowed_formats = 1 << int(on.trt.TensorFormat.__members__[form])
    return on


@pytest.mark.parametrize("version", double.VERSIONS)
def test_nodes_become_layers_with_their_name_and_others_follow(version: str) -> None:
    on = setup(version)
    layers = [on.network.get_layer(i) for i in range(on.network.num_layers)]
    with_metadata = [one.name for one in layers if one.metadata]
    assert with_metadata == NAMED
    assert all(one.metadata == f"[ONNX Layer: {one.name}]" for one in layers if one.metadata)
    kinds = [one.type.name for one in layers if not one.metadata]
    assert sorted(kinds) == ["CONSTANT", "CONSTANT", "ELEMENTWISE", "SHUFFLE"]
    assert on.network.get_layer(99) is None
    assert on.network.get_input(0).shape[1] == 3


def test_a_node_without_importer_is_the_parsers_error() -> None:
    on = setup("10.3.0")
    parser = on.trt.OnnxParser(on.builder.create_network(0), on.logger)
    assert not parser.parse(toy("Celu"))
    error = parser.get_error(0)
    assert (parser.num_errors, error.node_name(), error.node_operator()) == (1, "act", "Celu")
    assert error.code() == on.trt.ErrorCode.INVALID_NODE
    assert not parser.parse(b"no model")


@pytest.mark.parametrize("version", DLA_VERSIONS)
def test_placement_is_logged_in_the_real_grammar(version: str) -> None:
    on = setup(version, "FP16", "GPU_FALLBACK", dla=True)
    assert on.plan() is not None
    lines = on.logged
    assert "[DlaLayer] {ForeignNode[conv...act]}" in lines
    assert "[GpuLayer] REDUCE: pool" in lines
    assert (
        "Layer 'pool' (REDUCE): Unsupported on DLA. Switching this layer's device type to GPU."
    ) in lines
    assert "{ForeignNode[conv...act]} successfully offloaded to DLA." in lines
    severity = {text: name for name, text in on.trt._double.messages}
    assert severity["[GpuLayer] REDUCE: pool"] == "VERBOSE"
    assert on.violations == []


def test_a_pinned_layer_stays_on_the_gpu_and_splits() -> None:
    on = setup("10.3.0", "FP16", "GPU_FALLBACK", dla=True)
    on.config.set_device_type(on.layer("bn"), on.trt.DeviceType.GPU)
    on.config.profiling_verbosity = on.trt.ProfilingVerbosity.DETAILED
    engine = on.runtime(core=1).deserialize_cuda_engine(on.plan())
    found = json.loads(
        engine.create_engine_inspector().get_engine_information(on.trt.LayerInformationFormat.JSON)
    )
    kinds = {one["Name"]: one["LayerType"] for one in found["Layers"]}
    assert kinds["{ForeignNode[conv]}"] == kinds["{ForeignNode[act]}"] == "DLA"
    assert kinds["bn"] == "SCALE"
    assert found["Bindings"] == ["x", "y"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"), "exclude each other"),
        (("WEIGHT_STREAMING",), "strongly typed"),
        (("INT8",), "no scaling factors"),
    ],
)
def test_flags_that_clash_build_nothing_and_log_why(flags: tuple[str, ...], why: str) -> None:
    on = setup("10.3.0", *flags)
    assert on.plan() is None
    assert any(why in text for name, text in on.trt._double.messages if name == "ERROR")


def test_a_strongly_typed_network_takes_no_precision_flag() -> None:
    on = setup("10.3.0", "FP16")
    strong = 1 << int(on.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = on.builder.create_network(strong)
    assert on.trt.OnnxParser(network, on.logger).parse(toy())
    assert on.builder.build_serialized_network(network, on.config) is None


def test_fall_backs_are_tried_against_settings() -> None:
    on = setup("10.3.0", "FP16", "GPU_FALLBACK", "STRIP_PLAN", dla=True)
    on.trt._double.settings.failing = [["DLA", "STRIP_PLAN"]]
    assert on.plan() is None
    on.config.clear_flag(on.trt.BuilderFlag.STRIP_PLAN)
    assert on.plan() is not None
    assert [("STRIP_PLAN" in flags) for flags in on.trt._double.builds] == [True, False]


def test_without_fallback_what_the_dla_refuses_fails() -> None:
    assert setup("10.3.0", "FP16", dla=True).plan() is None
    on = setup("10.3.0", "GPU_FALLBACK", dla=True)  # neither FP16 nor INT8
    assert on.plan() is not None
    assert not any("[DlaLayer]" in text for text in on.logged)
    on = setup("10.16.1", "FP16", "GPU_FALLBACK", dla=True)
    assert on.plan() is None
    assert any("Cannot create DLA engine, 0 not available" in text for text in on.logged)


@pytest.mark.parametrize("version", DLA_VERSIONS)
def test_a_loadable_is_no_plan(version: str) -> None:
    on = standalone(version)
    data = bytes(on.plan())
    assert data.startswith(LOADABLE)
    assert on.runtime(core=0).deserialize_cuda_engine(data) is None
    assert any("use cuDLA APIs instead" in text for text in on.logged)
    assert on.violations == []


def test_a_loadable_needs_every_layer_on_the_dla() -> None:
    on = standalone()
    on.trt._double.settings.can_run_on_dla = lambda layer: layer.name != "act"
    assert on.plan() is None
    assert "Safe DLA is enabled but not all layers are running on DLA." in on.logged


def test_a_loadable_needs_one_legal_format_per_tensor() -> None:
    on = standalone(form="CHW32")
    assert on.plan() is None
    on = standalone()
    on.network.get_input(0).allowed_formats = 3
    assert on.plan() is None
    assert "needs exactly one format" in on.violations[0]
    on = standalone(kind="INT8", form="CHW32")
    assert on.plan() is None
    assert any("has no dynamic range" in text for text in on.violations)


def test_settings_after_the_build_are_too_late() -> None:
    on = standalone()
    assert on.plan() is not None
    on.network.get_input(0).allowed_formats = 1
    assert on.violations == ["allowed_formats of tensor x was set after the build"]


def test_memory_pools_are_powers_of_two() -> None:
    on = setup("10.3.0")
    pool = on.trt.MemoryPoolType.DLA_MANAGED_SRAM
    on.config.set_memory_pool_limit(pool, 3 << 20)
    assert on.config.get_memory_pool_limit(pool) == 1 << 20
    assert len(on.violations) == 1
    on.config.set_memory_pool_limit(on.trt.MemoryPoolType.WORKSPACE, 12345)
    assert on.config.get_memory_pool_limit(on.trt.MemoryPoolType.WORKSPACE) == 12345


def test_progress_comes_from_another_thread_and_can_cancel() -> None:
    on = setup("10.3.0")
    seen: list[tuple[Any, ...]] = []

    class Monitor(on.trt.IProgressMonitor):  # type: ignore[misc, name-defined]
        going = True

        def __init__(self) -> None:
            on.trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            seen.append((phase_name, parent_phase, num_steps, threading.current_thread().name))

        def step_complete(self, phase_name: str, step: int) -> bool:
            return self.going

        def phase_finish(self, phase_name: str) -> None:
            seen.append((phase_name,))

    monitor = on.config.progress_monitor = Monitor()
    assert on.plan() is not None
    assert seen[0] == ("Building Engine", None, 2, "builder")
    assert seen[-1] == ("Building Engine",)
    monitor.going = False
    assert on.plan() is None


def test_a_calibrator_serves_its_cache_alone() -> None:
    on = setup("8.6.1", "INT8")
    scale = struct.pack(">f", 0.5).hex()
    requested: list[str] = []

    class Served(on.trt.IInt8EntropyCalibrator2):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            on.trt.IInt8EntropyCalibrator2.__init__(self)

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: list[str]) -> None:
            requested.append("batch")

        def read_calibration_cache(self) -> bytes:
            requested.append("cache")
            return f"TRT-8601-EntropyCalibration2\nx: {scale}\n".encode()

    on.config.int8_calibrator = Served()
    assert on.plan() is not None
    assert requested == ["cache"]


def test_a_timing_cache_is_of_its_release() -> None:
    on, other = setup("10.3.0"), setup("10.7.0")
    cache = on.config.create_timing_cache(b"")
    assert on.config.set_timing_cache(cache, False)
    assert on.plan() is not None
    retained = bytes(on.config.get_timing_cache().serialize())
    again = other.config.create_timing_cache(retained)
    assert not other.config.set_timing_cache(again, False)
    assert other.config.set_timing_cache(again, True)
    with pytest.raises(TypeError):
        on.config.set_timing_cache(cache)


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0"])
def test_a_version_compatible_plan_wants_the_library_of_its_plugins(version: str) -> None:
    for libraries, offences in (([], 1), (["/lib/libnvinfer_vc_plugin.so"], 0)):
        on = setup(version, "VERSION_COMPATIBLE", model=plugin_onnx())
        on.config.plugins_to_serialize = libraries
        assert on.plan() is not None
        assert len(on.violations) == offences
