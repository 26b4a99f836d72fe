"""Which kinds of plugins a release takes, held against the API of the releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.errors import DataError
from edgekit.targets.releases import parse_version
from edgekit.tensorrt.plugin_families import entry_points, families, plugin_facts
from edgekit.tensorrt.plugin_library import check_library, read_library
from edgekit.tensorrt.releases import sources
from edgekit_device.tensorrt.plugins import ENTRY_POINTS
from tests.tensorrt.plugin_toys import plugin
from tests.trt_double import _api

AARCH64 = 183


@pytest.mark.parametrize("version", _api.VERSIONS)
def test_a_release_has_the_names_of_its_families_alone(version: str) -> None:
    symbols, here = _api.symbols(version), families(version)
    for name, family in plugin_facts().families.items():
        for symbol in family.names:
            assert (symbol in symbols) == (name in here), symbol
    assert ("IPluginRegistry.load_library" in symbols) == bool(entry_points(version))


@pytest.mark.parametrize(
    ("version", "names", "deprecated"),
    [
        ("8.5.2", ["IPluginV2DynamicExt"], []),
        ("8.6.1", ["IPluginV2DynamicExt"], []),
        ("10.3", ["IPluginV2DynamicExt", "IPluginV3"], ["IPluginV2DynamicExt"]),
        ("10.7", ["IPluginV2DynamicExt", "IPluginV3", "tensorrt.plugin"], ["IPluginV2DynamicExt"]),
        ("11.4.1", [*plugin_facts().families], ["IPluginV2DynamicExt"]),
    ],
)
def test_families_by_release(version: str, names: list[str], deprecated: list[str]) -> None:
    found = families(version)
    assert list(found) == names
    assert [name for name, one in found.items() if one.is_deprecated(version)] == deprecated


def test_what_travels_and_where_it_is_from() -> None:
    every = plugin_facts().families
    assert {one.travels for one in every.values()} == {"library", "python", "plan"}
    for one in (*every.values(), *plugin_facts().entry_points.values()):
        assert sources(one.source)
        assert one.since is None or parse_version(one.since) <= parse_version("11.4")


@pytest.mark.parametrize(
    ("version", "entries", "refused"),
    [
        ("8.6", ["getCreators"], True),
        ("8.6", ["getPluginCreators"], False),
        ("8.6", ["getCreators", "getPluginCreators"], False),
        ("8.6", [], False),
        ("8.5", ["getPluginCreators"], True),
        ("10.3", ["getCreators"], False),
        ("10.3", ["getPluginCreators"], False),
    ],
)
def test_entry_points_must_be_the_releases(
    version: str, entries: list[str], refused: bool, tmp_path: Path
) -> None:
    path = plugin(tmp_path / "lib.so", "A|1||V3", entries=entries, machine=AARCH64)
    library = read_library(path, "net.yaml:4")
    if not refused:
        assert "unknown" in check_library(library, version, "net.yaml:4")[0]
        return
    with pytest.raises(DataError, match=f"by {entries[0]}, which TensorRT {version}") as caught:
        check_library(library, version, "net.yaml:4")
    assert caught.value.code == "plugin.family"
    assert "REGISTER_TENSORRT_PLUGIN" in caught.value.hint


def test_the_board_knows_the_entry_points_of_the_data() -> None:
    assert set(ENTRY_POINTS) == set(plugin_facts().entry_points)
