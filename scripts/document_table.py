"""Every document that edgekit writes for people or programs, with its class."""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: By schema and version: the pydantic model of the host, or the codec dataclass.
DOCUMENTS = {
    "edgekit.bench/1": "edgekit.benchmark.document.Bench",
    "edgekit.compare/1": "edgekit.results.comparison.Comparison",
    "edgekit.export/1": "edgekit.pytorch.document.Exported",
    "edgekit.history/1": "edgekit.results.store.History",
    "edgekit.report/1": "edgekit.reports.schema.Report",
}


def document_class(name: str) -> type[Any]:
    """Returns a document's class by its schema and version."""
    module, _, attribute = DOCUMENTS[name].rpartition(".")
    found: type[Any] = getattr(import_module(module), attribute)
    return found


def schema_file(name: str) -> str:
    """Returns the name of a document's JSON Schema in docs/schemas."""
    return name.partition(".")[2].partition("/")[0] + ".schema.json"
