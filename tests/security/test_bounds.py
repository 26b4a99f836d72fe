"""Readers of strangers' files have bounds (docs/threat-model.md), kept before any work is done."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.buildlog.reading import read_log
from edgekit.config.positions import parse_yaml
from edgekit.errors import ConfigError, UsageError
from edgekit.files import read_file
from edgekit.fleet import inventory
from edgekit.network.source import foreign_format
from edgekit.quantize.data.arrays import members
from edgekit_device.arrays.npz import read_npz, receive_npz, write_npz
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import dump, load, parse_json, read_json
from edgekit_device.protocol.manifest import MAX_MANIFEST
from edgekit_device.protocol.manifest import parse as parse_manifest
from edgekit_device.protocol.serving import ServingRecord
from edgekit_device.trust.bundle import open_bundle
from edgekit_device.trust.signature import MAX_SIGNATURE
from edgekit_device.zips import zip_entries

_MIB = 1 << 20


def directory(
    count: int, name: bytes = b"x", *, claimed: int | None = None, blobs: bool = False
) -> bytes:
    """A zip archive of empty entries: all called ``name``, or as blobs are, with local headers."""
    headers, local = [], []
    for number in range(count):
        own = b"blobs/%064x" % number if blobs else name
        sizes = (0, 0, 0, len(own), 0)
        if blobs:
            local.append(struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0, *sizes) + own)
        at = number * (30 + len(own)) if blobs else 0
        facts = struct.pack(
            "<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, *sizes, 0, 0, 0, 0, at
        )
        headers.append(facts + own)
    listed = b"".join(headers)
    said = min(count if claimed is None else claimed, 0xFFFF)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, said, said, len(listed), 0, 0)
    return b"".join(local) + listed + end


def refusal(work: Callable[[], object], most: int, kind: type[Exception] = DeviceError) -> Any:
    """The error, for which at most so many bytes were taken."""
    tracemalloc.start()
    try:
        with pytest.raises(kind) as caught:
            work()
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    return caught.value


@pytest.mark.parametrize("claimed", [None, 1], ids=["many", "said to be one"])
def test_entries_of_a_bundle_file_are_counted_before_a_list_is_made(
    tmp_path: Path, claimed: int | None
) -> None:
    path = tmp_path / "many.ekb"
    path.write_bytes(directory(70_000, claimed=claimed, blobs=True))
    error = refusal(lambda: open_bundle(path), 32 * _MIB)
    assert (error.code, "65536 entries" in error.message) == ("bundle.malformed", True)


def test_names_and_sizes_in_a_bundle_file_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "net.ekb"
    path.write_bytes(directory(1, b"n" * 1025))
    assert "name has 1025 bytes" in refusal(lambda: open_bundle(path), _MIB).message
    for name, most in (("manifest.json", MAX_MANIFEST), ("manifest.json.sig", MAX_SIGNATURE)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "manifest.json").write_bytes(b"{}")
        with (folder / name).open("wb") as file:
            file.truncate(most + 1)
        error = refusal(lambda folder=folder: open_bundle(folder), _MIB)  # type: ignore[misc]
        assert (error.code, "too large" in error.message) == ("bundle.malformed", True)


def test_a_zip_directory_is_read_as_zipfile_reads_it() -> None:
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a", b"one")
        with archive.open("b", "w", force_zip64=True) as out:
            out.write(bytes(1000))
        archive.writestr(zipfile.ZipInfo("c"), b"two", zipfile.ZIP_DEFLATED)
        archive.comment = b"a comment"
    for data in (made.getvalue(), _zip64_end(made.getvalue())):
        ours = list(zip_entries(data, 3))
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            theirs = archive.infolist()
        assert [(e.name.decode(), e.method, e.packed, e.size, e.offset) for e in ours] == [
            (i.filename, i.compress_type, i.compress_size, i.file_size, i.header_offset)
            for i in theirs
        ]
    with pytest.raises(ValueError, match="more than 2 entries"):
        list(zip_entries(made.getvalue(), 2))


def _zip64_end(data: bytes) -> bytes:
    at = data.rindex(b"PK\x05\x06")
    count, size, offset = struct.unpack_from("<HII", data, at + 10)
    end = struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, at, 1)
    return data[:at] + end + locator + data[at:]


def test_arrays_of_an_npz_are_counted_before_a_list_is_made() -> None:
    data = directory(50_000)
    error = refusal(lambda: read_npz(data), _MIB)
    assert (error.code, "4096 entries" in error.message) == ("npz.invalid", True)


def test_an_npz_is_refused_before_it_unpacks_to_more_than_its_bound() -> None:
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(64 * _MIB))
    error = refusal(lambda: read_npz(made.getvalue(), 32 * _MIB), _MIB)
    assert (error.code, "more than" in error.message) == ("npz.invalid", True)
    assert set(read_npz(write_npz({"x": np.zeros(3)}))) == {"x"}


@pytest.mark.parametrize("read", [read_npz, None], ids=["board", "host"])
def test_a_header_in_an_npz_is_bounded(
    read: Callable[[bytes], object] | None, tmp_path: Path
) -> None:
    """A version 2.0 header may have 4 GiB, and a zip packs them into 4 MiB."""
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        header = b"\x93NUMPY\x02\x00" + struct.pack("<I", 64 * _MIB)
        archive.writestr("x.npy", header + b" " * (64 * _MIB))
    path = tmp_path / "x.npz"
    path.write_bytes(made.getvalue())
    kind = DeviceError if read else ValueError
    error = refusal(lambda: read(path.read_bytes()) if read else members(path, "x"), _MIB, kind)
    assert "a header has 67108864 bytes" in str(error)


def test_entries_of_a_data_file_are_counted_before_a_list_is_made(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    path.write_bytes(directory(50_000))
    assert "4096 entries" in str(refusal(lambda: members(path, "x"), _MIB, ValueError))


def test_entries_of_an_archive_that_is_named_are_counted_before_a_list_is_made(
    tmp_path: Path,
) -> None:
    path = tmp_path / "many.onnx"
    path.write_bytes(directory(70_000, blobs=True))
    tracemalloc.start()
    assert foreign_format(path) == (
        "a zip archive of more than 65,536 entries",
        "give the ONNX file",
    )
    assert tracemalloc.get_traced_memory()[1] < 32 * _MIB
    tracemalloc.stop()


def test_standard_input_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit_device.arrays.npz._MOST_BYTES", 1000)
    with Path("/dev/zero").open("rb") as endless:
        assert refusal(lambda: receive_npz(endless), _MIB).code == "npz.invalid"
        assert refusal(lambda: read_json(endless, 1000), _MIB).code == "protocol.invalid"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"[" + b"[]," * (5 * _MIB) + b"[]]", "values"),
        (b"[" * 100_000, "not JSON"),
        (b'{"schema": ' + b"9" * 1000 + b"}", "digits"),
        (b"1e999", "not allowed"),
    ],
    ids=["values", "depth", "digits", "beyond a double"],
)
def test_json_is_bounded_before_values_are_made(data: bytes, why: str) -> None:
    error = refusal(lambda: parse_json(data, "it"), _MIB)
    assert why in error.message


def test_a_manifest_is_bounded() -> None:
    error = refusal(lambda: parse_manifest(bytes(MAX_MANIFEST + 1)), 2 * MAX_MANIFEST)
    assert error.code.startswith("manifest.")


def test_kept_documents_that_are_too_large_count_as_damaged(tmp_path: Path) -> None:
    file = tmp_path / "serving.json"
    good = dump(ServingRecord(1, "/x"))
    file.write_bytes(good)
    os.chmod(file, 0o600)
    assert load(ServingRecord, file) == ServingRecord(1, "/x")
    file.write_bytes(good + b" " * (1 << 20))
    assert load(ServingRecord, file) is None


@pytest.mark.parametrize(
    "text", ["a: [" + "1, " * 20_001 + "1]", "a: " + "[" * 41 + "]" * 41], ids=["values", "levels"]
)
def test_yaml_is_bounded(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "edgekit.yaml")
    assert "edgekit.yaml" in str(caught.value)
    parse_yaml("a: [" + "1, " * 1000 + "1]", "edgekit.yaml")


@pytest.fixture
def ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that stands for ansible-inventory and leaves a mark when it runs."""
    program = tmp_path / "ansible-inventory"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexec yes '{'a' * 4000}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(inventory, "find_program", lambda name: str(program))
    return tmp_path / "ran"


