"""A board's bytes that were damaged: no command calls them good, and a deployment mends them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.bundles.files import build_zipapp, read
from edgekit.errors import BoardError, BundleError
from tests.boards.fixtures import boards, home
from tests.cli.test_dry_run import bench
from tests.cli.test_taken_back import Bench
from tests.pipeline.nets import small_net

__all__ = ["bench", "boards", "home"]

pytestmark = [pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]


def answer(bench: Bench) -> dict[str, Any]:
    return edgekit.infer(bench.config, output=bench.root.parent / "y.npz").to_json()


def damage(bench: Bench, file: Path) -> tuple[Path, bytes]:
    """Overwrites a part of the board's largest weight; returns its file and the good bytes."""
    weights = read(file).manifest.weights.values()
    digest = max(weights, key=lambda weight: weight.bytes).digest
    return overwrite(bench.root / "blobs" / digest[:2] / digest)


def overwrite(blob: Path) -> tuple[Path, bytes]:
    """Overwrites four bytes; returns the file and the good bytes."""
    good = blob.read_bytes()
    with blob.open("r+b") as opened:
        opened.seek(20)
        opened.write(b"\x5a" * 4)
    assert blob.read_bytes() != good
    return blob, good


def test_a_deployment_mends_a_damaged_blob(bench: Bench) -> None:
    serving = bench.deploy()
    bundle = bench.config.parent / "out/bundle.ekb"
    blob, good = damage(bench, bundle)
    (row,) = bench.ask("deploy", "--dry-run")["releases"]
    assert (row["reused"], row["bytes_sent"]) == (False, len(good))
    assert blob.read_bytes() != good
    (row,) = bench.ask("deploy")["releases"]
    assert (row["release"], row["reused"]) == (serving, False)
    assert row["bytes_sent"] >= len(good)
    assert blob.read_bytes() == good
    (row,) = bench.ask("deploy")["releases"]
    assert (row["reused"], row["bytes_sent"]) == (True, 0)
    for words in (("--again",), ("--force",), ("--bundle", str(bundle))):
        damage(bench, bundle)
        bench.ask("deploy", *words)
        assert blob.read_bytes() == good, words
    # an answer of before is no answer of the damaged release; to bring the bundle mends it
    first = answer(bench)
    damage(bench, bundle)
    again = answer(bench)
    assert blob.read_bytes() == good
    assert again["outputs"] == first["outputs"]


@pytest.mark.whole
def test_a_damaged_refit_gives_no_answer_and_is_mended_by_the_refit(bench: Bench) -> None:
    bench.deploy()
    other = bench.config.parent / "other.onnx"
    small_net(other, scale=1.01)
    words = ("--weights", str(other), "-o", str(other.parent / "out"))
    bench.ask("refit", *words)
    assert answer(bench)["bit_equal"] is None
    manifest = json.loads((bench.root / "apps/small/current/manifest.json").read_text())
    digest = max(manifest["weights"].values(), key=lambda weight: weight["bytes"])["digest"]
    blob, good = overwrite(bench.root / "blobs" / digest[:2] / digest)
    with pytest.raises(BundleError) as caught:
        answer(bench)
    assert (caught.value.code, caught.value.exit_code) == ("blob.digest-mismatch", 4)
    assert "deploy the bundle again" in caught.value.hint
    bench.ask("refit", *words)
    assert blob.read_bytes() == good
    assert answer(bench)["bit_equal"] is None


@pytest.mark.whole
def test_the_signature_of_the_bundle_that_is_sent_counts(bench: Bench) -> None:
    bench.deploy()
    bundle = bench.config.parent / "out/bundle.ekb"
    loader = bench.root.parent / "edgekit_device.pyz"
    build_zipapp(loader)
    unsigned = bench.root.parent / "unsigned.ekb"
    strip_signature(bundle, unsigned)
    bench.ask("remove", "--yes")
    argv = [
        sys.executable,
        str(loader),
        "install",
        "--root",
        str(bench.root),
        "--from",
        str(unsigned),
        "--app",
        "small",
        "--trust-unsigned",
    ]
    subprocess.run(argv, check=True, capture_output=True)
    first = bench.serving
    signed = bench.deploy("--again")
    assert signed != first
    (row,) = bench.ask("deploy", "--force")["releases"]
    assert (row["release"], row["reused"]) == (signed, False)
    assert bench.serving == signed


def strip_signature(bundle: Path, path: Path) -> None:
    """Writes an .ekb without its signature."""
    import zipfile

    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.infolist():
            if entry.filename != "manifest.json.sig":
                new.writestr(entry.filename, old.read(entry))


def test_a_history_that_others_may_write_is_refused(bench: Bench) -> None:
    bench.deploy()
    history = bench.root / "apps/small/history.jsonl"
    history.chmod(0o666)
    for use in (bench.deploy, lambda: answer(bench)):
        with pytest.raises(BoardError) as caught:
            use()
        assert caught.value.code == "root.writable"
        assert "history.jsonl" in str(caught.value.where)
        assert "chmod" in caught.value.hint
    history.chmod(0o600)
    bench.deploy()
