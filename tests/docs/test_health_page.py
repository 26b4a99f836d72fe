"""The example of docs/health.md runs as it stands, and its record has the keys that are written."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from edgekit_device.protocol.manifest import parse
from edgekit_device.release import requirements
from edgekit_device.store.root import Root
from tests.pipeline.nets import small_net

PAGE = (Path(__file__).parents[2] / "docs" / "health.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.S)
    assert found is not None
    return found[1]


@pytest.mark.whole
@pytest.mark.boards
def test_the_example_and_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    small_net(tmp_path / "model.onnx")
    (tmp_path / "app.yaml").write_text(block("yaml"))
    program, *arguments = shlex.split(block("sh"))
    assert program == "edgekit"
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "-q"])
    assert not caught.value.code, capsys.readouterr().err
    (record,) = tmp_path.rglob("health.json")
    found, shown = json.loads(record.read_text()), json.loads(block("json"))
    assert found.keys() == shown.keys()
    for name in ("fingerprint", "golden", "accuracy", "latency_ms"):
        assert found[name].keys() == shown[name].keys()
    assert found["schema"] == shown["schema"]
    assert found["clock"] == "cpu-measured"
    # synthetic inputs: the page says that they are told as such
    accuracy = found["accuracy"]
    assert (accuracy["samples"], accuracy["synthetic"], accuracy["min"]) == (4, True, 0.9)
    assert 0.9 <= accuracy["value"] <= 1
    manifest = parse((record.parent / "manifest.json").read_bytes())
    assert manifest.requires is not None
    root = Root(record.parents[4])
    requirements.check_requires(root, manifest)
