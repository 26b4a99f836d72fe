"""What of a document is no behaviour: times measured, dates, versions, places and machine facts.

The tables below are the whole list. Predicted times are behaviour, and stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["normalised"]

# The value of such a key, wherever it stands, is replaced by the word, unless it is null.
KEYS: dict[str, str] = {
    "seconds": "<seconds>",
    "elapsed_s": "<seconds>",
    "created": "<date>",
    "date": "<date>",
    "time": "<date>",
    "host": "<host>",
    "hostname": "<host>",
    "pid": "<pid>",
    "versions": "<versions>",
    "commit": "<commit>",
    "created_by": "<versions>",
    "machine": "<machine>",
    "runtime_version": "<version>",
}

# What stands inside a text.
TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z| UTC|[+-]\d\d:?\d\d)?"),
        "<date>",
    ),
    (re.compile(r"[\d,]+ bytes, [\d,]+ without weights"), "<sizes>"),
    (re.compile(r"\bedgekit \d+\.\d+\.\d+\S*"), "edgekit <version>"),
)


def normalised(
    document: Any, paths: Mapping[str, str], words: Mapping[str, str] | None = None
) -> Any:
    """The document with fixed words in the place of what differs between runs and machines.

    ``paths`` says which word replaces the beginning of a path, ``words`` adds keys to the table.
    """
    longest_first = sorted(paths.items(), key=lambda item: -len(item[0]))
    return _value(document, longest_first, {**KEYS, **(words or {})})


def _value(value: Any, paths: list[tuple[str, str]], keys: dict[str, str]) -> Any:
    if isinstance(value, str):
        for path, word in paths:
            value = value.replace(path, word)
        for pattern, word in TEXTS:
            value = pattern.sub(word, value)
        return value
    if isinstance(value, dict):
        return {
            _value(key, paths, keys): keys[key]
            if key in keys and one is not None
            else _value(one, paths, keys)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_value(one, paths, keys) for one in value]
    return value
