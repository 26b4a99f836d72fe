"""Finds and reads board files. A new board is a new file under `targets/` and needs no Python;
errors name each wrong or missing fact with its place in the file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from edgekit.errors import DataError, UsageError
from edgekit.knowledge import data_folder, read_document
from edgekit.targets.board import CONTENTION, BoardFile, PowerMode, Target, WrittenMode
from edgekit_device.protocol.codec import array, choice, document, long_text, member, records

_Document = TypeVar("_Document")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SMS_PER_TPC = 2
_DEVICES = {"dla": "DLA", "dla:0": "DLA0", "dla:1": "DLA1"} | dict.fromkeys(
    ("gpu", "gpu:0", "cuda", "cuda:0", "0"), "GPU"
)


@document(frozen=True, eq=False)
class OtherBoard:
    """A board that edgekit does not support.

    Attributes:
        title: Its full name.
        names: Its names; the order of their words does not matter.
        last: Its last release.
        source: The source.
        instead: A question that names supported boards, or empty.
    """

    title: str = member(long_text)
    names: tuple[str, ...] = member(array(long_text, 1))
    last: str = member(long_text)
    source: tuple[str, ...] = member(array(long_text, 1))
    instead: str = member(long_text, absent="")


@document(frozen=True, eq=False)
class OtherBoards:
    """``targets/_other_boards.yaml``; ``idle`` are words that name no board."""

    schema: str = member(choice("edgekit.other-boards/1"))
    boards: tuple[OtherBoard, ...] = member(records(OtherBoard))
    idle: tuple[str, ...] = member(array(long_text))


def names() -> tuple[str, ...]:
    """Returns the known boards in alphabetical order; files starting with "_" are no boards."""
    folder = data_folder("targets")
    return tuple(sorted(p.stem for p in folder.glob("*.yaml") if _NAME.fullmatch(p.stem)))


def get(name: str) -> Target:
    """Returns the board called ``name``, or the board of the user's file.

    Args:
        name: A name of ``names()``, its words in any order and case ("Orin AGX 64GB"), or the
            path of a board file (it ends in ``.yaml``).

    Raises:
        UsageError: There is no such board (code ``target.unknown``), or edgekit does not support
            it (code ``target.unsupported``).
        DataError: The file is not a valid board description (code ``target.invalid``).
    """
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        path = data_folder("targets") / f"{name}.yaml"
        # a user's name becomes part of a path: only plain characters are allowed
        if not _NAME.fullmatch(name) or not path.is_file():
            named = match_words(name)
            if named is None:
                raise unknown_target(name)
            path = data_folder("targets") / f"{named}.yaml"
    elif not path.is_file():
        raise unknown_target(name)
    # with the time of the last change, so that an edited file is read again
    return _read_target(path.resolve(), path.stat().st_mtime_ns)


def similar_names(name: str) -> list[str]:
    """Returns the boards whose names contain ``name``, else the most similar boards.

    Boards of platform ``jetson`` are first. Similar names share the most words with ``name``, in
    any order; a memory size counts least.
    """
    # imported only for errors: a correct name is found faster
    from difflib import get_close_matches

    known, lower = names(), name.lower()
    # users type a part of a name, or some of its words
    words = _words(name)
    containing = sorted(
        (board for board in known if lower in board or (words and words <= _words(board))),
        key=lambda board: get(board).platform != "jetson",
    )
    if containing:
        return containing
    return _sharing_most_words(words, known) or get_close_matches(lower, known, n=1, cutoff=0.4)


def _sharing_most_words(words: Collection[str], known: Sequence[str]) -> list[str]:
    """Returns the boards that share the most words with ``words``, which may be misspelt."""
    from difflib import get_close_matches

    # sorted: the order of a set differs between runs
    every = sorted(frozenset[str]().union(*map(_words, known)))
    meant = {near for word in words for near in get_close_matches(word, every, n=1, cutoff=0.75)}

    def nearness(name: str) -> tuple[int, int, int]:
        parts = _words(name)
        sizes = {word for word in parts if word[0].isdigit()}
        series = parts - sizes - {"jetson"}
        return len(meant & series), -len(series - meant), len(meant & sizes)

    best = max(map(nearness, known))
    return [name for name in known if nearness(name) == best] if best[0] else []


def names_hint(name: str) -> str:
    """Returns the hint for an unknown board name."""
    *others, last = similar_names(name) or [""]
    near = f"{', '.join(others)} or {last}" if others else last
    return (f"did you mean {near}? " if near else "") + "`edgekit targets` lists all"


def find_by_board_id(board_id: str) -> Target | None:
    """Returns the target of a board by the number in its device tree, or None."""
    return next((board for board in map(get, names()) if board.file.module.has(board_id)), None)


def match_words(name: str) -> str | None:
    """Returns the board whose name has the words of ``name`` in another order, or None."""
    words = _words(name)
    found = [known for known in names() if _words(known) == words]
    return found[0] if words and len(found) == 1 else None


def unknown_target(name: str) -> UsageError:
    """Returns the error for a name without target: unknown, or known and not supported."""
    words = _words(name)
    for board in _other_boards().boards:
        if words in map(_words, board.names):
            instead = f"{board.instead} " if board.instead else ""
            return UsageError(
                f"{board.title} is not supported: it has no DLA, and its last release is "
                f"{board.last}",
                code="target.unsupported",
                hint=f"{instead}`edgekit targets` lists the supported boards",
            )
    return UsageError(f"unknown target {name!r}", code="target.unknown", hint=names_hint(name))


def _words(name: str) -> frozenset[str]:
    # "64 GB" is one word
    text = re.sub(r"(\d) +gb\b", r"\1gb", name.lower())
    return frozenset(re.findall(r"[a-z0-9]+", text)).difference(_other_boards().idle)


@lru_cache(maxsize=1)
def _other_boards() -> OtherBoards:
    return read_board_data(OtherBoards, data_folder("targets") / "_other_boards.yaml")


@lru_cache(maxsize=64)
def _read_target(path: Path, _stamp: int) -> Target:
    file = read_board_data(BoardFile, path)
    contention = file.contention
    return Target(
        name=path.stem,
        title=file.title,
        compute_capability=file.gpu.compute_capability,
        dla=file.dla,
        gpu=file.gpu,
        dram=file.dram,
        power_modes={name: _make_mode(name, mode, file) for name, mode in file.power_modes.items()},
        tensorrt=file.software.tensorrt,
        idle_watts=file.power.idle_watts,
        platform=file.module.platform,
        file=file,
        rails=file.rails,
        contention={
            name: factor
            for name in CONTENTION
            if contention is not None and (factor := getattr(contention, name)) is not None
        },
    )


def read_board_data(kind: type[_Document], path: Path) -> _Document:
    """Reads a file under ``targets/``.

    Raises:
        DataError: It is not YAML, or a key or value is wrong (code ``target.invalid``).
    """
    try:
        return read_document(kind, path, "target.invalid")
    except DataError as error:
        raise DataError(
            error.message, code="target.invalid", where=error.where, hint=error.hint
        ) from error


def _make_mode(name: str, mode: WrittenMode, file: BoardFile) -> PowerMode:
    gpu, cores = file.gpu, file.dla.cores
    warnings = [mode.warning] if mode.warning else []
    for unknown, what in (
        (mode.gpu is None, "GPU"),
        (None in mode.dla, "DLA"),
        (mode.emc is None, "memory"),
    ):
        # the highest clock is assumed, so the mode needs a warning
        if unknown:
            warnings.append(f"the {what} clock of this mode is unknown, so the highest is assumed")
    clocks = tuple(_mhz(clock, file.dla.max_mhz) for clock in mode.dla) if cores else ()
    return PowerMode(
        name=name,
        id=mode.id,
        cpu_cores=mode.cpu_cores or 0,
        gpu_mhz=_mhz(mode.gpu, gpu.max_mhz),
        gpu_sms=min(gpu.sms, mode.tpcs * _SMS_PER_TPC),
        dla_mhz=clocks * cores if len(clocks) == 1 else clocks,
        memory_share=min(1.0, _mhz(mode.emc, file.dram.emc_mhz) / file.dram.emc_mhz),
        default=mode.default,
        warning="; ".join(warnings),
    )


def _mhz(clock: float | str | None, cap: float) -> float:
    """Returns a clock in MHz; the highest clock for "max" (no cap) and None (unknown)."""
    return clock if isinstance(clock, float) else cap


def parse_device(name: object) -> object:
    """Returns edgekit's name for Ultralytics' name of a device, such as "dla:0" or 0.

    Any other value is returned unchanged.
    """
    # YAML's true is an int in Python, but no device
    is_name = isinstance(name, str | int) and not isinstance(name, bool)
    return _DEVICES.get(str(name).lower(), name) if is_name else name
