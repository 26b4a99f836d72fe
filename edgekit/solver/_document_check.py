"""Checks of JSON values that say where a value is wrong, and what was expected."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from edgekit.errors import DataError

__all__ = ["array", "fail", "integer", "known", "name", "number", "record"]

LARGEST = 1e12  # microseconds: eleven days; sums of a thousand keep a millionth
MOST_BYTES = 2**50
LONGEST_NAME = 1000


def fail(message: str, where: str, hint: str = "") -> NoReturn:
    """Raises the error of a wrong document (DataError, code ``problem.invalid``)."""
    raise DataError(message, code="problem.invalid", where=where or "the document", hint=hint)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    words = {bool: "true or false", str: "a string", list: "an array", dict: "an object"}
    return words.get(type(value), "a number" if isinstance(value, int | float) else "something")


def record(
    value: object, where: str, keys: Collection[str], required: Collection[str] = ()
) -> Mapping[str, Any]:
    """Returns an object that has no keys but ``keys`` and all of ``required``."""
    if not isinstance(value, Mapping):
        fail(f"an object was expected, not {_kind(value)}", where)
    for key in value:
        known(key, keys, f"{where}.{key}".lstrip("."), "key")
    for key in required:
        if key not in value:
            fail(f'the key "{key}" is missing', where)
    return value


def known(value: object, names: Collection[str], where: str, what: str) -> str:
    """Returns a string that is one of ``names``."""
    if isinstance(value, str) and value in names:
        return value
    shown = f'"{_short(value)}"' if isinstance(value, str) else _kind(value)
    near = difflib.get_close_matches(value[:60], names, n=1) if isinstance(value, str) else []
    fail(
        f"unknown {what} {shown}",
        where if len(where) < 200 else where[:200] + "...",
        f'did you mean "{near[0]}"?' if near else f"known are {', '.join(names) or 'none'}",
    )


def array(value: object, where: str, most: int, least: int = 0) -> list[Any]:
    """Returns an array of ``least`` to ``most`` values."""
    if not isinstance(value, list | tuple):
        fail(f"an array was expected, not {_kind(value)}", where)
    if not least <= len(value) <= most:
        fail(f"{len(value)} values; {least} to {most} are taken", where)
    return list(value)


def number(value: object, where: str, most: float = LARGEST) -> float:
    """Returns a number from 0 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fail(f"a number was expected, not {_kind(value)}", where)
    if isinstance(value, float) and not math.isfinite(value):
        fail(f"a finite number was expected, not {value}", where)
    if value < 0:
        fail("the number is negative", where, "give 0 or more")
    if value > most:
        fail(f"the number is larger than {most:g}", where, "the unit may be another one")
    return float(value)


def integer(value: object, where: str, most: int = MOST_BYTES) -> int:
    """Returns a whole number from 0 to ``most``."""
    found = number(value, where, most)
    if found != int(found):
        fail("a whole number was expected", where)
    return int(found)


def name(value: object, where: str) -> str:
    """Returns a string that can be printed and is not empty."""
    if not isinstance(value, str):
        fail(f"a string was expected, not {_kind(value)}", where)
    if not value or len(value) > LONGEST_NAME:
        fail(f"a name has 1 to {LONGEST_NAME} characters", where)
    if not value.isprintable():
        fail("the name has characters that cannot be printed", where)
    return value


def _short(text: str) -> str:
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= 60 else shown[:57] + "..."
