"""The commands of docs/boards.md, at a board that is only played, and its configuration."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli.main import app
from tests.cli.board_fakes import FakeBoard, config_of, job_row, lend
from tests.pipeline.test_doctor import probe

PAGE = (Path(__file__).parents[2] / "docs" / "boards.md").read_text(encoding="utf-8")
LINES = [line for text in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in text.splitlines()]


@pytest.mark.parametrize("line", [line for line in LINES if "--selftest" not in line])
def test_a_command(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path(config_of(tmp_path, "lab")).rename(tmp_path / "app.yaml")
    monkeypatch.chdir(tmp_path)
    board = FakeBoard("lab", job_row("done" if " remove " in line else "running"))
    board.answers = {"probe": probe(), "state": "unneeded", "applied": "unneeded"}
    lend(monkeypatch, board)
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    app(arguments)
    assert capsys.readouterr().out
