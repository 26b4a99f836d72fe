"""The examples of docs/history.md run as they stand."""

import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main
from edgekit.results.differences import METRICS
from edgekit.results.recording import record
from tests.results.measurements import bench, times

PAGE = (Path(__file__).parents[2] / "docs" / "history.md").read_text()


@pytest.mark.whole
def test_the_examples_in_their_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    for seed in range(4):
        record(bench(times(2500, 2.0, seed=seed)))
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    # the last block measures on a board
    lines = [line for block in blocks for line in block.splitlines() if "bench" not in block]
    assert len(lines) == 10
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        with pytest.raises(SystemExit) as caught:
            main.main(arguments)
        captured = capsys.readouterr()
        assert caught.value.code == 0, captured.err
        assert captured.out
    assert (tmp_path / "compare.md").read_text().startswith("### edgekit compare")


def test_every_metric_is_named():
    for name in METRICS:
        assert f"`{name}`" in PAGE or f"`.{name.partition('.')[2]}`" in PAGE
