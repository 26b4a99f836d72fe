"""Opens the board of the config, or edgekit's own when the config names none."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from edgekit.deploy._client import BoardClient
from edgekit.deploy._embedded import sshd
from edgekit.deploy._local import LocalTransport
from edgekit.deploy._types import Board
from edgekit.errors import EdgekitError, EnvironmentLack, UsageError

__all__ = ["open_board", "signer_line"]

_NAMESPACE = "edgekit-bundle"
_SIGNER = "edgekit"


@contextlib.contextmanager
def open_board(
    board: Board | None,
    *,
    state_folder: Path,
    signer_public_key: str | Path | None = None,
    trust_key: bool = False,
    accept_host_key: str | bool = False,
    remember_host_key: bool = False,
    build_loader: Callable[[Path], object] | None = None,
) -> Iterator[BoardClient]:
    """Connects to ``board``; with None starts edgekit's own board for as long as the block lasts.

    edgekit's own board is an sshd on loopback; where that cannot be had it is this machine without
    SSH (kind "local"). ``note`` of the client says which and why. Its folder,
    ``state_folder``/board, stays, so that later commands find the releases.

    Args:
        board: A board of the config, or None.
        state_folder: Where edgekit keeps the embedded board, its loader and its own known_hosts.
        signer_public_key: The public key that signs bundles, as a file or its one line. The
            embedded board trusts it; another board only with ``trust_key``.
        trust_key: Whether to add the signer to what the config's board trusts.
        accept_host_key: Consent for an unknown host key: its fingerprint, or True for any.
        remember_host_key: Whether an accepted host key is written to edgekit's known_hosts.
        build_loader: Writes the loader's zipapp to a path; ``edgekit.bundle.build_zipapp`` if None.

    Raises:
        EnvironmentLack: "board.unreachable".
        BoardError: The board cannot be trusted, does not trust the user, or failed.
        UsageError: There is no such public key.
    """
    state_folder.mkdir(parents=True, exist_ok=True)
    line = signer_line(signer_public_key) if signer_public_key is not None else None
    with contextlib.ExitStack() as stack:
        loader = _loader(stack, build_loader)
        if board is None:
            client = _own(stack, state_folder / "board", loader)
        elif board.kind == "local":
            client = BoardClient(board, LocalTransport(board.name), loader, "this machine, no SSH")
        else:
            from edgekit.deploy._connect import connect

            known_hosts = state_folder / "known_hosts"
            transport = connect(
                board,
                accept_host_key=accept_host_key,
                remember_in=known_hosts if remember_host_key else None,
                known_hosts=(known_hosts,),
            )
            stack.callback(transport.close)
            client = BoardClient(board, transport, loader, f"{board.host} over SSH")
        if line and (trust_key or board is None):
            client.trust([line])
        yield client


def signer_line(public_key: str | Path) -> str:
    """Returns the allowed_signers line of a public key, kept to edgekit's bundles.

    Raises:
        UsageError: There is no such file, or it is no OpenSSH public key.
    """
    text = public_key if isinstance(public_key, str) else ""
    if not text.startswith(("ssh-", "ecdsa-", "sk-")):
        try:
            text = Path(public_key).expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"the public key cannot be read: {reason}",
                code="deploy.public-key",
                where=str(public_key),
                hint="`ssh-keygen -y -f KEY > KEY.pub` makes it from the private key",
            ) from error
    words = text.split()
    if len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        raise UsageError(
            "not an OpenSSH public key",
            code="deploy.public-key",
            where=str(public_key)[:80],
            hint="its one line starts with `ssh-ed25519 ` or another key type",
        )
    return f'{_SIGNER} namespaces="{_NAMESPACE}" {words[0]} {words[1]}'


def _own(stack: contextlib.ExitStack, root: Path, loader: Path) -> BoardClient:
    try:
        if os.environ.get("EDGEKIT_NO_SSHD"):
            raise EnvironmentLack("EDGEKIT_NO_SSHD is set", code="board.no-sshd")
        from edgekit.deploy._connect import connect

        with contextlib.ExitStack() as attempt:
            server = attempt.enter_context(sshd(root))
            transport = connect(server.board)
            attempt.callback(transport.close)
            note = f"edgekit's own sshd on 127.0.0.1:{server.board.port}, folder {root}"
            client = BoardClient(server.board, transport, loader, note)
            # a locked account or a login shell that runs nothing shows itself only here
            client.ensure_loader()
            stack.push(attempt.pop_all())
            return client
    except EdgekitError as error:
        board = Board("local", root=str(root.absolute()), python=sys.executable, kind="local")
        note = f"this machine without SSH, folder {root}, because {error.message}"
        return BoardClient(board, LocalTransport("local"), loader, note)


def _loader(stack: contextlib.ExitStack, build: Callable[[Path], object] | None) -> Path:
    if build is None:
        from edgekit.bundle import build_zipapp

        build = build_zipapp
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="edgekit-loader-"))
    path = Path(folder, "edgekit_device.pyz")
    build(path)
    return path
