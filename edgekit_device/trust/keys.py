"""The command ``trust``: adds, removes and revokes the keys whose signatures a board accepts.
ROOT/revoked_keys is a list of keys or an OpenSSH KRL.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Iterable, List, Optional, Sequence, Tuple

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import locked, workspace, write_durably
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    app_name,
    array,
    choice,
    document,
    fail,
    flag,
    member,
    nullable,
    read,
    read_json,
    record,
    records,
    release_name,
    text,
)
from edgekit_device.store.root import App, Root
from edgekit_device.trust.bundle import check_signer
from edgekit_device.trust.signature import (
    NAMESPACE,
    PublicKey,
    keygen,
    parse_key_file,
    parse_key_line,
    revoked_file,
)

_MOST = 16 << 20
_TIME = r'"[0-9]{8}(?:[0-9]{4}(?:[0-9]{2})?)?Z?"'
_LINE = re.compile(
    r'(?P<who>[A-Za-z0-9@._+-]+) namespaces="edgekit-bundle"'
    r"(?P<times>(?:,valid-(?:after|before)={})*) ".format(_TIME)
    + r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)"
    r"|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com) "
    r"[A-Za-z0-9+/]+={0,2}(?: [^\r\n]*)?\Z"
)
_KRL = b"SSHKRL\n\0"


_LINES = array(text(most=1 << 16))
_WORDS = text(most=1 << 18)


def _base64(value: Any) -> str:
    found: str = text(most=_MOST)(value)
    try:
        base64.b64decode(found, validate=True)
    except ValueError as error:
        fail("", "not base64: {}".format(error))
    return found


@document(frozen=True)
class TrustRequest:
    """Changes of the trusted keys.

    Attributes:
        lines: Lines of allowed_signers to add.
        new: Lines to add if their keys are not trusted yet, under any identity.
        remove: Fingerprints, identities or keys to remove.
        revoke: Public keys to revoke.
        signers: Lines that replace all existing lines.
        revocations: A list of keys or a KRL (in base64) that replaces the existing list or KRL.
        force: True if the last key may be removed.
    """

    lines: Tuple[str, ...] = member(_LINES, absent=(), always=True)
    new: Tuple[str, ...] = member(_LINES, absent=())
    remove: Tuple[str, ...] = member(_LINES, absent=())
    revoke: Tuple[str, ...] = member(_LINES, absent=())
    signers: Optional[Tuple[str, ...]] = member(_LINES, absent=None)
    revocations: Optional[str] = member(_base64, absent=None)
    force: bool = member(flag, absent=False)


@document(frozen=True)
class TrustedKey:
    """A key that may sign; with ``authority`` it certifies the signing keys."""

    identity: str = member(_WORDS)
    kind: str = member(text())
    fingerprint: str = member(text())
    authority: bool = member(flag)
    valid_after: Optional[str] = member(nullable(text()))
    valid_before: Optional[str] = member(nullable(text()))


@document(frozen=True)
class Revocations:
    """The list of revoked keys; for a KRL its keys are unknown."""

    kind: str = member(choice("none", "list", "krl"))
    fingerprints: Tuple[str, ...] = member(array(text()))


@document(frozen=True)
class Refusal:
    """A release whose signature is no longer accepted, and the reason."""

    release: str = member(release_name)
    code: str = member(text())
    message: str = member(_WORDS)


@document(frozen=True)
class RefusedRelease(Refusal):
    """The same, of any app."""

    app: str = member(app_name)
    role: str = member(choice("current", "previous", "kept"))


@document(frozen=True)
class TrustAnswer:
    """The answer of ``trust``: the changes, and the keys that may sign now.

    Attributes:
        added: Number of keys that were added.
        removed: Number of keys that were removed.
        revoked: Number of keys that were revoked permanently.
    """

    added: int = member(fields.count)
    removed: int = member(fields.count)
    revoked: int = member(fields.count)
    signers: Tuple[str, ...] = member(array(_WORDS))
    keys: Tuple[TrustedKey, ...] = member(records(TrustedKey))
    revocations: Revocations = member(record(Revocations))
    refused: Tuple[RefusedRelease, ...] = member(records(RefusedRelease))


def do_trust(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> TrustAnswer:
    """Changes and lists the keys that may sign.

    A ``TrustRequest`` is on stdin.

    Raises:
        DeviceError: "protocol.invalid", "trust.bad-line", "trust.no-such-key", "trust.ambiguous",
            "trust.nobody-left", "trust.bad-revocations" or "trust.no-times".
    """
    request = read(TrustRequest, read_json(stdin, _MOST), "stdin", code="protocol.invalid")
    if replace(request, force=False) == TrustRequest():
        # reading takes no lock
        with map_os_errors(str(root.folder)):
            remaining = _read_lines(root.allowed_signers)
            return TrustAnswer(0, 0, 0, *_describe_keys(root, remaining))
    with locked(root.folder / "lock"), map_os_errors(str(root.folder)):
        before = _read_lines(root.allowed_signers)
        found = before if request.signers is None else list(request.signers)
        _check_lines(root, [*request.lines, *request.new, *(request.signers or ())])
        keys = {key.blob for key in map(parse_key_line, found) if key is not None}
        pairs = [(line, parse_key_line(line)) for line in request.new]
        lines = [*request.lines]
        lines += [line for line, key in pairs if key is not None and key.blob not in keys]
        new = [line for line in dict.fromkeys(lines) if line not in found]
        remaining = _remove_lines(found + new, request.remove)
        # a revoked key must not sign any more, even if it is the last
        if before and not remaining and not request.force and not request.revoke:
            raise DeviceError(
                "that would remove the last trusted key: the board would accept and load no bundle",
                code="trust.nobody-left",
                where="allowed_signers",
                hint="add another key first, or use --force",
            )
        # revocations come first: a power cut in between leaves less trust, never more
        if request.revocations is not None:
            replace_revocations(root, base64.b64decode(request.revocations))
        revoked = revoke(root, request.revoke)
        if remaining != before:
            write_durably(
                root.allowed_signers, "".join(line + "\n" for line in remaining).encode("utf-8")
            )
    added, removed = len(set(remaining) - set(before)), len(set(before) - set(remaining))
    return TrustAnswer(added, removed, revoked, *_describe_keys(root, remaining))


def find_refusals(app: App, names: Optional[Iterable[str]] = None) -> List[Refusal]:
    """Returns the app's releases whose signatures are no longer accepted.

    ``names`` are the releases to check; None for all. A release that was staged with
    ``--trust-unsigned`` is accepted unless its key is revoked.
    """
    found = []
    for name in app.releases() if names is None else names:
        try:
            check_signer(app.root, app.releases_folder / name)
        except DeviceError as error:
            found.append(Refusal(name, error.code, error.message))
    return found


def _read_lines(file: Path) -> List[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _check_lines(root: Root, lines: List[str]) -> None:
    timed = False
    for line in lines:
        match = _LINE.match(line)
        if match is None or parse_key_line(line) is None:
            raise DeviceError(
                "not a line of allowed_signers for edgekit: {!r}".format(line[:120]),
                code="trust.bad-line",
                hint='IDENTITY namespaces="edgekit-bundle" ssh-ed25519 KEY',
            )
        timed = timed or bool(match.group("times"))
    if timed and not supports_validity(root):
        raise DeviceError(
            "this board's ssh-keygen does not support valid-after and valid-before",
            code="trust.no-times",
            where="allowed_signers",
            hint="they need OpenSSH 8.8; remove them, and remove or revoke the key in time",
        )


def _remove_lines(lines: List[str], remove: Sequence[str]) -> List[str]:
    """Returns the lines without those of the keys or identities in ``remove``."""
    remaining = lines
    for wanted in remove:
        key = parse_key_line(wanted)
        left = [line for line in remaining if not _matches(line, wanted.strip(), key)]
        if len(left) == len(remaining):
            raise DeviceError(
                "this key is not trusted here: {}".format(wanted[:120]),
                code="trust.no-such-key",
                where="allowed_signers",
                hint="list the trusted keys with edgekit trust BOARD --list",
            )
        gone = {}
        for line in remaining:
            if line not in left:
                found = parse_key_line(line)
                gone["" if found is None else found.fingerprint] = line
        # one identity may have several keys: the operator must mean one of them
        if len(gone) > 1:
            raise DeviceError(
                "{} keys have the identity {}".format(len(gone), wanted[:120]),
                code="trust.ambiguous",
                where="allowed_signers",
                hint="give one fingerprint: {}".format(", ".join(sorted(gone))),
            )
        remaining = left
    return remaining


def _matches(line: str, wanted: str, key: Optional[PublicKey]) -> bool:
    listed_key = parse_key_line(line)
    if listed_key is None:
        return False
    if key is not None:
        return listed_key.blob == key.blob
    return wanted in (listed_key.fingerprint, line.split(" ", 1)[0])


def _describe_keys(root: Root, lines: List[str]) -> Tuple[Any, ...]:
    """Returns the fields of ``TrustAnswer`` other than the changes."""
    keys = []
    for line in lines:
        key = parse_key_line(line)
        if key is not None:
            times = dict(re.findall(r'valid-(after|before)="([^"]*)"', line))
            keys.append(
                TrustedKey(
                    identity=line.split(" ", 1)[0],
                    kind=key.kind,
                    fingerprint=key.fingerprint,
                    authority="cert-authority" in line.split(key.kind, 1)[0],
                    valid_after=times.get("after"),
                    valid_before=times.get("before"),
                )
            )
    refused = []
    for app in root.apps():
        current, previous = app.link("current"), app.link("previous")
        for refusal in find_refusals(app):
            name = refusal.release
            role = "current" if name == current else "previous" if name == previous else "kept"
            refused.append(RefusedRelease(**vars(refusal), app=app.name, role=role))
    signers = tuple(key.identity for key in keys)
    return signers, tuple(keys), describe_revocations(root), tuple(refused)


# ssh-keygen itself checks if a list or a line is usable, with a key made for the test: a list or
# line that it cannot read would refuse every bundle.
def supports_validity(root: Root) -> bool:
    """Returns True if this board's ssh-keygen supports valid-after and valid-before in
    allowed_signers.
    """
    return _accepts_new_key(root, 'valid-after="19800101" ', None)


def replace_revocations(root: Root, data: bytes) -> None:
    """Replaces the whole list of revocations.

    Raises:
        DeviceError: "trust.bad-revocations".
    """
    # a list that ssh-keygen cannot read would revoke every key
    if not _accepts_new_key(root, "", data):
        raise _lines_error("ssh-keygen cannot read it")
    write_durably(revoked_file(root.allowed_signers), data)


def revoke(root: Root, lines: Sequence[str]) -> int:
    """Adds public keys to the existing list or KRL; returns the number of new keys.

    Raises:
        DeviceError: "trust.bad-line" or "trust.bad-revocations".
    """
    keys = [key for key in map(parse_key_line, lines) if key is not None]
    if len(keys) != len(lines):
        raise DeviceError(
            "not a public key", code="trust.bad-line", hint="give a .pub file: ssh-ed25519 KEY"
        )
    file = revoked_file(root.allowed_signers)
    data = file.read_bytes() if file.exists() else b""
    if data.startswith(_KRL):
        with workspace(root.folder) as work:
            # in a copy: ssh-keygen -u changes the file in place, without a rename
            krl = work / "krl"
            shutil.copyfile(str(file), str(krl))
            for number, key in enumerate(keys):
                public = work / "{}.pub".format(number)
                public.write_text(key.line + "\n", encoding="ascii")
                if keygen(["-k", "-u", "-f", str(krl), str(public)], b"").returncode:
                    raise _lines_error("ssh-keygen failed to add the key to it")
            write_durably(file, krl.read_bytes())
        return len(keys)
    known = {key.blob for key in parse_key_file(data)}
    new = [key.line for key in keys if key.blob not in known]
    if new:
        old = data if not data or data.endswith(b"\n") else data + b"\n"
        write_durably(file, old + "".join(line + "\n" for line in new).encode("ascii"))
    return len(new)


def describe_revocations(root: Root) -> Revocations:
    """Returns the board's revocations."""
    file = revoked_file(root.allowed_signers)
    data = file.read_bytes() if file.exists() else b""
    krl = data.startswith(_KRL)
    listed = [] if krl else [key.fingerprint for key in parse_key_file(data)]
    return Revocations("krl" if krl else "list" if data else "none", tuple(listed))


def _accepts_new_key(root: Root, options: str, revoked: Optional[bytes]) -> bool:
    """Returns True if a newly made key may sign with these options and revocations."""
    with workspace(root.folder) as work:
        key, allowed, signature = work / "key", work / "allowed", work / "sig"
        keygen(["-q", "-t", "ed25519", "-N", "", "-f", str(key)], b"")
        signed = keygen(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], b"x").stdout
        signature.write_bytes(signed)
        public = Path(str(key) + ".pub").read_text(encoding="utf-8")
        allowed.write_text("x " + options + public, encoding="utf-8")
        arguments = ["-n", NAMESPACE, "-f", str(allowed), "-I", "x", "-s", str(signature)]
        if revoked is not None:
            (work / "revoked").write_bytes(revoked)
            arguments += ["-r", str(work / "revoked")]
        return keygen(["-Y", "verify", *arguments], b"x").returncode == 0


def _lines_error(message: str) -> DeviceError:
    return DeviceError(
        "not a list of revoked keys: {}".format(message),
        code="trust.bad-revocations",
        where="revoked_keys",
        hint="give a KRL (ssh-keygen -k -f FILE KEY.pub), or a text file with one public key "
        "per line",
    )
