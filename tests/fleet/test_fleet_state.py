"""The state: nothing is lost or done twice wherever a driver dies; who may read and stop it."""

import io
import signal
import sqlite3

import pytest
from rich.console import Console

from edgekit.cli import fleet as fleet_module
from edgekit.cli import main
from edgekit.errors import EnvironmentLack, UsageError
from edgekit.fleet.progress import ConsoleReporter
from edgekit.fleet.store import RolloutStore
from tests.fleet.fleet_doubles import NEW, OLD, write_inventory


class Death(BaseException):
    """The process is gone."""


def dying(store, after):
    """Lets a store commit so many times and never again."""
    left = [after]

    def guard(real):
        def call(*values, **named):
            if left[0] == 0:
                raise Death
            left[0] -= 1
            return real(*values, **named)

        return call

    store.set_board, store.set_rollout = guard(store.set_board), guard(store.set_rollout)


@pytest.mark.parametrize("bad", [(), ("b04",)])
def test_wherever_the_driver_dies_the_rollout_ends_the_same(given, bad):
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
            dying(fleet.store, after)
            try:
                fleet.drive(name)
            except Death:
                died = True
        with given.fleet_in(state) as fleet:
            rollout = fleet.rollout(name)
            if rollout["state"] not in ("done", "failed"):
                fleet.drive(name)
            document = fleet.document(name)
        wanted = {"b01": NEW, "b02": NEW, "b03": NEW, "b04": NEW}
        if bad:
            wanted.update(b03=OLD, b04=OLD)
        assert {n: given.boards.serves.get(n, OLD) for n in wanted} == wanted
        assert document["state"] == ("failed" if bad else "done")
        assert all(count == 1 for count in given.boards.deployed.values())
        assert len(given.boards.went_back) == len(set(given.boards.went_back))
        after += 1
    assert after > 10


@pytest.mark.parametrize("version", [1, 99])
def test_a_state_of_another_edgekit_is_left_alone(tmp_path, version):
    RolloutStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "fleet.db") as db:
        db.execute(f"PRAGMA user_version={version}")
    db.close()
    with pytest.raises(EnvironmentLack) as caught:
        RolloutStore(tmp_path)
    assert caught.value.code == "fleet.state-version"
    assert "--state" in caught.value.hint


def test_what_is_no_state_is_reported(tmp_path):
    (tmp_path / "fleet.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(EnvironmentLack) as caught:
        RolloutStore(tmp_path)
    assert caught.value.code == "fleet.state"


def test_commits_are_durable(tmp_path):
    store = RolloutStore(tmp_path)
    assert store._db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert store._db.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL
    store.close()


def test_every_change_of_a_board_is_in_the_history(given):
    given.boards.away["b02"] = 1
    given.rollout(waves="100%")
    with given.fleet() as fleet:
        events = fleet.store.events(fleet.rollout("one")["id"])
    reported = [row["state"] for row in events if row["board"] == "b02"]
    assert reported == ["running", "offline", "running", "done"]


def test_the_first_signal_pauses_and_the_second_is_pythons_again():
    said, before = [], signal.getsignal(signal.SIGTERM)
    with fleet_module.stops(said.append) as stopped:
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
    assert document["state"] == "paused"
    assert document["counts"] == {"done": 3, "pending": 7}


def test_a_rollback_is_not_paused_for_a_resume_would_deploy_again(given):
    given.rollout(waves="100%")
    with given.fleet() as fleet, given.fleet() as other:
        real, met = given.boards.back, []

        def back(*requested):
            with pytest.raises(UsageError) as caught:
                other.request("one", "abort")
            met.append(caught.value.code)
            return real(*requested)

        given.boards.back = back
        assert fleet.roll_back("one", stopped=lambda: bool(met))["state"] == "rolling-back"
        assert set(met) == {"fleet.rolling-back"}
        with pytest.raises(UsageError) as caught:
            fleet.request("one", "pause")
        assert caught.value.code == "fleet.rolling-back"
        given.boards.back = real
        assert fleet.drive("one")["counts"] == {"rolled-back": 10}


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_for_people(terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, color_system="standard",
                      _environ={})  # fmt: skip
    lines = ConsoleReporter(console)
    lines.wave(0, 2, [{"name": "a", "state": "pending"}, {"name": "b[0]", "state": "pending"}])
    lines.board("a", "done")
    lines.board("b[0]", "failed", {"message": "y is off [red]"})
    lines.close()
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
