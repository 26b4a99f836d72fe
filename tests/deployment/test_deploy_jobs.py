"""Jobs of real boards over real SSH: what happens to them when the connection or the host goes."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.ssh import connect
from edgekit.deployment.transport import LocalTransport, Transport, frames, read_frames
from edgekit.errors import BoardError
from edgekit_device.jobs.job import LIVE, Job, StartedJob
from edgekit_device.store.root import Root
from tests.boards.fixtures import StartBoard, hard_kill, remote
from tests.boards.toy_jobs import request, toy_loader, until

pytestmark = pytest.mark.boards

Client = Callable[..., BoardClient]


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_loader(tmp_path_factory.mktemp("toy") / "edgekit_device.pyz")


@pytest.fixture
def client(toy: Path) -> Iterator[Client]:
    opened: list[BoardClient] = []

    def open_client(board: Board, again: Callable[[], Transport] | None = None) -> BoardClient:
        transport = LocalTransport(board.name) if board.kind == "local" else connect(board)
        opened.append(BoardClient(board, transport, toy, reconnect=again))
        return opened[-1]

    yield open_client
    for one in opened:
        one.close()
        folder = Path(one.board.root)
        for name in os.listdir(folder / "jobs") if (folder / "jobs").is_dir() else []:
            (folder / "jobs" / name / "cancel").write_text("0") if len(name) == 16 else None


def state(root: Path, job: str) -> str:
    return Job(Root(root), job).read().state


def test_a_job_outlives_its_board_s_ssh_server_and_is_attached_again(
    boards: StartBoard, client: Client, tmp_path: Path
) -> None:
    root, gate = tmp_path / "board", tmp_path / "gate"
    server = boards(root)
    first = client(remote(server))
    wanted = request(["progress", "begin", 0, 2], ["wait", str(gate)], ["progress", "end", 2, 2])
    job = first.start_job("build", wanted).job
    watching = first.watch_job(job)
    assert next(watching).phase == "begin"
    hard_kill(server)
    with pytest.raises(BoardError) as caught:
        next(watching)
    assert caught.value.code == "board.connection-lost"
    assert state(root, job) == "running"
    second = client(remote(boards(root)))
    assert second.start_job("build", wanted) == StartedJob(job, "running", False, True)
    gate.touch()
    assert [event.phase for event in second.watch_job(job, after=1)] == ["end"]
    assert second.job_result(job) == {"schema": "toy", "made": []}
    assert second.start_job("build", wanted).reused


def test_watching_goes_on_over_a_cut(boards: StartBoard, client: Client, tmp_path: Path) -> None:
    root, gate = tmp_path / "board", tmp_path / "gate"
    servers = [boards(root)]

    def again() -> Transport:
        servers.append(boards(root))
        gate.touch()
        return connect(remote(servers[-1]))

    board = client(remote(servers[0]), again)
    steps = [["progress", "begin", 0, 2], ["wait", str(gate)], ["progress", "end", 2, 2]]
    job = board.start_job("build", request(*steps)).job
    seen = []
    for event in board.watch_job(job):
        seen.append((event.n, event.phase))
        if event.phase == "begin":
            hard_kill(servers[0])
    assert seen == [(1, "begin"), (0, "connection"), (2, "end")]
    assert len(servers) == 2


def test_a_host_that_is_killed_leaves_its_job(
    boards: StartBoard, toy: Path, tmp_path: Path
) -> None:
    import subprocess

    root, gate = tmp_path / "board", tmp_path / "gate"
    board = remote(boards(root))
    code = (
        "import sys; from pathlib import Path; from edgekit.deployment.board import Board\n"
        "from edgekit.deployment.client import BoardClient\n"
        "from edgekit.deployment.ssh import connect\n"
        "host, port, user, key, pin, root, loader, gate = sys.argv[1:]\n"
        "board = Board('lab', host, int(port), user, Path(key), pin, root=root, "
        "python=sys.executable)\n"
        "client = BoardClient(board, connect(board), Path(loader))\n"
        "steps = [['progress', 'begin', 0, 1], ['wait', gate]]\n"
        "job = client.start_job('build', {'name': 'net', 'steps': steps}).job\n"
        "for event in client.watch_job(job): print(job, flush=True)\n"
    )
    words = [board.host, board.port, board.user, board.key, board.host_key, root, toy, gate]
    host = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], stdout=subprocess.PIPE, text=True
    )
    assert host.stdout
    job = host.stdout.readline().strip()
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    assert state(root, job) == "running"
    gate.touch()
    until(lambda: state(root, job) == "done")


def test_log_cancel_list_and_remove(boards: StartBoard, client: Client, tmp_path: Path) -> None:
    board = client(remote(boards(tmp_path / "board")))
    job = board.start_job("build", request(["log", "x" * 3000], ["wait", "/nowhere/never"])).job
    until(lambda: board.job_log(job).size)
    pages = []
    start = 0
    while (page := board.job_log(job, start=start, most=1000)).data:
        pages.append(page.data)
        start = page.end
    assert b"".join(pages) == b"x" * 3000 + b"\n"
    assert (len(pages), page.size, page.state) == (4, 3001, "running")
    (row,) = board.jobs()
    assert (row.job, row.state, row.name) == (job, "running", "net")
    with pytest.raises(BoardError) as caught:
        board.remove_job(job)
    assert caught.value.code == "job.running"
    assert board.cancel_job(job, grace_s=0) == "cancelled"
    assert list(board.watch_job(job)) == []
    with pytest.raises(BoardError) as caught:
        board.job_result(job)
    assert caught.value.code == "job.cancelled"
    board.remove_job(job)
    assert board.jobs() == ()


def test_what_one_board_made_is_fetched(boards: StartBoard, client: Client, tmp_path: Path) -> None:
    board = client(remote(boards(tmp_path / "board")))
    job = board.start_job("build", request(["store", "engine", 100_000], ["store", "", 0])).job
    assert list(board.watch_job(job)) == []
    made = board.job_result(job)["made"]
    assert board.fetch(made) == {made[0]: b"engine" * 100_000, made[1]: b""}
    assert board.fetch([]) == {}
    (tmp_path / "board/blobs" / made[0][:2] / made[0]).write_bytes(b"rotten")
    with pytest.raises(BoardError) as caught:
        board.fetch(made)
    assert caught.value.code == "board.transfer"


def test_frames_read_what_frames_write() -> None:
    blobs = {hashlib.sha256(data).hexdigest(): data for data in (b"", b"\n", b"one\n" * 999)}
    stream = b"".join(frames(blobs, {}, None))
    assert read_frames(stream, "lab", blobs) == blobs
    assert read_frames(b"Welcome to the board\n" + stream, "lab", blobs) == blobs
    assert read_frames(b"\n", "lab", []) == {}
    with pytest.raises(BoardError):
        read_frames(stream[:-1], "lab", blobs)


DOCKER = """#!{python}
import json, os, subprocess, sys
words = sys.argv[1:]
with open({record!r}, "a") as file:
    file.write(json.dumps(words) + "\\n")
