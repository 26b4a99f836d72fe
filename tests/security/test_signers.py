"""Who may sign: namespaces, principals, times, certificates, rotation and revocation."""

from __future__ import annotations

import base64
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import edgekit_device
from edgekit.bundles.files import build_zipapp
from edgekit_device.errors import DeviceError
from edgekit_device.release.releases import switch
from edgekit_device.store.root import Root
from edgekit_device.trust.signature import check_signature
from tests.edgekit_device.deployment.health_board import put
from tests.edgekit_device.device_board import BoardFolder, Refused, run_command
from tests.security.security_keys import Signer, keygen, make_signer, small_bundle

DATA = b"the manifest's bytes\n"


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Signer, Signer]:
    folder = tmp_path_factory.mktemp("keys")
    return make_signer(folder, "old"), make_signer(folder, "new")


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loader") / "loader.pyz"
    build_zipapp(path)
    return path


@pytest.fixture
def board(tmp_path: Path, loader: Path) -> BoardFolder:
    (tmp_path / "root").mkdir(mode=0o700)
    return BoardFolder(tmp_path / "root", loader)


def verdict(folder: Path, signature: bytes, *, trust: bool = False) -> str | None:
    """The signer, or the code of the refusal."""
    try:
        return check_signature(DATA, signature, folder / "allowed_signers", trust_unsigned=trust)
    except DeviceError as error:
        return error.code


def allow(folder: Path, *lines: str) -> None:
    (folder / "allowed_signers").write_text("\n".join(lines) + "\n")


def test_only_this_namespace_counts(tmp_path: Path, signers: tuple[Signer, Signer]) -> None:
    old, _ = signers
    allow(tmp_path, old.line)
    assert verdict(tmp_path, old.sign(DATA)) == "old"
    assert verdict(tmp_path, old.sign(DATA, "file")) == "bundle.bad-signature"
    # a key that is kept to another namespace signs nothing here, whatever it signs
    allow(tmp_path, f'old namespaces="git" {old.words}')
    assert verdict(tmp_path, old.sign(DATA)) == "bundle.unknown-signer"


def test_a_signature_of_other_bytes_is_refused_even_unsigned(
    tmp_path: Path, signers: tuple[Signer, Signer]
) -> None:
    old, _ = signers
    allow(tmp_path, old.line)
    for trust in (False, True):
        assert verdict(tmp_path, old.sign(b"others"), trust=trust) == "bundle.bad-signature"
        for damaged in (b"not a signature", b"", old.sign(DATA)[:99], bytes(1 << 18)):
            assert verdict(tmp_path, damaged, trust=trust) == "bundle.bad-signature"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('valid-after="20000101"', "old"),
        ('valid-before="20000101"', "bundle.unknown-signer"),
        ('valid-after="29990101"', "bundle.unknown-signer"),
        ('valid-after="20000101",valid-before="29990101"', "old"),
        ('what-a-newer-openssh-has="1"', "bundle.unknown-signer"),
    ],
)
def test_times_and_unknown_options(
    tmp_path: Path, signers: tuple[Signer, Signer], options: str, expected: str
) -> None:
    old, _ = signers
    allow(tmp_path, f'old namespaces="edgekit-bundle",{options} {old.words}')
    assert verdict(tmp_path, old.sign(DATA)) == expected


def test_one_broken_line_takes_nothing_from_the_others(
    tmp_path: Path, signers: tuple[Signer, Signer]
) -> None:
    old, new = signers
    allow(tmp_path, "broken", f'old what="1" {old.words}', new.line)
    assert verdict(tmp_path, new.sign(DATA)) == "new"


