"""What the fields of a generic event say: metrics, or whose task it is, and when it ran.

Nothing documents a DLA's events; what is looked for is in ``targets/_nsys.yaml``, with its sources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.bench._nsys_rows import DLA, Span
from edgekit.bench._nsys_words import dla_words

__all__ = [
    "EventType", "core_of", "fields_of", "first_of", "is_metrics", "number_of", "phase_of",
    "span_of", "whole_task",
]  # fmt: skip

_DLA = re.compile(r"(?<![a-z])(?:nv)?dla(?:sw)?[_ ]?(\d?)", re.IGNORECASE)
_LONGEST_JSON = 1 << 16
_LARGEST = 1 << 62
_DIGITS = 40


@dataclass(frozen=True, slots=True)
class EventType:
    """A type of events, and the name of what sends them."""

    name: str
    source: str


def is_metrics(kind: EventType, data: Mapping[str, Any]) -> bool:
    """Metrics are numbers under names for people; events have fields of a record."""
    if not data or any(key.startswith("common_") for key in data):
        return False
    named = "metric" in kind.source.lower() or "metric" in kind.name.lower()
    numbers = sum(number_of(value) is not None for value in data.values())
    return numbers == len(data) and (named or all(" " in key for key in data))


def core_of(kind: EventType, data: Mapping[str, Any]) -> int | None:
    """Returns the DLA core of an event; None where it is none of a DLA's."""
    words = dla_words()
    by_class = words.classes.get(int(number_of(first_of(data, ("class", "classid"))) or 0))
    if by_class is not None:
        return by_class
    texts = [kind.name, kind.source, *(str(v) for k, v in data.items() if plain(k) in words.cores)]
    matches = [match for text in texts if (match := _DLA.search(text))]
    if not matches:
        return None
    number = next((int(match[1]) for match in matches if match[1]), None)
    if number is None:
        number = next(
            (int(n) for key in words.cores if (n := number_of(first_of(data, (key,)))) is not None),
            0,
        )
    return number if 0 <= number < 16 else 0


def whole_task(at: int, raw: int, data: Mapping[str, Any]) -> tuple[int, int] | None:
    """Returns begin and end of an event that has both."""
    words = dla_words()
    first, last = (number_of(first_of(data, names)) for names in (words.starts, words.ends))
    if first is not None and last is not None and last >= first >= 0:
        # in the session's time, or in the clock of rawTimestamp
        shift = at - raw if abs(last - raw) < abs(last - at) else 0
        start, end = int(first) + shift, int(last) + shift
        return (start, end) if 0 <= start <= end < _LARGEST else None
    spent = number_of(first_of(data, words.durations))
    if spent is not None and 0 <= spent < _LARGEST:
        return at, at + int(spent)
    return None


def phase_of(kind: EventType, data: Mapping[str, Any]) -> tuple[str, str]:
    """Returns an event's name without its phase, and "begin", "end" or nothing."""
    words = dla_words()
    said = next((str(v) for k, v in data.items() if plain(k) in words.phase), "")
    for text in (kind.name, said):
        for pattern, phase in ((words.begin, "begin"), (words.end, "end")):
            if text and pattern.search(text):
                return (pattern.sub("", kind.name) if text is kind.name else kind.name), phase
    return kind.name, ""


def span_of(times: tuple[int, int], core: int, kind: EventType, data: Mapping[str, Any]) -> Span:
    words = dla_words()
    stem = words.begin.sub("", words.end.sub("", kind.name))
    name = str(first_of(data, words.names) or stem or "task")[:200]
    detail = tuple((key[:60], str(value)[:200]) for key, value in list(data.items())[:24])
    return Span(DLA, name, *times, (core, 0), group="generic", detail=detail)


def plain(key: str) -> str:
    return key.lower().replace("_", "").replace(" ", "")


def first_of(data: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    by_name = {plain(key): value for key, value in data.items()}
    return next((by_name[key] for key in keys if key in by_name), None)


def fields_of(data: object) -> dict[str, Any]:
    if not isinstance(data, str) or len(data) > _LONGEST_JSON:
        return {}
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str | int | float)}


def number_of(value: object) -> float | None:
    """Returns a finite number; texts may be decimal or 0x..."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    number: float = 0.0
    try:
        number = _of_text(value) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        return None
    return number if -_LARGEST < number < _LARGEST else None


def _of_text(text: str) -> float:
    if len(text) > _DIGITS:
        raise ValueError
    try:
        return int(text, 0)
    except ValueError:
        return float(text)
