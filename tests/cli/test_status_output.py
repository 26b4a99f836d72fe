"""What tables and lines of ``edgekit status``, ``releases``, ``remove`` and ``serve`` tell."""

from __future__ import annotations

import json
import os
import pty
import re
from pathlib import Path

import click
import pytest

from edgekit.cli.boards import show, table
from edgekit.cli.main import app
from edgekit.errors import UsageError
from edgekit_device.protocol.failure import Failure
from tests.cli.board_fakes import config_of, lend
from tests.cli.test_status import NEW, OLD, RETAINED, WHEN, Serving


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
