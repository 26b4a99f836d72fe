"""docs/build-logs.md: its commands run, and its keys are the document's."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.pipeline.nets import small_net

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "build-logs.md").read_text()
(SHELL,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("line", SHELL.splitlines())
def test_the_page_s_commands(line, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "tests" / "data" / "build_logs" / "trtexec.txt", tmp_path / "build.log")
    small_net(tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    said = capsys.readouterr()
    assert not end.value.code, said.err
    if "--json" in arguments:
        keys = re.findall(r"`(\w+)`", PAGE.partition("`edgekit.log/1`: ")[2].partition("Exit")[0])
        assert len(keys) >= 9
        assert set(keys) <= set(json.loads(said.out))
        assert "reduce.function" in (tmp_path / "answer.md").read_text()
