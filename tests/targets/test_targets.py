"""Boards: every file reads, names its sources, and the modes are NVIDIA's."""

from itertools import permutations
from pathlib import Path

import pytest

from edgekit.errors import DataError, UsageError
from edgekit.targets.loader import get, names, similar_names

CORES = {
    "jetson-agx-xavier": (2, "1.0"),
    "jetson-xavier-nx": (2, "1.0"),
    "jetson-agx-orin-64gb": (2, "2.0"),
    "jetson-agx-orin-32gb": (2, "2.0"),
    "jetson-orin-nx-16gb": (2, "2.0"),
    "jetson-orin-nx-8gb": (1, "2.0"),
    "jetson-orin-nano-8gb": (0, ""),
    "jetson-orin-nano-4gb": (0, ""),
    "jetson-agx-thor": (0, ""),
    "drive-orin": (2, "2.0"),
}


def test_all_boards_are_there_and_helper_files_are_none() -> None:
    assert set(names()) == set(CORES)


def test_no_two_boards_say_the_same_of_themselves() -> None:
    numbers = [number for name in names() for number in get(name).file.module.numbers]
    assert len(numbers) > 10
    assert not [(a, b) for a, b in permutations(numbers, 2) if a.startswith(b)]


@pytest.mark.parametrize("name", sorted(CORES))
def test_board_is_consistent(name: str) -> None:
    target = get(name)
    assert (target.dla.cores, target.dla.generation) == CORES[name]
    assert target.name == name
    assert sum(mode.default for mode in target.power_modes.values()) == 1
    for mode in target.power_modes.values():
        assert len(mode.dla_mhz) == target.dla.cores
        assert 0 < mode.gpu_sms <= target.gpu.sms
        assert 0 < mode.memory_share <= 1
        assert mode.gpu_mhz > 0
        assert all(mhz > 0 for mhz in mode.dla_mhz)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("jetson-agx-orin-64gb", "10.3"),
        ("jetson-orin-nano-4gb", "10.3"),
        ("jetson-agx-xavier", "8.5.2"),
        ("jetson-xavier-nx", "8.5.2"),
        ("jetson-agx-thor", "10.13.3"),
    ],
)
def test_usual_tensorrt(name: str, version: str) -> None:
    assert get(name).tensorrt == version


def test_rates_add_up_to_what_nvidia_advertises() -> None:
    """AGX Orin 64GB: 171 sparse TOPS on the GPU and 105 on two DLA cores (TOPS table)."""
    orin = get("jetson-agx-orin-64gb")
    gpu = orin.gpu.sms * orin.gpu.max_mhz * 1e6 * orin.gpu.int8_ops_per_clock_per_sm * 2 / 1e12
    dla = orin.dla.cores * orin.dla.max_mhz * 1e6 * orin.dla.int8_macs_per_clock * 4 / 1e12
    assert gpu == pytest.approx(171, rel=0.01)
    assert dla == pytest.approx(105, rel=0.01)
    xavier = get("jetson-agx-xavier")
    both = xavier.dla.cores * xavier.dla.max_mhz * 1e6 * xavier.dla.int8_macs_per_clock * 2 / 1e12
    assert both == pytest.approx(11.4, rel=0.01)


@pytest.mark.parametrize(
    ("board", "requested", "found"),
    [
        ("jetson-agx-orin-64gb", "MODE_30W", "30W"),
        ("jetson-agx-orin-64gb", "maxn", "MAXN"),
        ("jetson-agx-orin-64gb", None, "MAXN"),
        ("jetson-xavier-nx", "mode_20w_6core", "20W_6CORE"),
        ("jetson-xavier-nx", None, "10W_DESKTOP"),
        ("jetson-orin-nx-16gb", "MAXN SUPER", "MAXN_SUPER"),
        ("jetson-orin-nano-8gb", None, "15W"),
        ("jetson-orin-nano-8gb", "25w", "25W"),
    ],
)
def test_mode_names(board: str, requested: str | None, found: str) -> None:
    assert get(board).mode(requested).name == found


def test_default_mode_of_agx_xavier_warns_about_the_dla_clock() -> None:
    mode = get("jetson-agx-xavier").mode("15W_DESKTOP")
    assert mode.default
    assert mode.dla_mhz == (115.2, 115.2)
    assert "115 MHz" in mode.warning


