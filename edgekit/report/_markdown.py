"""Markdown for pull requests, of the report's, a measurement's or a comparison's document.

GitHub refuses a comment of more than 65,536 characters ("body is too long (maximum is 65536
characters)"), so a table that would go beyond is cut and says so. Names come from models, boards
and configurations: nothing of them is markup, a mention, a reference or a link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from edgekit.errors import DataError
from edgekit.report._text import clean

__all__ = ["LIMIT", "Paper", "code", "escaped", "markdown"]

LIMIT = 65_536
_CUT = "\n*What does not fit into a comment was cut: {}.*\n"
_SPARE = 600  # for the note on what was cut
_LONGEST = 200  # characters of one cell; a name longer than that tells nobody more
# punctuation that could be markup: a character reference is text (CommonMark 0.31, section 2.5)
_MARKUP = {ord(char): f"&#{ord(char)};" for char in "&<>\\`*{}[]#+!|~$^="}
_EMOJI = re.compile(r":(?=[\w+-]+:)")  # GitHub draws :name:
# between letters an underscore is text (the same, section 6.2)
_UNDERSCORE = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")


def escaped(value: object, most: int = _LONGEST) -> str:
    """Returns text that no Markdown reader takes for anything else, in one line."""
    plain = " ".join(clean(" ".join(str(value).split())).split())
    short = plain if len(plain) <= most else f"{plain[: most - 1]}…"
    # GitHub looks for mentions and addresses in what the Markdown became: a comment parts them
    return (
        _EMOJI.sub("&#58;", _UNDERSCORE.sub(_coded, short.translate(_MARKUP)))
        .replace("@", "@<!-- -->")
        .replace("&#35;", "&#35;<!-- -->")
        .replace("//", "/<!-- -->/")
        .replace("www.", "www<!-- -->.")
    )


def _coded(found: re.Match[str]) -> str:
    return "&#95;" * len(found[0])


def code(value: object) -> str:
    """Returns a name in the type of code, where nothing is linked either."""
    text = escaped(value)
    return f"<code>{text}</code>" if text else ""


class Paper:
    """Collects paragraphs and tables up to GitHub's limit."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._parts: list[str] = []
        self._room = limit - _SPARE
        self._cut: list[str] = []

    def add(self, text: str, what: str = "") -> None:
        """Adds a paragraph of Markdown; one that does not fit is left out, and named ``what``."""
        block = f"{text}\n\n"
        if len(block) > self._room:
            self._note(what or "a paragraph")
            return
        self._room -= len(block)
        self._parts.append(block)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> None:
        """Adds a table of cells that are Markdown already; it is short, so it is not cut."""
        self.add("\n".join([*_top(head, right), *map(_row, rows)]), "a table")

    def folded(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]], right: str = ""
    ) -> None:
        """Adds a table that one opens; as many rows as there is room for."""
        if not rows:
            return
        start = f"<details><summary>{title}</summary>\n\n"
        end = "\n\n</details>\n\n"
        lines = _top(head, right)
        room = self._room - len(start) - len(end) - sum(len(line) + 1 for line in lines)
        shown = 0
        for line in map(_row, rows):
            if len(line) + 1 > room:
                break
            room -= len(line) + 1
            shown += 1
            lines.append(line)
        if shown < len(rows):
            self._note(f"{len(rows) - shown:,} of {len(rows):,} rows of {title}")
        if shown:
            block = start + "\n".join(lines) + end
            self._room -= len(block)
            self._parts.append(block)

    def text(self, title: str, lines: str) -> None:
        """Adds literal text that one opens, such as a configuration."""
        if not lines.strip():
            return
        # indented code has no end that its text could write
        body = "\n".join(f"    {clean(line)}" for line in lines.splitlines())
        self.add(f"<details><summary>{title}</summary>\n\n{body}\n\n</details>", title)

    def _note(self, what: str) -> None:
        if len(", ".join([*self._cut, what])) < _SPARE - len(_CUT):
            self._cut.append(what)

    def __str__(self) -> str:
        cut = _CUT.format(", ".join(self._cut)) if self._cut else ""
        return "".join(self._parts).rstrip("\n") + "\n" + cut


def _top(head: Sequence[str], right: str) -> list[str]:
    sides = ["--:" if right[i : i + 1] == "r" else ":--" for i in range(len(head))]
    return [_row(head), _row(sides)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown(document: Mapping[str, Any], *, limit: int = LIMIT) -> str:
    """Returns a document as Markdown.

    Args:
        document: An ``edgekit.report/1``, ``edgekit.bench/1`` or ``edgekit.compare/1``.
        limit: Characters at most.

    Raises:
        DataError: It is another document.
    """
    from edgekit.report import _markdown_parts as parts

    writers: dict[str, Callable[[Mapping[str, Any], Paper], None]] = {
        "edgekit.report/1": parts.write_report,
        "edgekit.bench/1": parts.write_bench,
        "edgekit.compare/1": parts.write_compare,
    }
    write = writers.get(str(document.get("schema")))
    if write is None:
        raise DataError(
            f"there is no Markdown of {clean(document.get('schema'))!r}", code="markdown.schema",
            hint=f"one of {', '.join(writers)}",
        )  # fmt: skip
    paper = Paper(limit)
    write(document, paper)
    return str(paper)
