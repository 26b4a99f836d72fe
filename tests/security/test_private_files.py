"""What boards make is for its owner alone, whatever the umask; what others can write is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.bundles.files import build_zipapp
from edgekit.deployment.client import BoardClient
from edgekit.deployment.install import install
from edgekit.deployment.loader import ENSURE
from edgekit.deployment.ssh import connect
from edgekit.errors import BoardError
from edgekit_device.errors import DeviceError
from edgekit_device.store.root import check_root
from edgekit_device.trust.keys import TrustRequest
from tests.boards.bundles import hand_made
from tests.boards.fixtures import StartBoard, remote
from tests.security.security_keys import make_signer


def modes(root: Path) -> dict[str, int]:
    """Permissions by name of all that lies below ``root`` and others may use."""
    found = {}
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if not path.is_symlink() and mode & 0o077:
            found[str(path.relative_to(root))] = mode
    return found


@pytest.mark.boards
def test_a_deployment_with_an_open_umask(boards: StartBoard, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        server = boards(tmp_path / "sshd")
        root = tmp_path / "root"
        python = tmp_path / "open-python"
        # the account's own umask, as a login shell's start-up file would set it
        python.write_text(f'#!/bin/sh\numask 000\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        build_zipapp(tmp_path / "loader")
        board = remote(server, root=str(root), python=str(python))
        client = BoardClient(board, connect(board), tmp_path / "loader")
        signer = make_signer(tmp_path, "me")
        client.trust(TrustRequest((signer.line,)))
        bundle = hand_made()
        install(bundle, client, signature=signer.sign(bundle.manifest_bytes))
        client.close()
    finally:
        os.umask(before)
    assert (root / "apps/net/current").exists()
    assert modes(root) == {}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_root_that_others_write(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(DeviceError) as caught:
        check_root(root)
    assert caught.value.code == "root.writable"
    assert place(root)["error"]["code"] == "root.writable"
    assert list(root.iterdir()) == []
    root.chmod(0o755)  # read by others: its owner's decision
    check_root(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another account")
def test_a_root_of_another_account(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    os.chown(root, 12345, 12345)
    with pytest.raises(DeviceError) as caught:
        check_root(root)
    assert caught.value.code == "root.owner"
    assert place(root)["error"]["code"] == "root.owner"


@pytest.mark.parametrize("name", ["apps", "bin", "incoming", "jobs", "partial", "tmp"])
def test_links_where_folders_should_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "root").mkdir(mode=0o700)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeviceError) as caught:
        check_root(tmp_path / "root")
    assert caught.value.code == "root.link"
    if name == "bin":
        assert place(tmp_path / "root")["error"]["code"] == "root.link"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.boards
def test_the_host_learns_why(boards: StartBoard, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    root.chmod(0o777)
    board = remote(boards(tmp_path / "sshd"), root=str(root))
    build_zipapp(tmp_path / "loader")
    client = BoardClient(board, connect(board), tmp_path / "loader")
    with pytest.raises(BoardError) as caught:
        client.hello()
    client.close()
    assert (caught.value.code, caught.value.where) == ("root.writable", "lab")


def place(root: Path) -> dict[str, dict[str, str]]:
    """What the program answers that puts the loader on a board."""
    argv = [sys.executable, "-c", ENSURE, str(root), "edgekit_device-0.pyz", "0" * 64]
    done = subprocess.run(argv, capture_output=True, check=False, input=b"%012d" % 0)
    answer: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return answer
