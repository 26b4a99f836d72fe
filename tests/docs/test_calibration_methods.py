"""The section of docs/calibration.md on methods says what there is, and its example runs."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from edgekit.cli import main
from edgekit.quantize.calibration.histograms import FEWEST, METHODS
from tests.pipeline.nets import small_net

PAGE = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text()
SECTION = re.search(r"\n## Methods\n(.*?)(?=\n## |\Z)", PAGE, re.S)[1]


def test_every_method_is_in_the_table():
    assert set(re.findall(r"^\| `(\w+)` \|", SECTION, re.M)) == set(METHODS)
    assert f"fewer than {FEWEST:,} values" in SECTION


def test_example(tmp_path, monkeypatch, capsys):
    small_net(tmp_path / "model.onnx")
    samples = np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", x=samples)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    (line,) = re.search(r"```sh\n(.*?)```", SECTION, re.S)[1].splitlines()
    with pytest.raises(SystemExit) as caught:
        main.main(shlex.split(line)[1:])
    assert caught.value.code == 0
    assert "percentile" in capsys.readouterr().out
    # what an interruption would have needed is gone
    assert not list((tmp_path / "kept" / "measuring").glob("*"))
