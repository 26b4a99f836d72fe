"""tests/promises.yaml is true: its words stand in their pages, and its tests are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROMISES = yaml.safe_load((ROOT / "tests/promises.yaml").read_text(encoding="utf-8"))
ROWS = [(page, words, tests) for page, rows in PROMISES.items() for words, tests in rows.items()]


@cache
def marks(file: str) -> dict[str, bool]:
    """Whether each test of a file runs only with --all."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {
        node.name: any(ast.unparse(one) == "pytest.mark.whole" for one in node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def plain(text: str) -> str:
    return " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())


@pytest.mark.parametrize(
    ("page", "words", "tests"), ROWS, ids=[f"{Path(page).stem}: {words}" for page, words, _ in ROWS]
)
def test_a_promise_is_made_and_guarded(page: str, words: str, tests: list[str]) -> None:
    assert plain(words) in plain((ROOT / page).read_text(encoding="utf-8"))
    names = [name.split("::") for name in tests]
    assert [name for file, name in names if name not in marks(file)] == []
    assert not all(marks(file)[name] for file, name in names), "none runs without --all"


def test_every_row_of_the_threat_model_is_here() -> None:
    text = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
    text = text.partition("## How it is tested")[
        0
    ]  # tests/docs/test_threat_model_page.py has these
    attacks = re.findall(r"^\| (?!Attack |---)(.*?) \|", text, re.MULTILINE)
    assert len(attacks) > 15
    assert [attack for attack in attacks if attack not in PROMISES["docs/threat-model.md"]] == []
