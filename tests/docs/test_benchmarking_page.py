"""docs/benchmarking.md: its commands are understood, its tables are the code's."""

import re
from pathlib import Path

import pytest
import yaml

from edgekit.cli.measurements import bench_command
from edgekit.config.schema import BenchSection

PAGE = (Path(__file__).parents[2] / "docs" / "benchmarking.md").read_text()
VALIDITY = Path(__file__).parents[2] / "edgekit" / "benchmark" / "validity.py"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("line", [x for x in blocks("console")[0].splitlines() if " bench c" in x])
def test_commands_are_understood(line, tmp_path, monkeypatch):
    if "fleet" in line:
        return
    monkeypatch.chdir(tmp_path)
    Path("frames.npz").touch()
    context = bench_command.make_context("bench", line.split()[2:])
    assert context.params["model"] == "configs/resnet50-orin.yaml"


def test_the_section_is_one():
    BenchSection.model_validate(yaml.safe_load(blocks("yaml")[0])["bench"])


def test_every_reason_is_in_the_table():
    raised = set(re.findall(r'"(bench\.[a-z-]+)"', VALIDITY.read_text()))
    reported = set(re.findall(r"`(bench\.[a-z-]+)`", PAGE.split("## The verdict")[1]))
    assert reported == raised
