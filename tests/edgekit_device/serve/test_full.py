"""The disk fills up while a server runs: it goes on, and takes the next release after."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boards.toy_jobs import until
from tests.edgekit_device.full_disk import disk, fill, make_space
from tests.edgekit_device.serve.board import ServedBoard

__all__ = ["disk"]


@pytest.fixture
def served(disk: Path) -> Iterator[ServedBoard]:
    made = ServedBoard(disk / "root")
    made.switch(made.release(1))
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.communicate()


@pytest.mark.few(6)
@pytest.mark.parametrize("inodes", [False, True], ids=["bytes", "inodes"])
@pytest.mark.parametrize(
    "event", ["requests", "new clients", "worker killed", "reload", "socket removed"]
)
def test_a_running_server_meets_a_full_disk(
    event: str, inodes: bool, disk: Path, served: ServedBoard
) -> None:
    first, second = served.app.link("current"), served.release(2)
    served.start()
    until(lambda: served.status()["release"])
    caller = served.client()
    fill(disk, inodes)
    if event == "requests":
        assert [caller.run()["release"] for _ in range(20)] == [first] * 20
    elif event == "new clients":
        with served.later(*["ok"] * 8) as answers:
            pass
        assert [answer["release"] for answer in answers] == [first] * 8
    elif event == "worker killed":
        (worker,) = served.status()["workers"]
        os.kill(worker, signal.SIGKILL)
        until(lambda: served.status()["workers"] not in ([worker], []))
    elif event == "reload":
        assert served.process is not None
        served.process.send_signal(signal.SIGHUP)
    else:
        (served.app.folder / "serve.sock").unlink()
        # bound anew at once, or when a descriptor of the folder has room for a name again
        make_space(disk)
        until((served.app.folder / "serve.sock").exists)
    assert caller.run()["release"] == first
    make_space(disk)
    served.switch(second)
    until(lambda: served.serves(second))
    assert caller.run()["release"] == second
    caller.close()
    assert served.stop()[0]["served"] >= 2


def test_a_server_stops_on_a_full_disk(disk: Path, served: ServedBoard) -> None:
    served.start()
    until(lambda: served.status()["release"])
    caller = served.client()
    caller.run()
    fill(disk, inodes=False)
    caller.close()
    assert served.stop()[0]["served"] == 1
    assert not (served.app.folder / "serve.sock").exists()
