"""A plan's header without TensorRT, and which runtime it wants."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.tensorrt.plan import read_header
from edgekit_device.tensorrt.runtimes import (
    RuntimeChoice,
    check_board,
    lean_library,
    runtime_choices,
)
from edgekit_device.versions import Version, parse_version, same_version
from tests.edgekit_device.tensorrt.toys import network


def header(version: tuple[int, int, int, int], serialization: int = 0) -> bytes:
    return b"ftrt" + struct.pack("<IQQ", serialization, 0, 0) + bytes(version)


def test_the_version_is_read_from_four_bytes() -> None:
    assert read_header(header((10, 3, 0, 30)) + b"more") == (10, 3, 0, 30)
    assert read_header(memoryview(header((255, 0, 1, 2)))) == (255, 0, 1, 2)


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (b"", "engine.truncated", "0 bytes"),
        (b"ft", "engine.truncated", "2 bytes"),
        (header((10, 3, 0, 30))[:-1], "engine.truncated", "27 bytes"),
        (b"nothing that anybody knows, long enough", "engine.not-a-plan", "not a TensorRT plan"),
        (b"\x14\0\0\0NVDA" + bytes(40), "engine.not-a-plan", "a DLA loadable"),
        (network().SerializeToString(), "engine.not-a-plan", "an ONNX model"),
        (b"PK\x03\x04" + bytes(40), "engine.not-a-plan", ".ekb"),
        (b"version https://git-lfs.github.com/spec/v1\n", "engine.not-a-plan", "Git LFS"),
        (header((8, 5, 2, 2), 213), "engine.serialization", "213"),
    ],
)
def test_what_is_no_plan_is_named(data: bytes, code: str, text: str) -> None:
    with pytest.raises(DeviceError) as caught:
        read_header(data, "here.plan")
    assert (caught.value.code, caught.value.where) == (code, "here.plan")
    assert text in caught.value.message


@pytest.mark.parametrize(
    ("text", "version"),
    [("10.3.0.30", (10, 3, 0, 30)), ("8.6.1.post1", (8, 6, 1)), ("", ()), ("x", ())],
)
def test_versions_are_read_as_far_as_they_are_numbers(text: str, version: Version) -> None:
    assert parse_version(text) == version


def test_builds_count_only_where_both_are_known() -> None:
    assert same_version((10, 3, 0), (10, 3, 0, 30))
    assert not same_version((10, 3, 0, 26), (10, 3, 0, 30))
    assert not same_version((10, 3), (10, 3, 0, 30))


def pick(
    plan: Version, installed: Mapping[str, Version], *, library: bool = False, **facts: bool
) -> list[tuple[str, bool, bool]]:
    """Ways as (flavour, with a library, host code)."""
    reported = {"version_compatible": True, "lean_embedded": False, "trusted": True, **facts}
    found = runtime_choices(
        plan, installed, find_lean=lambda _: Path("/lib/lean") if library else None, **reported
    )
    return [(way.flavour, way.library is not None, way.host_code) for way in found]


V3, V7, V16, V11, V86 = (10, 3, 0, 30), (10, 7, 0), (10, 16, 1, 11), (11, 4, 0, 106), (8, 6, 1, 6)


def test_the_very_version_comes_first() -> None:
    assert pick(V3, {"full": (10, 3, 0), "lean": V16}, version_compatible=False) == [
        ("full", False, False)
    ]
    assert pick(V3, {"full": V3, "lean": V3}) == [("full", False, False), ("lean", False, False)]
    assert pick(V3, {"lean": V3, "full": V16}, library=True) == [
        ("lean", False, False),
        ("full", True, False),
    ]


def test_the_own_major_is_tried_before_the_next() -> None:
    assert pick(V3, {"lean": V11, "dispatch": V16, "full": V11}, lean_embedded=True) == [
        ("dispatch", False, True),
        ("lean", False, True),
        ("full", False, True),
    ]
    (way,) = runtime_choices(
        V86,
        {"full": V3},
        version_compatible=True,
        lean_embedded=True,
        trusted=True,
        find_lean=lambda _: None,
    )
    assert isinstance(way, RuntimeChoice)
    assert "self-test" in way.note


@pytest.mark.parametrize(
    ("plan", "installed", "facts"),
    [
        (V16, {"full": V3}, {}),  # newer than the runtime
        (V86, {"full": V11, "lean": V11}, {"lean_embedded": True}),  # 8 never runs with 11
        (V3, {"full": V7}, {"version_compatible": False}),
        (V3, {"lean": V3}, {"version_compatible": False}),
        (V3, {"full": V16}, {}),  # its lean library is not there
        (V3, {}, {}),
    ],
)
def test_no_way_is_a_refusal_that_names_both(
    plan: Version, installed: dict[str, Version], facts: dict[str, bool]
) -> None:
    with pytest.raises(DeviceError) as caught:
        pick(plan, installed, **facts)
    assert caught.value.code == "engine.version"
    assert ".".join(map(str, plan)) in caught.value.message
    for version in installed.values():
        assert ".".join(map(str, version)) in caught.value.hint


def test_a_lean_library_is_found_by_its_whole_name(tmp_path: Path) -> None:
    real = tmp_path / "a" / "libnvinfer_lean.so.10.3.0"
    other = tmp_path / "b" / "libnvinfer_lean.so.10.7.0"
    for file in (real, other):
        file.parent.mkdir()
        file.touch()
    link = tmp_path / "b" / "libnvinfer_lean.so.10"
    link.symlink_to(other)
    listing = f"\tlibnvinfer_lean.so.10 (libc6,AArch64) => {link}\n\tlibm.so.6 => /lib/libm.so.6\n"
    assert lean_library(V3, [tmp_path / "a"], "") == real
    assert lean_library((10, 7, 0, 23), [], listing) == other
    assert lean_library(V16, [tmp_path / "a", tmp_path / "b"], listing) is None


BUILT = {"module": "Orin A", "l4t": "36.4.3", "tensorrt": "10.3.0.30"}


@pytest.mark.parametrize(
    ("board", "portable", "reported"),
    [
        (BUILT, False, ""),
        ({**BUILT, "tensorrt": "10.3.0"}, False, ""),
        ({**BUILT, "module": None, "l4t": ""}, False, ""),
        ({**BUILT, "module": "Orin B"}, False, "'Orin B'"),
        ({**BUILT, "module": "Orin B"}, True, "'Orin B'"),
        ({**BUILT, "l4t": "36.5.0"}, False, "'36.5.0'"),
        ({**BUILT, "l4t": "36.5.0", "tensorrt": "10.7.0"}, True, ""),
        ({**BUILT, "tensorrt": "10.7.0"}, False, "'10.7.0'"),
    ],
)
def test_another_kind_of_board_is_distinguished_from_the_same(
    board: dict[str, str | None], portable: bool, reported: str
) -> None:
    if not reported:
        check_board(BUILT, board, portable=portable)
        return
    with pytest.raises(DeviceError) as caught:
        check_board(BUILT, board, portable=portable)
    assert caught.value.code == "engine.other-board"
    assert reported in caught.value.message
