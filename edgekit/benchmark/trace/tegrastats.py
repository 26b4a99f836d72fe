"""Reads a tegrastats log on the host into a monitor document, and checks that it is of a single
board, a single run, and the measured board.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from edgekit.benchmark.energy import BUSY
from edgekit.errors import DataError
from edgekit.files import open_stream
from edgekit.targets.board import PowerRails, Target
from edgekit.targets.loader import get, names
from edgekit.text import counted
from edgekit_device.board.samples import Monitor, Sample
from edgekit_device.board.tegrastats import (
    WALL_FORMAT,
    TegrastatsLine,
    UnknownFields,
    read_line,
)
from edgekit_device.protocol.codec import write

_HINT = "give a log of one tegrastats run on the measured board"
_STRAY = 1  # a single line of another form is damage
_MEMORY = (0.75, 1.02)  # of a module's memory: the log lacks the memory reserved by the firmware
_PAUSE = (10, 5.0)  # multiples of the usual interval, and least seconds
FIRST_LOAD = "the log does not contain the start of the measurement: the first load in it is used"
"""A warning of every log; only relevant if a measurement's time is searched for."""
_MOST_BYTES = 1 << 28
_USUAL_S = 1.0  # tegrastats's own, without --interval


class _TegrastatsBoard(NamedTuple):
    """Properties that all lines of a board's tegrastats share."""

    ram: int
    cores: int
    rails: frozenset[str]

    def __str__(self) -> str:
        parts = [f"{self.ram >> 20} MB of memory"] if self.ram else []
        parts += [f"{self.cores} CPU cores"] if self.cores else []
        parts += [f"the rails {', '.join(sorted(self.rails))[:200]}"] if self.rails else []
        return ", ".join(parts) or "no mark that identifies a board"


def select_one_board(samples: Sequence[Sample]) -> tuple[list[int], list[str]]:
    """Returns the indices of the board's samples, and warnings about the others.

    Rails that only some lines have (a cut line, another user's tegrastats) are reported; a single
    line of another board is damage, skipped and reported.

    Raises:
        DataError: "tegrastats.mixed": the lines are of several boards.
    """
    boards = [_board(sample) for sample in samples]
    groups: list[tuple[_TegrastatsBoard, list[int]]] = []
    for at, board in enumerate(boards):
        for number, (known, places) in enumerate(groups):
            if _may_be_same(known, board):
                merged = _TegrastatsBoard(
                    known.ram or board.ram, known.cores or board.cores, known.rails | board.rails
                )
                groups[number] = (merged, places)
                places.append(at)
                break
        else:
            groups.append((board, [at]))
    if len(groups) < 2:
        return list(range(len(samples))), list(_partial_notes(boards))
    groups.sort(key=lambda group: -len(group[1]))
    (first, places), *rest = groups
    others = [group for group in rest if len(group[1]) > _STRAY]
    # a single stray line is damage, but not if the log has few others
    if others or len(places) <= len(rest):
        again = (others or rest)[0]
        raise DataError(
            f"the log mixes several boards: {len(places)} lines have {first}, "
            f"{len(again[1])} have {again[0]}",
            code="tegrastats.mixed",
            hint=_HINT,
        )
    lost = len(samples) - len(places)
    message = f"{counted(lost, 'line')} of another board left out: {rest[0][0]}"
    return places, [message, *_partial_notes([boards[at] for at in places])]


def _board(sample: Sample) -> _TegrastatsBoard:
    ram = sample.ram.total_bytes if sample.ram else None
    return _TegrastatsBoard(int(ram or 0), len(sample.cpu), frozenset(sample.rails_mw))


def _may_be_same(board: _TegrastatsBoard, other: _TegrastatsBoard) -> bool:
    """Returns True if both can be of the same board; missing values do not count."""
    return (
        (board.ram == other.ram or not board.ram or not other.ram)
        and (board.cores == other.cores or not board.cores or not other.cores)
        and (board.rails <= other.rails or other.rails <= board.rails)
    )


def _partial_notes(boards: Sequence[_TegrastatsBoard]) -> Iterator[str]:
    forms = Counter(board.rails for board in boards)
    if len(forms) > 1:
        most = max(forms, key=len)
        fewer = len(boards) - forms[most]
        yield f"{fewer} of {len(boards)} lines lack rails that other lines have"


