"""A run's own measurement as a source: the trace that it wrote, or its bench document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgekit._files import parse_json, regular
from edgekit.bench._check_trace import validate_trace
from edgekit.bench._trace import measured_processes
from edgekit.bench._trace_lines import Line, line_of
from edgekit.bench._trace_process import Event, meta
from edgekit.bench._trace_sources import Prepared, Source
from edgekit.bench._types import CLOCKS
from edgekit.errors import DataError

__all__ = ["KeptTrace", "read_bench", "read_trace"]

_LARGEST = 512 << 20
_BENCH = ("edgekit.bench/1", "edgekit.device.bench/1")
_SHOWN = 20


class KeptTrace:
    """A trace that edgekit wrote. See ``edgekit.bench._trace_sources.Source``."""

    def __init__(self, name: str, document: Mapping[str, Any]) -> None:
        self.name = name
        events: list[Event] = document["traceEvents"]
        self.about: dict[str, Any] = document["otherData"]
        wall = self.about.get("wall")
        self.wall = float(wall) if type(wall) in (int, float) and 0 < wall < 1e12 else None
        self._metadata = [event for event in events if event["ph"] == "M"]
        self._events = sorted(
            (event for event in events if event["ph"] != "M"), key=lambda event: event["ts"]
        )
        self._pids = sorted({event["pid"] for event in events})
        self.seconds = max((e["ts"] + e.get("dur", 0) for e in self._events), default=0.0) / 1e6

    def lines(self, pid: int, shift_us: float, label: str) -> Iterator[Line]:
        """See Source."""
        numbers = {own: pid + place for place, own in enumerate(self._pids)}
        flows: dict[int, int] = {}
        self._metadata = list(_renamed(self._metadata, numbers, label))
        for event in self._events:
            found = {**event, "pid": numbers[event["pid"]]}
            found["ts"] = round(event["ts"] + shift_us, 3)
            if "id" in event:
                # whole numbers: Perfetto takes no other text than one of them
                found["id"] = flows.setdefault(event["id"], (pid << 32) + len(flows) + 1)
            yield line_of(found)

    def metadata(self) -> list[Event]:
        """See Source."""
        return self._metadata


def _renamed(events: list[Event], numbers: Mapping[int, int], label: str) -> Iterator[Event]:
    labelled = set()
    clocks = {}
    for event in events:
        pid, args = numbers[event["pid"]], dict(event["args"])
        clocks[pid] = args["clock"]
        if event["name"] == "process_labels":
            args["labels"] = f"{args['labels']}; {label}"
            labelled.add(pid)
        elif event["name"] == "process_sort_index":
            args["sort_index"] = pid
        yield {**event, "pid": pid, "args": args}
    for pid, clock in clocks.items():
        if pid not in labelled:
            yield meta("process_labels", pid, 0, clock, labels=label)


def _json(path: Path) -> Any:
    try:
        if regular(path).stat().st_size > _LARGEST:
            raise DataError(
                f"larger than {_LARGEST >> 20} MiB", code="trace.form", where=str(path),
                hint="give what one run of edgekit bench wrote",
            )  # fmt: skip
        return parse_json(path.read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}", code="trace.unreadable", where=str(path)
        ) from None
    except (ValueError, RecursionError) as error:
        raise DataError(
            "no JSON, or cut off", code="trace.form", where=str(path),
            hint="run edgekit bench again",
        ) from error  # fmt: skip


def read_trace(path: Path) -> KeptTrace:
    """Reads a trace of edgekit's.

    Raises:
        DataError: It cannot be read ("trace.unreadable") or is none ("trace.form").
    """
    document = _json(path)
    faults = validate_trace(document)
    schema = document["otherData"].get("schema") if not faults else None
    if faults or schema != "edgekit.trace/1":
        raise DataError(
            f"no trace of edgekit's: {faults[0] if faults else f'its schema is {schema!r}'}"[:300],
            code="trace.form", where=str(path), hint="run edgekit bench again",
        )  # fmt: skip
    return KeptTrace(path.name, document)


def read_bench(path: Path) -> tuple[Source, dict[str, Any]]:
    """Reads a bench document: its run's trace where that is beside it, else what itself has.

    Returns:
        The source, and the document.

    Raises:
        DataError: As ``read_trace``; or it measured nothing ("trace.empty").
    """
    document = _json(path)
    if not isinstance(document, dict) or document.get("schema") not in _BENCH:
        raise DataError(
            "no bench document", code="trace.form", where=str(path),
            hint="give the bench.json of edgekit bench, or a configuration",
        )  # fmt: skip
    beside = path.parent / "trace.json"
    if path.name == "bench.json" and beside.is_file():
        return read_trace(beside), document
    if "latency_ms" not in document:
        raise DataError(
            "the bench document has no latency_ms: it is cut, or edgekit bench did not write it",
            code="trace.form", where=str(path), hint="run edgekit bench again",
        )  # fmt: skip
    if not document["latency_ms"]:
        raise DataError(
            "nothing was measured", code="trace.empty", where=str(path),
            hint="run edgekit bench with a board",
        )  # fmt: skip
    if document.get("clock") not in (None, *CLOCKS):
        raise DataError(
            f"its clock is {document['clock']!r}"[:100] + f", not one of {', '.join(CLOCKS)}",
            code="trace.form", where=str(path), hint="run edgekit bench again",
        )  # fmt: skip
    try:
        processes = measured_processes(None, document, 0, None)
    except DataError as error:
        error.where = error.where or str(path)
        raise
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise DataError(
            f"a part of the bench document is not of its form ({type(error).__name__})",
            code="trace.form", where=str(path), hint="run edgekit bench again",
        ) from error  # fmt: skip
    return Prepared(path.name, processes), document
