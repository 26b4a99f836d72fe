"""Hosts of several versions drive one board: each with its own loader, all over the same state."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundles.files import build_zipapp
from edgekit.bundles.sign import sign
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.install import install
from edgekit.deployment.ssh import connect
from edgekit_device.serve.client import connect as connect_server
from tests.boards.bundles import HandMade, hand_made
from tests.boards.fixtures import StartBoard, remote
from tests.deployment.conftest import trust

pytestmark = pytest.mark.boards

VERSIONS = ("0.0.9", "0.1.0", "1.0.0")


def _loader(folder: Path, version: str) -> Path:
    """The loader of an edgekit of that version; its answers have what this one does not know."""
    made, path = folder / f"{version}.made", folder / f"{version}.pyz"
    build_zipapp(made)
    with zipfile.ZipFile(made) as old, path.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "a") as new:
            for entry in old.infolist():
                data = old.read(entry)
                if entry.filename == "edgekit_device/version.py":
                    data = f'__version__ = "{version}"\n'.encode()
                new.writestr(entry, data)
    return path


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Callable[[Board, str], BoardClient]]:
    opened: list[BoardClient] = []

    def host(board: Board, version: str) -> BoardClient:
        opened.append(BoardClient(board, connect(board), _loader(tmp_path, version)))
        return opened[-1]

    yield host
    for one in opened:
        one.close()


@pytest.mark.few(1)
@pytest.mark.parametrize("after", VERSIONS)
@pytest.mark.parametrize("before", VERSIONS[::-1])
def test_what_one_version_installs_another_takes_over(
    before: str,
    after: str,
    boards: StartBoard,
    hosts: Callable[[Board, str], BoardClient],
    signer: Path,
    tmp_path: Path,
) -> None:
    board = remote(boards(tmp_path / "board"))
    first, second = hosts(board, before), hosts(board, after)
    trust(first, signer)
    old, new = hand_made(seed=1), hand_made(seed=2)
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)

    def deploy(client: BoardClient, bundle: HandMade) -> str:
        return install(bundle, client, signature=sign(bundle.manifest_bytes, signer)).id

    one = deploy(first, old)
    versions = [client.status().device.version for client in (first, second)]
    assert versions == [before, after]
    started = first.serve("net", "start", ["--threads=1"]).serving
    try:
        with connect_server(Path(started.socket).parent) as program:
            two = deploy(second, new)
            assert np.allclose(program(x)["y"], x @ new.matrix, atol=1e-5)
            # the first host is still there, and its loader too
            assert first.status("net").apps["net"].current == two
            first.rollback("net")
            assert np.allclose(program(x)["y"], x @ old.matrix, atol=1e-5)
            assert second.status("net").apps["net"].current == one
            three = deploy(second, hand_made(seed=3))
            assert first.status("net").apps["net"].current == three
    finally:
        assert second.serve("net", "stop").stopped is True
