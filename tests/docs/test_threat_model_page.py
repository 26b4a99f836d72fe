"""docs/threat-model.md names code and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")


def test_every_file_that_it_names_is_there() -> None:
    named = re.findall(r"`((?:edgekit|edgekit_device|tests)/[\w/.-]+)`", TEXT)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []
    # short names stand behind one with a folder in the same cell
    for cell in re.findall(r"\|([^|\n]*)\|\n", TEXT):
        folder = ROOT
        for name in re.findall(r"`([\w/.-]+\.py)`", cell):
            folder = (ROOT / name).parent if "/" in name else folder
            assert (folder / Path(name).name).exists(), name


def test_its_command_is_one_of_signing() -> None:
    """tests/docs/test_signing_page.py runs it."""
    (line,) = re.findall(r"```sh\n(.*)\n```", TEXT)
    assert f"\n{line}\n" in (ROOT / "docs/signing.md").read_text(encoding="utf-8")
