"""Events of a trace as the lines of its file: text that is written as it is, with its time.

A large export has millions of events, and making a dictionary of each, encoding it and looking
into it again takes longer than reading it: ``Lines`` puts together what differs between two events
of a kind and encodes names and arguments once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from edgekit.bench._trace_process import Event

__all__ = ["Line", "Lines", "dumps", "line_of"]

_KNOWN = 1 << 14
dumps: Callable[[Any], str] = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, check_circular=False
).encode


#: An event: when it begins and ends in microseconds, its category, and its JSON.
Line = tuple[float, float, str, str]


def line_of(event: Event) -> Line:
    """Returns the line of an event that was made already."""
    at = float(event["ts"])
    return at, at + event.get("dur", 0.0), str(event.get("cat")), dumps(event)


class Lines:
    """Makes the lines of one process; its clock goes into every ``args`` but those of counters."""

    def __init__(self, pid: int, clock: str) -> None:
        self._pid = f', "pid": {pid}, "tid": '
        self._clock = clock
        self.quoted = lru_cache(maxsize=_KNOWN)(dumps)
        self._known: dict[Any, str] = {}

    def args(self, key: object, values: Callable[[], Mapping[str, Any]]) -> str:
        """Returns the text of arguments, made once for all events with that key."""
        text = self._known.get(key)
        if text is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            text = dumps({"clock": self._clock, **values()})
            self._known[key] = text
        return text

    def slice(
        self, name: str, category: str, at: float, nanoseconds: int, tid: int, args: str
    ) -> Line:
        """Returns a complete event, so many nanoseconds long."""
        spent = nanoseconds / 1000
        return (
            at, at + spent, category,
            f'{{"name": {self.quoted(name)}, "cat": "{category}", "ph": "X", "ts": {at!r}, '
            f'"dur": {spent!r}{self._pid}{tid}, "args": {args}}}',
        )  # fmt: skip

    def mark(self, name: str, category: str, at: float, tid: int, args: str) -> Line:
        """Returns an instant on a track."""
        return (
            at, at, category,
            f'{{"name": {self.quoted(name)}, "cat": "{category}", "ph": "i", "s": "t", '
            f'"ts": {at!r}{self._pid}{tid}, "args": {args}}}',
        )  # fmt: skip

    def count(self, name: str, at: float, value: float) -> Line:
        """Returns a sample of a counter; the value is finite."""
        return (
            at, at, "counter",
            f'{{"name": {self.quoted(name)}, "cat": "counter", "ph": "C", "ts": {at!r}'
            f'{self._pid}0, "args": {{"value": {value!r}}}}}',
        )  # fmt: skip

    def arrow(
        self, name: str, number: int, start: tuple[float, int], end: tuple[float, int]
    ) -> tuple[Line, Line]:
        """Returns both ends of a flow; each is a time and a track within a slice."""
        head = f'{{"name": "{name}", "cat": "{name}", "id": {number}, "ph": '
        args = f', "args": {{"clock": "{self._clock}"}}}}'
        (at, tid), (then, there) = start, end
        return (
            (at, at, name, f'{head}"s", "ts": {at!r}{self._pid}{tid}{args}'),
            (then, then, name, f'{head}"f", "bp": "e", "ts": {then!r}{self._pid}{there}{args}'),
        )
