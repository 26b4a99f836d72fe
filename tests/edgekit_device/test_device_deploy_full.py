"""A disk without a byte or an inode left does not keep a board from going back."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.bundles.manifest import Bundle
from edgekit_device.errors import DeviceError
from edgekit_device.release.journal import history, read_journal
from tests.edgekit_device.deploy_board import Bench, bench_board


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=400", "tmpfs", str(folder)]
    done = subprocess.run(argv, capture_output=True, check=False) if os.geteuid() == 0 else None
    if done is None or done.returncode:
        pytest.skip("needs root that may mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def bench(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return bench_board(disk / "root", monkeypatch)


def fill(disk: Path, inodes: bool) -> None:
    """Takes every byte, or every inode."""
    with contextlib.suppress(OSError), (disk / "bytes").open("ab", buffering=0) as file:
        while not inodes:
            file.write(bytes(4096))
    with contextlib.suppress(OSError):
        for number in range(1000 if inodes else 0):
            (disk / f"inode{number}").touch()


def make_space(disk: Path) -> None:
    for path in (disk / "bytes", *disk.glob("inode*")):
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("inodes", [False, True], ids=["bytes", "inodes"])
@pytest.mark.parametrize("first", [False, True], ids=["second", "first"])
def test_a_full_disk_does_not_keep_a_release_serving_that_failed(
    first: bool, inodes: bool, disk: Path, bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    before = (None, None)
    if not first:
        bench.offer(toy)
        bench.deploy(toy)
        before = bench.facts()
    bench.offer(toy2)
    bench.bad["soaking"] = DeviceError("it wrote the disk full", code="health.latency")
    bench.at = lambda state: fill(disk, inodes) if state == "soaking" else None
    with pytest.raises(DeviceError) as caught:
        bench.deploy(toy2)
    assert caught.value.code == "health.latency"
    assert bench.facts() == before
    journal = read_journal(bench.app)
    assert journal is not None
    assert journal.state == "rolled-back"
    assert not list(bench.app.folder.glob("reserve.*"))
    # with room again it is put back on purpose, as if nothing had been
    make_space(disk)
    bench.bad.clear()
    bench.at = lambda state: None
    bench.offer(toy2)
    with pytest.raises(DeviceError, match=r"was rolled back at .*: it wrote the disk full"):
        bench.deploy(toy2)
    assert bench.deploy(toy2, put_back=True)["state"] == "committed"
    assert [line.state for line in history(bench.app)][-1] == "committed"


@pytest.mark.parametrize("inodes", [False, True], ids=["bytes", "inodes"])
def test_a_full_disk_does_not_take_a_good_release_back(
    inodes: bool, disk: Path, bench: Bench, toy: Bundle
) -> None:
    bench.offer(toy)
    bench.at = lambda state: fill(disk, inodes) if state == "soaking" else None
    assert bench.deploy(toy)["state"] == "committed"
    journal = read_journal(bench.app)
    assert journal is not None
    assert journal.state == "committed"


def test_what_has_no_space_to_go_back_does_not_switch(
    disk: Path, bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    bench.offer(toy)
    bench.deploy(toy)
    before = bench.facts()
    bench.offer(toy2)
    bench.at = lambda state: fill(disk, False) if state == "testing" else None
    with pytest.raises(DeviceError) as caught:
        bench.deploy(toy2)
    assert caught.value.code == "board.disk-full"
    assert bench.facts() == before
