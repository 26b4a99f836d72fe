"""Reads the knowledge files: YAML once, and from then on the same values kept as JSON.

The check of a model takes about as long as reading it; parsing YAML would be a quarter of that.
What is kept is named after the file and believed only for the very file that it was made from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgekit import __version__
from edgekit._data import cache_folder, data_folder
from edgekit.errors import DataError, EnvironmentLack

__all__ = ["read_knowledge"]

_FOLDER = "knowledge"


def read_knowledge(path: Path) -> Any:
    """Returns the content of a YAML file, as plain values that nobody else holds.

    Only files of edgekit's own are kept. A cache that is stale, damaged or cannot be written is no
    failure.

    Raises:
        DataError: It is not YAML (code "data.yaml"); ``where`` is file:line:column.
        OSError: It cannot be read.
    """
    if data_folder("dla").parent not in path.parents:
        return _parse(path)
    status = path.stat()
    key = [__version__, str(path), status.st_size, status.st_mtime_ns]
    kept = cache_folder() / _FOLDER / f"{path.parent.name}-{path.stem}.json"
    try:
        record = json.loads(kept.read_bytes())
        if record["key"] == key:
            return record["value"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    value = _parse(path)
    _keep(kept, {"key": key, "value": value})
    return value


def _parse(path: Path) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(path.read_bytes(), Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        message = getattr(error, "problem", None) or "this is not YAML"
        raise DataError(message, code="data.yaml", where=place) from error


def _keep(path: Path, record: dict[str, Any]) -> None:
    from edgekit._files import write_atomically

    try:
        text = json.dumps(record)
        # dates and keys that are no texts are YAML's alone: such a file is read anew each time
        if json.loads(text) == record:
            with write_atomically(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
    except (TypeError, ValueError, EnvironmentLack):
        pass
