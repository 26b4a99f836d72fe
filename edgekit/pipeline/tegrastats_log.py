"""A tegrastats log taken during a measurement: the power that the measurement did not see.

The cache holds it next to what was measured, so that a later report of the same run has it,
too, and goes into the run's result in the history.
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

_LARGEST = 512 << 20
# what distinguishes a measurement from others, in its document
_RUN = (
    "name", "clock", "board", "iterations", "duration_s", "latency_ms", "throughput_qps",
    "segments", "settings", "samples_ms",
)  # fmt: skip
_HINT = "give the bench.json of an edgekit bench on the board of the log"


def with_tegrastats(path: Path, log: Path, cache: Cache | None = None) -> Bench:
    """Gives a bench document the monitor, energy and verdict that a log makes of it; writes it.

    The first load of the log is taken for the warm-up, so its first measured frame begins
    ``warmup_ms`` later. A further log takes the place of the first one.

    Args:
        path: The bench document.
        log: Of tegrastats.
        cache: Keeps it for later reports of the run; the user's without it.

    Raises:
        DataError: The document or the log is none, or the log is of another board.
        UsageError: The measurement sampled its power itself, or is none of a board.
    """
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
    """Returns the monitor that a log gave this measurement, None where none did."""
    known = cache.get("tegrastats", _measurement_key(cache, document))
    return read(Monitor, known["monitor"]) if known else None


def _store_monitor(document: Bench, cache: Cache | None) -> list[str]:
    """Keeps the log with the run, in cache and history; returns what could not be."""
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
            code="bench.form", where=str(path), hint=_HINT,
        ) from None  # fmt: skip
