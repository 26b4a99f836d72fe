"""docs/threat-model.md names code and tests that are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")


def _classes() -> dict[str, tuple[int, list[str]]]:
    """Cases and tests of each class of attacks, by its words."""
    rows = TEXT.partition("## How it is tested")[2].split("|---|--:|---|\n")[1].split("\n\n")[0]
    found = {}
    for row in rows.splitlines():
        words, cases, tests = row.strip("| ").split(" | ")
        found[words] = (int(cases.replace(",", "")), re.findall(r"`([^`]*)`", tests))
    return found


def test_every_test_of_an_attack_is_there() -> None:
    classes = _classes()
    assert len(classes) > 20
    for words, (cases, tests) in classes.items():
        assert cases >= len(tests) > 0, words
        for test in tests:
            file, _, name = test.partition("::")
            assert f"def {name or 'test_'}" in (ROOT / file).read_text(encoding="utf-8"), test


@pytest.mark.whole
def test_an_attack_has_as_many_cases_as_it_says() -> None:
    classes = _classes()
    named = [test for _, tests in classes.values() for test in tests]
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--all=full", "-n", "0", *named]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    items = [line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line]
    for words, (cases, tests) in classes.items():
        found = sum(
            item == test or item.startswith(f"{test}::") for item in items for test in tests
        )
        assert found == cases, words
