"""``edgekit doctor``: its exit status and what it says, at boards that are only played."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.cli.main import app
from edgekit.errors import EnvironmentLack, GateError, UsageError
from tests.cli.board_fakes import FakeBoard, config_of, lend
from tests.pipeline.test_doctor import probe

Out = pytest.CaptureFixture[str]


def board(name: str = "lab", **answers: Any) -> FakeBoard:
    made = FakeBoard(name)
    made.answers = {"probe": probe(), **answers}
    return made


@pytest.mark.parametrize(
    ("options", "state", "applied", "says"),
    [
        ((), "shown", "", "nothing was changed"),
        (("--yes",), "shown", "by-hand", "sudo needs a password"),
        (("--yes",), "shown", "failed", "could not be prepared"),
        (("--yes",), "shown", "applied", ""),
        (("--yes", "--undo"), "shown", "undone", ""),
        ((), "unneeded", "", ""),
    ],
)
def test_setup_answers_no_where_nothing_was_set_up(
    options: tuple[str, ...],
    state: str,
    applied: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Out,
) -> None:
    lend(monkeypatch, board(state=state, applied=applied))
    argv = ["doctor", "lab", "--setup", "--json", *options]
    if says:
        with pytest.raises(GateError, match=says) as caught:
            app(argv)
        assert caught.value.exit_code == 1
    else:
        assert app(argv) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is not bool(says)
    assert document["state"] == (applied or state)


@pytest.mark.parametrize(
    "options",
    [["--undo"], ["--yes"], ["-o", "x.json"], ["--setup", "--selftest"]],
)
def test_options_that_would_do_nothing_are_refused(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lend(monkeypatch, board(state="unneeded"))
    with pytest.raises(UsageError, match=r"--setup|--selftest"):
        app(["doctor", "lab", *options])


def test_a_slip_in_a_board_s_name_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend(monkeypatch, FakeBoard("nolab", down=True))
    config = config_of(tmp_path, "lab")
    with pytest.raises(EnvironmentLack) as caught:
        app(["doctor", "nolab", config])
    assert f"{config} names lab" in caught.value.hint


def test_a_board_that_is_down_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    lend(monkeypatch, FakeBoard("left", down=True), board("right"))
    config = config_of(tmp_path, "left", "right")
    with pytest.raises(EnvironmentLack, match="left: nobody answers"):
        app(["doctor", config])
    reported = capsys.readouterr().out
    assert "left: not reached" in reported
    assert "Supports: backends tensorrt" in reported
    with pytest.raises(EnvironmentLack):
        app(["doctor", config, "--json"])
    document = json.loads(capsys.readouterr().out)
    found = edgekit.read_document(document)
    assert found.to_json() == document
    assert [one.board.name for one in found.lost] == ["left"]
    assert [one.board.name for one in found.reached] == ["right"]
    left, right = document["boards"]
    assert (left["ok"], left["error"]["code"]) == (False, "board.unreachable")
    assert right["can"]["dla_cores"] == 2


def test_the_set_up_of_several_boards_reads_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    lend(monkeypatch, FakeBoard("left", down=True), board("right", state="unneeded", applied=""))
    with pytest.raises(EnvironmentLack):
        app(["doctor", config_of(tmp_path, "left", "right"), "--setup", "--json"])
    document = json.loads(capsys.readouterr().out)
    found = edgekit.read_document(document)
    assert found.to_json() == document
    assert [one.state for one in found.reached] == ["unneeded"]
    assert found.lost[0].error.code == "board.unreachable"


def test_without_a_board_this_machine_is_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    assert app(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    checks = {check["id"]: check for check in document["checks"]}
    for name in (
        "python",
        "python.onnxruntime",
        "ssh.keygen",
        "keys.ssh",
        "cache",
        "disk",
        "extra.parser",
        "gpu",
    ):
        assert name in checks
    assert document["board"]["kind"] == "workstation"
    assert app(["doctor"]) == 0
    assert "onnxruntime" in capsys.readouterr().out
    # what is missing fails, and says what to do
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(GateError) as caught:
        app(["doctor"])
    assert caught.value.code == "doctor.missing"
    text = capsys.readouterr().out
    assert "openssh-client" in text
    assert "EDGEKIT_CACHE" in text
    with pytest.raises(UsageError, match="--setup needs a board"):
        app(["doctor", "--setup"])
