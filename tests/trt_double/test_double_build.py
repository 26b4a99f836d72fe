"""Builds of the double fail, log and place as TensorRT's own do."""

from __future__ import annotations

import json

import pytest

from tests.edgekit_device.build.toys import plugin_onnx
from tests.trt_double._plan_format import LOADABLE
from tests.trt_double.double_toys import Setup, dla_toy, setup

DLA_VERSIONS = ("8.6.1", "10.3.0", "10.7.0")


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


@pytest.mark.parametrize("version", DLA_VERSIONS)
def test_placement_is_logged_in_the_real_grammar(version: str) -> None:
    on = setup(version, "FP16", "GPU_FALLBACK", dla=True)
    assert on.plan() is not None
    lines = on.logged
    assert "[DlaLayer] {ForeignNode[conv...relu]}" in lines
    assert "[GpuLayer] REDUCE: pool" in lines
    assert (
        "Layer 'pool' (REDUCE): Unsupported on DLA. Switching this layer's device type to GPU."
    ) in lines
    assert "{ForeignNode[conv...relu]} successfully offloaded to DLA." in lines
    severity = {text: name for name, text in on.trt._double.messages}
    assert severity["[GpuLayer] REDUCE: pool"] == "VERBOSE"
    assert on.violations == []


def test_a_pinned_layer_stays_on_the_gpu_and_splits() -> None:
    on = setup("10.3.0", "FP16", "GPU_FALLBACK", dla=True)
    on.config.set_device_type(on.layer("norm"), on.trt.DeviceType.GPU)
    on.config.profiling_verbosity = on.trt.ProfilingVerbosity.DETAILED
    engine = on.runtime(core=1).deserialize_cuda_engine(on.plan())
    found = json.loads(
        engine.create_engine_inspector().get_engine_information(on.trt.LayerInformationFormat.JSON)
    )
    kinds = {one["Name"]: one["LayerType"] for one in found["Layers"]}
    assert kinds["{ForeignNode[conv]}"] == kinds["{ForeignNode[relu]}"] == "DLA"
    assert kinds["norm"] == "SCALE"
    assert found["Bindings"] == ["x", "y"]


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


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0"])
def test_a_version_compatible_plan_wants_the_library_of_its_plugins(version: str) -> None:
    for libraries, offences in (([], 1), (["/lib/libnvinfer_vc_plugin.so"], 0)):
        on = setup(version, "VERSION_COMPATIBLE", model=plugin_onnx())
        on.config.plugins_to_serialize = libraries
        assert on.plan() is not None
        assert len(on.violations) == offences
