"""Temporary folders of killed processes go; those of living ones and other names stay."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from edgekit.deploy._scratch import scratch

_HOLD = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from edgekit.deploy._scratch import scratch
with scratch("edgekit-ssh-") as folder:
    (folder / "known_hosts").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_has_left_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "edgekit-ssh-link").symlink_to(other)
    argv = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout
        left = Path(held.stdout.readline().strip())
        with scratch("edgekit-ssh-") as mine:
            assert mine.stat().st_mode & 0o777 == 0o700
            with scratch("edgekit-ssh-"):
                assert mine.is_dir()
            assert (left / "known_hosts").exists()
        assert not mine.exists()
        held.kill()
    with scratch("edgekit-ssh-"):
        assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edgekit-ssh-link", "other"]
