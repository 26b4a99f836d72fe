"""The section of docs/calibration.md on scale constraints says what the rules say."""

import re
from pathlib import Path

import yaml

from edgekit.dla.scales import scale_ties
from edgekit.knowledge import data_folder

PAGE = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text()
SECTION = re.search(r"\n## Scale constraints\n(.*?)(?=\n## |\Z)", PAGE, re.S)[1]


def written(rule):
    """What a rule file has under ``ties``."""
    document = yaml.safe_load((data_folder("dla") / f"{rule.family}.yaml").read_text())
    (row,) = [row for row in document["notes"] if row["id"] == rule.id]
    return row["ties"]


def test_the_table_has_each_rule_as_it_is():
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in SECTION.splitlines()
        if line.startswith("| `")
    ]
    ties = sorted(scale_ties(), key=lambda tie: (tie.rule.family, tie.ties.apart))
    wanted = []
    for tie in ties:
        limited = ", ".join(written(tie.rule).get("when", {}).get("in", ()))
        tensors = "inputs" if (tie.ties.tensors == "inputs") else "inputs and output"
        wanted.append(
            [
                tie.rule.id,
                ", ".join(tie.kinds) + (f": {limited}" if limited else ""),
                f"nothing: {tensors} keep their own" if tie.ties.apart else tensors,
                "DLA and GPU" if tie.ties.everywhere else "DLA",
                tie.rule.certainty,
            ]
        )
    assert rows == wanted


def test_the_changes_look_like_those_that_are_printed():
    from edgekit.quantize.scales import Change, change_rows
    from edgekit.reports.terminal.quantization import changes_text

    shown = re.search(r"```text\n(.*?)```", SECTION, re.S)[1].splitlines()
    change = Change(
        "r85", 0.013169, 0.047444, "elementwise.int8_ranges", ("stage4.block1.add",), "c87"
    )
    lines = changes_text(change_rows([change])).splitlines()
    assert shown[1].split() == lines[1].split()
    assert shown[2].split() == lines[2].split()
