"""Being let in by a board: keys of the config, the agent, the usual files; never a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

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
    """Yields keys in the order to try; says in ``tried`` why a file gave none."""
    import paramiko

    files = list(hop.keys)
    if not hop.only_keys and not files:
        files = [path for name in _USUAL if (path := Path("~/.ssh", name).expanduser()).is_file()]
    for path in files:
        try:
            yield str(path), paramiko.PKey.from_path(path)
        except (TypeError, paramiko.PasswordRequiredException):
            # cryptography says TypeError for a key that needs a password
            tried.append(f"{path} (has a passphrase: put it into the agent with ssh-add)")
        except (OSError, ValueError, paramiko.SSHException) as error:
            tried.append(f"{path} ({getattr(error, 'strerror', None) or error})")
    if hop.only_keys:
        return
    agent = paramiko.Agent()
    try:
        for key in agent.get_keys():
            yield f"agent key {key.comment or key.fingerprint}", key
    finally:
        agent.close()


def _refused(hop: Endpoint, where: str, tried: list[str], reason: str) -> BoardError:
    return BoardError(
        f"{hop.user}@{hop.host} let no key in" + (f": {reason}" if reason else ""),
        code="board.auth",
        where=where,
        hint=f"tried: {'; '.join(tried) or 'nothing, there is no key'}. Name the right `key:` "
        f"and `user:` for the board, or add the key there with `ssh-copy-id {hop.user}@{hop.host}`",
    )
