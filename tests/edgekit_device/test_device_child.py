"""Children that are asked something: whose code they run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit_device.board.identity import query_tensorrt
from edgekit_device.errors import DeviceError
from edgekit_device.processes import child_argv
from edgekit_device.tensorrt import runtimes


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder whose files leave a mark when they are imported; gives the mark."""
    folder, mark = tmp_path / "work", tmp_path / "mark"
    folder.mkdir()
    for name in ("json", "tensorrt", "importlib"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.chdir(folder)
    # as in a program that was started with -c there
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    return mark


def test_no_file_of_the_working_folder_runs(traps: Path) -> None:
    with pytest.raises(DeviceError):
        runtimes._try_start("tensorrt")
    query_tensorrt("tensorrt")
    assert not traps.exists()


def test_a_child_finds_what_this_process_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("VALUE = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "import only_here\nprint(json.dumps([only_here.VALUE, *sys.argv[1:]]))"
    done = subprocess.run(child_argv(code, "a b", "c"), capture_output=True, check=True)
    assert json.loads(done.stdout) == [7, "a b", "c"]
