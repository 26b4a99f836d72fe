"""The signature gate: OpenSSH's ``ssh-keygen -Y`` decides before a byte of JSON is read.
Also reads the public key inside OpenSSH's armoured signatures and in lines of its key files.

OpenSSH verifies a signature; this module only reads its key (PROTOCOL.sshsig of OpenSSH: "SSHSIG",
a version, then the public key as a string of the wire form of RFC 4251).

Only features of OpenSSH 8.2 (JetPack 5) are used: ``check-novalidate`` and ``verify`` exist since
8.1, ``find-principals`` since 8.2 (openssh.com/releasenotes.html); ``verify`` has always taken
``-r``. ``valid-after`` and ``valid-before`` in allowed_signers need 8.8: an older ssh-keygen
rejects lines with these.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import shutil
import struct
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, NoReturn, Optional

from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import memory_file

_BEGIN, _END = b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----"
_MAGIC = b"SSHSIG"
_VERSION = 1
_MAX_KEY = 16 << 10
_TYPE = re.compile(r"[a-z0-9@.-]{1,64}\Z")
_WORD = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')
NAMESPACE = "edgekit-bundle"
MAX_SIGNATURE = 64 << 10
_REVOKED = "revoked_keys"
_TIMEOUT_S = 60


def ssh_fingerprint(blob: bytes) -> str:
    """Returns OpenSSH's fingerprint of a public key: "SHA256:" and unpadded base64."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii")
    return "SHA256:" + digest.rstrip("=")


class PublicKey:
    """A public key: ``kind`` such as "ssh-ed25519", and the bytes that OpenSSH hashes."""

    def __init__(self, kind: str, blob: bytes) -> None:
        self.kind = kind
        self.blob = blob

    @property
    def fingerprint(self) -> str:
        """The fingerprint as printed by ``ssh-keygen -lf``."""
        return ssh_fingerprint(self.blob)

    @property
    def line(self) -> str:
        """Kind and base64, as in public key files and allowed_signers."""
        return "{} {}".format(self.kind, base64.b64encode(self.blob).decode("ascii"))


def parse_signature_key(armour: bytes) -> Optional[PublicKey]:
    """Returns the key that made a signature; None if it is not an OpenSSH signature."""
    parts = armour.strip().split(b"\n")
    if len(parts) < 3 or parts[0].strip() != _BEGIN or parts[-1].strip() != _END:
        return None
    data = _decode(b"".join(part.strip() for part in parts[1:-1]))
    head = len(_MAGIC) + 4
    if data is None or len(data) < head or not data.startswith(_MAGIC):
        return None
    if struct.unpack_from(">I", data, len(_MAGIC))[0] != _VERSION:
        return None
    blob = _first_string(data[head:])
    return None if blob is None else _parse_key(blob)


def parse_key_line(line: str) -> Optional[PublicKey]:
    """Returns the key of a line of allowed_signers, authorized_keys, a .pub file or a key list."""
    words = _WORD.findall(line.strip())
    # identity and options come before the key's kind in allowed_signers
    for number, first in enumerate(words[:-1]):
        second = words[number + 1]
        blob = _decode(second.encode("utf-8", "replace")) if _TYPE.match(first) else None
        found = None if blob is None else _parse_key(blob)
        if found is not None and found.kind == first:
            return found
    return None


def parse_key_file(data: bytes) -> List[PublicKey]:
    """Returns the keys of a file of lines; skips comments and lines without a key."""
    lines = data.decode("utf-8", "replace").splitlines()
    found = [parse_key_line(line) for line in lines if not line.lstrip().startswith("#")]
    return [key for key in found if key is not None]


def _decode(data: bytes) -> Optional[bytes]:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _first_string(data: bytes) -> Optional[bytes]:
    """Returns the first string of the wire form: four bytes of length, then that many bytes."""
    if len(data) < 4:
        return None
    (size,) = struct.unpack_from(">I", data)
    return data[4 : 4 + size] if size <= min(_MAX_KEY, len(data) - 4) else None


def _parse_key(blob: bytes) -> Optional[PublicKey]:
    kind = _first_string(blob)
    if kind is None:
        return None
    text = kind.decode("ascii", "replace")
    return PublicKey(text, blob) if _TYPE.match(text) else None


def revoked_file(allowed_signers: Path) -> Path:
    """Returns the path of the revoked keys, next to ``allowed_signers``."""
    return allowed_signers.with_name(_REVOKED)


