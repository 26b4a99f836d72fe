"""TensorRT version numbers: "10.3" and "10.3.0.30" are the same release to a rule."""

from __future__ import annotations

import re
from functools import lru_cache

from edgekit.errors import UsageError

__all__ = ["Version", "parse_version"]

Version = tuple[int, ...]
_FORM = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}")


@lru_cache(maxsize=256)
def parse_version(text: str) -> Version:
    """Returns a version as numbers that compare, trailing zeros dropped.

    Raises:
        UsageError: The text is no version (code ``tensorrt.version``).
    """
    if not _FORM.fullmatch(text.strip()):
        raise UsageError(
            f"{text!r} is no TensorRT version",
            code="tensorrt.version",
            where=text,
            hint="give numbers with points, for example 10.3 or 8.5.2",
        )
    numbers = [int(part) for part in text.strip().split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
