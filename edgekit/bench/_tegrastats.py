"""A tegrastats log, read on the host into a monitor document.

A log's lines have a date of whole seconds (from JetPack 5 on) or, where another tool wrote it, the
time of reading in front ("1750866197.24::"). The interval is what the dates say, or what the caller
knows. A log does not know when a measurement began: its first sample above 1.2 times its lowest
total is taken, and said so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._files import open_stream
from edgekit.bench._energy import BUSY
from edgekit.bench._monitor_read import SCHEMA, rails_of
from edgekit.bench._tegrastats_board import one_board, pauses
from edgekit.errors import DataError

if TYPE_CHECKING:
    from edgekit.targets import Rails

__all__ = ["FIRST_LOAD", "monitor_of_log", "read_tegrastats"]

FIRST_LOAD = "a log does not say when the measurement began: its first load is taken"
"""A warning of every log; it matters only where a measurement's time is looked for."""

_MOST_BYTES = 1 << 28
_USUAL_S = 1.0  # tegrastats's own, without --interval


def read_tegrastats(
    path: str | Path,
    *,
    rails: Rails | None = None,
    interval_ms: float | None = None,
    utc_offset_s: float | None = None,
) -> dict[str, Any]:
    """Returns the monitor document of a tegrastats log; see ``monitor_of_log``.

    Raises:
        DataError: The file cannot be read (``tegrastats.unreadable``), holds no line of
            tegrastats (``tegrastats.none``) or those of several boards (``tegrastats.mixed``).
    """
    file = Path(path)
    try:
        with open_stream(file) as stream:
            text = stream.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise DataError(
            f"the tegrastats log cannot be read: {error.strerror}",
            code="tegrastats.unreadable",
            where=str(path),
        ) from error
    try:
        document = monitor_of_log(
            text.splitlines(keepends=True), rails=rails, interval_ms=interval_ms,
            utc_offset_s=utc_offset_s,
        )  # fmt: skip
    except DataError as error:
        error.where = str(path)
        raise
    if not document["samples"]:
        raise DataError(
            "no line of tegrastats in this file",
            code="tegrastats.none",
            where=str(path),
            hint="record it on the board with: tegrastats --interval 100 --logfile FILE",
        )
    return document


def monitor_of_log(
    lines: Iterable[str],
    *,
    rails: Rails | None = None,
    interval_ms: float | None = None,
    utc_offset_s: float | None = None,
) -> dict[str, Any]:
    """Returns an ``edgekit.monitor/1`` document: ``t_s`` is zero where the load begins.

    Args:
        lines: The log's lines, with their ends: a last one that was cut off is left out.
        rails: The board's, so that the load is seen by the right total; else all rails are added.
        interval_ms: What ``--interval`` was; else what the dates say, else a second.
        utc_offset_s: The board's local time minus UTC, where somebody knows it: then "wall" is
            known from the dates, too.

    Raises:
        DataError: "tegrastats.mixed": it is of several boards.
    """
    from edgekit_device._monitor_tegrastats import read_line
    from edgekit_device._monitor_unknown import Unknown

    samples: list[dict[str, Any]] = []
    unknown, other, cut = Unknown(), 0, False
    for line in lines:
        sample, fields = read_line(line[: 1 << 16])
        if sample is None:
            other += bool(line.strip()) and not line.startswith("#")
            continue
        samples.append(sample)
        unknown.add(fields)
        cut = not line.endswith("\n")
    # numbers of the last line may have lost digits
    if cut and len(samples) > 1 and _shape(samples[-1]) != _shape(samples[-2]):
        samples.pop()
    warnings = []
    if other:
        words = "line is" if other == 1 else "lines are"
        warnings.append(f"{other} {words} none of tegrastats")
    places, told = one_board(samples)
    samples = [samples[at] for at in places]
    warnings += [*told, *pauses([_wall(sample) for sample in samples])]
    interval = interval_ms / 1e3 if interval_ms else _interval(samples)
    first = _first_busy(samples, rails)
    if samples:
        warnings.append(FIRST_LOAD)
    times = _times(samples, interval)
    walls = _walls(samples, times, utc_offset_s)
    made = [
        {"t_s": round(at - times[first], 6), "wall": wall, **_plain(sample)}
        for at, wall, sample in zip(times, walls, samples, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "interval_ms": interval * 1e3,
        "sources": ["tegrastats"],
        "started_at": walls[0] if walls else None,
        "busy_from_s": 0.0,
        "samples": made,
        "idle": [],
        "facts": {"l4t": None, "module": None},
        "unknown": unknown.counts,
        "warnings": warnings,
    }


def _plain(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sample.items() if key not in ("wall", "wall_text")}


def _shape(sample: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {
        (group, str(name))
        for group, values in sample.items()
        for name in (values if isinstance(values, Mapping) else ("",))
    }


def _wall(sample: Mapping[str, Any]) -> float | None:
    """Seconds; a date as if it were UTC, for a log does not tell its time zone."""
    if "wall" in sample:
        return float(sample["wall"])
    from edgekit_device._monitor_tegrastats import WALL_FORMAT

    try:
        said = datetime.strptime(sample["wall_text"], WALL_FORMAT)
    except (KeyError, ValueError):
        return None
    return said.replace(tzinfo=UTC).timestamp()


def _walls(
    samples: list[dict[str, Any]], times: list[float], utc_offset_s: float | None
) -> list[float | None]:
    """Unix time of each sample: where it stands in front, or by its date of whole seconds.

    Dates are cut off, not rounded: each says that its sample came within the second after it.
    What all say together is about as exact as the interval.
    """
    if utc_offset_s is None or any("wall" in sample for sample in samples):
        return [sample.get("wall") for sample in samples]
    said = [_wall(sample) for sample in samples]
    zeros = [wall - at for wall, at in zip(said, times, strict=True) if wall is not None]
    if not zeros:
        return [None] * len(samples)
    first, last = max(zeros), min(zeros) + 1.0
    zero = (first + last) / 2 if first <= last else zeros[0]
    return [round(zero + at - utc_offset_s, 6) for at in times]


def _interval(samples: list[dict[str, Any]]) -> float:
    """Seconds between two lines: from the first change of the date to the last one."""
    walls = [_wall(sample) for sample in samples]
    changes = [
        number
        for number in range(1, len(walls))
        if walls[number] is not None and walls[number] != walls[number - 1]
    ]
    if len(changes) < 2:
        return _USUAL_S
    first, last = walls[changes[0]], walls[changes[-1]]
    if first is None or last is None or last <= first:
        return _USUAL_S
    return (last - first) / (changes[-1] - changes[0])


def _times(samples: list[dict[str, Any]], interval: float) -> list[float]:
    """When each was taken: exactly where a tool wrote it in front, else one interval apart."""
    stamps = [sample.get("wall") for sample in samples]
    exact = [stamp for stamp in stamps if stamp is not None]
    if len(exact) == len(stamps) and exact == sorted(exact):
        return exact
    return [number * interval for number in range(len(samples))]


def _first_busy(samples: list[dict[str, Any]], rails: Rails | None) -> int:
    total = set(rails.total) if rails else None
    sums = [
        sum(mw for name, mw in rails_of(sample).items() if total is None or name in total)
        for sample in samples
    ]
    least = min(sums, default=0.0)
    # a log may begin in the wake of an earlier load: what comes after its lowest counts
    lowest = sums.index(least) if sums else 0
    later = (number for number in range(lowest, len(sums)) if sums[number] > BUSY * least)
    return next(later, 0)
