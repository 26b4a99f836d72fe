"""A server on a real board behind sshd: started from here, it stays when the connection ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundles.sign import sign
from edgekit.deployment.client import BoardClient
from edgekit.deployment.install import install
from edgekit.deployment.ssh import connect as connect_board
from edgekit_device.serve.client import connect
from tests.boards.bundles import hand_made
from tests.boards.fixtures import StartBoard, remote
from tests.deployment.conftest import trust

pytestmark = pytest.mark.boards


@pytest.mark.whole
def test_a_server_outlives_the_connection_and_takes_deployments(
    boards: StartBoard, loader: Path, signer: Path
) -> None:
    board = remote(boards())
    old, new = hand_made(seed=1), hand_made(seed=2)
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)

    def open_client() -> BoardClient:
        return BoardClient(board, connect_board(board), loader)

    client = trust(open_client(), signer)
    first = install(old, client, signature=sign(old.manifest_bytes, signer))
    assert client.serve("net", "status").serving is None
    started = client.serve("net", "start", ["--threads=1"]).serving
    assert started.release == first.id
    client.close()
    folder = Path(started.socket).parent
    # hosts put newer loaders there and take old ones away
    shutil.rmtree(folder.parents[1] / "bin")
    client = open_client()
    try:
        assert client.serve("net", "status").serving.pid == started.pid
        with connect(folder) as program:
            assert np.allclose(program(x)["y"], x @ old.matrix, atol=1e-5)
            second = install(new, client, signature=sign(new.manifest_bytes, signer))
            assert np.allclose(program(x)["y"], x @ new.matrix, atol=1e-5)
            assert program.release == second.id
            client.rollback("net")
            assert np.allclose(program(x)["y"], x @ old.matrix, atol=1e-5)
            status = client.status("net").apps["net"].serving
            assert (status.release, status.errors) == (first.id, 0)
    finally:
        assert client.serve("net", "stop").stopped is True
        client.close()
