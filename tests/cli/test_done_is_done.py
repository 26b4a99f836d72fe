"""What was done is not done again: the same release, a refit, another install of edgekit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundles.files import read
from edgekit.config.loader import open_config
from edgekit.knowledge import data_folder
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from tests.boards.fixtures import StartBoard, boards, home
from tests.cli.test_taken_back import BOARD, Bench
from tests.pipeline.nets import small_config, small_net

__all__ = ["boards", "home"]


@pytest.fixture
def bench(boards: StartBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    root = tmp_path / "lab"
    extra = BOARD.format(b=boards().board, root=root)
    return Bench(small_config(tmp_path / "config", extra=extra), root, capsys)


def jobs(bench: Bench) -> int:
    """Deployments that the board was asked for."""
    return len(list((bench.root / "jobs").iterdir()))


def release(document: dict[str, Any]) -> tuple[str, bool, int]:
    (row,) = document["releases"]
    return row["release"], row["reused"], row["bytes_sent"]


@pytest.mark.boards
@pytest.mark.usefixtures("warm_boards")
def test_the_release_that_serves_is_not_deployed_again(bench: Bench) -> None:
    old = bench.deploy()
    file = bench.config.parent / "out" / "bundle.ekb"
    kept = str(shutil.copy(file, bench.config.parent / "old.ekb"))
    before = jobs(bench)
    assert release(bench.ask("deploy")) == (old, True, 0)
    assert release(bench.ask("deploy", "--bundle", kept)) == (old, True, 0)
    assert jobs(bench) == before
    # also where the board has gone back to it
    bench.network(2)
    new = bench.deploy()
    assert bench.ask("rollback")["boards"][0]["to"] == old
    bench.network(0)
    before = jobs(bench)
    document = bench.ask("deploy")
    assert release(document) == (old, True, 0)
    assert release(bench.ask("deploy", "--bundle", kept)) == (old, True, 0)
    assert jobs(bench) == before
    assert bench.serving == old != new
    # one that was asked for all the same is
    assert not release(bench.ask("deploy", "--bundle", kept, "--force"))[1]
    assert jobs(bench) == before + 1


@pytest.mark.whole
@pytest.mark.boards
@pytest.mark.usefixtures("warm_boards")
def test_a_refit_that_was_done_is_not_done_again(bench: Bench) -> None:
    other = bench.config.parent / "other.onnx"
    small_net(other, scale=1.01)
    first = bench.ask("refit", "--weights", str(other), "--trust-key", "--out", str(other.parent))
    before = jobs(bench)
    again = bench.ask("refit", "--weights", str(other), "--out", str(other.parent))
    assert {step["name"] for step in again["steps"] if step["status"] != "reused"} == set()
    assert again["accuracy"] == first["accuracy"]
    assert again["digest"] == first["digest"]
    assert release(again) == (release(first)[0], True, 0)
    assert jobs(bench) == before
    # other values are another refit
    small_net(other, scale=1.02)
    third = bench.ask("refit", "--weights", str(other), "--out", str(other.parent))
    assert third["digest"] != first["digest"]
    assert [step["status"] for step in third["steps"] if step["name"] == "weights"] == ["done"]


def test_a_bundle_is_the_same_in_every_folder_and_names_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = set()
    for name in ("ann", "bob"):
        folder = tmp_path / name
        path = small_config(folder, extra="deploy: {health: {samples: 2}}\n")
        (folder / "data").mkdir()
        data = np.random.default_rng(0).random((2, 3, 16, 16), np.float32)
        np.save(folder / "data/x.npy", data)
        text = path.read_text().replace("count: 3", f"count: 3, data: {folder}/data")
        path.write_text(text.replace("onnx: small.onnx", f"onnx: {folder}/small.onnx"))
        os.utime(folder / "data/x.npy", (1, 1))
        with Pipeline(
            open_config(path), out=folder / "out", cache=Cache(folder / "cache")
        ) as pipeline:
            pipeline.bundle()
        bundle = read(folder / "out/bundle.ekb")
        digests.add(bundle.digest)
        for blob in (bundle.manifest_bytes, *bundle.blobs.values()):
            assert str(tmp_path).encode() not in bytes(blob)
        assert bundle.manifest.model.source == "small.onnx"
    assert len(digests) == 1


def test_results_are_found_whatever_way_edgekit_was_installed(tmp_path: Path) -> None:
    import edgekit
    import edgekit_device

    site = tmp_path / "site"
    for package in (edgekit, edgekit_device):
        folder = Path(package.__path__[0])
        skipped = shutil.ignore_patterns("__pycache__", "_data")
        shutil.copytree(folder, site / folder.name, ignore=skipped)
    for kind in ("targets", "dla", "trt"):
        shutil.copytree(data_folder(kind), site / "edgekit/_data" / kind)
    code = "import edgekit, pathlib, sys; from edgekit.pipeline.cache import Cache; print(\
edgekit.__file__, Cache(pathlib.Path(sys.argv[1])).key('x'))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=True,
        cwd=tmp_path,
    )
    where, key = done.stdout.split()
    assert where == str(site / "edgekit/__init__.py")
    assert key == Cache(tmp_path / "own").key("x")
