"""docs/benchmarking.md: its section is one, its tables are the code's."""

import re
from pathlib import Path

import yaml

from edgekit.config.schema import BenchSection

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "benchmarking.md").read_text()
VALIDITY = ROOT / "edgekit" / "benchmark" / "validity.py"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


def test_the_section_is_one():
    BenchSection.model_validate(yaml.safe_load(blocks("yaml")[0])["bench"])


def test_every_reason_is_in_the_table():
    raised = set(re.findall(r'"(bench\.[a-z-]+)"', VALIDITY.read_text()))
    reported = set(re.findall(r"`(bench\.[a-z-]+)`", PAGE.split("## The verdict")[1]))
    assert reported == raised
