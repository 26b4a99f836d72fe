"""A document in a few lines: six digits of a float, and long lists and objects by column.

A column is its values where they come in few runs, else its sum (of numbers) and a digest. Digests
are compared only where the bytes hold ("~", see goldens.py) or everywhere ("#").
"""

from __future__ import annotations

import hashlib
import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

__all__ = ["brief", "digest_of"]

ROWS = 3  # longer lists of objects are columns
VALUES = 12  # longer lists and objects of plain values are a column
WIDTH = 90  # of the runs of a column
TEXT = 140  # longer texts are their beginning
SHOWN = 60


def brief(value: Any) -> Any:
    """The document as the golden file of a network has it."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        if len(value) > VALUES and not any(isinstance(one, dict | list) for one in value.values()):
            return {"keys": _column([*value]), "values": _column([*value.values()])}
        return {key: brief(one) for key, one in value.items()}
    if isinstance(value, str) and len(value) > TEXT:
        return f"{_mark(value, value)} {value[:SHOWN]}…"
    if not isinstance(value, list):
        return value
    if len(value) > ROWS and all(isinstance(one, dict) for one in value):
        names = dict.fromkeys(name for one in value for name in one)
        return {
            "rows": len(value),
            **{name: _column([one.get(name) for one in value]) for name in names},
        }
    if len(value) > VALUES:
        return _column(value)
    return [brief(one) for one in value]


def digest_of(data: bytes | Path) -> str:
    """The digest of bytes, which hold only where they were recorded."""
    found = data.read_bytes() if isinstance(data, Path) else data
    return f"~{hashlib.sha256(found).hexdigest()} of {len(found)} bytes"


def _column(values: list[Any]) -> Any:
    short = [brief(one) for one in values]
    lines = [one if isinstance(one, str) else json.dumps(one) for one in short]
    runs = [(line, len([*some])) for line, some in groupby(lines)]
    text = ", ".join(f"{count} x {line}" if count > 1 else line for line, count in runs)
    if len(text) <= WIDTH:
        return text
    mark = _mark(values, json.dumps(short, sort_keys=True))
    numbers = [one for one in values if isinstance(one, int | float)]
    return [brief(sum(numbers)), mark] if numbers else mark


def _mark(value: Any, text: str) -> str:
    return f"{'~' if _has_float(value) else '#'}{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _has_float(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) or (
        isinstance(value, str) and bool(re.search(r"\d\.\d|[0-9a-f]{12}", value))
    )
