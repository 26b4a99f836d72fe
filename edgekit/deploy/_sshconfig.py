"""Where a board's connection goes: the board's own fields first, then ``~/.ssh/config``."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from pathlib import Path

from edgekit.deploy._types import Board
from edgekit.errors import ConfigError, Problem

__all__ = ["Endpoint", "resolve"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A resolved connection.

    Attributes:
        host: Address or name to connect to.
        port: TCP port.
        user: Account.
        keys: Private key files to try, in order.
        only_keys: Whether ``keys`` alone may be used (no agent, no ``~/.ssh/id_*``).
        proxy_command: OpenSSH's ProxyCommand with its tokens replaced; empty when there is none.
        jumps: OpenSSH's ProxyJump, first hop first.
    """

    host: str
    port: int
    user: str
    keys: tuple[Path, ...] = ()
    only_keys: bool = False
    proxy_command: str = ""
    jumps: tuple[str, ...] = ()


def resolve(board: Board) -> Endpoint:
    """Returns the endpoint of ``board``; ConfigError when ``~/.ssh/config`` cannot be read.

    The embedded board needs nothing of the user's account and ignores the file.
    """
    options = {} if board.kind == "sshd" else _lookup(board.host)
    user = board.user or str(options.get("user") or getpass.getuser())
    files = [str(board.key)] if board.key else list(options.get("identityfile") or ())
    proxy = str(options.get("proxycommand") or "")
    jumps = str(options.get("proxyjump") or "")
    return Endpoint(
        host=str(options.get("hostname") or board.host),
        port=board.port or int(str(options.get("port") or 22)),
        user=user,
        keys=tuple(Path(os.path.expanduser(name)) for name in files),
        only_keys=board.kind == "sshd" or options.get("identitiesonly") == "yes",
        proxy_command="" if proxy.lower() == "none" else proxy,
        jumps=() if jumps.lower() in ("", "none") else tuple(jumps.replace(" ", "").split(",")),
    )


def _lookup(host: str) -> dict[str, str | list[str]]:
    path = Path("~/.ssh/config").expanduser()
    if not path.is_file():
        return {}
    import paramiko

    try:
        return dict(paramiko.SSHConfig.from_path(str(path)).lookup(host))
    except (OSError, UnicodeDecodeError, ValueError, paramiko.SSHException) as error:
        hint = "correct the file, or give host, port, user and key in the edgekit config"
        raise ConfigError(
            [Problem(f"cannot be read: {error}", str(path), hint)], code="board.ssh-config"
        ) from error
