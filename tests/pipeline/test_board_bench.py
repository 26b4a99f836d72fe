"""A benchmark from end to end: a real sshd, TensorRT's double, a board's programs in their place.

The same board does all: it builds a plan once, and is measured with other options each time.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import numpy as np
import pytest

from edgekit.cli.main import app, main
from edgekit.deployment.board import Board
from edgekit.deployment.connection import open_board
from edgekit.deployment.embedded_sshd import sshd
from edgekit.errors import BoardError, ConfigError
from edgekit.results.store import ResultStore
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.board.power import LOCK
from edgekit_device.files import locked
from tests.boards.fixtures import need_sshd, remote
from tests.edgekit_device.board.power_tools import FakeBoard
from tests.pipeline.nets import small_config
from tests.trt_double.board import board_python, board_trtexec, offences

pytestmark = [pytest.mark.boards, pytest.mark.slow]

DEPLOY = (
    "deploy:\n  boards:\n    - {{name: lab, host: {b.host}, port: {b.port}, user: {b.user}, "
    'key: {b.key}, host_key: "{b.host_key}", root: {root}, python: {python}}}\n'
)
PLANNED = 'tensorrt: "10.3"\npower_mode: MAXN\n'


class Lab:
    """The board, and a configuration that serves on it."""

    def __init__(self, folder: Path, fake: FakeBoard, config: Path, board: Board) -> None:
        self.folder, self.fake, self.config, self.board = folder, fake, config, board

    def command(self, *options: str) -> list[str]:
        """The arguments of a bench."""
        out = str(self.folder / "out")
        return ["bench", str(self.config), "--trust-key", "--out", out, "--json", *options]

    def reported(self, name: str) -> str:
        """The end of what a command wrote."""
        return (self.folder / name).read_text()[-2000:]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    need_sshd()
    folder = tmp_path_factory.mktemp("lab")
    fake = FakeBoard(folder / "fake", mode=0)
    (fake.system / "run").mkdir()
    fake.root = folder / "root"
    fake.stored = fake.system / "run/edgekit.clocks"
    python = board_python(folder / "python", "10.3.0")
    board_trtexec(python)
    lines = [
        f"export PATH={fake.folder / 'bin'}:{python.parent}:$PATH",
        f"export EDGEKIT_SYSTEM={fake.system}",
        "exec ",
    ]
    python.write_text(python.read_text().replace("exec ", "\n".join(lines)))
    with pytest.MonkeyPatch.context() as patch, sshd(folder / "board") as server:
        patch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
        deploy = DEPLOY.format(b=server.board, root=fake.root, python=python)
        config = small_config(folder / "config", extra=deploy + PLANNED)
        board = remote(server, root=str(fake.root), python=str(python))
        yield Lab(folder, fake, config, board)
    assert offences(python) == []


def status_of(arguments: list[str]) -> object:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return caught.value.code


@pytest.fixture(autouse=True)
def _own_cache(lab, monkeypatch):
    """The lab's, in place of a new one for each test: the plan is built once."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(lab.folder / "cache"))


@pytest.fixture(scope="module")
def first(lab):
    """The first bench, which also builds and deploys: what it printed."""
    frames = np.random.default_rng(1).normal(size=(3, 3, 16, 16)).astype(np.float32)
    np.savez(lab.folder / "frames.npz", x=frames)
    reported = lab.command(
        "--inputs",
        str(lab.folder / "frames.npz"),
        "--power-mode",
        "30w",
        "--lock-clocks",
        "--with-trtexec",
        "--idle",
        "0.1",
        "--monitor",
        "20",
        "--iterations",
        "7",
        "--require-valid",
    )
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        assert status_of(reported) == 1
    return out.getvalue(), err.getvalue()


