"""A plugin's folder of sources: what goes to the board and what is refused."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from edgekit.errors import DataError
from edgekit.tensorrt import plugin_source
from edgekit.tensorrt.plugin_source import read_source

WHERE = "net.yaml:4:12"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "myop"
    (made / "src").mkdir(parents=True)
    (made / "CMakeLists.txt").write_text("project(mine)\n")
    (made / "src/mine.cu").write_text("// kernels\n")
    return made


def refused(folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_source(folder, "MyOp", WHERE)
    assert (caught.value.code, caught.value.where) == ("plugin.source", WHERE)
    assert "CMakeLists.txt" in caught.value.hint
    return caught.value.message


def test_the_files_go_by_their_paths(folder: Path) -> None:
    (folder / "copy.cu").symlink_to("src/mine.cu")
    for left_out in (
        ".git/config",
        ".hidden",
        "build/CMakeCache.txt",
        "build/mine.o",
        "edgekit-out/app.ekb",
    ):
        (folder / left_out).parent.mkdir(exist_ok=True)
        (folder / left_out).write_text("not a source")
    request, blobs = read_source(folder, "MyOp", WHERE).request()
    assert list(request.files) == ["CMakeLists.txt", "copy.cu", "src/mine.cu"]
    assert request.name == "MyOp"
    kernels = hashlib.sha256(b"// kernels\n").hexdigest()
    assert request.files["src/mine.cu"] == request.files["copy.cu"] == kernels
    assert blobs[kernels] == b"// kernels\n"


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    (folder / "src/other.cu").symlink_to(tmp_path / "secret")
    assert "a link that leads out of it: src/other.cu" in refused(folder)
    (folder / "src/other.cu").unlink()
    (folder / "more").symlink_to(tmp_path)
    assert "a link that leads out of it: more" in refused(folder)


def test_what_is_no_source_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is not a folder" in refused(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "has no CMakeLists.txt" in refused(tmp_path / "empty")
    os.mkfifo(folder / "pipe")
    assert "no file: pipe" in refused(folder)
    (folder / "pipe").unlink()
    monkeypatch.setattr(plugin_source, "MAX_SOURCE", 20)
    assert "is larger than" in refused(folder)


def test_too_many_files_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_source, "_MOST_FILES", 1)
    assert "1 files" in refused(folder)
