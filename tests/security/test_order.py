"""The signature is checked before a byte of a manifest or a blob is parsed, on every way in."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgekit_device
from edgekit.bundles.files import write
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import manifest
from edgekit_device.protocol.codec import dump
from edgekit_device.store.root import Root
from edgekit_device.trust import bundle as bundle_module
from edgekit_device.trust.bundle import ReleaseRecord
from tests.edgekit_device.device_board import run_command
from tests.security.security_keys import Signer, make_signer, small_bundle

BUNDLE = small_bundle()


class Parsed(BaseException):
    """The manifest was read although nobody trusted has signed it."""


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return make_signer(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return make_signer(tmp_path_factory.mktemp("known"), "known")


@pytest.fixture
def root(tmp_path: Path, known: Signer) -> Root:
    folder = tmp_path / "root"
    folder.mkdir(mode=0o700)
    (folder / "allowed_signers").write_text(known.line + "\n")
    return Root(folder)


@pytest.fixture
def traps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whoever parses the manifest, hashes a blob or opens an engine ends the test."""
    real = manifest.parse_json

    def watched(data: bytes, where: str, code: str = "manifest.invalid") -> Any:
        if data == BUNDLE.manifest_bytes or where == "manifest.json":
            raise Parsed
        return real(data, where, code)

    def trap(*args: Any, **options: Any) -> Any:
        raise Parsed

    monkeypatch.setattr(manifest, "parse_json", watched)
    monkeypatch.setattr(manifest, "parse", trap)
    monkeypatch.setattr(bundle_module, "parse", trap)
    for home in ("runtime.model", "runtime.refit", "benchmark.command", "deployment.health"):
        monkeypatch.setattr(f"edgekit_device.{home}.open_model", trap)
    monkeypatch.setattr("edgekit_device.trust.bundle.check_blobs", trap)
    return []


def envelope(signature: bytes | None) -> io.BytesIO:
    text = None if signature is None else signature.decode()
    document = {"manifest": BUNDLE.manifest_bytes.decode(), "signature": text}
    return io.BytesIO(json.dumps(document).encode())


def by_command(command: str) -> Callable[[Root, Path, bytes | None], None]:
    def way(root: Root, folder: Path, signature: bytes | None) -> None:
        run_command(root, [command], envelope(signature))

    return way


def from_file(root: Root, folder: Path, signature: bytes | None, name: str = "b.ekb") -> None:
    bundle = BUNDLE if signature is None else BUNDLE.signed(signature)
    path = write(bundle, folder / name, stripped=False)
    edgekit_device.load(path, allowed_signers=root.allowed_signers)


def from_folder(root: Root, folder: Path, signature: bytes | None) -> None:
    from_file(root, folder, signature, "bundle")


def from_release(root: Root, folder: Path, signature: bytes | None, app: bool = False) -> None:
    release = root.folder / "apps/net/releases/000001-0123456789ab"
    release.mkdir(parents=True)
    (release / "manifest.json").write_bytes(BUNDLE.manifest_bytes)
    record = ReleaseRecord(BUNDLE.name, release.name, BUNDLE.digest, "reference", None, False, "")
    (release / "release.json").write_bytes(dump(record))
    if signature is not None:
        (release / "manifest.json.sig").write_bytes(signature)
    (root.folder / "apps/net/current").symlink_to("releases/" + release.name)
    edgekit_device.load(root.folder / "apps/net" if app else release)


def from_app(root: Root, folder: Path, signature: bytes | None) -> None:
    from_release(root, folder, signature, app=True)


def by_install(root: Root, folder: Path, signature: bytes | None) -> None:
    """``install --from``, whose job would go on once the manifest is parsed."""
    bundle = BUNDLE if signature is None else BUNDLE.signed(signature)
    path = write(bundle, folder / "b.ekb", stripped=False)
    run_command(root, ["install", "--app", BUNDLE.name, "--from", str(path)])


WAYS: dict[str, Callable[[Root, Path, bytes | None], None]] = {
    "stage": by_command("stage"),
    "verify": by_command("verify"),
    "offer": by_command("offer"),
    "file": from_file,
    "folder": from_folder,
    "release": from_release,
    "app": from_app,
    "install": by_install,
}


@pytest.mark.few(15)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", ["unsigned", "stranger", "other-bytes", "revoked"])
def test_nothing_is_parsed_before_the_signature_is_good(
    root: Root,
    tmp_path: Path,
    known: Signer,
    stranger: Signer,
    traps: list[str],
    way: str,
    fault: str,
) -> None:
    signature = {
        "unsigned": None,
        "stranger": stranger.sign(BUNDLE.manifest_bytes),
        "other-bytes": known.sign(b"other"),
        "revoked": known.sign(BUNDLE.manifest_bytes),
    }[fault]
    if fault == "revoked":
        (root.folder / "revoked_keys").write_bytes(known.public.read_bytes())
    with pytest.raises(DeviceError) as caught:
        WAYS[way](root, tmp_path, signature)
    codes = {
        "unsigned": "unsigned",
        "stranger": "unknown-signer",
        "other-bytes": "bad-signature",
        "revoked": "revoked-signer",
    }
    assert caught.value.code == "bundle." + codes[fault]


@pytest.mark.parametrize("way", WAYS)
def test_the_traps_are_where_a_good_signature_leads(
    root: Root, tmp_path: Path, known: Signer, traps: list[str], way: str
) -> None:
    with pytest.raises(Parsed):
        WAYS[way](root, tmp_path, known.sign(BUNDLE.manifest_bytes))