def check_signature(
    manifest: bytes,
    signature: Optional[bytes],
    allowed_signers: Path,
    *,
    trust_unsigned: bool = False,
    where: str = "manifest.json",
) -> Optional[str]:
    """Checks the signature of ``manifest``.

    Args:
        manifest: The exact bytes.
        signature: OpenSSH's armoured signature of these bytes; None if unsigned.
        allowed_signers: The file of keys that may sign; need not exist. A file ``revoked_keys``
            next to it, a list of public keys or an OpenSSH KRL, has the keys that may not.
        trust_unsigned: Accepts a missing signature, or a valid signature by an unknown key; a
            signature that does not match the bytes or was made with a revoked key is still refused.
        where: The place in errors.

    Returns:
        The signer's identity in ``allowed_signers``; None if accepted without a trusted signature.

    Raises:
        DeviceError: "bundle.unsigned", "bundle.unknown-signer", "bundle.revoked-signer",
            "bundle.bad-signature" or "board.no-ssh-keygen".
    """
    if signature is None:
        if trust_unsigned:
            return None
        raise DeviceError(
            "the bundle is not signed",
            code="bundle.unsigned",
            where=where,
            hint="sign it with the key in deploy.sign_with of the configuration; in Python: "
            "load(..., trust_unsigned=True)",
        )
    if len(signature) > MAX_SIGNATURE:
        _signature_error(where, "the signature is too long")
    with _memory_file(signature) as file:
        # first without allowed_signers: a signature that does not fit is refused even with
        # trust_unsigned, and only a valid one may name its key
        sound = keygen(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", file], manifest)
        key = None if sound.returncode else parse_signature_key(signature)
        if key is None:
            _signature_error(where, "the signature does not match the manifest")
        revoked = revoked_file(allowed_signers)
        # os.path.lexists: a dangling link or an unreadable file revokes all keys
        if os.path.lexists(str(revoked)) and _is_revoked(file, manifest, key, revoked):
            raise DeviceError(
                "{} revokes the signing key {}".format(revoked, key.fingerprint),
                code="bundle.revoked-signer",
                where=where,
                hint="sign the bundle with another key and deploy it again; a list that "
                "OpenSSH cannot read revokes every key (edgekit trust BOARD --list)",
            )
        signer = _find_signer(file, manifest, allowed_signers, revoked)
    if signer is None and not trust_unsigned:
        raise DeviceError(
            "Signed by {}, which is not in {}".format(key.fingerprint, allowed_signers),
            code="bundle.unknown-signer",
            where=where,
            hint="trust the key with `edgekit trust`; in Python: load(..., allowed_signers=FILE), "
            "or trust_unsigned=True for your own bundle",
        )
    return signer


@contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    """Yields a path with ``data`` for other programs, even if the disk is full or read-only."""
    with map_os_errors("memory"):
        handle = memory_file()
    try:
        with map_os_errors("memory"):
            os.write(handle, data)
        # a child opens the file through this process: it inherits no descriptor
        yield "/proc/{}/fd/{}".format(os.getpid(), handle)
    finally:
        os.close(handle)


def _is_revoked(file: str, manifest: bytes, key: PublicKey, revoked: Path) -> bool:
    """Returns True if the revocations refuse the key of a valid signature.

    The key is allowed by a temporary list, so that the answer depends only on the revocations.
    """
    with _memory_file("signer {}\n".format(key.line).encode("ascii")) as allowed:
        arguments = ["-Y", "verify", "-n", NAMESPACE, "-f", allowed, "-I", "signer", "-s", file]
        return keygen([*arguments, "-r", str(revoked)], manifest).returncode != 0


def _find_signer(file: str, manifest: bytes, allowed_signers: Path, revoked: Path) -> Optional[str]:
    if not allowed_signers.is_file():
        return None
    allowed = str(allowed_signers)
    # ``verify`` needs the identity, which only the file of signers knows
    found = keygen(["-Y", "find-principals", "-s", file, "-f", allowed], b"")
    if found.returncode or not found.stdout.strip():
        return None
    revocations = ["-r", str(revoked)] if os.path.lexists(str(revoked)) else []
    for identity in found.stdout.decode("utf-8", "replace").splitlines():
        arguments = ["verify", "-n", NAMESPACE, "-f", allowed, "-I", identity, "-s", file]
        # fails for a known key that is expired, revoked or limited to other namespaces
        if keygen(["-Y", *arguments, *revocations], manifest).returncode == 0:
            return identity
    return None


def keygen(arguments: List[str], stdin: bytes) -> "subprocess.CompletedProcess[bytes]":
    """Runs ``ssh-keygen`` and captures its output.

    Raises:
        DeviceError: "board.no-ssh-keygen".
    """
    program = shutil.which("ssh-keygen")
    if program is None:
        raise DeviceError(
            "ssh-keygen is needed to check signatures and is not installed",
            code="board.no-ssh-keygen",
            hint="install the openssh-client package",
        )
    try:
        return subprocess.run(
            [program, *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(
            "ssh-keygen failed: {}".format(error), code="board.no-ssh-keygen"
        ) from error


def _signature_error(where: str, message: str) -> NoReturn:
    raise DeviceError(
        message,
        code="bundle.bad-signature",
        where=where,
        hint="the bundle was changed after signing; get it again from its maker",
    )
