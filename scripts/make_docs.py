"""Writes the pages of docs/ that come from schemas, knowledge files and the board's definitions.

Run without arguments to write them, with --check to fail when one is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from board_pages import board_protocol_page, manifest_page
from config_page import config_page, json_schema
from cost_tables import cost_page, predictions
from dla_database import SCHEMA, DlaSupport, database, search_page
from dla_page import dla_page
from llms_page import llms_page
from reference_pages import api_page, cli_page, documents_page, schema_file, targets_page
from rewrites_page import rewrites_page
from tensorrt_guide_page import tensorrt_guide_page
from tensorrt_page import tensorrt_page

from edgekit.documents import json_schema as document_schema
from edgekit.saved_documents import DOCUMENTS, document_classes

DOCS = Path(__file__).parent.parent / "docs"


def pages() -> dict[str, str]:
    """Returns the generated pages by file name."""
    made = {
        "api.md": api_page(),
        "board-protocol.md": board_protocol_page(),
        "cli.md": cli_page(),
        "config.md": config_page(),
        "config.schema.json": _json(json_schema()),
        "cost-model.md": cost_page(),
        "data/dla-support.json": _json(database().to_json()),
        "data/dla-support.schema.json": _json(document_schema(SCHEMA, DlaSupport)),
        "data/predictions.csv": predictions(),
        "dla-support.md": dla_page(),
        "dla-support-search.html": search_page(),
        "documents.md": documents_page(),
        "manifest.md": manifest_page(),
        "rewrites.md": rewrites_page(),
        "targets.md": targets_page(),
        "tensorrt.md": tensorrt_page(),
    }
    made |= {
        f"schemas/{schema_file(name)}": _json(document_schema(name, *document_classes(name)))
        for name in DOCUMENTS
    }
    made["tensorrt-guide.md"] = tensorrt_guide_page(DOCS, made)
    return {**made, "llms.txt": llms_page(DOCS, made)}


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"


def main() -> int:
    """Writes or checks the pages."""
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    verb = "stale" if "--check" in sys.argv else "written"
    for name in stale:
        print(f"docs/{name} {verb}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
