"""The blocks of a page, and its commands as a reader types them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import main

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    """The page's blocks of a language, in their order."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def lines(page: str, without: str = "no command") -> list[str]:
    """The lines of a page's shell blocks, but of those that have certain words."""
    found = [block for block in blocks(page, "sh") if without not in block]
    return [line for block in found for line in block.splitlines()]


def run(line: str, *more: str) -> int:
    """Runs a line of a page, and returns its exit status."""
    program, *arguments = shlex.split(line)
    assert program == "edgekit"
    with pytest.raises(SystemExit) as end:
        main.main([*arguments, *more])
    return int(end.value.code or 0)
