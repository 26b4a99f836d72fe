"""A small disk that a test fills up."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["disk", "fill", "make_space"]


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
