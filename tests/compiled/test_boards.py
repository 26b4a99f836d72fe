"""Compiled networks on a board over SSH: an sshd on loopback, which is this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import edgekit
from edgekit.deployment.embedded_sshd import Sshd
from tests.boards.fixtures import StartBoard, cut
from tests.compiled.conftest import gap

Compile = Callable[..., Any]


@pytest.fixture
def lab(boards: StartBoard, home: Path) -> Sshd:
    """A board that OpenSSH's configuration calls "lab"."""
    server = boards()
    here = server.board
    (home / ".ssh/config").write_text(
        f"Host lab\n  HostName {here.host}\n  Port {here.port}\n  User {here.user}\n"
        f"  IdentityFile {here.key}\n"
    )
    return server


def section(server: Sshd) -> dict[str, Any]:
    """The board as a configuration describes it."""
    here = server.board
    return {
        "name": "lab",
        "host": here.host,
        "port": here.port,
        "user": here.user,
        "key": str(here.key),
        "host_key": here.host_key,
        "root": here.root,
        "python": here.python,
    }


def test_parts_run_on_the_board_and_what_is_left_out_here(
    nets: ModuleType, compiled: Compile, lab: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgekit.deployment import connection

    opened: list[object] = []
    connect = connection.connect

    def counted(board: Any, **options: Any) -> Any:
        opened.append(board)
        return connect(board, **options)

    monkeypatch.setattr(connection, "connect", counted)
    module, x = nets.lenet(), nets.image()
    net = compiled(
        module, x, leave=["classifer.fc1"], deploy={"boards": [section(lab)]}, trust_key=True
    )
    assert net.report.board == lab.board.host
    for seed in (1, 2, 3):
        assert gap(net(nets.image(seed)), module(nets.image(seed))) < 0.01
    other = nets.lenet(seed=5)
    net.refit(other)
    assert gap(net(x), other(x)) < 0.01
    assert len(opened) == 1
    assert [one.releases[0].reused for one in net.deploy()] == [True, True]
    net.close()
    assert gap(net(x), other(x)) < 0.01
    cut(lab)
    assert gap(net(x), other(x)) < 0.01
    assert len(opened) == 3
    path = net.save(tmp_path / "net.ekb")
    net.close()
    options = {"root": lab.board.root, "python": lab.board.python}
    with edgekit.load(path, board="lab", accept_host_key=True, **options) as loaded:
        for seed in (1, 2):
            assert gap(loaded(nets.image(seed)), other(nets.image(seed))) < 0.01
    assert len(opened) == 4
    assert gap(edgekit.load(path)(x), other(x)) < 0.01
    options = {"deploy": {"boards": [section(lab)]}, "trust_key": True}
    third = nets.lenet(seed=9)
    assert gap(compiled(third, x, leave=["classifer.fc1"], **options)(x), third(x)) < 0.01
    assert gap(net(x), other(x)) < 0.01
