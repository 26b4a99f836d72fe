"""Bundles on disk: whole or not at all, the same bytes, and nothing hostile gets in."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundles.files import read, write
from edgekit.bundles.manifest import Bundle
from edgekit.errors import BundleError, UsageError
from tests.bundles import bundle_toys as toys


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return toys.toy_bundle().signed(b"not really a signature")


@pytest.mark.parametrize("name", ["b.ekb", "folder"])
@pytest.mark.parametrize("stripped", [True, False])
def test_what_is_written_is_read_back(
    bundle: Bundle, tmp_path: Path, name: str, stripped: bool
) -> None:
    back = read(write(bundle, tmp_path / name, stripped=stripped))
    assert back.manifest_bytes == bundle.manifest_bytes
    assert back.signature == bundle.signature
    assert set(back.blobs) == set(bundle.blobs)
    assert set(back.weights) == (set() if stripped else set(bundle.weights))
    for digest, data in back.weights.items():
        assert bytes(data) == np.asarray(bundle.weights[digest]).tobytes()


def test_a_stripped_bundle_has_no_weight_bytes(bundle: Bundle, tmp_path: Path) -> None:
    data = write(bundle, tmp_path / "b.ekb").read_bytes()
    for name, value in toys.values().items():
        if value.nbytes > 64:
            assert value.tobytes()[:64] not in data, name
    full = write(bundle, tmp_path / "f.ekb", stripped=False).read_bytes()
    assert toys.values()["g"].tobytes() in full


def test_both_forms_are_the_same_every_time(bundle: Bundle, tmp_path: Path) -> None:
    first = write(bundle, tmp_path / "a.ekb", stripped=False).read_bytes()
    os.utime(tmp_path / "a.ekb", (0, 0))
    assert (
        write(
            toys.toy_bundle().signed(b"not really a signature"), tmp_path / "c.ekb", stripped=False
        ).read_bytes()
        == first
    )


def test_entries_are_stored_sorted_and_aligned(bundle: Bundle, tmp_path: Path) -> None:
    path = write(bundle, tmp_path / "a.ekb", stripped=False)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert names[:2] == ["manifest.json", "manifest.json.sig"]
        assert names[2:] == sorted(names[2:])
        for info in archive.infolist():
            name_size = int.from_bytes(data[info.header_offset + 26 :][:2], "little")
            extra = int.from_bytes(data[info.header_offset + 28 :][:2], "little")
            assert (info.header_offset + 30 + name_size + extra) % 64 == 0


def test_writing_replaces_a_bundle_and_nothing_else(bundle: Bundle, tmp_path: Path) -> None:
    folder = write(bundle, tmp_path / "b")
    write(bundle, folder, stripped=False)
    assert len(list((folder / "blobs").iterdir())) == len(bundle.blobs) + len(bundle.weights)
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("do not lose")
    for place in (other, other / "thesis.txt"):
        with pytest.raises(UsageError) as caught:
            write(bundle, place)
        assert caught.value.code == "write.occupied"
    assert (other / "thesis.txt").read_text() == "do not lose"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "mine"]


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from edgekit.bundles.files import write\n"
        "from edgekit.errors import EnvironmentLack\n"
        "from tests.bundles.bundle_toys import toy_bundle\n"
        "bundle = toy_bundle()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "for name in ('b.ekb', 'folder'):\n"
        "    try: write(bundle, sys.argv[1] + '/' + name, stripped=False)\n"
        "    except EnvironmentLack as error: print(error.code)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.split() == ["file.write"] * 2
    # knowledge that was read is kept in edgekit's cache, which the tests put here
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


def test_a_stripped_bundle_cannot_be_written_full(bundle: Bundle, tmp_path: Path) -> None:
    stripped = read(write(bundle, tmp_path / "b.ekb"))
    with pytest.raises(BundleError) as caught:
        write(stripped, tmp_path / "f.ekb", stripped=False)
    assert caught.value.code == "bundle.incomplete"
    assert not (tmp_path / "f.ekb").exists()


@pytest.mark.parametrize("kind", ["engine", "golden", "weight"])
@pytest.mark.parametrize("name", ["b.ekb", "folder"])
def test_a_flipped_bit_is_found(bundle: Bundle, tmp_path: Path, kind: str, name: str) -> None:
    digest = (
        next(iter(bundle.weights))
        if kind == "weight"
        else next(d for d, e in toys.document_of(bundle)["blobs"].items() if e["kind"] == kind)
    )
    path = write(bundle, tmp_path / name, stripped=False)
    if path.is_dir():
        file, offset = path / "blobs" / digest, 3
    else:
        wanted = bytes(read(path).weights.get(digest) or read(path).blobs[digest])
        file, offset = path, path.read_bytes().index(wanted) + 3
    data = bytearray(file.read_bytes())
    data[offset] ^= 4
    file.write_bytes(data)
    with pytest.raises(BundleError) as caught:
        read(path)
    assert caught.value.code == "blob.digest-mismatch"


def _entries(path: Path, change: Callable[[zipfile.ZipFile], None]) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        change(archive)


HOSTILE: dict[str, Callable[[zipfile.ZipFile], None]] = {
    "climbs": lambda z: z.writestr("../../evil", "x"),
    "absolute": lambda z: z.writestr("/etc/evil", "x"),
    "climbs in blobs": lambda z: z.writestr("blobs/../../evil", "x"),
    "other file": lambda z: z.writestr("readme.txt", "x"),
    "upper case": lambda z: z.writestr("blobs/" + "A" * 64, "x"),
    "compressed": lambda z: z.writestr("blobs/" + "a" * 64, "x" * 99, zipfile.ZIP_DEFLATED),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_entries_are_refused(bundle: Bundle, tmp_path: Path, case: str) -> None:
    path = write(bundle, tmp_path / "b.ekb")
    _entries(path, HOSTILE[case])
    with pytest.raises(BundleError) as caught:
        read(path)
    assert caught.value.code == "bundle.malformed"
    assert [p.name for p in tmp_path.iterdir()] == ["b.ekb"]


def test_an_entry_that_occurs_twice_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    path = write(bundle, tmp_path / "b.ekb")
    with pytest.warns(UserWarning, match="Duplicate name"):
        _entries(path, lambda z: z.writestr("manifest.json", "{}"))
    with pytest.raises(BundleError, match="occurs twice"):
        read(path)


def test_an_entry_with_two_names_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    path = write(bundle, tmp_path / "b.ekb")
    data = bytearray(path.read_bytes())
    data[30 : 30 + len("manifest.json")] = b"Manifest.json"
    path.write_bytes(data)
    with pytest.raises(BundleError, match="two different names"):
        read(path)


@pytest.mark.parametrize("keep", [0, 10, 500, -30])
def test_a_truncated_file_is_refused(bundle: Bundle, tmp_path: Path, keep: int) -> None:
    path = write(bundle, tmp_path / "b.ekb")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BundleError) as caught:
        read(path)
    assert caught.value.code == "bundle.malformed"


def test_sizes_beyond_the_file_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    path = write(bundle, tmp_path / "b.ekb")
    data = bytearray(path.read_bytes())
    central = data.rindex(b"PK\x01\x02")
    data[central + 20 : central + 28] = (0x7FFFFFF0).to_bytes(4, "little") * 2
    path.write_bytes(data)
    with pytest.raises(BundleError) as caught:
        read(path)
    assert caught.value.code == "bundle.malformed"


def test_a_missing_bundle_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path / "nothing.ekb")
    assert caught.value.code == "bundle.not-found"
    with pytest.raises(UsageError) as caught:
        read(tmp_path)
    assert caught.value.code == "bundle.not-found"
