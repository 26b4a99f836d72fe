"""Two signed bundles, a board with the first, and the count of faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgekit.bundles.files import build_zipapp
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from tests.boards.bundles import HandMade, hand_made
from tests.boards.fixtures import StartBoard, boards, home
from tests.faults.fault_report import Faults
from tests.faults.forked_board import Zygote, copy_of, deployment
from tests.faults.live_board import LiveBoard
from tests.faults.tcp_relay import Relay

__all__ = ["boards", "home"]


@dataclass(frozen=True)
class Pair:
    """An old and a new bundle of one app, signed, and a board's folder that serves the old."""

    old: HandMade
    new: HandMade
    key: Path
    line: str
    board: Path


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> Faults:
    return Faults(request.node.user_properties)


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    board = Zygote()
    yield board
    board.close()


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Pair:
    folder = tmp_path_factory.mktemp("pair")
    key = ensure_key(folder / "id_ed25519")
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    old, new = hand_made(seed=1), hand_made(seed=2)
    old = old.signed(sign(old.manifest_bytes, key))  # type: ignore[assignment]
    new = new.signed(sign(new.manifest_bytes, key))  # type: ignore[assignment]
    board = folder / "board"
    board.mkdir(mode=0o700)
    (board / "allowed_signers").write_text(line + "\n")
    done = zygote.run(deployment(board, old))
    assert done.error == "", done.answers
    return Pair(old, new, key, line, board)


@pytest.fixture(scope="session")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loader") / "edgekit_device.pyz"
    build_zipapp(path)
    return path


@pytest.fixture
def live(
    boards: StartBoard, pair: Pair, loader: Path, zygote: Zygote, tmp_path: Path
) -> Iterator[LiveBoard]:
    """A real sshd board that serves the old bundle."""
    server = boards(copy_of(pair.board, tmp_path / "board"))
    scratch = tmp_path / "live"
    scratch.mkdir()
    root = tmp_path / "board"
    board = LiveBoard(
        server, Relay(server.port), root, loader, pair.key, zygote, scratch, pair.old.digest
    )
    yield board
    board.close()
