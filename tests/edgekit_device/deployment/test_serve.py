"""Deployments beside a real server: it takes the release, or the board takes the release back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundles.manifest import Bundle
from edgekit_device.errors import DeviceError
from tests.boards.toy_jobs import until
from tests.edgekit_device.deployment.board import Bench, bench_board
from tests.edgekit_device.serve.board import ServedBoard


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return bench_board(tmp_path / "root", monkeypatch)


@pytest.fixture
def server(bench: Bench, toy: Bundle) -> Iterator[ServedBoard]:
    bench.offer(toy)
    bench.deploy(toy)
    served = ServedBoard(bench.root.folder)
    served.start()
    until(lambda: served.status()["release"])
    yield served
    if served.process is not None:
        served.process.kill()
        served.process.communicate()


def failed(bench: Bench, bundle: Bundle, **more: Any) -> DeviceError:
    bench.offer(bundle)
    with pytest.raises(DeviceError) as caught:
        bench.deploy(bundle, **more)
    return caught.value


def test_the_server_answers_with_the_release_that_was_committed(
    bench: Bench, server: ServedBoard, toy2: Bundle
) -> None:
    bench.offer(toy2)
    done = bench.deploy(toy2, policy={"soak_s": 0.2, "soak_every_s": 0.05})
    with server.later("ok") as answers:
        pass
    assert answers[0]["release"] == done["release"]
    assert server.status()["errors"] == server.status()["restarts"] == 0


@pytest.mark.parametrize("victim", ["worker", "server"])
def test_what_dies_in_the_soak_takes_the_release_back(
    victim: str, bench: Bench, server: ServedBoard, toy2: Bundle
) -> None:
    old = bench.facts()

    def kill(state: str) -> None:
        if state != "soaking":
            return
        status = server.status()
        pids = status["workers"] if victim == "worker" else [status["pid"]]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if victim == "worker":
            until(lambda: server.status()["restarts"] > status["restarts"])
        elif server.process is not None:
            server.process.communicate()

    bench.at = kill
    error = failed(bench, toy2)
    assert error.code == "health.serving"
    assert ("new restart" if victim == "worker" else "the server ended") in error.message
    assert "{" not in error.message  # a sentence, no document
    assert bench.facts() == old
    if victim == "worker":
        with server.later("ok") as answers:
            pass
        assert answers[0]["release"] == old[0]
    else:
        server.process = None


def test_a_release_that_no_worker_loads_never_serves(
    bench: Bench, server: ServedBoard, toy2: Bundle
) -> None:
    old = bench.facts()

    def spoil(state: str) -> None:
        if state == "testing":
            (bench.app.releases_folder / bench.app.releases()[-1] / "told").write_text("fails")

    bench.at = spoil
    assert failed(bench, toy2).code == "engine.odd"
    assert bench.facts() == old
    assert server.serves(str(old[0]))
