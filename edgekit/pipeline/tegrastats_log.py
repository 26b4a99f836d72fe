"""A tegrastats log taken during a measurement, which has the power that the measurement lacks.

The cache keeps the log with the measurement, so that a later report of the same run has it, and it
is added to the run's result in the history.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from edgekit.benchmark.document import SCHEMA, Bench
from edgekit.benchmark.log_power import with_log
from edgekit.documents import fault_words, load_json
from edgekit.errors import DataError, EnvironmentLack, UsageError
from edgekit.files import write_json
from edgekit.pipeline.cache import Cache
from edgekit.results.recording import amend
from edgekit_device.board.samples import Monitor
from edgekit_device.protocol.codec import read, write

# bytes of a bench document, which may have a time for each frame
_LARGEST = 512 << 20
# the parts of a document that distinguish measurements
_RUN = (
    "name",
    "clock",
    "board",
    "iterations",
    "duration_s",
    "latency_ms",
    "throughput_qps",
    "segments",
    "settings",
    "samples_ms",
)
_HINT = "give the bench.json of an edgekit bench on the board of the log"


def with_tegrastats(path: Path, log: Path, cache: Cache | None = None) -> Bench:
    """Adds the monitor, energy and verdict of a log to a bench document; writes the document.

    The first load of the log is taken as the warm-up, so its first measured frame begins
    ``warmup_ms`` later. A further log replaces the first.

    Args:
        path: The bench document.
        log: A tegrastats log.
        cache: Keeps the log for later reports of the run; the user's cache if None.

    Raises:
        DataError: The document or the log is of another kind, or the log is of another board.
        UsageError: The measurement sampled its power itself, or does not come from a board.
    """
    # a configuration that is given by mistake must not be read as JSON
    if path.suffix.lower() != ".json":
        raise UsageError(
            f"--tegrastats needs a bench.json, not {path}",
            hint="edgekit bench bench.json --tegrastats FILE",
        )
    document = _read_document(path)
    document = with_log(document, log, str(path), _HINT)
    lost, before = _store_monitor(document, cache), document.notes
    document = document.model_copy(
        update={
            "files": {**document.files, "bench": str(path)},
            "notes": [*before, *(note for note in lost if note not in before)],
        }
    )
    write_json(path, document.to_json())
    return document


def monitor_from_log(cache: Cache, document: Bench) -> Monitor | None:
    """Returns the monitor from this measurement's log; None if it has no log."""
    known = cache.get("tegrastats", _measurement_key(cache, document))
    return read(Monitor, known["monitor"]) if known else None


def _store_monitor(document: Bench, cache: Cache | None) -> list[str]:
    """Stores the log with the run, in cache and history; returns the failures."""
    try:
        cache = cache or Cache()
        monitor = write(document.monitor)
        cache.put("tegrastats", _measurement_key(cache, document), {"monitor": monitor})
        known = amend(document)
    except (DataError, EnvironmentLack) as error:
        return [f"the log was added only to this file: {error.message}"]
    return (
        []
        if known
        else ["the history has no entry for this measurement, so its energy was not added there"]
    )


def _measurement_key(cache: Cache, document: Bench) -> str:
    known = document.to_json()
    return cache.key("tegrastats", *(known.get(name) for name in _RUN))


def _read_document(path: Path) -> Bench:
    found = load_json(
        path, _LARGEST, unreadable="bench.unreadable", invalid="bench.form", hint=_HINT
    )
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise DataError("not a bench document", code="bench.form", where=str(path), hint=_HINT)
    try:
        return Bench.model_validate(found)
    except ValidationError as error:
        raise DataError(
            f"not a bench document: {fault_words(error)}",
            code="bench.form",
            where=str(path),
            hint=_HINT,
        ) from None
