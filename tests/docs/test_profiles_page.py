"""The examples of docs/profiles.md run as they stand."""

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.buildlog import timing_log as tl
from tests.pipeline.nets import small_net

PAGE = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")
LOADABLE = "{ForeignNode[conv1...relu2]}"
VECTOR, SUMS = "Int8(36,36:32,6,1)", "Int8(1,1:32,1,1)"


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model with a build log, a profile and its engine's layers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    small_net(tmp_path / "model.onnx")
    log = [
        *tl.header(),
        *tl.unit(LOADABLE, "DLA", [(["Int8(256,1:4,16,1)"], [VECTOR], 220.0)]),
        *tl.unit("gap", "CaskPooling", [([VECTOR], [SUMS], 44.0)]),
    ]
    (tmp_path / "build.log").write_text("\n".join(log))
    rows = [{"name": LOADABLE, "timeMs": 0.22}, {"name": "gap", "timeMs": 0.04}]
    (tmp_path / "profile.json").write_text(json.dumps(rows))
    layers = [{"Name": LOADABLE, "LayerType": "DLA"}]
    (tmp_path / "layers.json").write_text(json.dumps({"Layers": layers, "Bindings": []}))
    return tmp_path


@pytest.mark.parametrize("line", commands())
def test_example(line, folder, capsys):
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "-q"])
    captured = capsys.readouterr()
    assert caught.value.code == 0, captured.err
    assert len(captured.out.splitlines()) >= 5


def test_the_document_has_the_keys_of_the_page(folder, capsys):
    with pytest.raises(SystemExit):
        main.main(
            shlex.split("plan model.onnx -t jetson-agx-orin-64gb --profile build.log --json -q")
        )
    measured = json.loads(capsys.readouterr().out)["measured"]
    said = PAGE.split("`measured` in the plan's JSON has")[1].partition(". ")[0]
    assert set(re.findall(r"`(\w+)`", said)) - {"measured", "predicted"} == set(measured)
