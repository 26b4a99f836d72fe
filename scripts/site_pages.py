"""The hooks of mkdocs: CONTRIBUTING.md is a page, and links lead to pages of the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: Any) -> Files:
    """Adds CONTRIBUTING.md, whose links begin at the repository's top; llms.txt links to .html."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "contributing.md", content=text))
    listed = files.src_uris["llms.txt"]
    files.remove(listed)
    text = listed.content_string.replace(".md)", ".html)")
    files.append(File.generated(config, "llms.txt", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Returns a page's text with the site's address of CONTRIBUTING.md."""
    return markdown.replace("](../CONTRIBUTING.md", "](contributing.md")
