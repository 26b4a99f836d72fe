"""The keys that an SSH agent holds: SSH_AUTH_SOCK's, or the one that IdentityAgent names."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import paramiko

__all__ = ["agent_keys"]

_TIMEOUT_S = 60.0  # an agent may ask its user


@contextlib.contextmanager
def agent_keys(path: str | None) -> Iterator[dict[bytes, paramiko.PKey]]:
    """Yields the agent's keys by their public halves, usable inside the block.

    Args:
        path: The agent's socket; "" for no agent, None for SSH_AUTH_SOCK's. An agent that does
            not answer holds nothing.
    """
    import paramiko

    if path == "":
        yield {}
        return
    # paramiko's own Agent knows SSH_AUTH_SOCK alone; what connects elsewhere is not public
    agent: Any = None
    connection = None
    keys: dict[bytes, paramiko.PKey] = {}
    try:
        with contextlib.suppress(OSError, paramiko.SSHException):
            if path is None:
                agent = paramiko.Agent()
            else:
                agent = paramiko.agent.AgentSSH()
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(_TIMEOUT_S)
                connection.connect(path)
                agent._connect(connection)
            keys = {key.asbytes(): key for key in agent.get_keys()}
        yield keys
    finally:
        if agent is not None:
            agent._close()
        if connection is not None:
            connection.close()
