"""Whether a tegrastats log is of one board, of one run, and of the board that was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from edgekit.bench._monitor_read import number_of, samples_of
from edgekit.errors import DataError

if TYPE_CHECKING:
    from edgekit.targets import Target

__all__ = ["one_board", "other_board", "pauses"]

_HINT = "give the log of the measured board alone, as one tegrastats wrote it"
_STRAY = 1  # a line of another form alone is damage
_MEMORY = (0.75, 1.02)  # of a module's: what the firmware keeps, the log does not have
_PAUSE = (10, 5.0)  # times the usual interval, and seconds at least


class _Board(NamedTuple):
    """What every line of a board's tegrastats has."""

    ram: int
    cores: int
    rails: frozenset[str]

    def __str__(self) -> str:
        parts = [f"{self.ram >> 20} MB of memory"] if self.ram else []
        parts += [f"{self.cores} CPU cores"] if self.cores else []
        parts += [f"the rails {', '.join(sorted(self.rails))[:200]}"] if self.rails else []
        return ", ".join(parts) or "nothing that tells a board"


def one_board(samples: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[str]]:
    """Returns the places of the samples that are the board's, and what to know of the others.

    Rails that only some lines have (a cut line, another user's tegrastats) are told; a single line
    of another board is damage, left out and told.

    Raises:
        DataError: "tegrastats.mixed": lines are of several boards.
    """
    boards = [_board(sample) for sample in samples]
    groups: list[tuple[_Board, list[int]]] = []
    for at, board in enumerate(boards):
        for number, (known, places) in enumerate(groups):
            if _alike(known, board):
                groups[number] = (_joined(known, board), places)
                places.append(at)
                break
        else:
            groups.append((board, [at]))
    if len(groups) < 2:
        return list(range(len(samples))), list(_partly(boards))
    groups.sort(key=lambda group: -len(group[1]))
    (first, places), *rest = groups
    others = [group for group in rest if len(group[1]) > _STRAY]
    if others or len(places) <= len(rest):
        again = (others or rest)[0]
        raise DataError(
            f"the log is of several boards: {len(places)} lines have {first}, "
            f"{len(again[1])} have {again[0]}",
            code="tegrastats.mixed", hint=_HINT,
        )  # fmt: skip
    lost = len(samples) - len(places)
    told = f"{lost} line{'s' * (lost > 1)} of another board left out: {rest[0][0]}"
    return places, [told, *_partly([boards[at] for at in places])]


def _board(sample: Mapping[str, Any]) -> _Board:
    ram, cpu, rails = sample.get("ram"), sample.get("cpu"), sample.get("rails_mw")
    total = number_of(ram, "total_bytes") if isinstance(ram, Mapping) else None
    return _Board(
        int(total or 0),
        len(cpu) if isinstance(cpu, list) else 0,
        frozenset(rails if isinstance(rails, Mapping) else ()),
    )


def _alike(one: _Board, other: _Board) -> bool:
    """Whether both can be of one board; what a line does not have is no difference."""
    return (
        (one.ram == other.ram or not one.ram or not other.ram)
        and (one.cores == other.cores or not one.cores or not other.cores)
        and (one.rails <= other.rails or other.rails <= one.rails)
    )


def _joined(one: _Board, other: _Board) -> _Board:
    return _Board(one.ram or other.ram, one.cores or other.cores, one.rails | other.rails)


def _partly(boards: Sequence[_Board]) -> Iterator[str]:
    forms = Counter(board.rails for board in boards)
    if len(forms) > 1:
        most = max(forms, key=len)
        fewer = len(boards) - forms[most]
        yield f"{fewer} of {len(boards)} lines lack rails that others have"


def pauses(walls: Sequence[float | None]) -> Iterator[str]:
    """Yields where the log's own clock goes backwards, and where it stood long."""
    steps = [
        (at, after - before)
        for at, (before, after) in enumerate(pairwise(walls), start=2)
        if before is not None and after is not None
    ]
    usual = median(step for _, step in steps) if steps else 0.0
    back = [at for at, step in steps if step < 0]
    if back:
        yield (
            f"the clock goes backwards {len(back)} time{'s' * (len(back) > 1)}, first at sample "
            f"{back[0]}: times of the log are counted by its interval"
        )
    long = [(at, step) for at, step in steps if step > max(_PAUSE[0] * usual, _PAUSE[1])]
    if long and not back:
        at, step = long[0]
        yield f"the log pauses for {step:.3g} s at sample {at}: it may be of several runs"


def other_board(monitor: Mapping[str, Any], target: Target) -> tuple[str, list[str]]:
    """Compares what a log tells of its board with a target.

    Returns:
        Why it cannot be that board's, or ""; and what differs where it may be.
    """
    boards = [_board(sample) for sample in samples_of(monitor)]
    board = next(iter(Counter(boards).most_common(1)), (_Board(0, 0, frozenset()), 0))[0]
    rails = frozenset().union(*(one.rails for one in boards))
    board = board._replace(rails=rails)
    known = set(target.rails.total if target.rails else ())
    if rails and known and not rails & known:
        return (
            f"it has the rails {', '.join(sorted(rails))[:200]}, and a {target.name} has "
            f"{', '.join(sorted(known))}"
        ), []
    notes = []
    gib = target.dram.bytes / (1 << 30)
    if board.ram and not _fits(board.ram, target):
        like = _like(board, target)
        differs = f"{board.ram >> 20} MB of memory, and a {target.name} has {gib:g} GiB"
        if like:
            return f"it has {differs}; a {like} has as much", []
        notes.append(f"the log's board has {differs}")
    cores = max((mode.cpu_cores for mode in target.power_modes.values()), default=0)
    if board.cores and cores and board.cores != cores:
        notes.append(
            f"the log's board has {board.cores} CPU cores, and a {target.name} has {cores}"
        )
    return "", notes


def _fits(ram: int, target: Target) -> bool:
    least, most = _MEMORY
    return least * target.dram.bytes <= ram <= most * target.dram.bytes


def _like(board: _Board, target: Target) -> str:
    """Returns a target that has that much memory and those rails: modules are sold with several."""
    from edgekit.targets import get, names

    for name in names():
        other = get(name)
        rails = set(other.rails.total if other.rails else ())
        if name != target.name and _fits(board.ram, other) and rails and rails <= board.rails:
            return name
    return ""