def pauses(walls: Sequence[float | None]) -> Iterator[str]:
    """Yields descriptions of backward jumps and long pauses of the log's clock."""
    steps = [
        (at, after - before)
        for at, (before, after) in enumerate(pairwise(walls), start=2)
        if before is not None and after is not None
    ]
    usual = median(step for _, step in steps) if steps else 0.0
    back = [at for at, step in steps if step < 0]
    if back:
        yield (
            f"the clock goes backwards {counted(len(back), 'time')}, first at "
            f"sample {back[0]}: times are counted by the log's interval"
        )
    long = [(at, step) for at, step in steps if step > max(_PAUSE[0] * usual, _PAUSE[1])]
    if long and not back:
        at, step = long[0]
        yield f"the log has a gap of {step:.3g} s at sample {at}: it may contain several runs"


def compare_with_target(monitor: Monitor, target: Target) -> tuple[str, list[str]]:
    """Compares the board of a log with a target.

    Returns:
        The reason why it cannot be that board, or ""; and the differences if it can.
    """
    boards = [_board(sample) for sample in monitor.samples]
    board = next(iter(Counter(boards).most_common(1)), (_TegrastatsBoard(0, 0, frozenset()), 0))[0]
    rails = frozenset().union(*(sampled.rails for sampled in boards))
    board = board._replace(rails=rails)
    known = set(target.rails.total if target.rails else ())
    # rails decide first: modules with as much memory can have other rails
    if rails and known and not rails & known:
        return (
            f"it has the rails {', '.join(sorted(rails))[:200]}, but a {target.name} has "
            f"{', '.join(sorted(known))}"
        ), []
    notes = []
    gib = target.dram.bytes / (1 << 30)
    if board.ram and not _fits_memory(board.ram, target):
        like = _similar_target(board, target)
        differs = f"{board.ram >> 20} MB of memory, but a {target.name} has {gib:g} GiB"
        if like:
            return f"it has {differs}; a {like} has as much", []
        notes.append(f"the log's board has {differs}")
    cores = max((mode.cpu_cores for mode in target.power_modes.values()), default=0)
    if board.cores and cores and board.cores != cores:
        notes.append(
            f"the log's board has {board.cores} CPU cores, but a {target.name} has {cores}"
        )
    return "", notes


def _fits_memory(ram: int, target: Target) -> bool:
    least, most = _MEMORY
    return least * target.dram.bytes <= ram <= most * target.dram.bytes


def _similar_target(board: _TegrastatsBoard, target: Target) -> str:
    """Returns a target with that memory and those rails (modules exist in several sizes)."""
    for name in names():
        other = get(name)
        rails = set(other.rails.total if other.rails else ())
        if (
            name != target.name
            and _fits_memory(board.ram, other)
            and rails
            and rails <= board.rails
        ):
            return name
    return ""


