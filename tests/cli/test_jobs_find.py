"""Which job ``edgekit jobs`` means, on boards that are only played."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli.main import app, main
from edgekit.errors import BoardError, EnvironmentLack, UsageError
from edgekit_device.jobs.job import WatchedEvent
from edgekit_device.protocol.failure import Failure
from tests.cli.board_fakes import ID, FakeBoard, config_of, job_row, lend

Out = pytest.CaptureFixture[str]


@pytest.fixture
def config(tmp_path: Path) -> str:
    return config_of(tmp_path, "left", "right")


def test_of_the_same_job_on_two_boards_the_running_one_is_cancelled(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    left, right = FakeBoard("left", job_row("done")), FakeBoard("right", job_row("running"))
    lend(monkeypatch, left, right)
    assert app(["jobs", "cancel", ID, config]) == 0
    assert capsys.readouterr().out == f"{ID} on right: cancelled\n"
    assert app(["jobs", "remove", ID[:4], config]) == 0
    assert (left.requested, right.requested) == ([("remove", ID)], [("cancel", ID)])


def test_which_of_two_running_ones_is_requested(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    boards = [FakeBoard(name, job_row("running")) for name in ("left", "right")]
    lend(monkeypatch, *boards)
    with pytest.raises(UsageError, match=r"left \(running\), right \(running\)") as caught:
        app(["jobs", "cancel", ID, config])
    assert "--board left" in caught.value.hint
    assert app(["jobs", "cancel", ID, config, "--board", "right"]) == 0
    assert [board.requested for board in boards] == [[], [("cancel", ID)]]
    with pytest.raises(UsageError, match="left, right"):
        app(["jobs", "cancel", ID, config, "--board", "middle"])


@pytest.mark.parametrize("short", ["", "0", "012"])
@pytest.mark.parametrize("action", ["attach", "log", "cancel", "remove"])
def test_too_short_an_id_names_no_job(
    action: str, short: str, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = FakeBoard("left", job_row("done"))
    lend(monkeypatch, board)
    with pytest.raises(UsageError, match="too short"):
        app(["jobs", action, short, config])
    assert board.requested == []


def test_ids_that_begin_alike_are_reported(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = ID[:-1] + "0"
    lend(monkeypatch, FakeBoard("left", job_row("done"), job_row("done", job=other)))
    with pytest.raises(UsageError, match=f"{other}, {ID}"):
        app(["jobs", "log", ID[:6], config])


def test_a_board_that_is_down_hides_no_other(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    left = FakeBoard("left", job_row("running"))
    lend(monkeypatch, left, FakeBoard("right", down=True))
    with pytest.raises(EnvironmentLack, match="right: nobody answers"):
        app(["jobs", config])
    reported = capsys.readouterr().out
    assert "left: 1 job\n" in reported
    assert "right: not reached: nobody answers\n" in reported
    with pytest.raises(EnvironmentLack) as caught:
        app(["jobs", "list", config, "--json"])
    assert caught.value.printed
    first, second = json.loads(capsys.readouterr().out)["boards"]
    assert (first["board"], first["jobs"][0]["job"], first["error"]) == ("left", ID, None)
    assert (second["board"], second["jobs"]) == ("right", [])
    assert second["error"]["code"] == "board.unreachable"
    assert app(["jobs", "cancel", ID, config]) == 0
    assert "right was not reached" in capsys.readouterr().err
    # it may be there
    with pytest.raises(EnvironmentLack, match="nobody answers"):
        app(["jobs", "cancel", "fedcba98", config])


@pytest.mark.parametrize("action", ["attach", "log", "cancel", "remove"])
def test_documents_have_a_schema(
    action: str, config: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    lend(monkeypatch, FakeBoard("left", job_row("done")), FakeBoard("right"))
    assert app(["jobs", action, ID, config, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["job"], document["board"]) == ("edgekit.job/1", ID, "left")


EVENT = WatchedEvent(5.0, "tactics", 1, 2, "", 1, "running")


@pytest.mark.parametrize("names", [("left",), ("left", "right")])
def test_ctrl_c_while_attached_leaves_the_job_and_says_how_to_come_back(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    boards = [FakeBoard(name, job_row("running")) for name in names]
    boards[-1].events = [EVENT, KeyboardInterrupt()]
    lend(monkeypatch, *boards)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    where = config_of(tmp_path, *names)
    with pytest.raises(SystemExit) as ended:
        main(["jobs", "attach", ID, where, "--board", names[-1]])
    assert ended.value.code == 130
    reported = capsys.readouterr()
    assert "FAILED" not in reported.err
    command = re.search(
        r"^the job continues; follow it again with: edgekit (.*)$", reported.err, re.M
    )
    assert command
    # what it says works
    assert app(shlex.split(command[1])) == 0
    assert capsys.readouterr().out == f"{ID} on {names[-1]}: done\n"


def test_a_host_is_named_with_its_options(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    board = FakeBoard("ada@orin", job_row("running"))
    board.events = [KeyboardInterrupt()]
    lend(monkeypatch, board)
    with pytest.raises(KeyboardInterrupt):
        app(["jobs", "attach", ID, "ada@orin", "--root", "/data/my kit", "--python", "python3.10"])
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith(f"edgekit jobs attach {ID} ada@orin --root '/data/my kit' --python python3.10")
    )


def test_a_job_that_failed_says_why_on_its_line(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    error = Failure("build.failed", "no tactic for conv1", "", "")
    board = FakeBoard("left", job_row("failed", error=error))
    board.events = [EVENT]
    lend(monkeypatch, board, FakeBoard("right"))
    with pytest.raises(BoardError, match="no tactic"):
        app(["jobs", "attach", ID, config])
    line = next(line for line in capsys.readouterr().err.splitlines() if "FAILED" in line)
    assert "left: no tactic for conv1" in line


def test_an_action_that_is_none_is_reported(config: str) -> None:
    with pytest.raises(UsageError, match="No such action") as caught:
        app(["jobs", "frob", config])
    assert "list, attach, log, cancel, remove" in caught.value.hint
    with pytest.raises(UsageError, match="Did you mean 'cancel'"):
        app(["jobs", "cancle", ID, config])
