"""``docs/llms.txt``: every page with its title and first sentence, for tools that look for one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_HEAD = """# edgekit

> Runs ONNX networks on NVIDIA Jetson boards: explains which layers fit the DLA, rewrites,
> calibrates and places layers on GPU and DLA, builds with TensorRT, deploys bundles, measures.

Not on PyPI; install from a checkout: [Install](install.md).
`edgekit COMMAND --help` explains each command; `--json` prints one document.
"""
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE = re.compile(r".{20,}?[.!?](?=\s|$)")
# a paragraph that begins so is a heading, code, a table, a list, or about the page itself
_OTHER = (
    "#",
    "```",
    "|",
    "!",
    "<",
    "---",
    "Made by",
    "Made from",
    "Generated",
    "- ",
    "* ",
    "> ",
    "1. ",
)


def llms_page(folder: Path, made: Mapping[str, str]) -> str:
    """Returns the list of all pages below a folder.

    Args:
        folder: Where they are.
        made: Texts of generated pages by name, which replace the files of the folder.
    """
    texts = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.md")
    }
    texts |= {name: text for name, text in made.items() if name.endswith(".md")}
    rows = [
        f"- [{_title(name, text)}]({name}): {_first_sentence(text)}"
        for name, text in sorted(texts.items())
    ]
    return f"{_HEAD}\n## Pages\n\n" + "\n".join(row.removesuffix(": ") for row in rows) + "\n"


def _title(name: str, text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1].replace("`", "") if found else name


def _first_sentence(text: str) -> str:
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        if not line or line.startswith(_OTHER):
            continue
        plain = _LINK.sub(r"\1", line)
        found = _SENTENCE.match(plain)
        return found[0] if found else plain
    return ""
