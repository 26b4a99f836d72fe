"""Counts patterns that are hard to read, in docstrings, comments, messages and pages.

Usage: scripts/count_style.py [--list PATTERN] [PATH...]

docs/style.md has each pattern with a text before and after. Without paths the product and docs/ are
counted; --list prints the places of one pattern. A limit is the number of uses per 1,000 words that
tests/docs/test_style.py allows; whoever rewrites texts lowers it.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("edgekit", "edgekit_device", "docs")
_WORD = re.compile(r"\w+")
_CODE = re.compile(r"```[\s\S]*?```|`[^`\n]*`|^\|[^\n]*$", re.MULTILINE)


@dataclass(frozen=True)
class Pattern:
    """A pattern.

    Attributes:
        name: As in docs/style.md.
        expression: Matches one use.
        limit: Uses per 1,000 words that are allowed.
    """

    name: str
    expression: re.Pattern[str]
    limit: float


def _pattern(name: str, expression: str, limit: float) -> Pattern:
    return Pattern(name, re.compile(expression, re.IGNORECASE), limit)


PATTERNS = (
    _pattern("what", r"\bwhat\b(?! to\b)(?![^.;:]*\?)", 0.24),
    _pattern(
        "one",
        r"\bones\b|\bone (?:that|which|who|with|without|has|is|of)\b|\b(?:the|this|that|each|every"
        r"|other|another|only|last|first|best|any|which|own|its|larger|smaller) one\b(?! \w+)",
        0.9,
    ),
    _pattern(
        "where",
        r"\bwhere (?:it|they|there|the|an?|no|one|that|its|nothing|both|not|known|needed)\b",
        0.6,
    ),
    _pattern("of it", r"\bof (?:it|them)\b", 0.2),
    _pattern("says", r"\b(?:says?|said|tells?|told)\b", 0.1),
    _pattern("stands", r"\b(?:stands?|lies?|goes on|go on)\b", 0.03),
    _pattern("whether", r"^whether\b", 0.05),
    _pattern("nobody", r"\b(?:nobody|nothing)\b", 0.2),
    _pattern("as it is", r"\bas (?:it|they) (?:is|are|was|were|has|have|does|do|stands?)\b", 0.1),
    _pattern("come of", r"\b(?:comes?|came|becomes?|became|made) of\b", 0.1),
)


@dataclass(frozen=True)
class Text:
    """A docstring, a comment, a message or a page.

    Attributes:
        place: File and line.
        words: The text without code.
    """

    place: str
    words: str


def texts(path: Path) -> Iterator[Text]:
    """Yields the texts of a Python file or of a page."""
    source, name = path.read_text(), str(path.relative_to(ROOT))
    if path.suffix == ".md":
        for number, block in enumerate(re.split(r"\n\s*\n", _CODE.sub("", source))):
            yield Text(f"{name} (paragraph {number + 1})", block)
        return
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            docstrings.add(node.body[0].lineno)
            yield Text(f"{name}:{node.body[0].lineno}", _CODE.sub("", text))
    for node in ast.walk(tree):  # sentences among the constants are messages
        match node:
            case ast.Constant(value=str(text), lineno=line) if line not in docstrings:
                if text.count(" ") > 2:
                    yield Text(f"{name}:{line}", text)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(f"{name}:{token.start[0]}", token.string.lstrip("#: "))


def files(paths: Iterable[str]) -> list[Path]:
    """Returns the Python files and pages of folders and files, without generated pages."""
    found = []
    for text in paths:
        path = (ROOT / text).resolve()
        found += [path] if path.is_file() else sorted(path.rglob("*"))
    return [
        path for path in found if path.suffix in (".py", ".md") and "__pycache__" not in path.parts
    ]


def count(every: Iterable[Text]) -> tuple[int, dict[str, list[str]]]:
    """Returns the number of words, and by pattern the places of its uses."""
    words, uses = 0, {pattern.name: list[str]() for pattern in PATTERNS}
    for text in every:
        words += len(_WORD.findall(text.words))
        for pattern in PATTERNS:
            for match in pattern.expression.finditer(text.words):
                near = text.words[max(0, match.start() - 40) : match.end() + 40]
                uses[pattern.name].append(f"{text.place}: {' '.join(near.split())}")
    return words, uses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", default=FOLDERS, metavar="PATH")
    parser.add_argument("--list", choices=[p.name for p in PATTERNS], metavar="PATTERN")
    arguments = parser.parse_args()
    words, uses = count(t for path in files(arguments.paths) for t in texts(path))
    if arguments.list:
        print(*uses[arguments.list], sep="\n")
        return
    print(f"{words} words; uses per 1,000 words")
    for pattern in PATTERNS:
        found = len(uses[pattern.name])
        print(
            f"{pattern.name:10}{found:6}{1000 * found / max(words, 1):8.2f}  limit {pattern.limit}"
        )


if __name__ == "__main__":
    main()
