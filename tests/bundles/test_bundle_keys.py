"""Public keys: whose they are, and that nothing of a private one is shown."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgekit.bundles.sign import allowed_signers_line, ensure_key, public_key, sign
from edgekit.errors import UsageError


def _fingerprint(path: Path) -> str:
    argv = ["ssh-keygen", "-l", "-f", str(path)]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[1]


def test_a_key_is_called_by_its_comment_or_its_fingerprint(tmp_path: Path) -> None:
    own = ensure_key(tmp_path / "own").with_name("own.pub")
    found = public_key(own)
    assert "@" in found.comment  # as ssh-keygen's own: people tell it from another's
    assert allowed_signers_line(own).split(" ", 1)[0] == found.comment
    assert found.fingerprint == _fingerprint(own)
    for comment in ("", "edgekit", "two words", "a,b", "*", 'q"uote'):
        name = allowed_signers_line(f"{found.line} {comment}").split(" ", 1)[0]
        assert name == "key-" + found.fingerprint[7:23].replace("/", "_")
    assert allowed_signers_line(own, "ci").startswith("ci ")


def test_two_keys_of_edgekit_have_two_names(tmp_path: Path) -> None:
    lines = [
        public_key(ensure_key(tmp_path / name).with_name(f"{name}.pub")).line for name in ("a", "b")
    ]
    names = {allowed_signers_line(f"{line} edgekit").split(" ", 1)[0] for line in lines}
    assert len(names) == 2


def test_nothing_of_a_private_key_is_shown(tmp_path: Path) -> None:
    key = ensure_key(tmp_path / "id")
    with pytest.raises(UsageError) as caught:
        allowed_signers_line(key)
    error = caught.value
    assert (error.code, error.where) == ("sign.private-key", str(key))
    assert f"{key}.pub" in error.hint
    assert "OPENSSH" not in str(error) + error.hint + error.where


@pytest.mark.parametrize("text", ["", "\n", "ssh-ed25519", "ssh-ed25519 n=t-base64", "secret x y"])
def test_a_file_without_a_key_is_named_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.pub"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        public_key(file)
    assert (caught.value.code, caught.value.where) == ("sign.no-key", str(file))
    assert "secret" not in caught.value.message


def test_a_passphrase_is_said_and_no_prompt_of_ssh_keygen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "locked"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(key)]
    subprocess.run(argv, check=True)
    with pytest.raises(UsageError) as caught:
        sign(b"x", key)
    assert caught.value.message == "the key has a passphrase, and edgekit cannot ask for it"
    assert "ssh-add" in caught.value.hint
