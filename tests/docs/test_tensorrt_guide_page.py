"""docs/tensorrt-guide.md has each section of NVIDIA's guide once, and names what exists."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import click

import edgekit
import edgekit_device
from edgekit.cli.main import Commands
from edgekit.config.schema import ConfigFile
from edgekit.knowledge import data_folder, read_knowledge

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tensorrt-guide.md").read_text(encoding="utf-8")
GUIDE = read_knowledge(data_folder("trt") / "guide.yaml")
ROWS: list[dict[str, Any]] = GUIDE["rows"]
WHERE = sorted({reference for row in ROWS for reference in row.get("where", ())})
PAGES = [reference for reference in WHERE if ".md" in reference]
LINES = [reference for reference in WHERE if reference.startswith("edgekit ")]
NAMES = [reference for reference in WHERE if re.match(r"edgekit(_device)?\.", reference)]
KEYS = sorted({*WHERE} - {*PAGES, *LINES, *NAMES})


def test_the_contents_have_no_gap() -> None:
    numbers = [tuple(map(int, number.split("."))) for number in GUIDE["contents"]]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 230
    assert numbers[-1][0] == 14
    for *above, last in numbers:
        before = (*above, last - 1) if last > 1 else tuple(above)
        assert before in numbers or before == ()


def test_every_section_is_in_one_row() -> None:
    assert Counter(number for row in ROWS for number in row["of"]) == Counter([*GUIDE["contents"]])


def test_every_row_says_where_or_why_not() -> None:
    assert [row["of"] for row in ROWS if not row.get("where") and not row.get("why_not")] == []
    assert [row["of"] for row in ROWS if "how" in row and not row.get("where")] == []


def test_the_page_has_each_section_once_and_in_order() -> None:
    shown = re.findall(r"^\| (\d[\d.]*) (.+?) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [(number, title) for number, title, _, _ in shown] == [*GUIDE["contents"].items()]
    assert all(where or why_not for _, _, where, why_not in shown)


def test_every_key_is_one_of_the_configuration() -> None:
    schema = ConfigFile.model_json_schema()
    assert KEYS
    for key in KEYS:
        section: dict[str, Any] = schema
        for name in key.split("."):
            assert name in section["properties"], key
            section = _section(section["properties"][name], schema["$defs"])


def _section(field: dict[str, Any], sections: dict[str, Any]) -> dict[str, Any]:
    """The section that a field holds, or a list of them; without properties where it holds none."""
    for name in re.findall(r"#/\$defs/(\w+)", json.dumps(field)):
        if "properties" in sections[name]:
            found: dict[str, Any] = sections[name]
            return found
    return {"properties": {}}


def test_every_command_has_its_option() -> None:
    assert LINES
    for line in LINES:
        names = [word for word in line.split()[1:] if not word.startswith("-")]
        options = {word for word in line.split() if word.startswith("-")}
        root = Commands("edgekit")
        command = root.get_command(click.Context(root), names[0])
        for name in names[1:]:
            command = getattr(command, "commands", getattr(command, "actions", {}))[name]
        assert command is not None, line
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        assert options <= known, line


def test_every_name_is_public() -> None:
    packages = {"edgekit": edgekit.__all__, "edgekit_device": edgekit_device.__all__}
    assert NAMES
    for name in NAMES:
        package, _, own = name.partition(".")
        assert own in packages[package], name
