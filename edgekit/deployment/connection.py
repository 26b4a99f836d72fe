"""Opens the configuration's board, or edgekit's own board if the configuration names none."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from edgekit.bundles.files import build_board_loader
from edgekit.bundles.sign import allowed_signers_line
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.embedded_sshd import sshd
from edgekit.deployment.ssh import connect
from edgekit.deployment.transport import LocalTransport
from edgekit.errors import EdgekitError, EnvironmentLack


@contextlib.contextmanager
def open_board(
    board: Board | None,
    *,
    state_folder: Path,
    signer_public_key: str | Path | None = None,
    trust_key: bool = False,
    accept_host_key: str | bool = False,
    remember_host_key: bool = False,
    on_command: Callable[[str, float], object] = lambda name, seconds: None,
    loader: Path | None = None,
) -> Iterator[BoardClient]:
    """Connects to ``board``; if None, runs edgekit's own board until the end of the block.

    edgekit's own board is an sshd on loopback; if that is not possible, it is this machine without
    SSH (kind "local"), and the client's ``note`` has the reason. Its folder,
    ``state_folder``/board, is kept, so that later commands find the releases.

    Args:
        board: A board of the configuration, or None.
        state_folder: Folder of edgekit's own board, its known_hosts and the boards' loader.
        signer_public_key: The public key that signs bundles, as a file or its line. The embedded
            board trusts it; other boards only with ``trust_key``.
        trust_key: True to add the signer to the board's trusted keys; an already trusted key keeps
            its name there.
        accept_host_key: Consent for an unknown host key: its fingerprint, or True for any.
        remember_host_key: True to write an accepted host key to edgekit's known_hosts.
        on_command: As for ``BoardClient``; called from the first command on.
        loader: The boards' loader, if already built (``build_board_loader``).

    Raises:
        EnvironmentLack: "board.unreachable" or "board.silent".
        BoardError: The board cannot be trusted, does not trust the user, or failed.
        UsageError: The public key does not exist.
    """
    state_folder.mkdir(parents=True, exist_ok=True)
    line = allowed_signers_line(signer_public_key) if signer_public_key is not None else None
    with contextlib.ExitStack() as stack:
        loader = loader or build_board_loader(state_folder / "loader")
        if board is None:
            client = _own_board(stack, state_folder / "board", loader, on_command)
        elif board.kind == "local":
            client = BoardClient(
                board, LocalTransport(board.name), loader, "this machine, without SSH"
            )
        else:
            known_hosts = state_folder / "known_hosts"
            transport = connect(
                board,
                accept_host_key=accept_host_key,
                remember_in=known_hosts if remember_host_key else None,
                known_hosts=(known_hosts,),
            )
            note = f"{board.host} over SSH"
            # a new connection requires the host key of the first
            same = replace(board, host_key=transport.host_key)
            client = BoardClient(board, transport, loader, note, lambda: connect(same))
        stack.callback(client.close)
        client.on_command = on_command
        if line and (trust_key or board is None):
            from edgekit_device.trust.keys import TrustRequest

            client.trust(TrustRequest(new=(line,)))
        yield client


def _own_board(
    stack: contextlib.ExitStack,
    root: Path,
    loader: Path,
    on_command: Callable[[str, float], object],
) -> BoardClient:
    try:
        if os.environ.get("EDGEKIT_NO_SSHD"):
            raise EnvironmentLack("EDGEKIT_NO_SSHD is set", code="board.no-sshd")

        with contextlib.ExitStack() as attempt:
            server = attempt.enter_context(sshd(root))
            transport = connect(server.board)
            note = f"edgekit's own sshd on loopback, folder {root}"
            client = BoardClient(server.board, transport, loader, note)
            attempt.callback(client.close)
            client.on_command = on_command
            # a locked account or a login shell that runs no commands is only detected here
            client.ensure_loader()
            stack.push(attempt.pop_all())
            return client
    except EdgekitError as error:
        board = Board("local", root=str(root.absolute()), python=sys.executable, kind="local")
        note = f"this machine without SSH, folder {root}, because {error.message}"
        return BoardClient(board, LocalTransport("local"), loader, note)
