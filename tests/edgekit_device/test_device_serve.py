"""A real release behind a socket: answers as the model's own, and no request lost in switches."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundles.manifest import Bundle
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.server import query_server, reload_server
from edgekit_device.protocol.serving import ServedTensor
from edgekit_device.runtime.model import load
from edgekit_device.serve.client import Client, connect
from edgekit_device.store.root import App, Root
from tests.edgekit_device.device_board import BoardFolder, Refused

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
_SWITCHES = 5


@pytest.fixture
def served(board: BoardFolder, installed: str) -> Iterator[App]:
    board.command("serve", "--app", "toy", "--background", "--threads", "1")
    yield Root(board.root).app("toy")
    board.command("serve-stop", "--app", "toy")


def _inputs(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.uniform(-1, 1.5, (1, 3, 8, 8)).astype(np.float32)}


def test_a_server_answers_as_the_model_does(
    board: BoardFolder, served: App, installed: str
) -> None:
    model = load(served.folder, threads=1)
    with connect(served.folder) as client:
        assert (client.release, client.digest) == (installed, model.digest)
        assert client.inputs == (ServedTensor("x", "float32", (1, 3, 8, 8)),)
        for seed in range(3):
            inputs = _inputs(seed)
            found = client(inputs["x"] if seed else inputs)
            assert found["y"].tobytes() == model(inputs)["y"].tobytes()
        retained = found["y"].copy()
        client(_inputs(9))
        assert np.array_equal(retained, found["y"])  # an answer is the caller's own
        for bad, code in (
            ({"x": _inputs(0)["x"].astype(np.float64)}, "input.dtype"),
            ({"x": _inputs(0)["x"][:, :2]}, "input.shape"),
            ({"z": _inputs(0)["x"]}, "input.unknown"),
            ({}, "input.missing"),
            ({"x": np.array([None])}, "input.dtype"),
        ):
            with pytest.raises(DeviceError) as caught:
                client(bad)
            with pytest.raises(DeviceError) as own:
                model(bad)
            assert caught.value.code == own.value.code == code
        status = client.status()
    assert (status.requests, status.errors, status.refused) == (8, 0, 4)
    assert status.latency_ms is not None
    assert status.latency_ms.of_last == 4
    assert 0 < status.latency_ms.p50 <= status.latency_ms.p99
    with pytest.raises(Refused) as refused:
        board.command("serve", "--app", "toy")
    assert refused.value.code == "serve.running"
    for file in ("serve.sock", "serve.log"):
        assert (served.folder / file).stat().st_mode & 0o077 == 0


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An account's home: a socket's path has 107 bytes at most, pytest's folders are longer."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("HOME", folder)
        yield Path(folder)


@pytest.mark.whole
def test_the_page_on_serving_runs_as_it_stands(served: App, home: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    apps = home / ".edgekit/apps"
    apps.mkdir(parents=True)
    (apps / "resnet50").symlink_to(served.folder)
    calling, protocol = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(calling, str(PAGE), "exec"), names)
    model = load(served.folder, threads=1)
    right = model(names["inputs"])["y"]
    assert np.array_equal(names["outputs"]["y"], right)
    exec(compile(protocol, str(PAGE), "exec"), names)
    assert np.array_equal(names["result"], model(names["frame"])["y"])
    names["peer"].close()
    os.close(names["memory"])
    status = query_server(served.folder)
    assert status is not None
    table = page.split("## edgekit.serving/1")[1].split("Errors:")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {key for row in rows for key in re.findall("`(.*?)`", row)} == set(write(status))


def test_switches_lose_no_request(
    board: BoardFolder, served: App, installed: str, toy2: Bundle
) -> None:
    second = board.install(toy2)
    reload_server(served.folder)
    inputs = _inputs(1)
    folder = served.releases_folder
    right = {name: load(folder / name, threads=1)(inputs)["y"] for name in (installed, second)}
    assert not np.array_equal(right[installed], right[second])
    ended, problems = threading.Event(), []
    counts: list[dict[str, int]] = []

    def hammer() -> None:
        count = dict.fromkeys(right, 0)
        counts.append(count)
        try:
            with connect(served.folder) as client:
                while not ended.is_set():
                    found = client(inputs)["y"]
                    if found.tobytes() != right[client.release].tobytes():
                        problems.append(f"another answer from {client.release}")
                    count[client.release] += 1
        except BaseException as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with connect(served.folder) as mine:
            for turn in range(_SWITCHES):
                wanted = (installed, second)[turn % 2]
                board.command("switch", "--app", "toy", "--release", wanted)
                status = reload_server(served.folder)
                assert status is not None
                assert status.release == wanted
                found = mine(inputs)["y"]
                assert mine.release == wanted
                assert found.tobytes() == right[wanted].tobytes()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert all(count > 0 for each in counts for count in each.values())
    final = query_server(served.folder)
    assert final is not None
    assert (final.errors, final.refused, final.restarts) == (0, 0, 0)
    assert final.requests == sum(sum(each.values()) for each in counts) + _SWITCHES


@pytest.mark.whole
def test_sigterm_and_a_new_server(board: BoardFolder, served: App, installed: str) -> None:
    client: Client = connect(served.folder)
    before: Any = query_server(served.folder)
    first = client(_inputs(0))["y"]
    os.kill(before.pid, signal.SIGTERM)
    board.command("serve-stop", "--app", "toy")
    assert query_server(served.folder) is None
    with pytest.raises(DeviceError) as caught:
        client(_inputs(0))
    assert caught.value.code == "serve.gone"
    # the loader that started it may go: a server runs from its own
    after = board.command("serve", "--app", "toy", "--background")["serving"]
    assert after["pid"] != before.pid
    assert np.allclose(client(_inputs(0))["y"], first)
    client.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_it_serves_from_a_read_only_disk(board: BoardFolder, installed: str) -> None:
    root = str(board.root)
    if subprocess.run(["mount", "--bind", root, root], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", root], check=True)
        assert board.command("selftest", "--app", "toy")["ok"]
        app = Root(board.root).app("toy")
        answer = board.command("serve", "--app", "toy", "--background", "--threads", "1")
        try:
            assert answer["serving"]["release"] == installed
            with connect(app.folder) as client:
                found = client(_inputs(1))["y"]
            assert found.tobytes() == load(app.folder, threads=1)(_inputs(1))["y"].tobytes()
            with pytest.raises(Refused) as refused:
                board.command("serve", "--app", "toy")
            assert refused.value.code == "serve.running"
            assert board.command("serve-status", "--app", "toy")["serving"]["clients"] == 1
        finally:
            assert board.command("serve-stop", "--app", "toy")["stopped"]
        assert board.command("serve-status", "--app", "toy")["serving"] is None
    finally:
        subprocess.run(["umount", "-l", root], check=True)
