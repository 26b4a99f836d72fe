"""The examples of docs/monitoring.md run as they stand, and its tables name what is written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text("utf-8")
DATA = Path(__file__).parents[1] / "data" / "orin_jp62_trt103"


def test_the_python_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DATA / "teg_conc_solo_dla0.log", "tegrastats.log")
    log, board = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(log, {})
    energy = float(capsys.readouterr().out.split()[0])
    said = re.search(
        r"finds ([\d.]+) inferences a second and watt.*?gives (\d+\.\d+)", " ".join(PAGE.split())
    )
    assert said is not None
    author, ours = map(float, said.groups())
    assert 1e6 / energy == pytest.approx(author, rel=0.03)
    assert 1e6 / energy == pytest.approx(ours, rel=0.01)  # there of all of the session
    exec(board, names := dict[str, Any]())
    assert names["document"].busy_from_s < 0
    assert "proc" in capsys.readouterr().out
