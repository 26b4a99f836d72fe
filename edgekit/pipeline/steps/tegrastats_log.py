"""A tegrastats log taken during a measurement: the power that the measurement did not see.

The cache holds it next to what was measured, so that a later report of the same run has it,
too, and goes into the run's result in the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.benchmark.document import measured_facts, write_json
from edgekit.benchmark.trace.tegrastats import other_board, read_tegrastats
from edgekit.benchmark.validity import config_words
from edgekit.errors import DataError, EnvironmentLack, UsageError
from edgekit.files import parse_json, read_file
from edgekit.pipeline.cache import Cache
from edgekit.results.recording import amend
from edgekit.targets.loader import get

if TYPE_CHECKING:
    pass


_LARGEST = 512 << 20
# what distinguishes a measurement from others, in its document
_RUN = (
    "name", "clock", "board", "iterations", "duration_s", "latency_ms", "throughput_qps",
    "segments", "settings", "samples_ms",
)  # fmt: skip
_HINT = "give the bench.json of an edgekit bench on the board of the log"


def with_tegrastats(path: Path, log: Path, cache: Cache | None = None) -> dict[str, Any]:
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
    document = _read_document(path)
    if not document.get("clock"):
        raise DataError(
            "the bench document does not name the clock it was measured with", code="bench.form",
            where=str(path), hint=_HINT,
        )  # fmt: skip
    if document.get("clock") != "board-measured":
        raise UsageError(
            f"{path} is {document.get('clock')}, so a board's power does not belong to it",
            hint=_HINT,
        )
    if document.get("energy") and not _of_log(document):
        raise UsageError(
            f"{path} already has power samples",
            hint="give a measurement made with --no-monitor",
        )
    target = get(str(document.get("target")))
    monitor = read_tegrastats(log, rails=target.rails)
    reason, differences = other_board(monitor, target)
    if reason:
        raise DataError(
            f"the log is from another board: {reason}", code="tegrastats.board", where=str(log),
            hint=_HINT,
        )  # fmt: skip
    monitor["warnings"] += differences
    warmup_s = _seconds(document.get("warmup_ms")) / 1e3
    for sample in monitor["samples"]:
        sample["t_s"] = round(sample["t_s"] - warmup_s, 6)
    monitor |= {"busy_from_s": -warmup_s, "log": log.name}
    # a monitor that saw no rails is replaced by one that did
    facts = measured_facts(
        {**document, "monitor": monitor},
        target,
        str(document.get("planned_power_mode") or document.get("power_mode") or ""),
        config=config_words(
            *(str(document.get(key) or "") for key in ("config", "target", "precision"))
        ),
    )
    if facts["energy"] is None:
        raise DataError(
            "the log has no power samples from the time of the measurement",
            code="tegrastats.power",
            where=str(log),
            hint="record until the measurement ends, as root if the rails need it",
        )
    document |= {name: facts[name] for name in ("monitor", "energy", "verdict")}
    files = document.get("files")
    document["files"] = {**(files if isinstance(files, dict) else {}), "bench": str(path)}
    lost = _store_monitor(document, cache)
    said = document.get("notes")
    before = said if isinstance(said, list) else []
    document["notes"] = [*before, *(note for note in lost if note not in before)]
    write_json(path, document)
    return document


def monitor_from_log(cache: Cache, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the monitor that a log gave this measurement, None where none did."""
    known = cache.get("tegrastats", _measurement_key(cache, document))
    return known["monitor"] if known else None


def _store_monitor(document: Mapping[str, Any], cache: Cache | None) -> list[str]:
    """Keeps the log with the run, in cache and history; returns what could not be."""
    try:
        cache = cache or Cache()
        cache.put("tegrastats", _measurement_key(cache, document), {"monitor": document["monitor"]})
        known = amend(document)
    except (DataError, EnvironmentLack) as error:
        return [f"the log was added only to this file: {error.message}"]
    return (
        []
        if known
        else ["the history has no entry for this measurement, so its energy was not added there"]
    )


def _measurement_key(cache: Cache, document: Mapping[str, Any]) -> str:
    return cache.key("tegrastats", *(document.get(name) for name in _RUN))


def _of_log(document: Mapping[str, Any]) -> bool:
    monitor = document.get("monitor")
    return isinstance(monitor, Mapping) and bool(monitor.get("log"))


def _read_document(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_file(path, _LARGEST))
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}", code="bench.unreadable", where=str(path)
        ) from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("schema") != "edgekit.bench/1":
        raise DataError("not a bench document", code="bench.form", where=str(path), hint=_HINT)
    return found


def _seconds(value: object) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    return float(value) if good else 0.0  # type: ignore[arg-type]