@pytest.mark.parametrize("kind", ["hosts", "hosts.ini", "hosts.zip", "folder", "files", "device"])
def test_an_inventory_of_ansibles_is_bounded_before_ansible_reads_it(
    kind: str, tmp_path: Path, ansible: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / kind
    large = [path]
    if kind in ("folder", "files"):
        (path / "group_vars").mkdir(parents=True)
        large = [path / "hosts", path / "group_vars/all"]
    if kind == "device":
        path.symlink_to("/dev/zero")
        large = []
    if kind == "files":
        monkeypatch.setattr(inventory, "_ENTRIES", 3)
    for file in large:
        file.touch()
        if kind != "files":
            os.truncate(file, inventory.LARGEST_INVENTORY // len(large) + 1)
    error = refusal(lambda: inventory.load_inventory(path), _MIB, ConfigError)
    said = {"files": "contains more than 3 files", "device": "it is a device, not a file"}
    assert said.get(kind, "it is larger than 8 MiB") in str(error)
    assert not ansible.exists()


def test_what_ansible_lists_is_bounded(
    tmp_path: Path, ansible: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "_LARGEST_LISTING", _MIB)
    path = tmp_path / "hosts"
    path.write_text("[orin]\n")
    error = refusal(lambda: inventory.load_inventory(path), 4 * _MIB, ConfigError)
    assert "lists more than 1 MiB" in str(error)
    assert ansible.exists()


def test_a_file_is_as_large_as_it_may_be(tmp_path: Path) -> None:
    """Whatever reads a whole file does so; tests/security/test_odd_files.py tries the commands."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * _MIB)
    assert len(read_file(path, _MIB)) == _MIB
    os.truncate(path, _MIB + 1)
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_file(path, _MIB)


def test_a_line_of_a_log_ends(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    path.write_text("&&&& RUNNING TensorRT\n")
    with path.open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match="a line is longer than 64 MiB"):
        read_log(path)
