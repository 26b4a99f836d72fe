"""Results of the history as JSON and CSV, for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TextIO

from edgekit.files import write_text
from edgekit.results.store import HISTORY_SCHEMA, History, HistoryRow, Result, history_row

_CELLS = (
    "id",
    "at",
    "name",
    "clock",
    "verdict",
    "board",
    "target",
    "power_mode",
    "precision",
    "backend",
    "bundle",
    "commit",
    "dirty",
    "iterations",
    "throughput_qps",
    "energy_uj",
)
_LATENCIES = ("min", "mean", "median", "p90", "p95", "p99", "max")


def export(
    results: Sequence[Result], output: Path | TextIO, form: Literal["json", "csv"] | None = None
) -> History:
    """Writes results to a file or an open text stream, and returns them.

    Args:
        results: The results; the document includes their single times.
        output: A stream, or a file, which is written atomically.
        form: JSON (the document on one line) or CSV (a header, then a line for each result);
            by default CSV if the file's name ends in .csv, else JSON.
    """
    rows = [
        history_row(result).model_copy(update={"document": result.whole()}) for result in results
    ]
    found = History(schema=HISTORY_SCHEMA, results=rows)
    if form is None:
        is_csv = isinstance(output, Path) and output.suffix.lower() == ".csv"
        form = "csv" if is_csv else "json"
    text = _csv(rows) if form == "csv" else json.dumps(found.to_json(), allow_nan=False) + "\n"
    if isinstance(output, Path):
        write_text(output, text)
    else:
        output.write(text)
    return found


def _csv(rows: Sequence[HistoryRow]) -> str:
    paper = io.StringIO()
    writer = csv.writer(paper, lineterminator="\n")
    writer.writerow([*_CELLS, *(f"{key}_ms" for key in _LATENCIES), "marks"])
    for row in rows:
        latency = row.latency_ms or {}
        cells = [*(getattr(row, key) for key in _CELLS), *map(latency.get, _LATENCIES)]
        writer.writerow([_escape_formula(cell) for cell in [*cells, " ".join(row.marks)]])
    return paper.getvalue()


def _escape_formula(cell: object) -> object:
    """Returns a cell as text that no spreadsheet evaluates as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell
