"""What was taken back on a board stays taken back, until ``--again``; over a real sshd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgekit.cli.main import app
from edgekit.errors import BoardError, EdgekitError
from tests.boards.fixtures import StartBoard, boards, home
from tests.pipeline.nets import small_config, small_net
from tests.pipeline.test_board_build import board as tensorrt_board
from tests.pipeline.test_board_build import config_of

__all__ = ["boards", "home"]

pytestmark = [pytest.mark.boards, pytest.mark.usefixtures("warm_boards")]

BOARD = (
    "deploy:\n  boards:\n    - {{name: lab, host: {b.host}, port: {b.port}, user: {b.user}, "
    'key: {b.key}, host_key: "{b.host_key}", root: {root}, python: {b.python}}}\n'
)
REASON = "too many false alarms"
COMMANDS = ("deploy", "run", "infer", "bench", "report", "tune")  # those that write files


class Bench:
    """One application on one board, and the command line."""

    def __init__(self, config: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.config, self.root, self._capsys = config, root, capsys
        self.out = ["--out", str(config.parent / "out"), "-q"]

    def network(self, seed: int) -> None:
        """Makes the configuration one of other weights: its bundle's digest is new."""
        small_net(self.config.parent / "small.onnx", seed=seed)

    def ask(self, command: str, *words: str) -> dict[str, Any]:
        out = self.out if command in COMMANDS else ["-q"]
        self._capsys.readouterr()
        assert app([command, str(self.config), *words, *out, "--json"]) == 0
        document: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return document

    def refused(self, command: str, *words: str) -> EdgekitError:
        with pytest.raises(BoardError) as caught:
            self.ask(command, *words)
        assert caught.value.exit_code == 4
        return caught.value

    def deploy(self, *words: str) -> str:
        return str(self.ask("deploy", "--trust-key", *words)["releases"][0]["release"])

    def said(self) -> Any:
        return self._capsys.readouterr()

    @property
    def serving(self) -> str:
        return (self.root / "apps/small/current").resolve().name


