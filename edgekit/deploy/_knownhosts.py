"""OpenSSH's known_hosts format (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT") and RevokedHostKeys."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["STANDARD", "Entry", "is_revoked", "read_entries"]

STANDARD = tuple(
    Path(text)
    for text in (
        "~/.ssh/known_hosts",
        "~/.ssh/known_hosts2",
        "/etc/ssh/ssh_known_hosts",
        "/etc/ssh/ssh_known_hosts2",
    )
)

_MARKERS = ("@revoked", "@cert-authority")
_KRL = b"SSHKRL\n\0"
_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: its marker ("" for none), its hosts as written, its key."""

    marker: str
    hosts: str
    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """ "SHA256:" and unpadded base64."""
        return _fingerprint(self.blob)

    def names(self, host: str) -> bool:
        """Whether the line is about ``host``: a hashed name, or patterns with "!" for not."""
        if self.hosts.startswith("|"):
            return _is_hashed(self.hosts, host)
        found = False
        for pattern in self.hosts.split(","):
            # fnmatch knows sets in brackets, OpenSSH does not: "[host]:port" means itself
            plain = pattern.lstrip("!").replace("[", "[[]").lower()
            if pattern and fnmatch.fnmatchcase(host.lower(), plain):
                if pattern.startswith("!"):
                    return False
                found = True
        return found


def read_entries(texts: Iterable[str]) -> Iterator[Entry]:
    """Yields the lines of files; what is no line of a key is passed over and vouches for nobody."""
    for text in texts:
        for line in text.splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            marker = words.pop(0) if words[0].startswith("@") else ""
            if len(words) < 3 or (marker and marker not in _MARKERS):
                continue
            blob = _decode(words[2])
            if blob is not None and _kind(blob) == words[1]:
                yield Entry(marker, words[0], words[1], blob)


def is_revoked(path: Path, kind: str, blob: bytes) -> bool:
    """Whether RevokedHostKeys refuses a key.

    Args:
        path: A KRL, or a text file of keys; as with OpenSSH one that cannot be read refuses all.
        kind: The key's type.
        blob: The key in its wire form.
    """
    try:
        data = path.expanduser().read_bytes()
    except OSError:
        return True
    if not data.startswith(_KRL):
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        keys = [_key_of(line) for line in lines if line and not line.startswith("#")]
        return None in keys or blob in keys
    program = shutil.which("ssh-keygen")
    if program is None:
        return True
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "key.pub")
        file.write_text(f"{kind} {base64.b64encode(blob).decode()}\n", encoding="ascii")
        argv = [program, "-Q", "-f", str(path.expanduser()), str(file)]
        try:
            done = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return True
    return done.returncode != 0


def _is_hashed(text: str, host: str) -> bool:
    """ "|1|SALT|HASH": HMAC-SHA1 of the name, both in base64."""
    parts = text.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return False
    salt, wanted = _decode(parts[2]), _decode(parts[3])
    if salt is None or wanted is None:
        return False
    found = hmac.new(salt, host.lower().encode("utf-8", "surrogatepass"), hashlib.sha1).digest()
    return hmac.compare_digest(found, wanted)


def _kind(blob: bytes) -> str:
    size = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + size].decode("ascii", "replace")


def _key_of(line: str) -> bytes | None:
    words = line.split()
    blob = _decode(words[1]) if len(words) > 1 else None
    return blob if blob is not None and _kind(blob) == words[0] else None


def _decode(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def _fingerprint(blob: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
