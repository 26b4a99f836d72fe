"""The disk fills up at every level, has no inodes left, or turns read-only."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.board_check import leftovers
from tests.faults.conftest import Pair
from tests.faults.fault_report import Faults
from tests.faults.forked_board import APP, Answer, Zygote, collected, deployment

pytestmark = pytest.mark.slow

_PAGE = 4096
# a board that is full says so, and never by a code that blames the bundle
_FULL = {"board.disk-full", "board.io"}


@contextlib.contextmanager
def _mounted(folder: Path, options: str) -> Iterator[None]:
    """A small tmpfs; skips where none may be mounted."""
    folder.mkdir(exist_ok=True)
    argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(argv, capture_output=True, check=False) if os.geteuid() == 0 else None
    if done is None or done.returncode:
        pytest.skip("needs root that may mount a tmpfs")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def _used(folder: Path) -> tuple[int, int]:
    """Bytes and inodes that are taken."""
    facts = os.statvfs(folder)
    return (facts.f_blocks - facts.f_bfree) * facts.f_frsize, facts.f_files - facts.f_ffree


class _Small:
    """A board on a file system of its own, with little left."""

    def __init__(self, pair: Pair, zygote: Zygote, disk: Path) -> None:
        self.pair, self.zygote, self.disk, self.root = pair, zygote, disk, disk / "board"

    def begin(self) -> None:
        """Puts the board back to the old bundle, with room."""
        _remount(self.disk, "rw,size=64m,nr_inodes=10000")
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.pair.board, self.root, symlinks=True)

    def try_it(self) -> Answer:
        """Deploys the new bundle; whatever comes of it, what serves is whole."""
        wanted = [self.pair.old.digest, self.pair.new.digest]
        check = {"root": str(self.root), "app": APP, "allowed": wanted}
        done = self.zygote.run(deployment(self.root, self.pair.new), check=check)
        assert done.check is not None
        assert done.check["problems"] == [], done
        return done

    def with_space(self) -> None:
        """There is room again: the same command finishes."""
        _remount(self.disk, "rw,size=64m,nr_inodes=10000")
        check = {"root": str(self.root), "app": APP, "allowed": [self.pair.new.digest]}
        steps = [*deployment(self.root, self.pair.new), collected(self.root)]
        done = self.zygote.run(steps, check=check)
        assert done.error == "", done.answers
        assert done.check is not None
        assert done.check["problems"] == [], done
        assert leftovers(self.root) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("what", ["bytes", "inodes"])
def test_full_at_every_level(
    what: str, pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults, exhaustive: bool
) -> None:
    with _mounted(tmp_path / "disk", "size=64m,nr_inodes=10000"):
        small = _Small(pair, zygote, tmp_path / "disk")
        small.begin()
        bytes_before, inodes_before = _used(small.disk)
        assert small.try_it().error == ""
        bytes_after, inodes_after = _used(small.disk)
        # it needs more while it works than it leaves
        pages = 2 * (bytes_after - bytes_before) // _PAGE + 8
        inodes = 2 * (inodes_after - inodes_before) + 8
        most = pages if what == "bytes" else inodes
        step = 1 if exhaustive else max(1, most // 7)
        failed = 0
        for left in range(0, most, step):
            small.begin()
            if what == "bytes":
                _remount(small.disk, f"size={_used(small.disk)[0] + left * _PAGE}")
            else:
                _remount(small.disk, f"nr_inodes={_used(small.disk)[1] + left}")
            faults.injected(f"disk full, no {what}")
            done = small.try_it()
            assert done.error == "" or done.error in _FULL, (left, done.answers)
            failed += done.error != ""
            small.with_space()
            faults.survived(f"disk full, no {what}")
        assert failed > 2


def test_read_only(pair: Pair, zygote: Zygote, tmp_path: Path, faults: Faults) -> None:
    with _mounted(tmp_path / "disk", "size=64m,nr_inodes=10000"):
        small = _Small(pair, zygote, tmp_path / "disk")
        small.begin()
        _remount(small.disk, "ro")
        faults.injected("file system read-only")
        done = small.try_it()
        assert done.error.startswith("board."), done
        reported = json.loads((done.answers or [(0, "")])[-1][1])["error"]
        assert "ead-only" in reported["message"], reported
        small.with_space()
        faults.survived("file system read-only")
