"""Texts keep to docs/style.md: its patterns are counted, and none becomes more frequent."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.count_style import FOLDERS, PATTERNS, Pattern, count, files, texts

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def counted() -> tuple[int, dict[str, list[str]]]:
    return count(text for path in files(FOLDERS) for text in texts(path))


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda one: one.name)
def test_no_pattern_is_used_more(
    pattern: Pattern, counted: tuple[int, dict[str, list[str]]]
) -> None:
    words, uses = counted
    rate = 1000 * len(uses[pattern.name]) / words
    shown = "\n".join(uses[pattern.name][:5])
    assert rate <= pattern.limit, f"{rate:.2f} in 1,000 words; --list {pattern.name!r}:\n{shown}"


def test_the_page_has_each_pattern_with_a_text_that_it_matches() -> None:
    page = (ROOT / "docs" / "style.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    before = {cells[0].removeprefix("| "): cells[1] for cells in rows}
    for pattern in PATTERNS:
        assert pattern.expression.search(before[pattern.name]), pattern.name
