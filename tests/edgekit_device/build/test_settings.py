"""What a request sets of the builder beside its attempts: set, read back, told where it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit_device.errors import DeviceError
from tests.edgekit_device.build import toys
from tests.edgekit_device.build.bench import ALL, Bench, document_for


def flag(name: str, number: int = 1) -> dict[str, Any]:
    return {"key": name.lower(), "kind": "flag", "name": name, "number": number}


def number(name: str, value: int) -> dict[str, Any]:
    return {"key": name, "kind": "number", "name": name, "number": value}


def choice(name: str, enum: str, member: str) -> dict[str, Any]:
    return {"key": name, "kind": "choice", "name": name, "enum": enum, "members": [member]}


SOURCES = {
    "key": "tactic_sources",
    "kind": "sources",
    "name": "set_tactic_sources",
    "enum": "TacticSource",
    "members": ["JIT_CONVOLUTIONS"],
}


def preview(name: str, on: int) -> dict[str, Any]:
    return {
        "key": "preview_features",
        "kind": "switches",
        "name": "set_preview_feature",
        "enum": "PreviewFeature",
        "members": [name],
        "number": on,
    }


@pytest.mark.parametrize("version", ALL)
def test_settings_are_set_and_read_back(version: str, tmp_path: Path) -> None:
    on = Bench(version, tmp_path)
    pool = {"key": "workspace_mib", "kind": "pool", "name": "WORKSPACE", "number": 1 << 20}
    wanted = [
        flag("SPARSE_WEIGHTS"),
        flag("TF32", 0),
        number("max_aux_streams", 2),
        number("builder_optimization_level", 4),
        SOURCES,
        pool,
        choice("profiling_verbosity", "ProfilingVerbosity", "NONE"),
    ]
    built = on.build(document_for(version, settings=wanted))
    assert built.settings == {
        "sparse_weights": "on",
        "tf32": "off",
        "max_aux_streams": "2",
        "builder_optimization_level": "4",
        "tactic_sources": "JIT_CONVOLUTIONS",
        "workspace_mib": str(1 << 20),
        "profiling_verbosity": "NONE",
    }
    assert "SPARSE_WEIGHTS" in built.flags
    assert "TF32" not in on.double.builds[0]
    (held,) = on.double.held
    assert (held["max_aux_streams"], held["builder_optimization_level"]) == (2, 4)
    assert (held["tactic_sources"], held["profiling_verbosity"]) == (["JIT_CONVOLUTIONS"], "NONE")
    assert held["pools"]["WORKSPACE"] == 1 << 20
    assert built.notes == []
    assert on.double.violations == []


def test_without_settings_the_builder_is_as_it_was(tmp_path: Path) -> None:
    on = Bench("10.3.0", tmp_path)
    assert on.build(document_for("10.3.0")).settings == {}
    (held,) = on.double.held
    assert held["profiling_verbosity"] == "DETAILED"
    assert held["tactic_sources"] == ["EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"]
    assert "TF32" in on.double.builds[0]


def test_the_order_of_settings_is_the_requests(tmp_path: Path) -> None:
    level = choice("tiling_optimization_level", "TilingOptimizationLevel", "FAST")
    limit = number("l2_limit_for_tiling", 1 << 20)
    on = Bench("11.4.0", tmp_path)
    built = on.build(document_for("11.4.0", settings=[level, limit]))
    assert built.settings == {
        "tiling_optimization_level": "FAST",
        "l2_limit_for_tiling": "1048576",
    }
    assert on.double.violations == []
    other = Bench("11.4.0", tmp_path)
    other.build(document_for("11.4.0", settings=[limit, level]))
    assert other.double.violations == ["l2_limit_for_tiling without a tiling_optimization_level"]


@pytest.mark.parametrize(
    ("setting", "lacks"),
    [
        (flag("EDITABLE_TIMING_CACHE"), "BuilderFlag.EDITABLE_TIMING_CACHE"),
        (number("l2_limit_for_tiling", 1), "IBuilderConfig.l2_limit_for_tiling"),
        (choice("profiling_verbosity", "ProfilingVerbosity", "LOUD"), "ProfilingVerbosity.LOUD"),
        (
            preview("RUNTIME_ACTIVATION_RESIZE_10_10", 1),
            "PreviewFeature.RUNTIME_ACTIVATION_RESIZE_10_10",
        ),
        (
            {
                "key": "k",
                "kind": "choice",
                "name": "profiling_verbosity",
                "enum": "Loudness",
                "members": ["NONE"],
            },
            "Loudness",
        ),
        ({"key": "k", "kind": "pool", "name": "SWIMMING", "number": 1}, "MemoryPoolType.SWIMMING"),
    ],
)
def test_what_the_boards_release_lacks_is_noted(
    setting: dict[str, Any], lacks: str, tmp_path: Path
) -> None:
    built = Bench("10.3.0", tmp_path).build(document_for("10.3.0", settings=[setting]))
    assert built.settings == {}
    assert built.notes == [f"lane0: this TensorRT has no {lacks}, so {setting['key']} is not set"]


def test_what_tensorrt_does_not_take_is_noted_with_what_it_has(tmp_path: Path) -> None:
    given = [
        number("builder_optimization_level", 9),
        preview("PROFILE_SHARING_0806", 0),
        preview("ALIASED_PLUGIN_IO_10_03", 1),
        {"key": "pool", "kind": "pool", "name": "DLA_LOCAL_DRAM", "number": 5000},
        {**SOURCES, "members": []},
    ]
    built = Bench("10.3.0", tmp_path).build(document_for("10.3.0", settings=given))
    assert built.notes == [
        "lane0: TensorRT does not take 9 for builder_optimization_level: it is 5",
        "lane0: TensorRT does not take PROFILE_SHARING_0806 off for preview_features: it is "
        "PROFILE_SHARING_0806 on",
        "lane0: TensorRT does not take 5000 for pool: it is 1073741824",
    ]
    assert built.settings["preview_features"] == (
        "PROFILE_SHARING_0806 on, ALIASED_PLUGIN_IO_10_03 on"
    )
    assert built.settings["tactic_sources"] == "none"


def test_a_cache_without_a_tactic_fails_where_that_is_an_error(tmp_path: Path) -> None:
    strict = document_for("10.3.0", settings=[flag("ERROR_ON_TIMING_CACHE_MISS")])
    with pytest.raises(DeviceError) as caught:
        Bench("10.3.0", tmp_path).build(strict)
    assert caught.value.code == "build.attempt"
    assert "not in the timing cache" in caught.value.message
    assert not (tmp_path / "timing.cache").exists()
    Bench("10.3.0", tmp_path).build(document_for("10.3.0"))
    built = Bench("10.3.0", tmp_path).build(strict)
    assert built.timing_cache.reused
    assert built.settings == {"error_on_timing_cache_miss": "on"}


def test_weights_are_streamed_in_a_strongly_typed_network_alone(tmp_path: Path) -> None:
    gpu = {"device": "GPU", "gpu_fallback": False}
    built = Bench("11.4.0", tmp_path).build(toys.strong(**gpu), ("WEIGHT_STREAMING",))
    assert "WEIGHT_STREAMING" in built.flags
    with pytest.raises(DeviceError) as caught:
        Bench("10.3.0", tmp_path).build(toys.engine(**gpu), ("WEIGHT_STREAMING",))
    assert "strongly typed" in caught.value.message
    weak = toys.strong(**gpu, settings=[flag("BF16")])
    with pytest.raises(DeviceError, match="do not take the flags BF16"):
        Bench("10.3.0", tmp_path).build(weak)


def test_an_editable_cache_is_a_file_of_its_own_and_the_result_has_the_settings(make: Any) -> None:
    on = make("10.16.1")
    files = []
    for settings in ([], [flag("EDITABLE_TIMING_CACHE")], [flag("EDITABLE_TIMING_CACHE")]):
        given = document_for("10.16.1", settings=settings)
        result = on.run(toys.request(given, tensorrt="10.16"), toys.toy_onnx(), toys.cache_text())
        (engine,) = result["engines"]
        assert engine.get("settings", {}) == dict.fromkeys([one["key"] for one in settings], "on")
        assert ("EDITABLE_TIMING_CACHE" in engine["flags"]) == bool(settings)
        assert engine["timing_cache"]["after"] > 0
        root = on.context.root.folder
        files.append(sorted(path.suffixes for path in root.glob("timing/*.cache")))
    # each job of the test has a root of its own
    assert files == [[[".cache"]], [[".editable", ".cache"]], [[".editable", ".cache"]]]
    assert on.offences() == []
