"""docs/tuning.md names every option of `edgekit tune`, and its delays are some."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from edgekit.cli._tune import command
from edgekit_device._reference_delays import VARIABLE, Delays, read_delays

PAGE = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
COMMON = {"--out", "--accept-host-key", "--trust-key", "--json", "--quiet", "--verbose", "--debug"}


def test_every_option_is_in_the_table() -> None:
    options = {max(p.opts, key=len) for p in command.params if isinstance(p, click.Option)}
    assert set(re.findall(r"^\| `(--[\w-]+)", PAGE, re.MULTILINE)) == options - COMMON


def test_the_delays_are_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.setenv(VARIABLE, text)
    found = read_delays()
    assert found is not None
    assert Delays(found, ["Conv", "Relu"]).us("DLA0", together=True) == 1000
