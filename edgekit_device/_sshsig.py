"""The public key inside OpenSSH's armoured signatures, and keys as lines of OpenSSH's files.

OpenSSH decides whether a signature is good; this reads only whose it is (PROTOCOL.sshsig of
OpenSSH: "SSHSIG", a version, then the public key as a string of the wire form of RFC 4251).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from typing import List, Optional

__all__ = ["PublicKey", "key_of_line", "key_of_signature", "keys_of_file"]

_BEGIN, _END = b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----"
_MAGIC = b"SSHSIG"
_VERSION = 1
_MAX_KEY = 16 << 10
_TYPE = re.compile(r"[a-z0-9@.-]{1,64}\Z")
_WORD = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')


class PublicKey:
    """A public key: ``kind`` such as "ssh-ed25519", and the bytes that OpenSSH hashes."""

    def __init__(self, kind: str, blob: bytes) -> None:
        self.kind = kind
        self.blob = blob

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -lf`` prints it: "SHA256:" and unpadded base64."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode("ascii")
        return "SHA256:" + digest.rstrip("=")

    @property
    def line(self) -> str:
        """Kind and base64, as public key files and allowed_signers have them."""
        return "{} {}".format(self.kind, base64.b64encode(self.blob).decode("ascii"))


def key_of_signature(armour: bytes) -> Optional[PublicKey]:
    """The key that made a signature; None for what is no signature of OpenSSH's."""
    parts = armour.strip().split(b"\n")
    if len(parts) < 3 or parts[0].strip() != _BEGIN or parts[-1].strip() != _END:
        return None
    data = _decode(b"".join(part.strip() for part in parts[1:-1]))
    head = len(_MAGIC) + 4
    if data is None or len(data) < head or not data.startswith(_MAGIC):
        return None
    if struct.unpack_from(">I", data, len(_MAGIC))[0] != _VERSION:
        return None
    blob = _string(data[head:])
    return None if blob is None else _key(blob)


def key_of_line(line: str) -> Optional[PublicKey]:
    """The key of a line of allowed_signers, authorized_keys, a .pub file or a list of keys."""
    words = _WORD.findall(line.strip())
    for number, first in enumerate(words[:-1]):
        second = words[number + 1]
        blob = _decode(second.encode("utf-8", "replace")) if _TYPE.match(first) else None
        found = None if blob is None else _key(blob)
        if found is not None and found.kind == first:
            return found
    return None


def keys_of_file(data: bytes) -> List[PublicKey]:
    """The keys of a file of lines; comments and lines that are no keys are passed over."""
    lines = data.decode("utf-8", "replace").splitlines()
    found = [key_of_line(line) for line in lines if not line.lstrip().startswith("#")]
    return [key for key in found if key is not None]


def _decode(data: bytes) -> Optional[bytes]:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _string(data: bytes) -> Optional[bytes]:
    """The first string of the wire form: four bytes of length, then as many bytes."""
    if len(data) < 4:
        return None
    (size,) = struct.unpack_from(">I", data)
    return data[4 : 4 + size] if size <= min(_MAX_KEY, len(data) - 4) else None


def _key(blob: bytes) -> Optional[PublicKey]:
    kind = _string(blob)
    if kind is None:
        return None
    text = kind.decode("ascii", "replace")
    return PublicKey(text, blob) if _TYPE.match(text) else None