def read_tegrastats(
    path: str | Path,
    *,
    rails: PowerRails | None = None,
    interval_ms: float | None = None,
    utc_offset_s: float | None = None,
) -> Monitor:
    """Returns the monitor document of a tegrastats log; see ``monitor_of_log``.

    A log's lines have a date of whole seconds (from JetPack 5 on) or, if written by another tool, a
    prefix with the time of reading ("1750866197.24::"). The interval comes from the dates or the
    caller. A log does not contain the start of a measurement: its first sample above 1.2 times its
    lowest total is used, and reported.

    Raises:
        DataError: The file cannot be read (``tegrastats.unreadable``), has no line of tegrastats
            (``tegrastats.none``) or lines of several boards (``tegrastats.mixed``).
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
            hint="give a log of tegrastats --logfile FILE",
        ) from error
    try:
        document = monitor_of_log(
            text.splitlines(keepends=True),
            rails=rails,
            interval_ms=interval_ms,
            utc_offset_s=utc_offset_s,
        )
    except DataError as error:
        error.where = str(path)
        raise
    if not document.samples:
        raise DataError(
            "the file contains no tegrastats line",
            code="tegrastats.none",
            where=str(path),
            hint="record it on the board with: tegrastats --interval 100 --logfile FILE",
        )
    return document


def monitor_of_log(
    lines: Iterable[str],
    *,
    rails: PowerRails | None = None,
    interval_ms: float | None = None,
    utc_offset_s: float | None = None,
) -> Monitor:
    """Returns the samples of a log's lines; ``t_s`` is zero at the start of the load.

    Args:
        lines: The log's lines with line ends: a truncated last line is ignored.
        rails: The board's rails, to detect the load by the right total; None: all rails are added.
        interval_ms: The value of ``--interval``; None: from the dates, or else a second.
        utc_offset_s: The board's local time minus UTC, if known: "wall" then also comes from dates.

    Raises:
        DataError: "tegrastats.mixed": the lines are of several boards.
    """
    found: list[TegrastatsLine] = []
    unknown, other, cut = UnknownFields(), 0, False
    for text in lines:
        sampled, fields = read_line(text[: 1 << 16])
        if sampled is None:
            other += bool(text.strip()) and not text.startswith("#")
            continue
        found.append(sampled)
        unknown.add(fields)
        cut = not text.endswith("\n")
    # numbers of a truncated last line may have lost digits
    if cut and len(found) > 1 and _shape(found[-1].sample) != _shape(found[-2].sample):
        found.pop()
    warnings = []
    if other:
        verb = "is" if other == 1 else "are"
        warnings.append(f"{counted(other, 'line')} {verb} none of tegrastats")
    places, notes = select_one_board([line.sample for line in found])
    found = [found[at] for at in places]
    warnings += [*notes, *pauses([_wall(line) for line in found])]
    interval = interval_ms / 1e3 if interval_ms else _interval(found)
    first = _first_busy_index([line.sample for line in found], rails)
    if found:
        warnings.append(FIRST_LOAD)
    times = _times(found, interval)
    walls = _walls(found, times, utc_offset_s)
    return Monitor(
        interval_ms=interval * 1e3,
        sources=("tegrastats",),
        started_at=walls[0] if walls else None,
        busy_from_s=0.0,
        samples=tuple(
            replace(line.sample, t_s=round(at - times[first], 6), wall=wall)
            for at, wall, line in zip(times, walls, found, strict=True)
        ),
        unknown=unknown.counts,
        warnings=tuple(warnings),
    )


def _wall(line: TegrastatsLine) -> float | None:
    """Returns seconds; treats a date as UTC, because a log has no time zone."""
    if line.stamp is not None or line.date is None:
        return line.stamp
    try:
        said = datetime.strptime(line.date, WALL_FORMAT)
    except ValueError:
        return None
    return said.replace(tzinfo=timezone.utc).timestamp()


def _shape(sample: Sample) -> set[tuple[str, str]]:
    return {
        (group, str(name))
        for group, values in write(sample).items()
        for name in (values if isinstance(values, dict) else ("",))
    }


def _walls(
    samples: list[TegrastatsLine], times: list[float], utc_offset_s: float | None
) -> list[float | None]:
    """Returns the Unix time of each sample: from its prefix, or from its date of whole seconds.

    Dates are truncated, not rounded: each sample was taken within the second after its date. All
    dates together are about as exact as the interval.
    """
    if utc_offset_s is None or any(sample.stamp is not None for sample in samples):
        return [sample.stamp for sample in samples]
    said = [_wall(sample) for sample in samples]
    zeros = [wall - at for wall, at in zip(said, times, strict=True) if wall is not None]
    if not zeros:
        return [None] * len(samples)
    first, last = max(zeros), min(zeros) + 1.0
    zero = (first + last) / 2 if first <= last else zeros[0]
    return [round(zero + at - utc_offset_s, 6) for at in times]


def _interval(samples: list[TegrastatsLine]) -> float:
    """Returns the seconds between two lines: from the first to the last change of the date."""
    walls = [_wall(sample) for sample in samples]
    # dates have whole seconds: only at a change is the time known exactly
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


def _times(samples: list[TegrastatsLine], interval: float) -> list[float]:
    """Returns the time of each sample: from its prefix, else at constant intervals."""
    stamps = [sample.stamp for sample in samples]
    exact = [stamp for stamp in stamps if stamp is not None]
    if len(exact) == len(stamps) and exact == sorted(exact):
        return exact
    return [number * interval for number in range(len(samples))]


def _first_busy_index(samples: list[Sample], rails: PowerRails | None) -> int:
    total = set(rails.total) if rails else None
    sums = [
        sum(mw for name, mw in sample.rails().items() if total is None or name in total)
        for sample in samples
    ]
    least = min(sums, default=0.0)
    # a log may begin at the end of an earlier load: only samples after the lowest count
    lowest = sums.index(least) if sums else 0
    later = (number for number in range(lowest, len(sums)) if sums[number] > BUSY * least)
    return next(later, 0)
