"""The cache keeps what is whole and forgets what is not."""

import errno
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from edgekit.errors import EnvironmentLack
from edgekit.files import write_atomically
from edgekit.knowledge import data_folder
from edgekit.pipeline.cache import Cache, json_digest


def test_keys_depend_on_every_part(tmp_path):
    cache = Cache(tmp_path)
    assert cache.key("plan", 1) != cache.key("plan", 2)
    assert cache.key("plan", 1) != cache.key("build", 1)
    assert cache.key("plan", {"a": 1, "b": 2}) == cache.key("plan", {"b": 2, "a": 1})


def test_keys_depend_on_edgekits_own_code_and_data(tmp_path):
    root = data_folder("targets").parent
    copy = tmp_path / "copy"
    for name in ("edgekit", "edgekit_device", "targets", "dla", "trt"):
        shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import pathlib; from edgekit.pipeline.cache import Cache;"
        "print(Cache(pathlib.Path('kept')).key('plan'))"
    )

    def key() -> str:  # of a new process: one goes on with the code that it has loaded
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=copy, check=True, capture_output=True).stdout.decode()

    board = next((copy / "targets").glob("jetson-*.yaml"))
    text = board.read_text()
    before = key()
    board.write_text(text.replace("1", "2", 1))
    assert key() != before
    board.write_text(text)
    assert key() == before  # by content, not by time


def test_results_come_back_and_damage_counts_as_absent(tmp_path):
    cache = Cache(tmp_path)
    assert cache.get("plan", "k") is None
    cache.put("plan", "k", {"a": [1, 2.5]})
    assert cache.get("plan", "k") == {"a": [1, 2.5]}
    path = tmp_path / "steps" / "plan" / "k.json"
    path.write_text(path.read_text()[:-3])
    assert cache.get("plan", "k") is None


def test_blobs_come_back_as_read_only_arrays(tmp_path):
    cache = Cache(tmp_path)
    value = np.arange(12, dtype=np.int8).reshape(3, 4)
    digest = json_digest("x")
    assert not cache.has_blobs([digest])
    cache.put_blob(digest, value.T)
    read = cache.array(digest, "int8", (4, 3))
    assert (read == value.T).all()
    assert not read.flags.writeable
    cache.put_blob("e" * 64, np.zeros((0, 3), np.float32))
    assert cache.array("e" * 64, "float32", (0, 3)).shape == (0, 3)


def test_many_small_blobs_need_no_open_file_each(tmp_path):
    cache = Cache(tmp_path)
    value = np.arange(8, dtype=np.float32)
    cache.put_blob("a" * 64, value)
    open_before = len(os.listdir("/proc/self/fd"))
    retained = [cache.array("a" * 64, "float32", (2, 4)) for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) == open_before
    assert all(
        (item == value.reshape(2, 4)).all() and not item.flags.writeable for item in retained
    )
    cache.blob_path("a" * 64).write_bytes(b"half")
    with pytest.raises(LookupError):
        cache.array("a" * 64, "float32", (2, 4))
    with pytest.raises(LookupError):
        cache.array("b" * 64, "float32", (2, 4))


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")

    def interrupted():
        with write_atomically(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentLack) as caught:
        Cache(tmp_path / "file" / "cache")
    assert caught.value.code == "cache.unwritable"
    assert "EDGEKIT_CACHE" in caught.value.hint


def test_stored_results_are_json(tmp_path):
    cache = Cache(tmp_path)
    cache.put("check", "k", {"x": None})
    assert json.loads((tmp_path / "steps" / "check" / "k.json").read_text()) == {"x": None}


def test_space_is_named_only_where_it_is_missing(tmp_path):
    for code, freed in ((errno.ENOSPC, True), (errno.ENOTDIR, False), (errno.EACCES, False)):
        with pytest.raises(EnvironmentLack) as caught, write_atomically(tmp_path / "a" / "f"):
            raise OSError(code, os.strerror(code))
        assert ("free space" in caught.value.hint) == freed
        assert "choose a folder that can be written" in caught.value.hint
