"""Several measurements as one timeline: whose clocks meet, and the file that holds them all.

Each source has a clock with its own zero. Where two of them know the wall clock at their zero, and
their times overlap, both are placed by it; every other source begins at 0 and is told to have done
so, in its process's label and in ``otherData``. Nothing is placed by guessing.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from edgekit._files import write_atomically
from edgekit.bench._trace_lines import Line, line_of
from edgekit.bench._trace_process import Event, Process

__all__ = ["Prepared", "Source", "Written", "align", "write_trace"]

#: Two measurements that are further apart than this are none of the same run.
_APART_S = 60.0
_BATCH = 1000
# of a source, which may have several processes that share its clock
_ALONE = "this source begins at 0 and is not aligned with the other sources"


class Source(Protocol):
    """A measurement that becomes one or more processes of a trace.

    Attributes:
        name: What a reader calls it.
        wall: Unix time in seconds of its zero; None where it does not know.
        seconds: How long it lasts.
    """

    name: str
    wall: float | None
    seconds: float

    def lines(self, pid: int, shift_us: float, label: str) -> Iterator[Line]:
        """Yields its events sorted by time, moved by ``shift_us``, processes from ``pid`` on."""
        ...

    def metadata(self) -> list[Event]:
        """Returns names of processes and tracks; complete once all events were taken."""
        ...


class Prepared:
    """A source of processes that are made already."""

    def __init__(
        self, name: str, processes: Sequence[Process], *, wall: float | None = None
    ) -> None:
        self.name, self.wall = name, wall
        self._processes = list(processes)
        self._metadata: list[Event] = []
        self.seconds = 0.0
        self._events: list[Event] = []
        keyed = []
        for process in processes:
            named, own = process.finish()
            self._metadata += named
            keyed += own
        keyed.sort(key=lambda item: item[:4])
        self._events = [event for *_, event in keyed]
        ends = (event["ts"] + event.get("dur", 0.0) for event in self._events)
        self.seconds = max(ends, default=0.0) / 1e6

    def lines(self, pid: int, shift_us: float, label: str) -> Iterator[Line]:
        """See Source."""
        numbers = {process.pid: pid + i for i, process in enumerate(self._processes)}
        moved = []
        for event in self._metadata:
            args = event["args"]
            if event["name"] == "process_sort_index":
                args = {**args, "sort_index": numbers[event["pid"]]}
            elif event["name"] == "process_labels":
                args = {**args, "labels": f"{args['labels']}; {label}"}
            moved.append({**event, "pid": numbers[event["pid"]], "args": args})
        labelled = {event["pid"] for event in moved if event["name"] == "process_labels"}
        for process in self._processes:
            own = numbers[process.pid]
            if own not in labelled:
                args = {"clock": process.clock, "labels": label}
                moved.append({
                    "name": "process_labels", "cat": "__metadata", "ph": "M", "ts": 0, "pid": own,
                    "tid": 0, "args": args,
                })  # fmt: skip
        self._metadata = moved
        for event in self._events:
            found = {**event, "pid": numbers[event["pid"]]}
            found["ts"] = round(event["ts"] + shift_us, 3)
            if "id" in event:
                found["id"] = (event["id"] & 0xFFFFFFFF) + (found["pid"] << 32)
            yield line_of(found)

    def metadata(self) -> list[Event]:
        """See Source."""
        return self._metadata


@dataclass
class Written:
    """What a trace file holds.

    Attributes:
        events: How many by category.
        processes: Each with its clock and how it was placed.
        last_us: When the last event ends.
        left_out: Events beyond the limit.
    """

    events: dict[str, int] = field(default_factory=dict)
    processes: list[dict[str, Any]] = field(default_factory=list)
    last_us: float = 0.0
    left_out: int = 0


def align(sources: Sequence[Source]) -> list[tuple[float, str]]:
    """Returns for each source its shift in microseconds and how it was found."""
    known = [source for source in sources if source.wall is not None]
    if len(known) < 2:
        return [(0.0, _ALONE if len(sources) > 1 else "the only source") for _ in sources]
    first = known[0]
    begin, end = first.wall or 0.0, (first.wall or 0.0) + first.seconds
    near = [
        source
        for source in known
        if (source.wall or 0.0) <= end + _APART_S
        and (source.wall or 0.0) + source.seconds >= begin - _APART_S
    ]
    zero = min(source.wall or 0.0 for source in near)
    found = []
    for source in sources:
        if source.wall is None:
            found.append((0.0, _ALONE))
        elif len(near) > 1 and any(source is one for one in near):
            found.append((1e6 * (source.wall - zero), "aligned by the wall clock"))
        else:
            found.append((0.0, f"measured at another time: {_ALONE}"))
    return found


def write_trace(
    path: Path, sources: Sequence[Source], about: Mapping[str, Any], *, most: int = 5_000_000
) -> Written:
    """Writes one trace of several sources, event by event; memory does not grow with them.

    Args:
        path: Gets the JSON object form, one event a line.
        sources: In the order of their processes.
        about: Goes into ``otherData``.
        most: Events after these are counted and left out.

    Returns:
        What is in the file.

    Raises:
        DataError: A source turns out to be damaged; the file is as it was before.
        EnvironmentLack: The file cannot be written ("file.write").
    """
    written = Written()
    places = align(sources)
    streams = [
        source.lines(100 * number + 1, shift, how)
        for number, (source, (shift, how)) in enumerate(zip(sources, places, strict=True))
    ]
    merged = heapq.merge(*streams, key=itemgetter(0))
    with write_atomically(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        first = True
        for lines in _batches(merged, most, written):
            file.write(("" if first else ",\n") + ",\n".join(lines))
            first = False
        for source, (shift, how) in zip(sources, places, strict=True):
            for event in source.metadata():
                file.write(("" if first else ",\n") + json.dumps(event))
                first = False
                if event["name"] == "process_name":
                    written.processes.append({
                        "pid": event["pid"], "name": event["args"]["name"], "source": source.name,
                        "clock": event["args"]["clock"], "alignment": how,
                        "shift_us": round(shift, 3),
                    })  # fmt: skip
        other = {
            "schema": "edgekit.trace/1", **about,
            "clocks": {one["name"]: one["clock"] for one in written.processes},
            "processes": written.processes, "left_out": written.left_out,
        }  # fmt: skip
        file.write('\n], "otherData": ' + json.dumps(other, allow_nan=False) + "}\n")
    return written


def _batches(lines: Iterator[Line], most: int, written: Written) -> Iterator[list[str]]:
    """Yields the texts of the first ``most`` lines, some at a time, and counts them all."""
    batch: list[str] = []
    events, last = written.events, 0.0
    for _, end, category, text in islice(lines, most):
        events[category] = events.get(category, 0) + 1
        last = end if end > last else last
        batch.append(text)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
    written.last_us = last
    written.left_out = sum(1 for _ in lines)
