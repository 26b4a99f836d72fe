"""Layer times as trtexec writes them, line by line, and as lists and objects of JSON."""

from __future__ import annotations

import math
import re
from typing import Any

from edgekit.placement._profile_types import Row

__all__ = ["NoTime", "listed_rows", "trtexec_rows"]

_LONGEST = 1 << 14
# trtexec writes names without escaping them, and nan where a total is zero
_LINE = re.compile(r'^[\s,\[]*\{ "name" : "(.*)", "timeMs" : (\S+?)((?:, "\w+" : \S+?)*) \}')
_MORE = re.compile(r', "(\w+)" : ([^\s,}]+)')
_COUNT = re.compile(r'\{ "count" : (\d{1,12}) \}')
_TIMES = (
    ("medianMs", 1e3), ("averageMs", 1e3), ("timeMs", 1e3), ("time_ms", 1e3), ("mean_ms", 1e3),
    ("ms", 1e3), ("averageUs", 1.0), ("time_us", 1.0), ("mean_us", 1.0), ("us", 1.0),
)  # fmt: skip
_NAN = re.compile(r"-?nan", re.IGNORECASE)  # Windows writes -nan(ind)
_LISTS = ("layers", "Layers", "profile", "times")


def trtexec_rows(text: str) -> list[Row]:
    """Reads line by line: a strict parser would refuse what trtexec writes."""
    rows = []
    count = int(match[1]) if (match := _COUNT.search(text)) else 1
    for line in text.splitlines():
        if line.count('"timeMs"') > 1:
            return []  # several to a line: not trtexec's
        match = _LINE.match(line[:_LONGEST])
        if match is None:
            continue
        fields = dict(_MORE.findall(match[3]))
        fields["timeMs"] = match[2]
        median, average, total = (
            _us(fields.get(key), 1e3, key, match[1]) for key in ("medianMs", "averageMs", "timeMs")
        )
        us = median or average or total / max(count, 1)
        rows.append(Row(match[1], us))
    return rows


def listed_rows(document: Any) -> list[Row]:
    """Returns the mean of each name, in the order of first appearance."""
    if isinstance(document, dict):
        for key in _LISTS:
            if isinstance(document.get(key), list | dict):
                return listed_rows(document[key])
        pairs = list(document.items())
        document = pairs if all(_is_time(value) for _, value in pairs) else []
    if not isinstance(document, list):
        return []
    times: dict[str, list[float]] = {}
    count = 1
    for entry in document:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            key, scale = next(((k, s) for k, s in _TIMES if k in entry), ("", 0.0))
            share = count if key == "timeMs" else 1
            if key:
                times.setdefault(entry["name"], []).append(
                    _us(entry[key], scale, key, entry["name"]) / share
                )
        elif isinstance(entry, dict) and isinstance(entry.get("count"), int):
            count = max(1, entry["count"])
        elif isinstance(entry, list | tuple) and len(entry) == 2 and _is_time(entry[1]):
            times.setdefault(str(entry[0]), []).append(
                _us(entry[1], 1e3, "the time", str(entry[0]))
            )
    return [Row(name, sum(each) / len(each)) for name, each in times.items()]


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class NoTime(Exception):
    """A field that should hold a time and does not."""


def _us(value: Any, scale: float, field: str, name: str) -> float:
    """Returns microseconds; 0 where trtexec has no sum: it writes nan then, or leaves it out.

    Raises:
        NoTime: It is neither.
    """
    try:
        us = float(0 if value is None else value) * scale
    except (TypeError, ValueError, OverflowError):
        if isinstance(value, str) and _NAN.match(value):
            return 0.0
        raise NoTime(f"{field} of the layer {name[:80]!r} is {value!r:.60}, no number") from None
    return 0.0 if math.isnan(us) else round(us, 6) if math.isfinite(us) else us
