"""The command of docs/problems.md solves the page's first example."""

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "problems.md").read_text(encoding="utf-8")


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problem.json").write_text(re.findall(r"```json\n(.*?)```", PAGE, re.S)[0])
    (command,) = re.findall(r"```sh\n(.*?)\n```", PAGE, re.S)
    program, *arguments = shlex.split(command)
    assert program == "edgekit"
    with pytest.raises(SystemExit) as caught:
        main.main(arguments)
    assert caught.value.code == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "edgekit.solution/1"
    assert document["value"] == pytest.approx(84)
