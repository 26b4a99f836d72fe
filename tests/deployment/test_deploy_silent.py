"""A link whose TCP lives and whose SSH says nothing, as a jump host or a NAT leaves it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.bundles.files import build_zipapp
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.install import install
from edgekit.deployment.ssh import ConnectionLimits, connect
from edgekit.deployment.transport import LocalTransport, Transport
from edgekit.errors import BoardError, EnvironmentLack
from edgekit_device.trust.keys import TrustRequest
from tests.boards.bundles import hand_made
from tests.boards.fixtures import StartBoard, remote

pytestmark = [pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]

#: Less than what a user waits, and more than a busy machine takes for an answer.
LIMITS = ConnectionLimits(banner_s=12.0, keepalive_s=1.0, silence_s=12.0)
#: What the limits add up to: an established link and one attempt anew, which is a minute of a
#: user's time at the usual limits, and the machine's own time for the test.
MOST_S = 60.0


class Proxy:
    """Stands between host and board; ``mute`` keeps all connections and forwards nothing more.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, port: int) -> None:
        self._board = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._muted: set[socket.socket] = set()
        self._open: list[socket.socket] = []
        self._mutes = False
        threading.Thread(target=self._accept, daemon=True).start()

    def mute(self, *, future: bool) -> None:
        """Forwards nothing of the connections that are there, and of those to come."""
        self._mutes = future
        self._muted.update(self._open)

    def close(self) -> None:
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                host, _ = self._listener.accept()
                board = socket.create_connection(("127.0.0.1", self._board))
                self._open += [host, board]
                if self._mutes:
                    self._muted.update((host, board))
                for pair in ((host, board), (board, host)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, goal: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if source not in self._muted:
                    goal.sendall(data)
            if source not in self._muted:
                goal.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(boards: StartBoard) -> Iterator[tuple[Proxy, Board]]:
    board = remote(boards())
    assert board.port is not None
    made = Proxy(board.port)
    yield made, replace(board, port=made.port)
    made.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[[Board], BoardClient]]:
    loader = tmp_path / "edgekit_device.pyz"
    build_zipapp(loader)
    opened: list[BoardClient] = []

    def open_client(board: Board) -> BoardClient:
        def again() -> Transport:
            return connect(board, limits=LIMITS)

        opened.append(BoardClient(board, again(), loader, reconnect=again))
        return opened[-1]

    yield open_client
    for one in opened:
        one.close()


def test_a_command_on_a_silent_link_ends(
    proxy: tuple[Proxy, Board], client: Callable[[Board], BoardClient]
) -> None:
    between, address = proxy
    board = client(address)
    assert board.releases() == {}
    between.mute(future=True)
    began = time.monotonic()
    with pytest.raises(BoardError) as caught:
        board.status()
    assert time.monotonic() - began < MOST_S
    assert (caught.value.code, caught.value.where) == ("board.silent", "lab")
    assert "run the same command again" in caught.value.hint
    # a new connection is as silent, and says where
    with pytest.raises(EnvironmentLack) as refused:
        connect(address, limits=LIMITS)
    assert refused.value.code == "board.silent"
    assert f"127.0.0.1:{between.port}" in refused.value.message


@pytest.mark.parametrize("heals", [False, True])
def test_a_deployment_ends_or_goes_on_anew(
    proxy: tuple[Proxy, Board],
    client: Callable[[Board], BoardClient],
    tmp_path: Path,
    heals: bool,
) -> None:
    between, address = proxy
    board, key = client(address), ensure_key(tmp_path / "signer")
    board.trust(TrustRequest((allowed_signers_line(key.with_name(key.name + ".pub")),)))
    bundle, phases = hand_made(seed=1), []

    def follow(phase: str, done: int, total: int) -> None:
        if phase not in phases and phase == "stage":
            between.mute(future=not heals)
        phases.append(phase)

    began = time.monotonic()
    signature = sign(bundle.manifest_bytes, key)
    if heals:
        # a NAT has forgotten one connection: the next one is well
        release = install(bundle, board, signature=signature, progress=follow)
        assert board.app_releases("net").current == release.id
        return
    with pytest.raises((BoardError, EnvironmentLack)) as caught:
        install(bundle, board, signature=signature, progress=follow)
    assert time.monotonic() - began < 2 * MOST_S
    assert caught.value.code == "board.silent"
    assert "stage" in phases
    assert caught.value.hint


def test_output_resets_the_limit_of_a_command() -> None:
    tick = "for n in 1 2 3 4 5 6 7 8 9 10; do echo $n; sleep 0.5; done"
    done = LocalTransport().run(["sh", "-c", tick], timeout=3.0)
    assert (done.status, done.out.split()[-1]) == (0, b"10")
    with pytest.raises(BoardError) as caught:
        LocalTransport().run(["sh", "-c", "echo begun; exec sleep 600"], timeout=0.5)
    assert caught.value.code == "board.timeout"
