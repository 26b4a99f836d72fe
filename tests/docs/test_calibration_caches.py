"""The examples of docs/calibration.md on calibration caches run as they stand."""

import re
from pathlib import Path

import pytest

from edgekit.cli import main
from tests.pipeline.nets import small_net

PAGE = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text()
SECTION = re.search(r"\n## Calibration caches\n(.*?)(?=\n## |\Z)", PAGE, re.S)[1]


def test_the_message_is_the_one_that_a_plan_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    small_net(tmp_path / "model.onnx")
    start = ["calibrate", "model.onnx", "-t", "jetson-agx-orin-64gb", "--save", "calib.cache"]
    for arguments in (
        [*start, "-q"],
        ["calibrate", "merge", "calib.cache", "-o", "calib.cache", "--drop", "[cr]2"],
        ["plan", "model.onnx", "-t", "jetson-agx-orin-64gb", "--cache", "calib.cache", "-q"],
    ):
        with pytest.raises(SystemExit):
            main.main(arguments)
        reported = capsys.readouterr().err
    shown = re.search(r"```text\n(.*?)```", SECTION, re.S)[1]
    assert " ".join(shown.split()) in " ".join(reported.split())
