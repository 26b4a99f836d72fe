"""Fixtures of this folder: real sshd boards, a key that signs, clients that the boards know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgekit.bundles.files import build_zipapp
from edgekit.bundles.sign import allowed_signers_line, ensure_key
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.ssh import connect
from edgekit.deployment.transport import LocalTransport
from edgekit_device.trust.keys import TrustRequest
from tests.boards.fixtures import boards, home

__all__ = ["boards", "home"]

Client = Callable[[Board], BoardClient]


@pytest.fixture(scope="session")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loader") / "edgekit_device.pyz"
    build_zipapp(path)
    return path


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_key(tmp_path_factory.mktemp("key") / "signer")


def trust(client: BoardClient, signer: Path) -> BoardClient:
    """Has the board trust the key; returns the client."""
    client.trust(TrustRequest((allowed_signers_line(signer.with_name("signer.pub")),)))
    return client


@pytest.fixture
def client(loader: Path, signer: Path) -> Iterator[Client]:
    """Opens clients of boards that trust the signer."""
    opened: list[BoardClient] = []

    def open_client(board: Board) -> BoardClient:
        transport = LocalTransport(board.name) if board.kind == "local" else connect(board)
        opened.append(BoardClient(board, transport, loader))
        return trust(opened[-1], signer)

    yield open_client
    for one in opened:
        one.close()
