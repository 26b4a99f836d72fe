"""The example of docs/several-networks.md runs as it stands."""

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.pipeline.nets import small_net

PAGE = (Path(__file__).parents[2] / "docs" / "several-networks.md").read_text(encoding="utf-8")


@pytest.mark.whole
def test_the_example(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    small_net(tmp_path / "detect.onnx")
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    (tmp_path / "several.yaml").write_text(text)
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    for line in commands.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "-q"])
        out = capsys.readouterr().out
        assert caught.value.code == 0, line
    assert (tmp_path / "several.html").exists()
    document = json.loads(out)
    keys = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \|", PAGE.split("## The document")[1], re.M)
    documented = {key for row in keys for key in re.findall(r"`(\w+)`", row)}
    assert documented <= set(document)
    assert {"networks", "timeline", "lower", "upper"} <= documented
