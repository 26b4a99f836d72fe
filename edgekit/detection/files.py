"""A head and names of classes that the user gives in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from edgekit.detection.walk import numbered
from edgekit.documents import load_json
from edgekit.errors import DataError
from edgekit.files import read_file
from edgekit_device.detection.head import Head
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import read

_LARGEST = 4 << 20
_YAML = frozenset({".yaml", ".yml"})


def read_head(path: Path) -> Head:
    """Returns the head of a document ``edgekit.head/1``.

    Raises:
        DataError: "head.unreadable", "head.invalid".
    """
    hint = "give a document edgekit.head/1, or model.head: auto"
    document = load_json(
        path, _LARGEST, unreadable="head.unreadable", invalid="head.invalid", hint=hint
    )
    try:
        return read(Head, document)
    except DeviceError as error:
        where = ": ".join(filter(None, (str(path), error.where)))
        raise DataError(
            f"not a valid head: {error.message}", code="head.invalid", where=where, hint=hint
        ) from error


def read_class_names(given: Path | Sequence[str]) -> list[str]:
    """Returns names of classes: the given names, or those in a file.

    Args:
        given: The names; a text file with a name on each line; or a YAML file with ``names``, a
            list or a mapping from numbers, as in Ultralytics' data.yaml.

    Raises:
        DataError: "head.classes".
    """
    if not isinstance(given, Path):
        return list(given)
    try:
        text = read_file(given, _LARGEST).decode("utf-8")
        document = yaml.safe_load(text) if given.suffix.lower() in _YAML else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text or no YAML"
        raise _classes_error(f"names of classes cannot be read: {reason}", given) from error
    own = document.get("names") if isinstance(document, dict) else None
    names = text.splitlines() if document is None else numbered(own)
    found = [str(name).strip() for name in names]
    # empty lines at the end of a file are no classes
    while found and not found[-1]:
        found.pop()
    if not found or not all(found):
        raise _classes_error(
            "a class has no name" if found else "there are no names of classes", given
        )
    return found


def _classes_error(message: str, path: Path) -> DataError:
    return DataError(
        message,
        code="head.classes",
        where=str(path),
        hint="give a file with a name on each line, or one with names: [first, second]",
    )
