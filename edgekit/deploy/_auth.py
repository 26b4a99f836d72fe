"""Being let in by a board: keys of the config, the agent, the usual files; never a password."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.deploy._agent import agent_keys
from edgekit.deploy._sshconfig import Endpoint
from edgekit.errors import BoardError

if TYPE_CHECKING:
    import paramiko

__all__ = ["authenticate"]

_USUAL = ("id_ed25519", "id_ecdsa", "id_rsa")


def authenticate(connection: paramiko.Transport, hop: Endpoint, where: str) -> None:
    """Tries each key until the board takes one; BoardError "board.auth" when it takes none."""
    import paramiko

    tried: list[str] = []
    for label, key in _candidates(hop, tried):
        try:
            still_needed = connection.auth_publickey(hop.user, key)
        except paramiko.BadAuthenticationType as error:
            raise _refused(hop, where, tried, f"it only allows {error.allowed_types}") from error
        except paramiko.AuthenticationException as error:
            if not connection.is_active():
                raise _refused(hop, where, [*tried, label], "it hung up") from error
            tried.append(label)
            continue
        if not still_needed:
            return
        tried.append(f"{label} (the board asks for {', '.join(still_needed)} besides)")
    raise _refused(hop, where, tried, "")


def _candidates(hop: Endpoint, tried: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    """Yields keys in the order to try; says in ``tried`` why a file gave none.

    A file whose key the agent holds is signed with there: that is how a key with a passphrase
    is used, since nothing here asks for one.
    """
    files = list(hop.keys)
    if not hop.only_keys and not files:
        files = [path for name in _USUAL if (path := Path("~/.ssh", name).expanduser()).is_file()]
    with agent_keys(hop.agent) as held:
        given: set[bytes] = set()
        for path in files:
            public = _public_half(path)
            if public in held:
                given.add(public)
                yield f"{path} (by the agent)", held[public]
            elif path.suffix == ".pub":
                tried.append(f"{path} (a public key; the agent does not hold its private half)")
            else:
                yield from _of_file(path, tried)
        if hop.only_keys:
            return
        for blob, key in held.items():
            if blob not in given:
                yield f"agent key {getattr(key, 'comment', '') or key.fingerprint}", key


def _of_file(path: Path, tried: list[str]) -> Iterator[tuple[str, paramiko.PKey]]:
    import paramiko

    try:
        yield str(path), paramiko.PKey.from_path(path)
    except (TypeError, paramiko.PasswordRequiredException):
        # cryptography says TypeError for a key that needs a password
        tried.append(f"{path} (has a passphrase: put it into the agent with ssh-add)")
    except (OSError, ValueError, paramiko.SSHException) as error:
        tried.append(f"{path} ({getattr(error, 'strerror', None) or error})")


def _public_half(path: Path) -> bytes:
    """Returns the public key beside a private one, or of a public file itself; b"" without."""
    public = path if path.suffix == ".pub" else path.with_name(path.name + ".pub")
    try:
        words = public.read_text(encoding="utf-8").split()
        return base64.b64decode(words[1], validate=True)
    except (OSError, ValueError, IndexError):
        return b""


def _refused(hop: Endpoint, where: str, tried: list[str], reason: str) -> BoardError:
    return BoardError(
        f"{hop.user}@{hop.host} let no key in" + (f": {reason}" if reason else ""),
        code="board.auth",
        where=where,
        hint=f"tried: {'; '.join(tried) or 'nothing, there is no key'}. Name the right `key:` "
        f"and `user:` for the board, or add the key there with `ssh-copy-id {hop.user}@{hop.host}`",
    )
