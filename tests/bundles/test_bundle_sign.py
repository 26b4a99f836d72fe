"""Signing with real OpenSSH, and the loader's zipapp."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgekit.bundles.files import build_zipapp
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.errors import EnvironmentLack, UsageError


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_key(tmp_path_factory.mktemp("key") / "deep" / "id_ed25519")


def _verify(folder: Path, line: str, signature: bytes, data: bytes, identity: str) -> int:
    (folder / "allowed").write_text(line + "\n")
    (folder / "sig").write_bytes(signature)
    arguments = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        str(folder / "allowed"),
        "-I",
        identity,
        "-n",
        "edgekit-bundle",
        "-s",
        str(folder / "sig"),
    ]
    return subprocess.run(arguments, input=data, capture_output=True, check=False).returncode


def test_openssh_accepts_the_signature_for_these_bytes_alone(key: Path, tmp_path: Path) -> None:
    signature = sign(b"manifest", key)
    line = allowed_signers_line(key.with_name(key.name + ".pub"), "lab@example")
    assert line.startswith('lab@example namespaces="edgekit-bundle" ssh-ed25519 ')
    assert _verify(tmp_path, line, signature, b"manifest", "lab@example") == 0
    assert _verify(tmp_path, line, signature, b"manifesT", "lab@example") != 0
    assert _verify(tmp_path, line, signature, b"manifest", "someone") != 0


def test_a_throw_away_key_is_made_once_and_private(key: Path) -> None:
    before = key.read_bytes()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert ensure_key(key).read_bytes() == before
    assert sorted(p.name for p in key.parent.iterdir()) == [key.name, key.name + ".pub"]


def test_a_missing_key_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        sign(b"x", tmp_path / "none")
    assert (caught.value.code, caught.value.where) == ("sign.no-key", str(tmp_path / "none"))


def test_a_key_with_a_passphrase_fails_without_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    locked = tmp_path / "locked"
    arguments = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(locked)]
    subprocess.run(arguments, check=True)
    with pytest.raises(UsageError) as caught:
        sign(b"x", locked)
    assert caught.value.code == "sign.failed"
    assert "ssh-add" in caught.value.hint


def test_without_openssh_the_lack_is_named(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EnvironmentLack) as caught:
        sign(b"x", key)
    assert caught.value.exit_code == 3
    assert "openssh-client" in caught.value.hint


@pytest.mark.parametrize("identity", ["", "two words", 'quote"', "a,b", "*", "new\nline"])
def test_identities_cannot_widen_the_line(key: Path, identity: str) -> None:
    with pytest.raises(UsageError):
        allowed_signers_line(key.with_name(key.name + ".pub"), identity)


def test_a_private_key_is_no_public_key(key: Path) -> None:
    with pytest.raises(UsageError, match="this is a private key"):
        allowed_signers_line(key)


def test_the_zipapp_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = tmp_path / "a.pyz", tmp_path / "b.pyz"
    digest = build_zipapp(first)
    os.utime(first, (0, 0))
    assert build_zipapp(second) == digest
    assert first.read_bytes() == second.read_bytes()
    assert os.access(first, os.X_OK)
    with zipfile.ZipFile(first) as archive:
        assert archive.testzip() is None
        text = b"".join(archive.read(name) for name in archive.namelist())
    assert b"import edgekit\n" not in text
    assert b"from edgekit." not in text


def test_the_zipapp_can_be_imported_from_the_path(tmp_path: Path) -> None:
    build_zipapp(tmp_path / "e.pyz")
    program = "import edgekit_device; print(edgekit_device.__file__, callable(edgekit_device.load))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, 'e.pyz'); {program}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "e.pyz" in done.stdout
    assert done.stdout.endswith("True\n")


def test_the_zipapp_imports_numpy_only_when_a_model_runs(tmp_path: Path) -> None:
    build_zipapp(tmp_path / "e.pyz")
    program = (
        "import sys; sys.path.insert(0, 'e.pyz'); import edgekit_device, edgekit_device.__main__;"
        "print([m for m in ('numpy', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