@pytest.fixture
def bench(boards: StartBoard, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    root = tmp_path / "lab"
    extra = BOARD.format(b=boards().board, root=root)
    return Bench(small_config(tmp_path / "config", precision="fp16", extra=extra), root, capsys)


@contextmanager
def untouched(bench: Bench) -> Iterator[None]:
    before = bench.serving
    yield
    assert bench.serving == before


def stays(bench: Bench, old: str, new: str, reason: str, *more: str) -> None:
    """What deploys by itself uses ``old``, and says so; ``deploy`` refuses, and so do ``more``."""
    with untouched(bench):
        infer = bench.ask("infer")
        assert infer["release"] == old
        assert infer["bit_equal"] is None
        back = infer["taken_back"]
        assert (back["release"], back["reason"]) == (new, reason)
        (note,) = infer["notes"]
        for word in (old, new, back["at"], reason, "--again"):
            assert word in note
        for command in ("deploy", *more):
            error = bench.refused(*command.split())
            assert error.code == "install.taken-back"
            assert reason in error.message
            assert f"edgekit deploy {bench.config} --again" in error.hint


@pytest.mark.whole
@pytest.mark.slow
def test_a_rollback_by_hand_stays_until_it_is_put_back(bench: Bench) -> None:
    bench.network(1)
    old = bench.deploy()
    bench.network(2)
    new = bench.deploy()
    (row,) = bench.ask("rollback", "--reason", REASON)["boards"]
    assert (row["from"], row["to"]) == (new, old)
    file = bench.config.parent / "out" / "bundle.ekb"
    stays(bench, old, new, REASON, "deploy --force", "run", f"deploy --bundle {file}")
    with untouched(bench):
        measured = bench.ask("bench")
        back = measured["taken_back"]
        assert (measured["environment"]["release"], back["reason"]) == (old, REASON)
        note = next(note for note in measured["notes"] if REASON in note)
        report = bench.ask("report")
        assert note in report["notes"]
        # the report says of which release its measurements are, and shows no others' times as its
        assert report["answer"][-1]["question"] == "release"
        for word in (old, new, REASON):
            assert word in report["answer"][-1]["words"]
        assert (report["refit"], report["trace"]) == (None, None)
        assert not any(row["measured"] for row in report["layers"])
        # the terminal says it, too, at the step and at the end
        assert app(["report", str(bench.config), *bench.out[:-1]]) == 0
        reported = bench.said()
        assert f"note: {note}" in reported.out
        assert f"lab serves {old}, which is not this configuration's release" in reported.err
        tuned = bench.ask("tune", "--rounds", "1", "--turns", "0")
        assert any(REASON in note for note in tuned["notes"])
        # where another machine packed what serves, its plan is not known: it is measured all the
        # same, and that is said
        for retained in Path(os.environ["EDGEKIT_CACHE"]).glob("**/planned/**/*"):
            retained.unlink()
        measured = bench.ask("bench")
        assert (measured["environment"]["release"], measured["predicted"]) == (old, None)
        assert measured["latency_ms"]["median"] > 0
        reported = f"the plan of {old} is not on this machine"
        for notes in (measured["notes"], bench.ask("report")["notes"]):
            assert any(note.startswith(reported) for note in notes)
        (board,) = bench.ask("serve", "status")["boards"]
        assert board["taken_back"] == back
        assert REASON in board["notes"][0]
        # going back once more does not go forward
        error = bench.refused("rollback")
        assert (error.code, REASON in error.message) == ("release.no-previous", True)
        assert f"edgekit deploy {bench.config} --again" in error.hint
        (retained,) = bench.ask("releases")["boards"]
        rows = {one["id"]: one["taken_back"] for one in retained["apps"]["small"]["releases"]}
        assert rows == {old: None, new: back}
        # what the configuration was before is no news
        bench.network(1)
        assert bench.ask("infer")["taken_back"] is None
    # a new digest deploys as before, and puts back nothing of the other
    bench.network(3)
    third = bench.ask("infer")
    assert (third["taken_back"], bench.serving) == (None, third["release"])
    bench.network(2)
    stays(bench, third["release"], new, REASON)
    # nor does removing the application put it back
    bench.ask("remove", "--yes")
    for command in ("infer", "deploy"):
        error = bench.refused(command)
        assert error.code == "install.taken-back"
        assert REASON in error.message
    assert not list((bench.root / "apps/small/releases").glob("*"))
    (release,) = bench.ask("run", "--again")["releases"]
    assert (release["release"], release["taken_back"]) == (bench.serving, None)
    # and it is not taken back any more
    bench.network(1)
    bench.deploy()
    bench.network(2)
    assert bench.deploy() == release["release"]


@pytest.mark.whole
@pytest.mark.slow
def test_what_its_own_deployment_took_back_stays_taken_back(bench: Bench) -> None:
    bench.network(1)
    old = bench.deploy()
    bench.network(2)
    text = bench.config.read_text()
    bench.config.write_text(text + "  health: {soak_s: 600, soak_every_s: 1}\n")
    command = [sys.executable, "-m", "edgekit", "deploy", str(bench.config), *bench.out, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    state: dict[str, Any] = {}
    until = time.monotonic() + 120
    while state.get("state") != "soaking":
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
        journal = bench.root / "apps/small/deployment.json"
        state = json.loads(journal.read_text())
    # it fails while it serves
    (bench.root / "apps/small/releases" / state["release"] / "manifest.json").write_text("{}")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 4
    failed = json.loads(out)["error"]
    assert "went back" in failed["message"]
    reason = failed["message"].rpartition(";")[0]
    bench.config.write_text(text)
    assert bench.serving == old
    stays(bench, old, state["release"], reason)
    assert bench.deploy("--again") != old


@pytest.mark.whole
@pytest.mark.slow
def test_engines_of_tensorrt_stay_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tensorrt_board(tmp_path, "10.3.0") as (deploy, _):
        config = config_of(tmp_path, deploy, "10.3", "{backend: tensorrt}", precision="fp16")
        bench = Bench(config, tmp_path / "lab", capsys)
        bench.network(1)
        old = bench.deploy()
        bench.network(2)
        new = bench.deploy()
        bench.ask("rollback", "--reason", REASON)
        stays(bench, old, new, REASON)
        assert bench.deploy("--again") == new
        bench.ask("rollback", "--reason", REASON)
        # other memory settings make another bundle, which was not taken back
        text = config.read_text()
        config.write_text(text.replace("deploy:\n", "deploy:\n  memory: {shared: false}\n", 1))
        assert bench.deploy() not in (old, new)