if "refused:image" in words:
    sys.stderr.write("docker: Error response from daemon: no such image\\n")
    sys.exit(125)
if words[0] != "run":
    sys.exit(1)
place = words.index("toy:image")
argv = [words[words.index("--entrypoint") + 1], *words[place + 1:]]
if "--detach" in words:
    subprocess.Popen(argv, start_new_session=True, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print("0123456789ab")
else:
    os.execv(argv[0], argv)
"""


@pytest.fixture
def contained(tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> BoardClient:
    """A board whose loader runs in a container, with a docker that only takes notes."""
    from edgekit.deployment.board import Container

    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (
        ("docker", DOCKER.format(python=sys.executable, record=str(tmp_path / "words"))),
        ("python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    container = Container("toy:image", options=("--shm-size", "1g"))
    board = Board("lab", root=str(tmp_path / "root"), python=sys.executable, kind="local")
    return client(replace(board, container=container))


def words(tmp_path: Path) -> list[list[str]]:
    import json

    said = [json.loads(line) for line in (tmp_path / "words").read_text().splitlines()]
    return [one for one in said if one[0] == "run"]


def test_the_loader_runs_in_the_container(contained: BoardClient, tmp_path: Path) -> None:
    contained.hello()
    (said,) = words(tmp_path)
    root = str(tmp_path / "root")
    assert said[:4] == ["run", "--rm", "--init", "--interactive"]
    text = " ".join(said)
    assert f"--volume {root}:{root}" in text
    assert "--runtime nvidia" in text
    assert f"--user {os.getuid()}:{os.getgid()}" in text
    assert said[said.index("--shm-size") :][:3] == ["--shm-size", "1g", "toy:image"]
    assert (tmp_path / "root/board.json").exists()


@pytest.mark.whole
def test_a_job_in_a_container_is_a_container_of_its_own(
    contained: BoardClient, tmp_path: Path
) -> None:
    wanted = request(["print", "inside"], ["progress", "end", 1, 1])
    job = contained.start_job("build", wanted).job
    assert [event.phase for event in contained.watch_job(job)] == ["end"]
    detached = [said for said in words(tmp_path) if "--detach" in said]
    assert [said[said.index("--name") + 1] for said in detached] == [f"edgekit-job-{job}"]
    assert contained.job_log(job).data == b"inside\n"
    assert contained.start_job("build", wanted).reused
    assert len([said for said in words(tmp_path) if "--detach" in said]) == 1


def test_a_container_that_does_not_start_is_reported(contained: BoardClient) -> None:
    from edgekit.deployment.board import Container

    contained.board = replace(contained.board, container=Container("refused:image"))
    with pytest.raises(BoardError) as caught:
        contained.start_job("build", request(["log", "x"]))
    assert "no such image" in str(caught.value)


def test_probe_takes_the_board_from_outside(contained: BoardClient, tmp_path: Path) -> None:
    found: dict[str, Any] = contained.probe()
    assert found.schema == "edgekit.probe/1"
    assert found.docker.path.endswith("docker")
    assert any(note.startswith("board: ") for note in found.notes)
    assert any(note.startswith("container: ") for note in found.notes)


def test_two_hosts_share_one_job(boards: StartBoard, client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    board = remote(boards(tmp_path / "board"))
    hosts = [client(board), client(board)]
    answers: list[dict[str, Any]] = []

    def ask(host: BoardClient) -> None:
        started = host.start_job("build", request(["wait", str(gate)]))
        answers.append(started)
        list(host.watch_job(started.job))
        answers.append(host.job_result(started.job))

    threads = [threading.Thread(target=ask, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    until(lambda: len(answers) == 2)
    assert answers[0].job == answers[1].job
    assert state(tmp_path / "board", answers[0].job) in LIVE
    gate.touch()
    for thread in threads:
        thread.join()
    assert answers[2] == answers[3] == {"schema": "toy", "made": []}