@pytest.mark.whole
def test_a_bench_reaches_every_part_of_its_document(lab, first):
    out, err = first
    found = json.loads(out)
    assert (found["clock"], found["settings"]["data"]) == ("board-measured", "given")
    reasons = {reason["code"] for reason in found["verdict"]["reasons"]}
    assert {"bench.iterations", "bench.duration", "bench.power-mode"} <= reasons
    assert "the measurement is INVALID" in err
    # nothing showed it: it is not taken for good
    unchecked = " ".join(found["verdict"]["unchecked"])
    assert all(word in unchecked for word in ("EMC", "throttling", "other GPU load", "swap"))
    assert found["monitor"]["idle"]

    (one,) = found["trtexec"]["engines"]
    assert one["why"] is None
    assert "--useDLACore={core}" in one["command"]
    assert one["trtexec_ms"] == one["times_ms"]["compute"]["median"] > 0
    assert one["throughput_qps"] > 0  # of the console

    power = found["power"]
    names = [power["mode"][when]["name"] for when in ("before", "during", "after")]
    assert names == ["MAXN", "MODE_30W", "MAXN"]
    assert (power["locked"], power["restored"], power["notes"]) == (True, True, [])
    assert lab.fake.state() == ("0", "free")
    assert lab.fake.clean()
    by_sudo = [call for call in lab.fake.calls() if call.startswith("sudo -n")]
    assert bool(by_sudo) == (os.geteuid() != 0)
    retained = json.loads((lab.folder / "out/bench.json").read_text())
    assert retained["trtexec"] == found["trtexec"]

    # the engine is one segment of GPU and DLA: its layers are where the plan has them
    trace = json.loads((lab.folder / "out/trace.json").read_text())
    shown = {
        name: event["args"]["device"]
        for event in trace["traceEvents"]
        if event.get("cat") == "layer" and event["args"]["clock"] == "board-measured"
        for name in event["args"].get("layers", [event["args"].get("layer")])
    }
    placed = dict(found["placement"][0])
    assert set(shown.values()) == {"GPU", "DLA0"}
    assert shown == {name: placed[name] for name in shown}


@pytest.mark.whole
def test_a_log_s_energy_is_in_the_next_report_and_in_the_history(lab, first, capsys):
    path = lab.folder / "out/bench.json"
    log = Path(__file__).parents[1] / "data/orin_jp62_trt103/teg_conc_solo_dla0.log"
    before = json.loads(path.read_text())
    assert before["energy"] is None
    # the double's layers take longer than its engine does
    assert ["layer times" in note for note in before["notes"]] == [True]
    assert app(["bench", str(path), "--tegrastats", str(log), "--json"]) == 0
    merged = json.loads(capsys.readouterr().out)
    assert merged["notes"] == before["notes"]
    with ResultStore() as store:
        assert store.results()[0].energy_uj == merged["energy"]["total"]["uj_per_inference"]
    words = lab.command()
    assert app(["report", *words[1:-1], "-q"]) == 0
    again = json.loads(path.read_text())
    for part in ("energy", "monitor", "verdict", "samples_ms"):
        assert again[part] == merged[part]


@pytest.mark.whole
def test_what_is_refused_leaves_the_clocks_as_they_were(lab, first, capsys):
    assert status_of(lab.command("--graph", "--lock-clocks")) == ConfigError.exit_code
    reported = json.loads(capsys.readouterr().out)
    assert reported["error"]["code"] == "bench.graph"
    assert "DLA0" in reported["error"]["message"]
    assert "placement.dla_cores: []" in reported["error"]["hint"]
    assert reported["error"]["where"] == "--graph"
    assert "build" not in {
        step["name"] for step in reported["steps"]
    }  # known before a board builds
    with (
        open_board(lab.board, state_folder=lab.folder) as client,
        pytest.raises(BoardError) as caught,
    ):
        client.bench("small", BenchSettings(power_mode="99W", lock_clocks=True))
    assert caught.value.code == "power.mode"
    assert lab.fake.state() == ("0", "free")
    assert lab.fake.clean()


@pytest.mark.whole
def test_a_killed_command_leaves_the_clocks_as_they_were(lab, first):
    options = ["--power-mode", "30W", "--lock-clocks", "--duration", "600"]
    argv = [sys.executable, "-m", "edgekit", *lab.command(*options)]
    with (lab.folder / "killed.log").open("wb") as log:
        host = subprocess.Popen(argv, stdout=log, stderr=log)
    until = time.monotonic() + 300
    while lab.fake.state() != ("2", "held") and time.monotonic() < until:
        with suppress(subprocess.TimeoutExpired):  # a turn that costs no processor
            pytest.fail(f"the bench ended with {host.wait(0.1)}: {lab.reported('killed.log')}")
    assert not lab.fake.clean()
    host.send_signal(signal.SIGKILL)
    host.wait()
    with locked(lab.fake.root / LOCK, wait_s=120):  # the guard's, until it has done
        assert lab.fake.state() == ("0", "free")
    assert lab.fake.clean()
