"""docs/tuning.md names every option of `edgekit tune`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from edgekit.cli.planning import tune_command

PAGE = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
COMMON = {"--out", "--accept-host-key", "--trust-key", "--json", "--quiet", "--verbose", "--debug"}


def test_every_option_is_in_the_table() -> None:
    options = {max(p.opts, key=len) for p in tune_command.params if isinstance(p, click.Option)}
    assert set(re.findall(r"^\| `(--[\w-]+)", PAGE, re.MULTILINE)) == options - COMMON