def test_capped_modes_resolve_to_numbers() -> None:
    mode = get("jetson-agx-orin-64gb").mode("15W")
    assert (mode.gpu_mhz, mode.gpu_sms, mode.dla_mhz) == (408.0, 6, (614.4, 614.4))
    assert mode.memory_share == pytest.approx(2 / 3, abs=0.01)
    assert get("jetson-orin-nx-16gb").mode("10W").dla_mhz == (153.6, 115.0)
    assert "unknown" in get("jetson-agx-thor").mode("120W").warning


def test_unknown_target_and_mode_name_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        get("jetson-agx-orin-64g")
    assert caught.value.code == "target.unknown"
    assert "did you mean jetson-agx-orin-64gb?" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        get("jetson-agx-orin-64gb").mode("31W")
    assert "did you mean 30W?" in caught.value.hint
    for bad in ("../secrets", "_sources", "", "nowhere.yaml"):
        with pytest.raises(UsageError):
            get(bad)


@pytest.mark.parametrize(
    "name",
    [
        "jetson-orin-agx-64gb",
        "Jetson AGX Orin 64GB",
        "NVIDIA Jetson AGX Orin 64 GB Developer Kit",
        "64gb-orin-agx",
    ],
)
def test_the_words_of_a_name_have_any_order(name: str) -> None:
    assert get(name).name == "jetson-agx-orin-64gb"


def test_some_words_of_a_name_bring_the_boards_that_have_them() -> None:
    with pytest.raises(UsageError) as caught:
        get("jetson-orin-agx")
    assert "jetson-agx-orin-32gb or jetson-agx-orin-64gb?" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("jetson-nano", "Jetson Nano of 2019"),
        ("Jetson Nano 2GB", "Jetson Nano of 2019"),
        ("tx2", "Jetson TX2"),
        ("jetson-tx2-nx", "Jetson TX2"),
        ("jetson-tx1", "Jetson TX1"),
    ],
)
def test_a_board_that_is_not_supported_is_answered_as_what_it_is(name: str, title: str) -> None:
    with pytest.raises(UsageError) as caught:
        get(name)
    assert caught.value.code == "target.unsupported"
    assert caught.value.message == (
        f"{title} is not supported: it has no DLA, and its last release is JetPack 4.6 with "
        "TensorRT 8.2"
    )


def _copy(tmp_path: Path, old: str, new: str) -> Path:
    from edgekit.knowledge import data_folder

    text = (data_folder("targets") / "jetson-orin-nx-8gb.yaml").read_text()
    assert old in text
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("sms: 8", "sms: eight", "gpu.sms"),
        ("max_mhz: 765", "max_mhz: -1", "gpu.max_mhz"),
        ("source: [spec_tables, benchmarks, nvinfer_header]", "source: [hearsay]", "dla.source"),
        ('[{since: "8.4", until: "10.8"}]', "8.4", "dla.tensorrt"),
        ('since: "8.4"', "since: 8.4", "dla.tensorrt"),
        ("dla: 153.6", "dla: [153.6, 115, 1]", "power_modes.10W.dla"),
        ("edgekit.target/1", "edgekit.target/9", "schema"),
    ],
)
def test_a_wrong_fact_is_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    with pytest.raises(DataError) as caught:
        get(str(_copy(tmp_path, old, new)))
    assert expected in caught.value.message
    assert caught.value.where.endswith("mine.yaml")


def test_broken_yaml_has_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: [1,\nb: }")
    with pytest.raises(DataError) as caught:
        get(str(path))
    assert caught.value.where.startswith(f"{path}:2:")


def test_a_part_of_a_name_brings_all_boards_that_have_it_jetsons_first() -> None:
    near = similar_names("Orin")
    assert near[-1] == "drive-orin"
    assert near[0].startswith("jetson-")
    assert set(near) == {name for name in names() if "orin" in name}
    assert similar_names("jetson-agx-xavir") == ["jetson-agx-xavier"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("jetson-xavier-agx-32gb", ["jetson-agx-xavier"]),
        ("agx-xavier-32gb", ["jetson-agx-xavier"]),
        ("Xavier_NX_8GB", ["jetson-xavier-nx"]),
        ("orin-nx-32gb", ["jetson-orin-nx-16gb", "jetson-orin-nx-8gb"]),
        ("nano-orin-super", ["jetson-orin-nano-4gb", "jetson-orin-nano-8gb"]),
        ("xaiver-agx-64gb", ["jetson-agx-xavier"]),
    ],
)
def test_words_in_any_order_bring_the_boards_of_that_series(name: str, near: list[str]) -> None:
    assert similar_names(name) == near
