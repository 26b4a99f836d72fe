"""Texts keep to docs/style.md: its patterns are counted, and none becomes more frequent."""

from __future__ import annotations

from pathlib import Path

from scripts.count_style import FOLDERS, PATTERNS, count, files, texts

ROOT = Path(__file__).resolve().parent.parent.parent


def test_no_pattern_is_used_more() -> None:
    words, uses = count(text for path in files(FOLDERS) for text in texts(path))
    more = {
        pattern.name: (1000 * len(uses[pattern.name]) / words, uses[pattern.name][:5])
        for pattern in PATTERNS
        if 1000 * len(uses[pattern.name]) > pattern.limit * words
    }
    assert not more, "in 1,000 words; scripts/count_style.py --list NAME prints all"


def test_the_page_has_each_pattern_with_a_text_that_it_matches() -> None:
    page = (ROOT / "docs" / "style.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    before = {cells[0].removeprefix("| "): cells[1] for cells in rows}
    for pattern in PATTERNS:
        assert pattern.expression.search(before[pattern.name]), pattern.name
