"""What tables and lines of ``edgekit status``, ``releases``, ``remove`` and ``serve`` tell."""

from __future__ import annotations

import json
import os
import pty
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from edgekit.cli.boards import last_error, show, table
from edgekit.cli.main import app
from edgekit.errors import BoardError, UsageError
from edgekit_device.protocol.failure import Failure
from edgekit_device.protocol.serving import LastError
from edgekit_device.release.journal import HistoryEntry
from tests.cli.board_fakes import answer, config_of, lend
from tests.cli.test_status import NEW, OLD, RETAINED, WHEN, Serving

_CRASH = LastError("serve.crashed", "the worker died", "net", "", WHEN)


def _line(id: str, state: str, **changes: Any) -> HistoryEntry:
    entry = HistoryEntry(
        "edgekit.rollback/1", id, "net", state, NEW, OLD, WHEN, "2026-01-03T00:00:00Z", None
    )
    return replace(entry, **changes)


def _back() -> HistoryEntry:
    error = Failure("rollback.asked", "too many\nfalse alarms", "", "")
    return _line("77", "rolled-back", error=error)


def test_a_servers_last_error_is_reported_as_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Serving("lab")
    board.serving = replace(answer("serve").serving, release=NEW, last_error=_CRASH)
    lend(monkeypatch, board)
    assert app(["status", "lab"]) == 0
    text = capsys.readouterr().out
    assert f"the server's last error: {WHEN} the worker died (serve.crashed)" in text
    assert "{" not in text
    assert last_error(None) == ""


def test_a_roll_back_is_reported_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Serving("lab")
    board.history = [_line("1", "committed"), _back()]
    lend(monkeypatch, board)
    assert app(["status", "lab"]) == 0
    text = capsys.readouterr().out
    assert "rolled-back 2026-01-03T00:00:00Z" in text
    assert f"rolled back at 2026-01-03T00:00:00Z from {NEW}: too many false alarms" in text
    assert "committed" not in text
    # what was deployed since is the news
    board.history.append(_line("2", "committed"))
    assert app(["status", "lab"]) == 0
    text = capsys.readouterr().out
    assert "committed" in text
    assert "rolled" not in text
    board.history, board.state, board.alive = [_back()], "soaking", True
    assert app(["status", "lab"]) == 0
    text = capsys.readouterr().out
    assert "soaking" in text
    assert "follow the deployment with: edgekit jobs attach 0123456789abcdef lab" in text


@pytest.mark.parametrize("columns", ["40", "80"])
def test_nothing_is_cut_where_no_terminal_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    board = Serving("a-board-with-quite-a-long-name-of-its-own", "failed")
    board.error = Failure("deploy.x", "let no key in " * 20, "", "")
    board.revoked = ["net", "other"]
    lend(monkeypatch, board)
    assert app(["status", "lab"]) == 0
    row, note = capsys.readouterr().out.splitlines()[1:3]
    for word in (board.name, NEW, OLD, WHEN):
        assert word in row
    assert note.endswith("let no key in  (deploy.x)")
    assert app(["releases", "lab"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[1:4]] == [OLD, NEW, RETAINED]


@pytest.mark.parametrize(("columns", "lines"), [(200, 2), (110, 3), (80, 2), (20, 2)])
def test_on_a_narrow_terminal_words_stay_whole(
    monkeypatch: pytest.MonkeyPatch, columns: int, lines: int
) -> None:
    parent, child = pty.openpty()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb" if columns == 80 else "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = table("board", "app", "serves", "previous", "last deployment", "server")
    rows.add_row(
        "a-board-with-a-long-name",
        "resnet50",
        NEW,
        OLD,
        f"committed {WHEN}",
        "an error that is as long as errors are",
    )
    with os.fdopen(child, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        show(rows)
    text = os.read(parent, 1 << 16).decode()
    os.close(parent)
    for word in (NEW, OLD, WHEN, "resnet50"):
        assert word in text
    assert "\u2026" not in text
    assert (len(text.splitlines()) > 2) == (lines > 2)  # folded only where words have room


def test_a_retained_release_that_loads_no_more_is_marked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Serving("lab")
    board.revoked = ["net"]
    lend(monkeypatch, board)
    assert app(["releases", "lab"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [("loads no more" in line) for line in lines[1:4]] == [False, False, True]
    assert (
        lines[4] == f"lab: net: {RETAINED} can no longer be loaded: it is revoked (edgekit trust)"
    )
    assert app(["releases", "lab", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["boards"][0]["apps"]["net"]["releases"]
    assert [one["refused"] and one["refused"]["code"] for one in rows] == [
        None,
        None,
        "bundle.revoked-signer",
    ]


def test_an_error_of_one_board_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(monkeypatch, Serving("one"), Serving("two"))
    with pytest.raises(BoardError, match="in use"):
        app(["remove", "one", "--app", "net", "--release", NEW])
    assert capsys.readouterr().out == ""
    with pytest.raises(BoardError, match="in use"):
        app(["remove", config_of(tmp_path, "one", "two"), "--release", NEW])
    assert capsys.readouterr().out == "two: the release is in use\n"


def test_remove_takes_the_name_of_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(monkeypatch, Serving("one"))
    config = config_of(tmp_path, "one")
    assert app(["remove", config, "--release", OLD, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["app"] == "net"
    with pytest.raises(UsageError) as caught:
        app(["remove", "one", "--release", OLD])
    assert "--app" in caught.value.hint
    other = tmp_path / "other.yaml"
    other.write_text(re.sub("name: net", "name: other", Path(config).read_text()))
    with pytest.raises(UsageError, match="net, other"):
        app(["remove", config, str(other)])


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--app", ""],
        ["releases", "--app", ""],
        ["rollback", "--app="],
        ["remove", "--app", ""],
        ["remove", "--app", "net", "--release", ""],
        ["serve", "--app", ""],
        ["trust", "--remove", "ann", "--remove", ""],
        ["jobs", "list", "--board", ""],
    ],
)
def test_an_empty_value_is_not_one_that_was_not_given(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.pipeline.boards.addresses.open_client", None)  # no board is asked
    at = 2 if words[0] == "jobs" else 1
    with pytest.raises(UsageError, match="is empty") as caught:
        app([*words[:at], "lab", *words[at:]])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("words", [["trust", "--signers", ""], ["deploy", "--bundle="]])
def test_an_empty_path_is_not_the_folder_one_is_in(
    words: list[str],
) -> None:
    with pytest.raises(click.UsageError, match="it is empty"):
        app([words[0], "lab", *words[1:]])


def test_the_removal_of_a_whole_application_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lend(monkeypatch, Serving("lab"))
    assert app(["remove", "lab", "--app", "net", "--yes"]) == 0
    assert capsys.readouterr().out == f"lab: removed application net and all its releases: {OLD}\n"


@pytest.mark.parametrize("command", ["status", "releases", "trust"])
def test_why_a_board_failed_is_reported_once_and_with_whether_it_answered(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, two, three = Serving("one"), Serving("two"), Serving("three", down=True)

    def refuse(*given: object, **more: object) -> dict[str, Any]:
        raise BoardError("it cannot", code="no.such")

    for board in (one, two):
        for name in ("status", "releases", "trust"):
            monkeypatch.setattr(board, name, refuse)
    lend(monkeypatch, one, two, three)
    with pytest.raises(BoardError, match="it cannot"):
        app([command, config_of(tmp_path, "one", "two", "three")])
    text = capsys.readouterr().out
    assert text.count("it cannot") == 1
    assert (text.count("not reached"), text.count("nobody answers")) == (1, 1)
    assert text.count("failed") == (1 if command == "trust" else 2)