def test_a_certificate_counts_for_its_principals_only(
    tmp_path: Path, signers: tuple[Signer, Signer]
) -> None:
    authority, key = make_signer(tmp_path, "ca"), make_signer(tmp_path, "ci")
    keygen("-q", "-s", str(authority.key), "-I", "id", "-n", "ci@lab", str(key.public))
    certificate = tmp_path / "ci-cert.pub"
    signature = Signer(certificate).sign(DATA)
    for who, expected in (("ci@lab", "ci@lab"), ("other", "bundle.unknown-signer")):
        allow(tmp_path, f"{who} cert-authority {authority.words}")
        assert verdict(tmp_path, signature) == expected
    # the plain key's signature is not the certificate's
    allow(tmp_path, f"ci@lab cert-authority {authority.words}")
    assert verdict(tmp_path, key.sign(DATA)) == "bundle.unknown-signer"
    # a revoked authority revokes what it has signed
    (tmp_path / "revoked_keys").write_bytes(authority.public.read_bytes())
    assert verdict(tmp_path, signature) == "bundle.revoked-signer"


@pytest.mark.parametrize("form", ["list", "krl", "fingerprint", "garbage", "dangling", "folder"])
def test_revoked_keys(tmp_path: Path, signers: tuple[Signer, Signer], form: str) -> None:
    old, new = signers
    allow(tmp_path, old.line, new.line)
    revoked = tmp_path / "revoked_keys"
    if form == "list":
        revoked.write_bytes(b"# gone\n" + old.public.read_bytes())
    elif form == "krl":
        keygen("-q", "-k", "-f", str(revoked), str(old.public))
    elif form == "fingerprint":
        revoked.write_text(f"SHA256: {old.fingerprint}\n")
    elif form == "garbage":
        revoked.write_text("no key\n")
    elif form == "dangling":
        revoked.symlink_to(tmp_path / "absent")
    else:
        revoked.mkdir()
    for trust in (False, True):  # "trust unsigned" means unknown keys, not stolen ones
        assert verdict(tmp_path, old.sign(DATA), trust=trust) == "bundle.revoked-signer"
    readable = form in ("list", "krl")
    assert verdict(tmp_path, new.sign(DATA)) == ("new" if readable else "bundle.revoked-signer")


def tell(board: BoardFolder, **changes: Any) -> dict[str, Any]:
    return ask(Root(board.root), changes)


def install(board: BoardFolder, signer: Signer) -> str:
    """Stages a bundle of the signer's and has it serve; returns its release."""
    root, bundle = Root(board.root), small_bundle()
    folder = put(root, bundle.signed(signer.sign(bundle.manifest_bytes)))
    switch(root.app(bundle.name), folder.name)
    return folder.name


def test_rotation_and_revocation_on_a_board(
    board: BoardFolder, signers: tuple[Signer, Signer]
) -> None:
    old, new = signers
    tell(board, lines=[old.line])
    first = install(board, old)
    with pytest.raises(DeviceError) as error:
        install(board, new)
    assert error.value.code == "bundle.unknown-signer"
    assert new.fingerprint in error.value.message
    # both for a while, then the new one alone
    answer = tell(board, lines=[new.line])
    assert (answer["added"], answer["signers"], answer["refused"]) == (1, ["old", "new"], [])
    second = install(board, new)
    answer = tell(board, revoke=[old.public.read_text()], remove=[old.fingerprint])
    assert (answer["revoked"], answer["removed"], answer["signers"]) == (1, 1, ["new"])
    assert answer["revocations"] == {"kind": "list", "fingerprints": [old.fingerprint]}
    reported = [(one["release"], one["role"], one["code"]) for one in answer["refused"]]
    assert reported == [(first, "previous", "bundle.revoked-signer")]
    with pytest.raises(Refused) as caught:  # what would not load is not made to serve
        board.command("rollback", "--app", small_bundle().name)
    assert caught.value.code == "bundle.revoked-signer"
    found = board.command("status")["apps"][small_bundle().name]
    assert [one["release"] for one in found["refused"]] == [first]
    app = board.root / "apps" / small_bundle().name
    assert edgekit_device.load(app).signer == "new"
    with pytest.raises(DeviceError) as error:
        edgekit_device.load(app / "releases" / first)
    assert error.value.code == "bundle.revoked-signer"
    assert second != first


