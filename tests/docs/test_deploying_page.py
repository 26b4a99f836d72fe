"""docs/deploying.md: its commands run in their order, and its table has every state there is."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.pipeline.nets import small_net

PAGE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


@pytest.mark.whole
@pytest.mark.boards
def test_the_commands_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    small_net(tmp_path / "model.onnx")
    (tmp_path / "app.yaml").write_text(blocks("yaml")[0])

    def run(lines: str) -> dict[str, str]:
        said = {}
        for line in lines.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "edgekit"
            with pytest.raises(SystemExit) as caught:
                main.main([*arguments, "-q"])
            reported = capsys.readouterr()
            assert not caught.value.code, reported.err
            said[arguments[0]] = reported.out
        return said

    first, back, *_ = blocks("sh")  # the others run on a board: test_on_board_commands.py
    said = run(first)
    (board,) = json.loads(said["status"])["boards"]
    app = board["apps"]["app"]
    assert app["deployment"]["state"] == "committed"
    assert app["current"] in said["releases"]
    small_net(tmp_path / "model.onnx", seed=5)
    run("edgekit deploy app.yaml")
    said = run(back)
    assert app["current"] in said["rollback"]
    assert app["current"] in said["remove"]
