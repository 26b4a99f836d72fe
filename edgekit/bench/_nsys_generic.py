"""Generic events and metrics of an Nsight Systems export: DLA tasks and counters.

GENERIC_EVENTS has ``rawTimestamp``, ``timestamp``, ``typeId`` and ``data``, a JSON object of texts;
GENERIC_EVENT_TYPES and GENERIC_EVENT_SOURCES name them ("Generic Events" in the documentation).
Metrics of GPU and SoC are such events, or rows of GPU_METRICS (``timestamp``, ``typeId``,
``metricId``, ``value``) with their names in TARGET_INFO_GPU_METRICS (``typeId``, ``metricId``,
``metricName``), as public programs that query exports of 2023 to 2025 have them. No export with a
DLA's events is public and nothing documents them, so a task is found by what such events usually
have: a name with "dla" in it, and either a begin and an end, or a duration, or an event each for
begin and end. What is none of these is counted, not shown.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edgekit.bench._nsys_fields import (
    EventType,
    core_of,
    fields_of,
    first_of,
    is_metrics,
    number_of,
    phase_of,
    span_of,
    whole_task,
)
from edgekit.bench._nsys_open import Export
from edgekit.bench._nsys_rows import Span
from edgekit.bench._nsys_words import dla_words

__all__ = ["Generic", "Sample"]

_BUFFERED = 20_000
_SERIES = 256
_LARGEST = 1 << 62


class Sample(NamedTuple):
    """A counter's value at a time in nanoseconds."""

    at: int
    name: str
    value: float


@dataclass
class Generic:
    """Reads an export's generic events, as two streams sorted by time.

    Attributes:
        unknown: How many events of each type were neither a DLA's task nor metrics.
    """

    export: Export
    unknown: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._types = self._read_types()
        self._names: set[str] = set()

    def samples(self) -> Iterator[Sample]:
        """Yields counters of generic events."""
        for at, _, kind, data in self._events():
            if is_metrics(kind, data):
                for key, value in data.items():
                    number = number_of(value)
                    if number is not None and self._is_new(key):
                        yield Sample(at, key[:100], number)

    def metrics(self) -> Iterator[Sample]:
        """Yields samples of GPU_METRICS, and of a table for the SoC of the same form."""
        tables = [name for name in self.export.tables if name.endswith("_METRICS")]
        tables = [name for name in tables if not name.startswith(("TARGET_INFO", "ENUM_"))]
        streams = [self._metrics(name) for name in sorted(tables)]
        yield from heapq.merge(*streams, key=lambda sample: sample.at)

    def tasks(self) -> Iterator[Span]:
        """Yields a DLA's tasks, sorted by start; ends that no begin goes with are left out."""
        waiting: dict[tuple[Any, ...], tuple[int, str, dict[str, Any]]] = {}
        ready: list[tuple[int, int, int, Span]] = []
        number = 0
        for at, raw, kind, data in self._events():
            if is_metrics(kind, data):
                continue
            core = core_of(kind, data)
            if core is None:
                if len(self.unknown) < _SERIES or kind.name in self.unknown:
                    self.unknown[kind.name] += 1
                continue
            found, said = whole_task(at, raw, data), data
            if found is None:
                stem, phase = phase_of(kind, data)
                key = (kind.source, stem, core, first_of(data, dla_words().tasks))
                if phase == "begin":
                    waiting[key] = (at, stem, data)
                elif phase == "end" and key in waiting:
                    begun, stem, first = waiting.pop(key)
                    found, said = (begun, at), {**first, **data}
                elif phase == "":
                    self.unknown[kind.name] += 1
            if found is not None:
                number += 1
                span = span_of(found, core, kind, said)
                heapq.heappush(ready, (span.start, -span.end, number, span))
            # what has begun and not ended yet may still have to come first
            if len(waiting) + len(ready) > _BUFFERED:
                waiting.clear()
            hold = min((begun for begun, *_ in waiting.values()), default=at) if ready else at
            while ready and ready[0][0] <= hold:
                yield heapq.heappop(ready)[-1]
        while ready:
            yield heapq.heappop(ready)[-1]

    def _is_new(self, name: str) -> bool:
        """Whether a series is known or there is room for one more."""
        if name not in self._names and len(self._names) >= _SERIES:
            return False
        self._names.add(name)
        return True

    def _read_types(self) -> dict[int, EventType]:
        sources = {
            number: str(fields_of(data).get("Name") or "")[:100]
            for number, data in self.export.rows("GENERIC_EVENT_SOURCES", ("sourceId", "data"))
            if type(number) is int
        }
        found: dict[int, EventType] = {}
        columns = ("typeId", "sourceId", "data")
        for number, source, data in self.export.rows("GENERIC_EVENT_TYPES", columns):
            if type(number) is int and len(found) < 1 << 16:
                name = str(fields_of(data).get("Name") or "event")[:100]
                found[number] = EventType(name, sources.get(source, ""))
        return found

    def _events(self) -> Iterator[tuple[int, int, EventType, dict[str, Any]]]:
        nameless = EventType("event", "")
        columns = ("timestamp", "rawTimestamp", "typeId", "data")
        for at, raw, kind, data in self.export.rows("GENERIC_EVENTS", columns, "timestamp"):
            if type(at) is int and 0 <= at < _LARGEST:
                known = self._types.get(kind, nameless) if type(kind) is int else nameless
                yield at, raw if type(raw) is int else at, known, fields_of(data)

    def _metrics(self, table: str) -> Iterator[Sample]:
        names: dict[tuple[Any, Any], str] = {}
        columns = ("typeId", "metricId", "metricName")
        for kind, metric, name in self.export.rows(f"TARGET_INFO_{table}", columns):
            if isinstance(name, str) and len(names) < _SERIES:
                names[kind, metric] = name[:100]
        fields = ("timestamp", "typeId", "metricId", "value")
        for at, kind, metric, value in self.export.rows(table, fields, "timestamp"):
            number, name = number_of(value), names.get((kind, metric), f"metric {metric}"[:100])
            if type(at) is int and 0 <= at < _LARGEST and number is not None and self._is_new(name):
                yield Sample(at, name, number)
