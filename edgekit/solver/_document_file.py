"""The file of a problem document: JSON, read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgekit._files import parse_json, regular
from edgekit.errors import DataError
from edgekit.solver._document_check import fail

__all__ = ["read_document"]

MOST_BYTES = 64 * 2**20


def read_document(path: Path) -> object:
    """Returns the JSON in a file.

    Raises:
        DataError: The file cannot be read (code ``problem.unreadable``) or is no JSON
            (``problem.invalid``).
    """
    try:
        with regular(path).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DataError(
            f"cannot read the problem: {error.strerror or error}",
            code="problem.unreadable",
            where=str(path),
            hint="give a JSON file with the schema edgekit.problem/1",
        ) from error
    if len(raw) > MOST_BYTES:
        fail(f"the file is larger than {MOST_BYTES >> 20} MiB", str(path))
    try:
        return parse_json(
            raw.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        fail(f"no JSON: {error.msg}", f"{path}:{error.lineno}:{error.colno}")
    except UnicodeDecodeError:
        fail("no JSON: the file is not UTF-8 text", str(path))
    except RecursionError:
        fail("arrays or objects are nested too deeply", str(path))
    except ValueError as error:  # a number of thousands of digits, and what _once and _constant say
        fail(f"no JSON: {error}", str(path))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!a} is there twice in one object")
    return found


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no number in JSON")
