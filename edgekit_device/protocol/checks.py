"""Checks of untrusted JSON: type, range and syntax, each naming the place where it failed; and
``read_json`` for a command's bounded JSON document on stdin.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, BinaryIO, Dict, List, NoReturn, Sequence, Tuple

from edgekit_device.errors import DeviceError

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_RELEASE = re.compile(r"[0-9]{6,9}-[0-9a-f]{12}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_TEXT = 4096
_MAX_RANK = 16
_MAX_COUNT = 1 << 20
_MAX_DIGITS = 400


def fail(where: str, message: str, *, code: str = "manifest.invalid", hint: str = "") -> NoReturn:
    """Raises the DeviceError of a document that is wrong at ``where``."""
    raise DeviceError(message, code=code, where=where, hint=hint)


def is_digest(value: object) -> bool:
    """Whether ``value`` is a SHA-256 in lower-case hex."""
    return isinstance(value, str) and _DIGEST.match(value) is not None


def is_app_name(value: object) -> bool:
    """Whether ``value`` can be an app's name, and so a folder's."""
    return isinstance(value, str) and _APP.match(value) is not None


def is_release(value: object) -> bool:
    """Whether ``value`` can be a release's name: its number and the start of its digest."""
    return isinstance(value, str) and _RELEASE.match(value) is not None


def parse_json(data: bytes, where: str, code: str = "manifest.invalid") -> Any:
    """Reads strict JSON: UTF-8, no duplicate keys, no NaN or Infinity, no number beyond a double.

    Raises:
        DeviceError: ``code``, when it is anything else.
    """

    def pairs(items: List[Tuple[str, Any]]) -> Dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            fail(where, "a key occurs twice in one object", code=code)
        return found

    def constant(name: str) -> NoReturn:
        fail(where, "{} is not a JSON number".format(name), code=code)

    def whole(digits: str) -> int:
        # Python before 3.11 takes quadratic time for millions of digits
        if len(digits) > _MAX_DIGITS:
            fail(where, "a number of {} digits".format(len(digits)), code=code)
        return int(digits)

    def broken(digits: str) -> float:
        if len(digits) > _MAX_DIGITS or not math.isfinite(float(digits)):
            fail(where, "{} is no number here".format(digits[:40]), code=code)
        return float(digits)

    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=pairs,
            parse_constant=constant,
            parse_int=whole,
            parse_float=broken,
        )
    except (ValueError, RecursionError) as error:
        raise DeviceError("not JSON: {}".format(error), code=code, where=where) from error


def record(value: object, where: str, fields: Sequence[str]) -> Dict[str, Any]:
    """An object with exactly ``fields``."""
    if not isinstance(value, dict):
        fail(where, "expected an object, found {}".format(_kind(value)))
    missing = [name for name in fields if name not in value]
    if missing:
        fail(where, "missing: {}".format(", ".join(missing)))
    unknown = sorted(set(value) - set(fields))
    if unknown:
        fail(
            where,
            "unknown: {}".format(", ".join(repr(name)[:80] for name in unknown[:5])),
            hint="another edgekit made this: edgekit deploy CONFIG makes it anew; "
            "where the board's loader is the older one, replace that",
        )
    return value


def array(value: object, where: str, least: int = 0) -> List[Any]:
    """A list of at least ``least`` entries."""
    if not isinstance(value, list):
        fail(where, "expected a list, found {}".format(_kind(value)))
    if not least <= len(value) <= _MAX_COUNT:
        fail(where, "{} entries are too few or too many".format(len(value)))
    return value


def text(value: object, where: str) -> str:
    """A string of bounded length."""
    if not isinstance(value, str):
        fail(where, "expected a string, found {}".format(_kind(value)))
    if len(value) > _MAX_TEXT:
        fail(where, "a string of {} characters is too long".format(len(value)))
    return value


def names(value: object, where: str, least: int = 0) -> Tuple[str, ...]:
    """A list of different, non-empty strings without control characters."""
    found = tuple(text(item, where) for item in array(value, where, least))
    if "" in found or len(set(found)) != len(found):
        fail(where, "names must be different and not empty")
    if any(_CONTROL.search(name) for name in found):
        fail(where, "a name has control characters")
    return found


def integer(value: object, where: str, low: int, high: int) -> int:
    """An integer (not a bool) from ``low`` to ``high``."""
    if not isinstance(value, int) or isinstance(value, bool):
        fail(where, "expected an integer, found {}".format(_kind(value)))
    if not low <= value <= high:
        fail(where, "{} is not within {} to {}".format(value, low, high))
    return value


def number(value: object, where: str, low: float, high: float) -> float:
    """A finite number from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        fail(where, "expected a number, found {}".format(_kind(value)))
    if not low <= value <= high:
        fail(where, "{!r} is not within {} to {}".format(value, low, high))
    return float(value)


def digest(value: object, where: str) -> str:
    """A SHA-256 in lower-case hex."""
    if not isinstance(value, str) or not is_digest(value):
        fail(where, "not a SHA-256 in lower-case hex")
    return value


def shape(value: object, where: str) -> Tuple[int, ...]:
    """A static shape."""
    sizes = array(value, where)
    if len(sizes) > _MAX_RANK:
        fail(where, "{} dimensions are more than {}".format(len(sizes), _MAX_RANK))
    return tuple(integer(size, where, 0, 1 << 40) for size in sizes)


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def read_json(stdin: BinaryIO, most: int) -> Any:
    """The one JSON document on stdin, of at most ``most`` bytes; "protocol.invalid"."""
    data = stdin.read(most + 1)
    if len(data) > most:
        raise protocol_error("more than {} bytes".format(most))
    return parse_json(data, "stdin", "protocol.invalid")


def protocol_error(message: str) -> DeviceError:
    """What is raised where the host does not keep to the protocol."""
    return DeviceError(
        message,
        code="protocol.invalid",
        where="stdin",
        hint="use the loader and the edgekit of the same version",
    )
