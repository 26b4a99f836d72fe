"""Tables that list all of something: keys of the configuration, states, codes, methods."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from pydantic import BaseModel

from edgekit.config.schema import Section
from edgekit.quantize.calibration.histograms import METHODS
from edgekit.quantize.data.images import IMAGE_OPTIONS, PRESETS
from edgekit.tensorrt.releases import features
from edgekit_device.release.journal import AFTER_SWITCH, BEFORE_SWITCH, ENDED

ROOT = Path(__file__).parents[2]


def sections(model: type[BaseModel]) -> Iterable[type[BaseModel]]:
    for one in model.__subclasses__():
        if one.__module__ == Section.__module__:  # an inventory of a fleet has sections, too
            yield one
        yield from sections(one)


def codes(module: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, (ROOT / module).read_text(encoding="utf-8"), re.S))


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("config", "", {name for one in sections(Section) for name in one.model_fields}),
        ("deploying", "## States", {*BEFORE_SWITCH, *AFTER_SWITCH, *ENDED}),
        ("calibration", "## Methods", set(METHODS)),
        ("calibration", "### Images", IMAGE_OPTIONS | PRESETS.keys()),
        ("tensorrt", "## What goes together", set(features())),
        (
            "benchmarking",
            "## The verdict",
            codes("edgekit/benchmark/validity.py", r'"(bench\.[a-z-]+)"'),
        ),
        (
            "health",
            "",
            {"requires.board", "requires.disk", "requires.memory"}
            | {
                f"requires.{name}"
                for name in codes("edgekit_device/release/requirements.py", r'_fail\(\s*"(\w+)"')
            },
        ),
    ],
)
def test_nothing_is_missing(page: str, heading: str, names: set[str]) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    text = text.partition(heading)[2] if heading else text
    assert names
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.M)
    assert names <= {name for cell in cells for name in re.findall(r"`([\w.-]+)`", cell)}
