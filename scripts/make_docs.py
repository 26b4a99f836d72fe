"""Writes the pages of docs/ that come from the schema and from the knowledge files.

Run without arguments to write them, with --check to fail when one is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cost_tables import cost_page

from edgekit.config import json_schema, reference_page
from edgekit.dla import docs_page
from edgekit.report import report_schema
from edgekit.rewrite import rewrites_page
from edgekit.trt import tensorrt_page

DOCS = Path(__file__).parent.parent / "docs"


def pages() -> dict[str, str]:
    """Returns the generated pages by file name."""
    return {
        "config.md": reference_page(),
        "config.schema.json": json.dumps(json_schema(), indent=2) + "\n",
        "dla-support.md": docs_page(),
        "cost-model.md": cost_page(),
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
