"""The double has what its release has: names that came and went, by the release notes."""

from typing import Any

import pytest

from tests.trt_double import _api, double

# (name, releases that have it, of full / of lean): tensorrt's migration notes, not the data itself
FACTS = {
    "BuilderFlag.FP16": ("8.6.1 10.3.0 10.7.0 10.16.1", "8.6.1 10.3.0 10.7.0 10.16.1"),
    "BuilderFlag.STRIP_PLAN": ("10.3.0 10.7.0 10.16.1 11.4.0", "10.3.0 10.7.0 10.16.1 11.4.0"),
    "BuilderFlag.REFIT_IDENTICAL": ("10.3.0 10.7.0 10.16.1 11.4.0", "10.3.0 10.7.0 10.16.1 11.4.0"),
    "BuilderFlag.VERSION_COMPATIBLE": (" ".join(double.VERSIONS), " ".join(double.VERSIONS)),
    "SerializationFlag.INCLUDE_REFIT": ("10.16.1 11.4.0", "10.16.1 11.4.0"),
    "NetworkDefinitionCreationFlag.EXPLICIT_BATCH": ("8.6.1 10.3.0 10.7.0 10.16.1", ""),
    "IProgressMonitor": ("10.3.0 10.7.0 10.16.1 11.4.0", "10.3.0 10.7.0 10.16.1 11.4.0"),
    "IStreamReader": ("10.3.0 10.7.0 10.16.1", "10.3.0 10.7.0 10.16.1"),
    "IStreamReaderV2": ("10.7.0 10.16.1 11.4.0", "10.7.0 10.16.1 11.4.0"),
    "IInt8EntropyCalibrator2": ("8.6.1 10.3.0 10.7.0 10.16.1", ""),
    "OnnxParserRefitter": ("10.3.0 10.7.0 10.16.1 11.4.0", ""),
    "Refitter": (" ".join(double.VERSIONS), "10.3.0 10.7.0 10.16.1 11.4.0"),
    "Refitter.release_refit_resources": ("11.4.0", "11.4.0"),
    "Builder": (" ".join(double.VERSIONS), ""),
    "EngineInspector": (" ".join(double.VERSIONS), ""),
    "TensorFormat": (" ".join(double.VERSIONS), ""),
    "ILayer.precision": ("8.6.1 10.3.0 10.7.0 10.16.1", ""),
    "fp4": ("10.16.1 11.4.0", "10.16.1 11.4.0"),
    "Runtime.DLA_core": (" ".join(double.VERSIONS), " ".join(double.VERSIONS)),
}


def _get(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


@pytest.mark.parametrize("version", double.VERSIONS)
def test_names_come_and_go_as_the_release_notes_say(version: str) -> None:
    modules = (double.module(version), double.module(version, "lean"))
    for name, columns in FACTS.items():
        for module, column in zip(modules, columns, strict=True):
            if version in column.split():
                assert _get(module, name) is not None
            else:
                with pytest.raises(AttributeError):
                    _get(module, name)


@pytest.mark.parametrize("version", double.VERSIONS)
def test_dispatch_has_the_names_of_lean(version: str) -> None:
    lean, dispatch = (set(dir(double.module(version, kind))) for kind in ("lean", "dispatch"))
    assert lean == dispatch
    assert lean < set(dir(double.module(version)))


@pytest.mark.parametrize("version", double.VERSIONS)
def test_every_carried_name_is_there(version: str) -> None:
    module = double.module(version)
    for name, entry in _api.symbols(version).items():
        if not name.endswith("__init__"):
            assert isinstance(_get(module, name), type) == (entry["kind"] in ("class", "enum")), (
                name
            )


def test_enum_numbers_move_between_releases() -> None:
    old, new = double.module("8.6.1").BuilderFlag, double.module("11.4.0").BuilderFlag
    assert int(old.VERSION_COMPATIBLE) == 15
    assert int(new.VERSION_COMPATIBLE) == 12


def test_a_release_nobody_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match=r"8\.5\.2 is not sampled"):
        double.module("8.5.2")
    with pytest.raises(ValueError, match=r"no TensorRT API data for 9\.0\.0"):
        double.module("9.0.0")
    with pytest.raises(ValueError, match="flavour"):
        double.module("10.3.0", "thin")


def test_versions_are_written_as_the_wheels_write_them() -> None:
    said = [double.module(version).__version__ for version in double.VERSIONS]
    assert said == ["8.6.1", "10.3.0", "10.7.0", "10.16.1.11", "11.4.0.106"]


def test_aliases_and_bases() -> None:
    trt = double.module("10.3.0")
    assert trt.float16 is trt.DataType.HALF
    assert issubclass(trt.Logger, trt.ILogger)
    assert trt.Logger.Severity is trt.ILogger.Severity
    assert trt.Logger.VERBOSE == trt.ILogger.Severity.VERBOSE
    assert issubclass(trt.IConvolutionLayer, trt.ILayer)
    assert hasattr(trt.IConvolutionLayer, "metadata")
    assert trt.volume((2, 3)) == 6
