"""What commands write beside what they print: Markdown, and the annotated ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click

from edgekit.cli import _options as o
from edgekit.errors import UsageError

__all__ = ["annotate", "markdown", "write_markdown"]


_MARKDOWN = click.option(
    "--markdown",
    metavar="FILE",
    help="Write a table for a pull request, too; - is stdout, instead of what is printed else.",
)


def markdown(function: Any) -> Any:
    """Gives a command ``markdown``: a file, "-" or None."""

    @wraps(function)
    def checked(*, markdown: str | None, json: bool, **others: Any) -> Any:
        if markdown == "-" and json:
            raise UsageError("--markdown - and --json both write to stdout")
        # told before minutes of measuring
        if markdown not in (None, "-") and not (folder := Path(markdown).parent).is_dir():
            raise UsageError(
                f"--markdown: there is no folder {folder}", where=markdown,
                hint="make it, or name a file in one that is there",
            )  # fmt: skip
        return function(markdown=markdown, json=json, **others)

    return _MARKDOWN(checked)


annotate = click.option(
    "--annotate",
    type=o.FILE,
    metavar="FILE",
    help="Write the ONNX file with devices and times in its nodes' metadata, for Netron.",
)


def write_markdown(document: Mapping[str, Any], goal: str) -> None:
    """Writes a document as Markdown to a file, or to stdout for "-"."""
    from edgekit.report import markdown as text_of

    text = text_of(document)
    if goal == "-":
        o.say(text.rstrip("\n"))
        return
    from edgekit._files import write_atomically

    with write_atomically(Path(goal)) as temporary:
        temporary.write_text(text, encoding="utf-8")
