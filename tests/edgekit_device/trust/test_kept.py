"""What an installation keeps is believed only where nobody else can have written it, and what a
bundle says of its own trust has no power."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import edgekit_device
from edgekit.bundles.files import write
from edgekit.bundles.manifest import Bundle
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import parse
from tests.bundles import bundle_toys as toys
from tests.edgekit_device.device_board import BoardFolder, Refused

_FILES = (
    "allowed_signers",
    "apps",
    "apps/toy",
    "apps/toy/releases",
    "RELEASE",
    "RELEASE/manifest.json",
    "RELEASE/manifest.json.sig",
    "BLOBS",
    "BLOB",
)


def _place(board: BoardFolder, toy: Bundle, installed: str, name: str) -> Path:
    blob = board.blob(next(iter(toy.weights)))
    known = {"BLOB": blob, "BLOBS": blob.parent}
    release = f"apps/toy/releases/{installed}"
    return known.get(name, board.root / name.replace("RELEASE", release))


def _linked(path: Path) -> None:
    moved = path.with_name(path.name + ".moved")
    path.rename(moved)
    path.symlink_to(moved)


def _writable(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


def _foreign(path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    ("change", "code"),
    [(_linked, "root.link"), (_writable, "root.writable"), (_foreign, "root.owner")],
)
@pytest.mark.parametrize("name", _FILES)
def test_what_others_may_write_or_have_linked_is_refused(
    board: BoardFolder,
    toy: Bundle,
    installed: str,
    name: str,
    change: Callable[[Path], None],
    code: str,
) -> None:
    path = _place(board, toy, installed, name)
    change(path)
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(board.root / "apps/toy")
    assert (caught.value.code, caught.value.where) == (code, str(path))
    assert caught.value.hint
    with pytest.raises(Refused) as refused:
        board.command("selftest", "--app", "toy")
    assert (refused.value.code, refused.value.where) == (code, str(path))


@pytest.mark.parametrize("name", ["history.jsonl", "deployment.json"])
@pytest.mark.parametrize("change", [_linked, _writable])
def test_history_of_others_is_refused(
    board: BoardFolder, installed: str, name: str, change: Callable[[Path], None]
) -> None:
    path = board.root / "apps/toy" / name
    path.write_bytes(b"")
    path.chmod(0o600)
    board.command("status", "--app", "toy")
    change(path)
    with pytest.raises(Refused) as refused:
        board.command("rollback", "--app", "toy")
    assert (refused.value.code[:5], refused.value.where) == ("root.", str(path))


def test_a_blobs_folder_on_another_disk_is_fine(
    board: BoardFolder, installed: str, tmp_path: Path
) -> None:
    blobs = board.root / "blobs"
    blobs.rename(tmp_path / "disk")
    blobs.symlink_to(tmp_path / "disk")
    assert edgekit_device.load(board.root / "apps/toy").name == "toy"
    (tmp_path / "disk").chmod(0o770)
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(board.root / "apps/toy")
    assert caught.value.code == "root.writable"


def test_a_callers_own_list_of_keys_is_refused_where_others_may_write_it(
    toy: Bundle, tmp_path: Path, signer_line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_ROOT", str(tmp_path / "no-root"))
    path = write(toy, tmp_path / "toy.ekb", stripped=False)
    signers = tmp_path / "signers"
    signers.write_text(signer_line + "\n")
    assert edgekit_device.load(path, allowed_signers=signers).signer == "tests"
    signers.chmod(0o666)
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(path, allowed_signers=signers)
    assert caught.value.code == "root.writable"


def test_what_a_release_says_of_its_own_trust_has_no_power(
    board: BoardFolder, toy: Bundle, installed: str
) -> None:
    folder = board.root / "apps/toy/releases" / installed
    (folder / "manifest.json.sig").unlink()
    record = json.loads((folder / "release.json").read_bytes())
    (folder / "release.json").write_text(json.dumps({**record, "trusted": True, "signer": None}))
    for app in (board.root / "apps/toy", folder):
        with pytest.raises(DeviceError) as caught:
            edgekit_device.load(app)
        assert caught.value.code == "bundle.unsigned"
        assert "--trust-unsigned" in caught.value.hint
    for command in ("infer", "selftest", "bench", "refit"):
        with pytest.raises(Refused) as refused:
            board.command(command, "--app", "toy")
        assert refused.value.code == "bundle.unsigned"


def test_an_unsigned_bundle_is_accepted_by_its_digest_and_forgotten_with_it(
    empty_board: BoardFolder,
) -> None:
    board, bundle, other = empty_board, toys.toy_bundle(), toys.toy_bundle(1)
    board.install(bundle, "--trust-unsigned")
    accepted = board.root / "accepted.json"
    assert json.loads(accepted.read_bytes())["digests"] == [bundle.digest]
    x = np.zeros((1, 3, 8, 8), np.float32)
    assert board.infer("toy", x=x)
    release = board.root / "apps/toy/current"
    (release / "manifest.json").write_bytes(other.manifest_bytes)
    with pytest.raises(Refused) as refused:
        board.infer("toy", x=x)
    assert refused.value.code == "bundle.unsigned"
    (release / "manifest.json").write_bytes(bundle.manifest_bytes)
    accepted.unlink()  # as a version before left it
    with pytest.raises(Refused) as refused:
        board.infer("toy", x=x)
    assert refused.value.code == "bundle.unsigned"
    board.install(bundle, "--trust-unsigned")
    assert board.infer("toy", x=x)
    board.command("gc", "--grace-s", "0")
    assert json.loads(accepted.read_bytes())["digests"] == [bundle.digest]
    board.command("remove", "--app", "toy")
    board.command("gc", "--grace-s", "0")
    assert json.loads(accepted.read_bytes())["digests"] == []


def test_a_bundle_without_golden_vectors_must_say_so(board: BoardFolder) -> None:
    document = json.loads(toys.toy_bundle().manifest_bytes)
    golden = document.pop("golden")
    for facts in ({"golden": []}, {"golden": golden, "without_golden": True}):
        with pytest.raises(DeviceError) as caught:
            parse(json.dumps({**document, **facts}).encode())
        assert (caught.value.code, caught.value.where) == ("manifest.invalid", "golden")
        envelope = {"manifest": json.dumps({**document, **facts}), "signature": None}
        with pytest.raises(Refused) as refused:
            board.command("stage", "--trust-unsigned", stdin=json.dumps(envelope).encode())
        assert refused.value.code == "manifest.invalid"
    said = {**document, "golden": [], "without_golden": True}
    assert parse(json.dumps(said).encode()).golden == ()