def test_rotation_by_file(board: BoardFolder, signers: tuple[Signer, Signer]) -> None:
    old, new = signers
    tell(board, lines=[old.line])
    answer = tell(board, signers=[new.line])
    assert (answer["added"], answer["removed"], answer["signers"]) == (1, 1, ["new"])
    krl = board.root.parent / "krl"
    keygen("-q", "-k", "-f", str(krl), str(old.public))
    answer = tell(board, revocations=base64.b64encode(krl.read_bytes()).decode())
    assert answer["revocations"]["kind"] == "krl"
    # a key more goes into the KRL that is there
    tell(board, revoke=[new.public.read_text()])
    assert "REVOKED" in revoked_by(board.root / "revoked_keys", new)
    before = (board.root / "revoked_keys").read_bytes()
    with pytest.raises(DeviceError) as caught:
        tell(board, revocations=base64.b64encode(b"no key").decode())
    assert caught.value.code == "trust.bad-revocations"
    assert (board.root / "revoked_keys").read_bytes() == before


def revoked_by(krl: Path, signer: Signer) -> str:
    import subprocess

    argv = ["ssh-keygen", "-Q", "-f", str(krl), str(signer.public)]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"lines": [""]}, "trust.bad-line"),
    ({"lines": ["anyone * ssh-ed25519 AAAA"]}, "trust.bad-line"),
    ({"lines": ["x ssh-ed25519 AAAA"]}, "trust.bad-line"),
    ({"lines": ['x namespaces="git" ssh-ed25519 AAAA']}, "trust.bad-line"),
    (
        {"lines": ['x namespaces="edgekit-bundle",cert-authority ssh-ed25519 AAAA']},
        "trust.bad-line",
    ),
    ({"lines": ['x namespaces="edgekit-bundle" ssh-ed25519 AAAA']}, "trust.bad-line"),
    ({"lines": ['x namespaces="edgekit-bundle" ssh-ed25519 AAAA\nevil']}, "trust.bad-line"),
    ({"remove": ["nobody"]}, "trust.no-such-key"),
    ({"revoke": ["no key"]}, "trust.bad-line"),
    ({"other": []}, "protocol.invalid"),
)


def test_changes_that_are_refused_change_nothing(
    tmp_path: Path, signers: tuple[Signer, Signer]
) -> None:
    root = Root(tmp_path)
    ask(root, {"lines": [signers[0].line]})
    before = (tmp_path / "allowed_signers").read_bytes()
    for changes, code in WRONG:
        with pytest.raises(DeviceError) as caught:
            ask(root, changes)
        assert caught.value.code == code, changes
    assert (tmp_path / "allowed_signers").read_bytes() == before
    assert not (tmp_path / "revoked_keys").exists()


def ask(root: Root, changes: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = run_command(root, ["trust"], io.BytesIO(json.dumps(changes).encode()))
    return answer


def test_a_board_whose_openssh_knows_no_times_refuses_them(
    board: BoardFolder, signers: tuple[Signer, Signer], tmp_path: Path, monkeypatch: Any
) -> None:
    """OpenSSH before 8.8 (JetPack 5 has 8.2) believes no line with an option that it lacks."""
    real = shutil.which("ssh-keygen")
    program = tmp_path / "bin/ssh-keygen"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\nfor file in "$@"; do\n'
        '  if [ "${file##*/}" = allowed ] && grep -q valid- "$file"; then exit 255; fi\ndone\n'
        f'exec {real} "$@"\n'
    )
    program.chmod(0o755)
    old, new = signers
    timed = new.line.replace('-bundle"', '-bundle",valid-before="29990101"')
    assert tell(board, lines=[timed])["keys"][0]["valid_before"] == "29990101"
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    with pytest.raises(DeviceError) as caught:
        tell(board, lines=[old.line.replace('-bundle"', '-bundle",valid-before="29990101"')])
    assert caught.value.code == "trust.no-times"
    assert tell(board, lines=[old.line])["added"] == 1
