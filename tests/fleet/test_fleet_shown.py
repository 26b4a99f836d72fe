"""What ``edgekit fleet`` prints of rollouts, what it advises, and the status it ends with."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal

import pytest

from edgekit.cli import main
from edgekit.errors import BoardError
from tests.fleet.fleet_doubles import NEW, OLD, write_inventory


@pytest.fixture
def run(given, monkeypatch, capsys):
    """Runs ``edgekit fleet`` on boards in memory; returns status, stdout and stderr."""
    monkeypatch.setattr("edgekit.fleet.rollout.SshDriver", lambda *_, **__: given.boards)
    state = ("--state", str(given.folder / "state"))

    def call(action, *arguments, state=state):
        with pytest.raises(SystemExit) as caught:
            main.main(["fleet", action, *arguments, *state])
        out, err = capsys.readouterr()
        return caught.value.code, out, err

    return call


def deploy(run, given, *more, name="one"):
    return run(
        "deploy",
        str(given.config),
        "-i",
        str(given.inventory),
        "--bundle",
        str(given.bundle),
        "--name",
        name,
        *more,
    )


def follow(run, text, action):
    """Types the first command of an action that a text advises, as it stands."""
    words = shlex.split(re.findall(rf"edgekit fleet {action} [^;,\n]*", text)[0])
    reported = words[3:]
    end = next((i for i, word in enumerate(reported) if not re.match(r"--|/|one|\d", word)), None)
    return run(action, *reported[:end], state=())


def test_a_rollout_that_nobody_drives_says_how_it_goes_on(given, run):
    with given.fleet() as fleet:
        name = given.begin(fleet)
        fleet.rollout(name).set(state="running")
    for arguments in ((), (name,)):
        _, out, _ = run("status", *arguments)
        assert "no process is running it" in out
    assert json.loads(run("status", "--json")[1])["rollouts"][0]["driven"] is False
    status, out, _ = follow(run, out, "resume")
    assert (status, "10 done" in out) == (0, True)
    for arguments in ((), (name,)):
        assert "no process" not in run("status", *arguments)[1]


def test_a_board_that_went_back_is_shown_with_what_it_serves(given, run):
    write_inventory(given.inventory, 4)
    given.boards.serves["b02"] = ""
    given.boards.bad.add("b04")
    given.rollout(waves="1,100%", settings={"parallel": 1})
    _, out, _ = run("status", "one", "--boards")
    rows = [line.split() for line in out.splitlines()]
    (head,) = [row for row in rows if row[:1] == ["board"]]
    assert head == ["board", "state", "serves", "why"]
    reported = {row[0]: row[1:3] for row in rows if row[0].startswith("b0")}
    assert reported == {
        "b01": ["done", "000002-1"],
        "b02": ["rolled-back", "nothing"],
        "b03": ["rolled-back", OLD[:12]],
        "b04": ["failed", OLD[:12]],
    }
    boards = json.loads(run("status", "one", "--json")[1])["boards"]
    assert [row["serves"] for row in boards] == [NEW, "", OLD, OLD]
    assert [row["release"] for row in boards] == ["000002-1", None, None, None]


def unknown(name):
    raise BoardError("no key made it", code="bundle.unknown-signer", where=name, hint="the board's")


def test_boards_that_do_not_know_the_key_say_how_they_learn_it(given, run):
    given.boards.each = unknown
    status, _, err = deploy(run, given)
    assert status == 1
    assert "--trust-key" in err
    _, out, _ = run("status")
    assert "bundle.unknown-signer" in out
    hints = {
        row["error"]["hint"]
        for row in json.loads(run("status", "one", "--json")[1])["boards"]
        if row["error"]
    }
    assert all("--trust-key" in hint for hint in hints)
    # who gave --trust-key already is not told to
    status, _, err = deploy(run, given, "--trust-key", name="two")
    assert status == 1
    assert "--trust-key" not in err
    assert "another key" in err


def test_a_rollout_that_waits_for_host_keys_advises_to_accept_them(given, run, monkeypatch):
    def stranger(name):
        raise BoardError(f"the host key of {name} is not known", code="board.unknown-host-key")

    with monkeypatch.context() as patched:
        patched.setattr(given.boards, "_reach", stranger)
        assert deploy(run, given)[0] == 1
    # the list, and the rollout itself
    reported = [run("status")[1], run("status", "one")[1]]
    for text in reported:
        commands = re.findall(r"continue with: (edgekit fleet resume one[^;,\n]*)", text)
        assert commands
        assert all("--accept-host-key" in one for one in commands)
    status, out, _ = follow(run, reported[1], "resume")
    assert (status, "10 done" in out) == (0, True)


def test_the_list_says_why_each_rollout_failed(given, run):
    given.boards.bad.update({"b01"})
    deploy(run, given)
    _, out, _ = run("status")
    assert out.splitlines()[0].split() == ["rollout", "driver", "state", "changed", "boards"]
    assert "selftest.failed: b01" in out


def test_a_name_that_is_taken_advises_what_its_state_allows(given, run):
    given.boards.bad.add("b01")
    deploy(run, given)
    status, _, err = deploy(run, given)
    assert status == 2
    assert "state failed" in err

    given.boards.bad.clear()
    with given.fleet_in(given.folder / "other") as fleet:
        given.begin(fleet)
    other = ("--state", str(given.folder / "other"))
    _, _, err = run(
        "deploy", str(given.config), "-i", str(given.inventory), "--name", "one", state=other
    )
    assert "state paused" in err
    _, out, _ = follow(run, err, "status")
    assert follow(run, out, "resume")[0] == 0


def test_a_skipped_board_is_what_a_resume_of_a_rollout_that_is_done_is_for(given, run):
    given.boards.away["b02"] = 10**9
    given.rollout(settings={"deadline_s": 0.01})
    given.boards.away.clear()
    _, out, _ = run("status", "one")
    assert "10 done" in follow(run, out, "resume")[1]


@pytest.mark.parametrize(("option", "action"), [("pause", "resume"), ("abort", "rollback")])
def test_a_rollout_that_was_stopped_is_no_success(given, run, option, action):
    with given.fleet() as other:
        given.boards.each = lambda name: other.request("one", option) if name == "b03" else None
        status, _, err = deploy(run, given, "--waves", "100%", "--parallel", "1")
    assert status == 1
    assert "after 3 of 10 boards" in err
    given.boards.each = lambda name: None
    status, out, _ = follow(run, err, action)
    assert status == 0
    assert {"pause": "10 done", "abort": "3 rolled-back"}[option] in out


def test_ctrl_c_with_json_prints_the_rollout_and_nothing_else(given, run, monkeypatch):
    monkeypatch.setattr(main, "_signals", [])
    given.boards.each = lambda name: os.kill(os.getpid(), signal.SIGINT) if name == "b03" else None
    status, out, err = deploy(run, given, "--waves", "100%", "--parallel", "1", "--json")
    assert (status, json.loads(out)["state"]) == (130, "paused")
    assert "resume" in err


def test_a_wave_that_did_not_go_back_is_tried_again_alone(given, run):
    write_inventory(given.inventory, 2)
    given.boards.bad.add("b02")
    real, cut = given.boards.back, ["b01"]

    def back(member, digest, before, **more):
        if member.name in cut:
            raise BoardError("its disk is full", code="board.failed", where=member.name)
        return real(member, digest, before, **more)

    given.boards.back = back
    status, _, err = deploy(run, given, "--waves", "100%")
    assert status == 1
    assert "--wave 1" in err
    cut.clear()
    status, out, _ = follow(run, err, "rollback")
    assert (status, given.boards.went_back) == (0, ["b01"])
    assert "1 rolled-back" in out


def test_going_back_is_reported_as_that_and_counts_the_waves_of_the_rollout(given, run):
    write_inventory(given.inventory, 4)
    given.boards.bad.add("b02")
    _, _, err = deploy(run, given, "--waves", "1,3,100%", "--parallel", "1", "--max-failures", "0")
    assert "wave 1/3: 1 board\n" in err
    assert "rolling back wave 2/3: 1 board\n" in err
    given.boards.bad.clear()
    assert deploy(run, given, "--waves", "1,3,100%", name="two")[0] == 0
    _, _, err = run("rollback", "two", "--wave", "2")
    assert "rolling back wave 2/3: 2 boards\n" in err
    assert "rolling back wave 2/3: 2 of 2 rolled-back" in err
    _, _, err = run("rollback", "two")
    assert "rolling back: 1 board\n" in err
    assert "wave" not in err
    assert "rolling back: no board" in run("rollback", "two")[2]
