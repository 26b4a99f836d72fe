"""Offers: the signature before anything else, what is missing, what is kept, what serves."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.manifest import Bundle
from edgekit_device.errors import DeviceError
from edgekit_device.release.offer import drop_incoming, incoming_folders, read_incoming
from edgekit_device.store.root import Root
from tests.edgekit_device.device_board import BoardFolder, Refused, run_command


def _offer(board: BoardFolder, **document: Any) -> dict[str, Any]:
    return board.command("offer", stdin=json.dumps(document).encode())


def _signed(bundle: Bundle) -> dict[str, str]:
    assert bundle.signature
    return {"signature": bundle.signature.decode()}


def _digests(answer: dict[str, Any]) -> set[str]:
    return {digest for digest, _ in answer["missing"]}


def test_a_bundle_is_offered_sent_and_found_again(
    board: BoardFolder, installed: str, toy: Bundle, toy2: Bundle
) -> None:
    # what serves, by one small question
    answer = _offer(board, digest=toy.digest, **_signed(toy))
    assert answer == {
        "known": True,
        "digest": toy.digest,
        "app": "toy",
        "signer": "tests",
        "missing": [],
        "serving": installed,
        "deployment": None,
    }
    assert incoming_folders(Root(board.root)) == []
    # another one of the same app
    question = _offer(board, digest=toy2.digest, **_signed(toy2))
    assert question == {"known": False, "digest": toy2.digest}
    packed = base64.b64encode(zlib.compress(toy2.manifest_bytes)).decode()
    answer = _offer(board, manifest={"deflated": packed}, **_signed(toy2))
    new = {**toy2.blobs, **toy2.weights}
    assert _digests(answer) == set(new) - set(toy.blobs) - set(toy.weights) != set()
    assert answer["serving"] is None
    assert read_incoming(Root(board.root), toy2.digest) == (toy2.manifest_bytes, toy2.signature)
    # a part counts, and the manifest is known from now on
    digest = max(_digests(answer), key=lambda one: len(memoryview(new[one]).tobytes()))
    (board.root / "partial").mkdir(exist_ok=True)
    (board.root / "partial" / digest).write_bytes(b"abc")
    answer = _offer(board, digest=toy2.digest, **_signed(toy2))
    assert [digest, 3] in answer["missing"]
    board.send({one: new[one] for one in _digests(answer)})
    assert _offer(board, digest=toy2.digest, **_signed(toy2))["missing"] == []
    # a blob of another length is no blob
    board.blob(digest).write_bytes(b"short")
    assert _digests(_offer(board, digest=toy2.digest, **_signed(toy2))) == {digest}
    drop_incoming(Root(board.root), toy2.digest)
    assert incoming_folders(Root(board.root)) == []


def test_a_bundle_that_serves_in_part_is_not_said_to_serve(
    board: BoardFolder, installed: str, toy: Bundle
) -> None:
    board.blob(next(iter(toy.weights))).unlink()
    answer = _offer(board, digest=toy.digest, **_signed(toy))
    assert (_digests(answer), answer["serving"]) == ({next(iter(toy.weights))}, None)


def test_nothing_of_a_bundle_that_is_refused_is_retained(board: BoardFolder, toy: Bundle) -> None:
    text, changed = toy.manifest_bytes.decode(), toy.manifest_bytes.decode().replace("toy", "tox")
    for manifest, signature, code in (
        (changed, _signed(toy)["signature"], "bundle.bad-signature"),
        (text, None, "bundle.unsigned"),
        # the signature is run_command before a byte is parsed
        ("no manifest", _signed(toy)["signature"], "bundle.bad-signature"),
        ("\ud800", _signed(toy)["signature"], "bundle.bad-signature"),
    ):
        with pytest.raises(Refused) as caught:
            _offer(board, manifest=manifest, signature=signature)
        assert caught.value.code == code
    assert incoming_folders(Root(board.root)) == []
    trusted = board.command(
        "offer", "--trust-unsigned", stdin=json.dumps({"manifest": text}).encode()
    )
    assert trusted["signer"] is None


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"digest": "x"},
        {"digest": 7},
        {"manifest": 7},
        {"digest": "../" * 21 + "a"},
        {"digest": "a" * 64, "manifest": "{}"},
    ],
)
def test_offers_that_make_no_sense_are_refused(tmp_path: Path, document: Any) -> None:
    (tmp_path / "root").mkdir(mode=0o700)
    with pytest.raises(DeviceError) as caught:
        run_command(
            Root(tmp_path / "root"),
            ["offer", "--trust-unsigned"],
            io.BytesIO(json.dumps(document).encode()),
        )
    assert caught.value.code == "protocol.invalid"
    assert not (tmp_path / "root" / "incoming").exists()


def test_a_manifest_that_inflates_to_more_than_one_is_refused(tmp_path: Path) -> None:
    bomb = base64.b64encode(zlib.compress(bytes(65 << 20))).decode()
    with pytest.raises(DeviceError) as caught:
        run_command(
            Root(tmp_path),
            ["offer", "--trust-unsigned"],
            io.BytesIO(json.dumps({"manifest": {"deflated": bomb}}).encode()),
        )
    assert caught.value.code == "protocol.invalid"


def test_a_damaged_offer_is_replaced(board: BoardFolder, toy: Bundle) -> None:
    root = Root(board.root)
    assert toy.signature
    _offer(board, manifest=toy.manifest_bytes.decode(), **_signed(toy))
    file = board.root / "incoming" / toy.digest / "manifest.json"
    file.write_bytes(b"{}")
    assert read_incoming(root, toy.digest) is None
    assert not _offer(board, digest=toy.digest, **_signed(toy))["known"]
    _offer(board, manifest=toy.manifest_bytes.decode(), **_signed(toy))
    assert read_incoming(root, toy.digest) == (toy.manifest_bytes, toy.signature)
    with pytest.raises(DeviceError):
        read_incoming(root, "../../etc")


@pytest.mark.parametrize("kind", ["weight", "engine"])
def test_a_damaged_blob_of_what_serves_is_asked_for_and_mended(
    board: BoardFolder, installed: str, toy: Bundle, kind: str
) -> None:
    have = {**toy.weights, **toy.blobs}
    digest = next(iter(toy.weights if kind == "weight" else toy.blobs))
    file = board.blob(digest)
    good, before = file.read_bytes(), file.stat()
    file.write_bytes(bytes([good[0] ^ 1]) + good[1:])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # no time gives it away
    answer = _offer(board, digest=toy.digest, **_signed(toy))
    assert (_digests(answer), answer["serving"]) == ({digest}, None)
    board.send({digest: have[digest]})
    assert file.read_bytes() == good
    assert _offer(board, digest=toy.digest, **_signed(toy))["serving"] == installed


def test_a_large_blob_that_is_damaged_is_written_anew(empty_board: BoardFolder) -> None:
    board = empty_board
    data = bytes(range(256)) * (6 << 12)
    digest = hashlib.sha256(data).hexdigest()
    board.send({digest: data})
    board.blob(digest).write_bytes(data[:-1] + b"\0")
    wanted = json.dumps([digest]).encode()
    assert board.command("missing", stdin=wanted)["missing"] == []
    assert board.command("missing", "--verify", stdin=wanted)["missing"] == [digest]
    board.send({digest: data})
    assert board.blob(digest).read_bytes() == data
    assert board.command("missing", "--verify", stdin=wanted)["missing"] == []
