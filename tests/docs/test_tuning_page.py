"""The commands of docs/tuning.md run, and it names every option and every key of tune.json."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.pipeline.nets import CONFIG, small_net

PAGE = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")


@pytest.mark.whole
@pytest.mark.boards
def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    small_net(tmp_path / "model.onnx")
    text = CONFIG.format(target="jetson-agx-orin-64gb", precision="fp16", objective="latency")
    text = text.replace("name: small", "name: model").replace("small.onnx", "model.onnx")
    (tmp_path / "model.yaml").write_text(text)
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in commands.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        with pytest.raises(SystemExit) as caught:
            # one plan shows that it runs
            main.main([*arguments, "--rounds", "1", "--turns", "0", "-q"])
        assert caught.value.code == 0
    folder = tmp_path / "edgekit-out" / "model" / "tune"
    files = re.findall(r"^\| `([\w.]+\.(?:json|jsonl|yaml))` \|", PAGE, re.MULTILINE)
    assert len(files) == 4
    assert [name for name in files if not (folder / name).exists()] == []
    table = PAGE.split("| Key of `tune.json` | What |")[1].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    keys = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
    assert len(keys) == 10
    assert keys <= set(json.loads((folder / "tune.json").read_text()))
