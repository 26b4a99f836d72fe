"""``install``: a bundle's folder or file on the board, and which of its blobs are copied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.bundles.files import write
from edgekit.bundles.manifest import Bundle
from tests.edgekit_device.device_board import BoardFolder, Refused

POLICY = json.dumps({"measure_s": 0})


def install(board: BoardFolder, path: Path | str) -> str:
    answer = board.command("install", "--from", str(path), "--app", "toy", "--policy", POLICY)
    return str(answer["digest"])


def large(bundle: Bundle) -> str:
    return max({**bundle.weights, **bundle.blobs}, key=bundle.manifest.sizes().__getitem__)


@pytest.mark.whole
def test_a_folder_needs_only_the_blobs_that_the_board_lacks(
    board: BoardFolder, tmp_path: Path, toy: Bundle, toy2: Bundle
) -> None:
    assert install(board, write(toy, tmp_path / "toy.ekb", stripped=False)) == toy.digest
    folder = write(toy2, tmp_path / "toy2", stripped=False)
    blobs = {path.name for path in (folder / "blobs").iterdir()}
    there = {digest for digest in blobs if board.blob(digest).is_file()}
    assert blobs > there > set()
    for digest in there:
        (folder / "blobs" / digest).unlink()
    assert install(board, folder) == toy2.digest
    for digest, path in ((digest, board.blob(digest)) for digest in blobs):
        assert path.is_file(), digest


@pytest.mark.parametrize("damage", [b"", b"other"])
def test_a_damaged_blob_is_not_stored(
    board: BoardFolder, tmp_path: Path, toy: Bundle, damage: bytes
) -> None:
    folder = write(toy, tmp_path / "toy", stripped=False)
    blob = folder / "blobs" / large(toy)
    blob.write_bytes(damage + blob.read_bytes()[len(damage) or 1 :])
    with pytest.raises(Refused) as caught:
        install(board, folder)
    assert caught.value.code == "blob.digest-mismatch"
    assert not board.blob(blob.name).exists()
    assert board.command("status")["apps"] == {}


def test_an_address_is_refused_with_what_to_do(board: BoardFolder) -> None:
    with pytest.raises(Refused, match="on the board, not an address") as caught:
        install(board, "https://example.org/toy.ekb")
    assert caught.value.code == "usage"
    assert "edgekit deploy" in caught.value.hint
