"""JetPack releases by board, and the TensorRT each of them brings."""

import pytest

from edgekit.errors import UsageError
from edgekit.targets.board import JetPack, shared_sources
from edgekit.targets.jetpack import jetpack_of_l4t, jetpacks, tensorrt_of_jetpack
from edgekit.targets.loader import get, names
from edgekit.targets.releases import supports_dla

ORIN = "jetson-agx-orin-64gb"


@pytest.mark.parametrize(
    ("board", "jetpack", "tensorrt", "dla"),
    [
        ("jetson-agx-xavier", "4.6", "8.0.1", True),
        ("jetson-xavier-nx", "4.6.6", "8.2.1", True),
        ("jetson-agx-xavier", "5.1.3", "8.5.2", True),
        (ORIN, "5.0.2", "8.4.1", True),
        (ORIN, "6.0", "8.6.2", True),
        (ORIN, "6.2.1", "10.3.0", True),
        (ORIN, "6.2.0", "10.3.0", True),
        (ORIN, "JetPack 6.1", "10.3.0", True),
        (ORIN, "7.2", "10.16.2", False),
        (ORIN, "7.2.2", "11.4.1", True),
        ("jetson-orin-nx-16gb", "7.2.2", "11.4.1", False),
        ("jetson-orin-nano-8gb", "6.2", "10.3.0", False),
        (ORIN, "5.0.1", "8.4.0", True),
        ("jetson-xavier-nx", "5.0", "8.4.0", True),
        ("jetson-agx-thor", "7.0", "10.13.2", False),
        ("jetson-agx-thor", "7.1", "10.13.3", False),
    ],
)
def test_tensorrt_of_a_jetpack(board: str, jetpack: str, tensorrt: str, dla: bool) -> None:
    target = get(board)
    assert tensorrt_of_jetpack(target, jetpack) == tensorrt == tensorrt_of_jetpack(board, jetpack)
    assert supports_dla(target, tensorrt) is dla


@pytest.mark.parametrize(
    ("board", "jetpack", "hint"),
    [
        ("jetson-agx-xavier", "6.2", "4.6, 4.6.1"),
        ("jetson-orin-nano-8gb", "5.0.1", "are 5.0.2"),
        ("jetson-orin-nx-16gb", "5.0", "are 5.0.2"),
        ("jetson-agx-thor", "6.2", "are 7.0, 7.1"),
        (ORIN, "4.6", "6.2.1"),
        (ORIN, "", "6.2.1"),
        ("drive-orin", "6.0", "--tensorrt"),
    ],
)
def test_unknown_jetpack_lists_those_of_the_board(board: str, jetpack: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        tensorrt_of_jetpack(board, jetpack)
    assert caught.value.code == "jetpack.unknown"
    assert caught.value.where == board
    assert hint in caught.value.hint


def test_sources_that_name_another_tensorrt_are_both_told() -> None:
    (seven,) = [one for one in jetpacks(get(ORIN)) if one.versions == ("7.2",)]
    assert seven.tensorrt_text == "10.16.1 or 10.16.2"
    assert "DeepStream 9.2" in seven.note


def test_a_jetpack_whose_tensorrt_nobody_published() -> None:
    with pytest.raises(UsageError, match=r"JetPack 7\.2\.1 is unknown") as caught:
        tensorrt_of_jetpack(ORIN, "7.2.1")
    assert "--tensorrt" in caught.value.hint


def test_every_row_has_known_sources_and_no_version_stands_twice() -> None:
    for name in names():
        for release in jetpacks(get(name)):
            assert release.source
            assert set(release.source) <= shared_sources().keys()
        versions = [v for release in jetpacks(get(name)) for v in release.versions]
        assert len(versions) == len(set(versions))
        usual = get(name).tensorrt
        if versions:
            assert any(r.tensorrt.startswith(usual) for r in jetpacks(get(name)))


@pytest.mark.parametrize(
    ("l4t", "jetpack"),
    [
        ("36.3.0", "6.0"),
        ("35.4.1", "5.1 to 5.1.6"),
        ("34.1", "5.0 to 5.0.1"),
        ("39.2", "7.2"),
        ("99.1.0", None),
        ("", None),
    ],
)
def test_the_jetpack_of_a_release_of_jetson_linux(l4t, jetpack):
    assert jetpack_of_l4t(l4t) == jetpack


def test_releases_that_sources_name_are_ordered_as_versions() -> None:
    pack = JetPack("10.16.1", also=("10.9.0",))
    assert pack.possible == ("10.9.0", "10.16.1")
    assert pack.tensorrt_text == "10.9.0 or 10.16.1"
