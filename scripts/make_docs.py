"""Writes the pages of docs/ that come from schemas, knowledge files and the board's definitions.

Run without arguments to write them, with --check to fail when one is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from board_pages import board_protocol_page, manifest_page
from config_page import config_page, json_schema
from cost_tables import cost_page
from dla_page import dla_page
from rewrites_page import rewrites_page
from tensorrt_page import tensorrt_page

from edgekit.reports.schema import report_schema

DOCS = Path(__file__).parent.parent / "docs"


def pages() -> dict[str, str]:
    """Returns the generated pages by file name."""
    return {
        "board-protocol.md": board_protocol_page(),
        "config.md": config_page(),
        "config.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        "dla-support.md": dla_page(),
        "cost-model.md": cost_page(),
        "manifest.md": manifest_page(),
        "report.schema.json": json.dumps(report_schema(), indent=2) + "\n",
        "rewrites.md": rewrites_page(),
        "tensorrt.md": tensorrt_page(),
    }


def main() -> int:
    """Writes or checks the pages."""
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
    verb = "stale" if "--check" in sys.argv else "written"
    for name in stale:
        print(f"docs/{name} {verb}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
