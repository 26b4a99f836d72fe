"""Strict host keys: a board is accepted by a pin, by a known_hosts file, or by consent for this
command. Reads OpenSSH's known_hosts format (sshd(8)) and RevokedHostKeys.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit import timeouts
from edgekit.errors import BoardError, ConfigError, EnvironmentLack, Problem
from edgekit.files import replacing
from edgekit_device.trust.signature import ssh_fingerprint

if TYPE_CHECKING:
    import paramiko


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


@dataclass(frozen=True, slots=True)
class Entry:
    """A line: its marker ("" if none), its hosts as written, its key."""

    marker: str
    hosts: str
    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """The fingerprint as printed by ``ssh-keygen -lf``."""
        return ssh_fingerprint(self.blob)

    def names(self, host: str) -> bool:
        """Returns True if the line matches ``host``: a hashed name, or patterns ("!" negates)."""
        if self.hosts.startswith("|"):
            return _matches_hash(self.hosts, host)
        found = False
        for pattern in self.hosts.split(","):
            # fnmatch has bracket sets, OpenSSH does not: "[host]:port" is literal
            plain = pattern.lstrip("!").replace("[", "[[]").lower()
            if pattern and fnmatch.fnmatchcase(host.lower(), plain):
                # a negated pattern wins, in whatever order it is listed
                if pattern.startswith("!"):
                    return False
                found = True
        return found


def read_entries(texts: Iterable[str]) -> Iterator[Entry]:
    """Yields the key lines of files; skips all other lines."""
    for text in texts:
        for line in text.splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            marker = words.pop(0) if words[0].startswith("@") else ""
            if len(words) < 3 or (marker and marker not in _MARKERS):
                continue
            blob = _decode(words[2])
            # OpenSSH also skips a line whose key is of another type than it states
            if blob is not None and _kind(blob) == words[1]:
                yield Entry(marker, words[0], words[1], blob)


def is_revoked(path: Path, kind: str, blob: bytes) -> bool:
    """Returns True if RevokedHostKeys refuses a key.

    Args:
        path: A KRL, or a text file of keys; as in OpenSSH, an unreadable file refuses all keys.
        kind: The key type.
        blob: The key in wire format.
    """
    try:
        data = path.expanduser().read_bytes()
    except OSError:
        return True
    if not data.startswith(_KRL):
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        keys = [_key_blob(line) for line in lines if line and not line.startswith("#")]
        # a line that cannot be read might revoke this key
        return None in keys or blob in keys
    # a KRL is binary: only OpenSSH's own program reads it
    program = shutil.which("ssh-keygen")
    if program is None:
        return True
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "key.pub")
        file.write_text(f"{kind} {base64.b64encode(blob).decode()}\n", encoding="ascii")
        argv = [program, "-Q", "-f", str(path.expanduser()), str(file)]
        try:
            done = subprocess.run(
                argv, capture_output=True, timeout=timeouts.HOST_KEYS_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return True
    # 0: not revoked (ssh-keygen(1), -Q); an error also counts as revoked
    return done.returncode != 0


def _matches_hash(text: str, host: str) -> bool:
    """Returns True if "|1|SALT|HASH" (HMAC-SHA1 of the name, in base64) is of ``host``."""
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


def _key_blob(line: str) -> bytes | None:
    words = line.split()
    blob = _decode(words[1]) if len(words) > 1 else None
    return blob if blob is not None and _kind(blob) == words[0] else None


def _decode(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def fingerprint(key: paramiko.PKey) -> str:
    """Returns OpenSSH's fingerprint of a key."""
    return ssh_fingerprint(key.asbytes())


