"""Strict host keys: a board is known by a pin, by a known_hosts file, or by consent given now."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._files import replacing
from edgekit.deploy._knownhosts import STANDARD, Entry, is_revoked, read_entries
from edgekit.errors import BoardError, ConfigError, EnvironmentLack, Problem

if TYPE_CHECKING:
    import paramiko

__all__ = ["Trust", "fingerprint", "remember"]


def fingerprint(key: paramiko.PKey) -> str:
    """Returns OpenSSH's form, "SHA256:" and unpadded base64."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class Trust:
    """What makes a host key acceptable for one connection.

    Attributes:
        pin: The one fingerprint that is right; known_hosts files can only still revoke it.
        files: known_hosts files besides the standard ones; a missing one is an error only when
            it is ``required``.
        accept: Consent for an unknown key: its fingerprint, or True for whatever is shown.
            A key that contradicts a known one stays refused.
        required: The config's known_hosts file.
        standard: The user's and the system's known_hosts files.
        revoked: OpenSSH's RevokedHostKeys; where it cannot be read, no key is believed.
    """

    pin: str | None = None
    files: tuple[Path, ...] = ()
    accept: str | bool = False
    required: Path | None = field(default=None)
    standard: tuple[Path, ...] = STANDARD
    revoked: Path | None = None

    def known_types(self, name: str) -> list[str]:
        """Returns the key types known for ``name``, so that the board is asked for one of them."""
        return [] if self.pin else [entry.kind for entry in self._known(name)]

    def check(self, name: str, key: paramiko.PKey, where: str) -> bool:
        """Returns whether ``key`` is new and was accepted now; BoardError when it is refused.

        Args:
            name: What known_hosts files call the host: "HOST" or "[HOST]:PORT".
            key: What the host has shown and proved to hold.
            where: The board's name for messages.

        Raises:
            BoardError: "board.host-key-mismatch" or "board.unknown-host-key".
        """
        shown = fingerprint(key)
        entries = list(read_entries(self._texts()))
        if any(shown == one.fingerprint for one in entries if one.marker == "@revoked"):
            raise _mismatch(where, shown, "a known_hosts file marks it @revoked")
        if self.revoked and is_revoked(self.revoked, key.get_name(), key.asbytes()):
            raise _mismatch(where, shown, f"{self.revoked} (RevokedHostKeys) refuses it")
        if self.pin:
            if shown != self.pin.rstrip("="):
                raise _mismatch(where, shown, f"the pinned one is {self.pin}")
            return False
        known = [one for one in entries if not one.marker and one.names(name)]
        if any(shown == one.fingerprint for one in known):
            return False
        if known:
            seen = ", ".join(one.fingerprint for one in known)
            raise _mismatch(where, shown, f"known_hosts has {seen} for {name}")
        if self.accept is True or (
            isinstance(self.accept, str) and self.accept.rstrip("=") == shown
        ):
            return True
        expected = f" ({self.accept} was to be accepted)" if self.accept else ""
        if any(one.marker == "@cert-authority" and one.names(name) for one in entries):
            expected += (
                "; known_hosts has a @cert-authority for it, but edgekit does not check host "
                "certificates"
            )
        raise BoardError(
            f"the host key of {name} is not known: {key.get_name()} {shown}{expected}",
            code="board.unknown-host-key",
            where=where,
            hint="compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the "
            f'board, then pin it in the config: `host_key: "{shown}"`, or accept it once with '
            "`--accept-host-key`",
        )

    def _known(self, name: str) -> list[Entry]:
        entries = read_entries(self._texts())
        return [one for one in entries if not one.marker and one.names(name)]

    def _texts(self) -> Iterable[str]:
        if self.required and not self.required.expanduser().is_file():
            hint = "the config's known_hosts names this file"
            raise ConfigError([Problem("there is no such file", str(self.required), hint)])
        extra = [self.required] if self.required else []
        for path in (*self.standard, *self.files, *extra):
            try:
                yield path.expanduser().read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # a file that cannot be read vouches for nobody


def remember(path: Path, name: str, key: paramiko.PKey) -> None:
    """Adds ``key`` to edgekit's own known_hosts file, whole or not at all.

    Raises:
        EnvironmentLack: The file cannot be written.
    """
    try:
        _add_line(path, f"{name} {key.get_name()} {key.get_base64()}\n")
    except OSError as error:
        raise EnvironmentLack(
            f"the accepted host key cannot be written down: {error.strerror}",
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


def _mismatch(where: str, shown: str, against: str) -> BoardError:
    return BoardError(
        f"the host key is {shown}, but {against}",
        code="board.host-key-mismatch",
        where=where,
        hint="either the board was installed anew or something else answers at its address; "
        "look at the board itself, then correct the pin or the known_hosts line",
    )
