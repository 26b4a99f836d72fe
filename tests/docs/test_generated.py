"""Generated pages are current, and CI would notice when they are not."""

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_docs.py"


def test_pages_are_current(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--check"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert caught.value.code == 0, capsys.readouterr().out


def test_schema_accepts_what_edgekit_accepts():
    schema = json.loads((SCRIPT.parent.parent / "docs" / "config.schema.json").read_text())
    assert schema["required"] == ["version", "name", "model", "target"]
    assert schema["additionalProperties"] is False