@dataclass(frozen=True)
class Trust:
    """The conditions on a host key for a connection.

    Attributes:
        pin: The only accepted fingerprint; known_hosts files can still revoke it.
        files: known_hosts files besides the standard ones; a missing file is an error only if it is
            ``required``.
        accept: Consent for an unknown key: its fingerprint, or True for any key. A key that
            contradicts a known key is still refused.
        required: The configuration's known_hosts file.
        standard: The user's and the system's known_hosts files.
        revoked: OpenSSH's RevokedHostKeys; if unreadable, every key is refused.
    """

    pin: str | None = None
    files: tuple[Path, ...] = ()
    accept: str | bool = False
    required: Path | None = field(default=None)
    standard: tuple[Path, ...] = STANDARD
    revoked: Path | None = None

    def known_types(self, name: str) -> list[str]:
        """Returns the key types known for ``name``, to be requested from the board."""
        entries = () if self.pin else read_entries(self._known_hosts_texts())
        return [entry.kind for entry in entries if not entry.marker and entry.names(name)]

    def check(self, name: str, key: paramiko.PKey, where: str) -> bool:
        """Checks a host key; returns True if it is new and was accepted by consent.

        Args:
            name: The host's name in known_hosts files: "HOST" or "[HOST]:PORT".
            key: The key that the host has proven to hold.
            where: The board's name for messages.

        Raises:
            BoardError: "board.host-key-mismatch" or "board.unknown-host-key".
        """
        shown = fingerprint(key)
        entries = list(read_entries(self._known_hosts_texts()))
        if any(shown == entry.fingerprint for entry in entries if entry.marker == "@revoked"):
            raise _mismatch_error(where, shown, "a known_hosts file marks it @revoked")
        if self.revoked and is_revoked(self.revoked, key.get_name(), key.asbytes()):
            raise _mismatch_error(where, shown, f"{self.revoked} (RevokedHostKeys) revokes it")
        if self.pin:
            # OpenSSH prints fingerprints without base64's padding
            if shown != self.pin.rstrip("="):
                raise _mismatch_error(where, shown, f"the pinned key is {self.pin}")
            return False
        known = [entry for entry in entries if not entry.marker and entry.names(name)]
        if any(shown == entry.fingerprint for entry in known):
            return False
        if known:
            seen = ", ".join(entry.fingerprint for entry in known)
            raise _mismatch_error(where, shown, f"known_hosts has {seen} for {name}")
        if self.accept is True or (
            isinstance(self.accept, str) and self.accept.rstrip("=") == shown
        ):
            return True
        expected = f" (--accept-host-key names {self.accept})" if self.accept else ""
        if any(entry.marker == "@cert-authority" and entry.names(name) for entry in entries):
            expected += (
                "; known_hosts has a @cert-authority for it, but edgekit does not check host "
                "certificates"
            )
        raise BoardError(
            f"the host key of {name} is not known: {key.get_name()} {shown}{expected}",
            code="board.unknown-host-key",
            where=where,
            hint="compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the "
            f'board, then pin it in the config: `host_key: "{shown}"`, or accept it once '
            "with `--accept-host-key`",
        )

    def _known_hosts_texts(self) -> Iterable[str]:
        if self.required and not self.required.expanduser().is_file():
            hint = "the config's known_hosts names this file"
            raise ConfigError([Problem("the file does not exist", str(self.required), hint)])
        extra = [self.required] if self.required else []
        for path in (*self.standard, *self.files, *extra):
            try:
                yield path.expanduser().read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # skip an unreadable file


def remember(path: Path, name: str, key: paramiko.PKey) -> None:
    """Adds ``key`` to edgekit's own known_hosts file atomically.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    try:
        _add_line(path, f"{name} {key.get_name()} {key.get_base64()}\n")
    except OSError as error:
        raise EnvironmentLack(
            f"the accepted host key cannot be saved: {error.strerror}",
            code="environment.state-folder",
            where=str(path),
            hint="make the folder writable, or pin the key in the config",
        ) from error


def _add_line(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    if line in old:
        return
    with replacing(path, private=True) as temporary:
        temporary.write_text(old + line, encoding="utf-8")


def _mismatch_error(where: str, shown: str, against: str) -> BoardError:
    return BoardError(
        f"the host key is {shown}, but {against}",
        code="board.host-key-mismatch",
        where=where,
        hint="check on the board itself whether it was reinstalled or another machine answers "
        "at its address; then correct the pin or the known_hosts line",
    )
