"""The state: nothing is lost or done twice wherever a driver dies; who may read and stop it."""

import io
import os
import signal

import pytest
from rich.console import Console

from edgekit.cli import fleet as fleet_module
from edgekit.cli import main
from edgekit.errors import EnvironmentLack, UsageError
from edgekit.fleet.progress import RolloutReporter
from edgekit.fleet.store import Rollout, RolloutStore, Row
from edgekit_device.protocol.failure import Failure
from tests.fleet.fleet_doubles import NEW, OLD, write_inventory


class Death(BaseException):
    """The process is gone."""


def dying(monkeypatch, after):
    """Lets a rollout write so many changes and never again."""
    left = [after]

    def guard(real):
        def call(*values, **named):
            if left[0] == 0:
                raise Death
            left[0] -= 1
            return real(*values, **named)

        return call

    monkeypatch.setattr(Rollout, "_write", guard(Rollout._write))


@pytest.mark.few(1)
@pytest.mark.parametrize("bad", [(), ("b04",)])
def test_wherever_the_driver_dies_the_rollout_ends_the_same(given, bad, monkeypatch):
    """A death before each durable change, one after another, then a resume to the end."""
    write_inventory(given.inventory, 4)
    given.boards.bad.update(bad)
    died, after = True, 0
    while died:
        died = False
        given.boards.serves.clear()
        given.boards.deployed.clear()
        given.boards.went_back.clear()
        state = given.folder / f"state{after}"
        with given.fleet_in(state) as fleet:
            name = given.begin(fleet, waves="2,100%", settings={"parallel": 1})
            with monkeypatch.context() as patched:
                dying(patched, after)
                try:
                    fleet.drive(name)
                except Death:
                    died = True
        with given.fleet_in(state) as fleet:
            rollout = fleet.rollout(name)
            if rollout.facts.state not in ("done", "failed"):
                fleet.drive(name)
            document = fleet.document(name)
        wanted = {"b01": NEW, "b02": NEW, "b03": NEW, "b04": NEW}
        if bad:
            wanted.update(b03=OLD, b04=OLD)
        assert {n: given.boards.serves.get(n, OLD) for n in wanted} == wanted
        assert document.state == ("failed" if bad else "done")
        assert all(count == 1 for count in given.boards.deployed.values())
        assert len(given.boards.went_back) == len(set(given.boards.went_back))
        after += 1
    assert after > 10


def test_a_line_that_was_cut_off_is_forgotten(given):
    with given.fleet() as fleet:
        path = fleet.rollout(given.begin(fleet)).path
        with path.open("ab") as file:
            file.write(b'{"board": "b01", "set": {"state": "do')
        assert fleet.document("one").counts == {"pending": 10}
        assert fleet.drive("one").counts == {"done": 10}
        assert fleet.document("one").counts == {"done": 10}


def test_a_state_that_cannot_be_read_is_left_alone(given):
    with given.fleet() as fleet:
        path = fleet.rollout(given.begin(fleet)).path
        for text in (b'{"schema": "edgekit.rollout/99", "boards": []}\n', b"no state at all\n"):
            path.write_bytes(text)
            with pytest.raises(EnvironmentLack) as caught:
                fleet.drive("one")
            assert caught.value.code == "fleet.state"
            assert "--state" in caught.value.hint
            assert path.read_bytes() == text


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(EnvironmentLack) as caught:
        RolloutStore(tmp_path / "state")
    assert caught.value.code == "fleet.state"


def test_rollouts_of_an_older_edgekit_are_refused(tmp_path):
    (tmp_path / "fleet.db").write_bytes(b"SQLite format 3\x00")
    with pytest.raises(EnvironmentLack) as caught:
        RolloutStore(tmp_path)
    assert (caught.value.code, caught.value.where) == ("fleet.state", str(tmp_path / "fleet.db"))
    assert "--state" in caught.value.hint


def test_a_change_is_on_the_disk_before_it_is_acted_upon(given, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(number) or real(number))
    with given.fleet() as fleet:
        rollout = fleet.rollout(given.begin(fleet))
        assert synced
        synced.clear()
        rollout.set_board("b01", state="running")
        assert len(synced) == 1
        assert fleet.document("one").counts == {"pending": 9, "running": 1}


def test_the_first_signal_pauses_and_the_second_is_pythons_again():
    said, before = [], signal.getsignal(signal.SIGTERM)
    with fleet_module.handle_signals(said.append) as stopped:
        assert not stopped()
        signal.raise_signal(signal.SIGTERM)
        assert stopped()
        assert len(said) == 1
        assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_pauses_a_rollout(given):
    met = []
    with given.fleet() as fleet:
        name = given.begin(fleet, waves="100%", settings={"parallel": 1})
        given.boards.each = lambda board: met.append(board) if board == "b03" else None
        document = fleet.drive(name, stopped=lambda: bool(met))
    assert document.state == "paused"
    assert document.counts == {"done": 3, "pending": 7}


def test_a_rollback_is_not_paused_for_a_resume_would_deploy_again(given):
    given.rollout(waves="100%")
    with given.fleet() as fleet, given.fleet() as other:
        real, met = given.boards.back, []

        def back(*requested, **more):
            with pytest.raises(UsageError) as caught:
                other.request("one", "abort")
            met.append(caught.value.code)
            return real(*requested, **more)

        given.boards.back = back
        assert fleet.roll_back("one", stopped=lambda: bool(met)).state == "rolling-back"
        assert set(met) == {"fleet.rolling-back"}
        with pytest.raises(UsageError) as caught:
            fleet.request("one", "pause")
        assert caught.value.code == "fleet.rolling-back"
        given.boards.back = real
        assert fleet.drive("one").counts == {"rolled-back": 10}


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_for_people(terminal):
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=terminal, width=100, color_system="standard", _environ={}
    )
    lines = RolloutReporter(console)
    rows = [Row("a", 0, {}), Row("b[0]", 0, {})]
    lines.begin("wave 1/2", "done", rows)
    lines.board("a", "done")
    lines.board("b[0]", "failed", Failure("x", "y is off [red]", "", ""))
    lines.end()
    text = out.getvalue()
    assert "wave 1/2: 1 of 2 done (1 done, 1 failed)" in text
    assert "b[0]: failed: y is off [red]" in text


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["status", "none"], 2, "no rollout 'none'"),
        (["statsu"], 2, "Did you mean 'status'"),
        (["pause"], 2, "Missing argument"),
        (["deploy", "net.yaml"], 2, "--inventory"),
        (["deploy", "model.onnx", "-i", "f"], 2, "takes a configuration, not a model"),
        (["status"], 0, "no rollouts yet"),
        (["--help"], 0, "rollback"),
    ],
)
def test_the_command_line(tmp_path, arguments, status, words, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: signal.SIG_DFL)
    with pytest.raises(SystemExit) as caught:
        main.main(["fleet", *arguments])
    captured = capsys.readouterr()
    assert caught.value.code == status
    assert words in captured.out + captured.err
