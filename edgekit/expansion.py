"""``${NAME}`` in a configuration: environment variables are expanded where a program needs their
values, and printed as ``${NAME}`` everywhere else: in errors, progress, reports and documents.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SHORTEST = 3  # shorter values and numbers also occur in texts by chance
# by a value or a text with values in it: the text shown in its place
_shown: dict[str, str] = {}


def expand(text: str, missing: Callable[[str], object]) -> str:
    """Replaces each ``${NAME}``, and has the values shown as ``${NAME}`` from now on.

    Args:
        text: A text of a configuration.
        missing: Called with each name that is not set; its ``${NAME}`` stays.
    """

    def value(match: re.Match[str]) -> str:
        name, found = match[1], os.environ.get(match[1])
        if found is None:
            missing(name)
            return match[0]
        _show(found, match[0])
        return found

    expanded = _VARIABLE.sub(value, text)
    _show(expanded, text)
    return expanded


def _show(value: str, shown: str) -> None:
    if value != shown and len(value) >= _SHORTEST and not value.isdecimal():
        _shown.setdefault(value, shown)


def forget() -> None:
    """Forgets all values: the next command has a configuration of its own."""
    _shown.clear()


def redact(text: str) -> str:
    """Returns a text with ``${NAME}`` in the place of every expanded value that is a whole word."""
    # the longest first, since a value may contain another one
    for value in sorted(_shown, key=len, reverse=True):
        if value in text:
            # whole words alone: "orin" must not be replaced in "/orinoco"
            pattern = rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])"
            text = re.sub(pattern, lambda _, value=value: _shown[value], text)  # type: ignore[misc]
    return text


def redact_document(document: Any) -> Any:
    """Returns a JSON document with :func:`redact` texts; its keys stay."""
    if not _shown:
        return document
    if isinstance(document, str):
        return redact(document)
    if isinstance(document, dict):
        return {key: redact_document(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [redact_document(value) for value in document]
    return document
