"""A disk without a byte or an inode left does not keep a board from going back."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.bundles.manifest import Bundle
from edgekit_device.errors import DeviceError
from edgekit_device.release.journal import read_history, read_journal
from tests.edgekit_device.deploy_board import Bench, bench_board
from tests.edgekit_device.full_disk import disk, fill, make_space

__all__ = ["disk"]


@pytest.fixture
def bench(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return bench_board(disk / "root", monkeypatch)


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
    assert [line.state for line in read_history(bench.app)][-1] == "committed"


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
