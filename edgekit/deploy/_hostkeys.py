"""Strict host keys: a board is known by a pin, by a known_hosts file, or by consent given now."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._files import replacing
from edgekit.errors import BoardError, ConfigError, EnvironmentLack, Problem

if TYPE_CHECKING:
    import paramiko

__all__ = ["Trust", "fingerprint", "remember"]

_STANDARD = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts")


def fingerprint(key: paramiko.PKey) -> str:
    """Returns OpenSSH's form, "SHA256:" and unpadded base64."""
    digest = hashlib.sha256(key.asbytes()).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True)
class Trust:
    """What makes a host key acceptable for one connection.

    Attributes:
        pin: The one fingerprint that is right; nothing else is looked at.
        files: known_hosts files besides the standard ones; a missing one is an error only when
            it is ``required``.
        accept: Consent for an unknown key: its fingerprint, or True for whatever is shown.
            A key that contradicts a known one stays refused.
        required: The config's known_hosts file.
    """

    pin: str | None = None
    files: tuple[Path, ...] = ()
    accept: str | bool = False
    required: Path | None = field(default=None)

    def known_types(self, name: str) -> list[str]:
        """Returns the key types known for ``name``, so that the board is asked for one of them."""
        return [] if self.pin else [key.get_name() for key in self._known(name)]

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
        if self.pin:
            if shown != self.pin.rstrip("="):
                raise _mismatch(where, shown, f"the pinned one is {self.pin}")
            return False
        if shown in self._revoked():
            raise _mismatch(where, shown, "a known_hosts file marks it @revoked")
        known = self._known(name)
        if any(shown == fingerprint(other) for other in known):
            return False
        if known:
            seen = ", ".join(fingerprint(other) for other in known)
            raise _mismatch(where, shown, f"known_hosts has {seen} for {name}")
        if self.accept is True or (
            isinstance(self.accept, str) and self.accept.rstrip("=") == shown
        ):
            return True
        expected = f" ({self.accept} was to be accepted)" if self.accept else ""
        raise BoardError(
            f"the host key of {name} is not known: {key.get_name()} {shown}{expected}",
            code="board.unknown-host-key",
            where=where,
            hint="compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the "
            f'board, then pin it in the config: `host_key: "{shown}"`, or accept it once with '
            "`--accept-host-key`",
        )

    def _lines(self) -> Iterable[str]:
        if self.required and not self.required.expanduser().is_file():
            hint = "the config's known_hosts names this file"
            raise ConfigError([Problem("there is no such file", str(self.required), hint)])
        extra = [self.required] if self.required else []
        for path in (*map(Path, _STANDARD), *self.files, *extra):
            try:
                yield from (
                    path.expanduser().read_text(encoding="utf-8", errors="replace").splitlines()
                )
            except OSError:
                continue  # a file that cannot be read vouches for nobody

    def _known(self, name: str) -> list[paramiko.PKey]:
        """Returns every key on record for ``name``; lines that nobody can read are skipped."""
        import paramiko
        from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

        found: list[paramiko.PKey] = []
        for number, line in enumerate(self._lines()):
            if not line.strip() or line.lstrip().startswith(("#", "@")):
                continue
            try:
                entry = HostKeyEntry.from_line(line.strip(), number)
            except (InvalidHostKey, paramiko.SSHException, ValueError):
                continue
            if entry is None or entry.key is None:
                continue
            one = paramiko.HostKeys()
            for host in entry.hostnames or ():
                one.add(host, entry.key.get_name(), entry.key)
            if one.lookup(name) is not None:
                found.append(entry.key)
        return found

    def _revoked(self) -> set[str]:
        found = set()
        for line in self._lines():
            words = line.split()
            if len(words) >= 4 and words[0] == "@revoked":
                try:
                    blob = base64.b64decode(words[3], validate=True)
                except ValueError:
                    continue
                digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
                found.add("SHA256:" + digest)
        return found


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
