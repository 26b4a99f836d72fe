"""Nothing that a user, a config or a bundle names is ever read by a shell, on a real board."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.bundles.files import build_zipapp
from edgekit.deployment.board import Board, Container
from edgekit.deployment.client import BoardClient
from edgekit.deployment.loader import LoaderLocation, container_argv
from edgekit.deployment.ssh import connect
from edgekit.errors import BoardError, ConfigError, EdgekitError
from edgekit.pipeline.boards.addresses import host_board
from tests.boards.fixtures import StartBoard, remote

pytestmark = pytest.mark.boards

# each would make the canary if any shell read it
NASTY = [
    "with space; touch canary",
    "$(touch canary)",
    "`touch canary`",
    "'; touch canary; '",
    '"; touch canary; "',
    "new\nline\ntouch canary\n",
    "-oProxyCommand=touch canary",
    "--root=canary",
    "~ $HOME * ? [a] {b,c} !1 #x & | > canary",
    os.fsdecode(b"caf\xe9 \xff"),
    "\\$(touch canary)\\",
    "tab\tand\rreturn",
]


def test_words_arrive_as_they_are(boards: StartBoard, home: Path) -> None:
    with_board = connect(remote(boards()))
    for word in NASTY:
        done = with_board.run(["printf", "%s", word])
        assert done.out == os.fsencode(word)
    with_board.close()
    assert no_canary(home)


@pytest.mark.whole
def test_a_root_of_any_name(boards: StartBoard, home: Path, tmp_path: Path) -> None:
    server = boards()
    (tmp_path / "roots").mkdir()
    for name in NASTY[:6]:
        root = tmp_path / "roots" / name
        client = open_client(remote(server, root=str(root)), tmp_path)
        assert client.hello().root == str(root)
        client.close()
        assert no_canary(root)
    assert sorted(os.listdir(tmp_path / "roots")) == sorted(NASTY[:6])
    assert no_canary(home, tmp_path)


def test_apps_releases_and_jobs_of_any_name(boards: StartBoard, home: Path, tmp_path: Path) -> None:
    client = open_client(remote(boards(), root=str(tmp_path / "root")), tmp_path)
    for name in ("$(touch canary)", "../../etc", "-x", os.fsdecode(b"\xff"), ""):
        with pytest.raises(EdgekitError) as caught:
            client.remove(name, "000001-0123456789ab")
        assert caught.value.code == "app.bad-name"
    with pytest.raises(EdgekitError) as caught:
        client.remove("net", "../../../etc")
    assert caught.value.code in ("release.unknown", "app.unknown")
    with pytest.raises(EdgekitError) as caught:
        client.job_result("../../allowed_signers")
    assert caught.value.code == "job.unknown"
    client.close()
    assert no_canary(home, tmp_path, tmp_path / "root")


def test_a_python_of_any_name(boards: StartBoard, home: Path, tmp_path: Path) -> None:
    server = boards()
    for name in NASTY[:9]:
        if name.startswith("-"):
            with pytest.raises(ConfigError):
                connect(remote(server, python=name))
            continue
        client = open_client(remote(server, python=name), tmp_path)
        with pytest.raises(BoardError) as caught:
            client.hello()
        assert caught.value.code == "board.no-python"
        client.close()
    assert no_canary(home, tmp_path)


def test_a_python_with_a_space_is_run(boards: StartBoard, tmp_path: Path) -> None:
    server = boards()
    python = tmp_path / "my python; touch canary"
    python.symlink_to(server.board.python)
    client = open_client(remote(server, python=str(python)), tmp_path)
    assert client.hello().python
    client.close()


@pytest.mark.parametrize("host", ["-oProxyCommand=touch canary", "a b", "a\nb", "$(x)\x1b[2J"])
def test_hosts_and_users_that_are_options(host: str) -> None:
    for board in (Board("lab", host), Board("lab", "127.0.0.1", user=host)):
        if not host.startswith("$") or "\x1b" in host:
            with pytest.raises(ConfigError):
                connect(board)
    with pytest.raises(EdgekitError):
        connect(host_board(host))


def test_a_containers_words_stay_words() -> None:
    container = Container("image; touch canary", "nvidia $(x)", ("--device", "/dev/a b"))
    argv = container_argv(
        container, LoaderLocation("/r o", "/r o/loader"), ["python3", "/r o/loader", "-x"]
    )
    assert "image; touch canary" in argv
    assert argv[argv.index("--runtime") + 1] == "nvidia $(x)"
    assert argv[argv.index("--device") + 1] == "/dev/a b"
    assert argv[-2:] == ["/r o/loader", "-x"]


def open_client(board: Board, folder: Path) -> BoardClient:
    loader = folder / "loader.pyz"
    if not loader.exists():
        build_zipapp(loader)
    return BoardClient(board, connect(board), loader)


def no_canary(*folders: Path) -> bool:
    places = [*folders, Path.cwd(), Path.home(), Path("~root").expanduser()]
    return not any((folder / "canary").exists() for folder in places)
