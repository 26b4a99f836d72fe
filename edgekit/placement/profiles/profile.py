"""Measured times as values: the rows of a profile, the assignment of rows to layers, and
``edgekit.profile/1``, a table of measurements on a board, of one plan or many.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import Field, ValidationError

from edgekit.documents import (
    ClockName,
    DeviceKind,
    Document,
    Figure,
    Fraction,
    Precision,
    Release,
    fault_words,
    faults,
)
from edgekit.errors import DataError
from edgekit.text import listed

if TYPE_CHECKING:
    from edgekit.buildlog.facts import BuildLog
    from edgekit.buildlog.timings import Combination, Timings


_FOREIGN = re.compile(r"^\{ForeignNode\[.*\]\}$")
_FROM = re.compile(r" from nvm$")
_TO = re.compile(r" to nvm$")
_COPY = re.compile(
    r"^Reformatt(?:ing|ed) |^reformat|input reformatter|output reformatter| copy(?: finish)?$"
    r"|^Input copy|^Output copy",
    re.IGNORECASE,
)
SCHEMA = "edgekit.profile/1"
AGREE = 0.05
"""Relative distance up to which two measurements of one sum agree, independent of their spread."""
SPREADS = 3.0
FEWER = 4
"""Maximum ratio of samples, older to newer, at which the newer measurement counts."""
ORIGIN = ("clock", "board", "power_mode", "precision", "model", "backend")


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The time of one layer, fusion or loadable, in microseconds of one inference.

    Attributes:
        name: The name in the file.
        us: Its time, in its fastest formats if there are several.
        device: "GPU" or "DLA"; empty if unknown (a ForeignNode without layer information can be a
            loadable or a subgraph on the GPU).
        layers: edgekit's names of its layers, if the file lists them.
        variants: Its times by the formats of its tensors.
        place: Its index in the running order, if the file has an order.
    """

    name: str
    us: float
    device: str = ""
    layers: tuple[str, ...] = ()
    variants: tuple[Combination, ...] = ()
    place: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class MeasuredReformat:
    """A conversion of ``tensor`` between two formats, as printed ("Int8(3136,49:32,7,1)")."""

    tensor: str
    source: str
    goal: str
    us: float


@dataclass(frozen=True)
class Profile:
    """Measured times of an engine on a board.

    Attributes:
        kind: "log" (a verbose build), "trtexec" (its profile), "iprofiler", "bench" (edgekit's) or
            "table" (``edgekit.profile/1``: sums that may overlap).
        path: The file's path, as given.
        rows: Layers and loadables, in running order.
        reformats: Conversions by tensor.
        overhead: Rows that are no layer (copies, reformats of a finished engine).
        board: The board in the file, empty if unknown.
        tensorrt: Release, empty if unknown.
        precisions: The precisions that the build allowed; empty if unknown.
        model: The model's file, empty if unknown.
        notes: Caveats about the measurement.
        log: The profile's build log, or None.
        timings: The log's timings, or None.
        table: The profile's ``edgekit.profile/1`` document, or None.
    """

    kind: str
    path: str
    rows: tuple[ProfileRow, ...]
    reformats: tuple[MeasuredReformat, ...] = ()
    overhead: tuple[ProfileRow, ...] = ()
    board: str = ""
    tensorrt: Release | Literal[""] = ""
    precisions: tuple[str, ...] = ()
    model: str = ""
    notes: tuple[str, ...] = ()
    log: BuildLog | None = field(default=None, repr=False)
    timings: Timings | None = field(default=None, repr=False)
    table: ProfileTable | None = field(default=None, repr=False)


def attribute_rows(
    rows: Sequence[ProfileRow],
    kinds: Mapping[str, str],
    writes: Mapping[str, Sequence[str]] | None = None,
) -> tuple[tuple[ProfileRow, ...], tuple[ProfileRow, ...]]:
    """Returns (layers, other rows) with the DLA's time on the DLA's rows.

    Up to TensorRT 8 a loadable's own row shows only its start; the wait for the DLA is in the first
    "... from nvm" after it (NVIDIA/TensorRT issue 3143: 0.0085 ms and 7.69 ms).

    Several loadables can run before the first wait (two cores, or one after the other). A wait
    belongs to the loadable that writes its tensor, if the layer information lists the tensor; else
    each loadable has the next wait in turn. If there are fewer waits than loadables, the waits
    belong to the last loadables, and include the earlier loadables.

    Each row keeps its place in the running order; a wait has the place of its loadable.

    Args:
        rows: In running order.
        kinds: Layer types by name, from --exportLayerInfo; empty without this file.
        writes: Tensors that each layer writes, from the same file.
    """
    # TensorRT 8 and earlier use these names for copies to and from the DLA's memory
    nvm = any(_FROM.search(row.name) or _TO.search(row.name) for row in rows)
    layers: list[ProfileRow] = []
    others: list[tuple[int, ProfileRow]] = []
    pending: list[int] = []  # loadables before their wait
    waits: list[tuple[int, ProfileRow]] = []  # waits that no tensor's name assigns to a loadable

    def settle() -> None:
        # with fewer waits the last loadables waited for the earlier loadables, too
        takers = pending if len(waits) >= len(pending) else pending[-len(waits) :]
        for (_, row), place in zip(waits, takers, strict=False):
            layers[place] = replace(layers[place], us=layers[place].us + row.us)
        others.extend((at, replace(row, device="GPU")) for at, row in waits[len(takers) :])
        pending.clear()
        waits.clear()

    for at, given in enumerate(rows):
        row = replace(given, place=at)
        kind = kinds.get(row.name, "")
        if _FOREIGN.match(row.name):
            device = "DLA" if kind == "DLA" or (nvm and not kind) else "GPU" if kind else ""
            if device == "DLA" and nvm:
                if waits:
                    settle()
                pending.append(len(layers))
            layers.append(replace(row, device=device))
        elif _FROM.search(row.name):
            tensor = _FROM.sub("", row.name)
            writer = next(
                (
                    place
                    for place in pending
                    if tensor in (writes or {}).get(layers[place].name, ())
                ),
                None,
            )
            if writer is not None:
                layers[writer] = replace(layers[writer], us=layers[writer].us + row.us)
                pending.remove(writer)
            elif pending:
                waits.append((at, row))
            else:
                others.append((at, replace(row, device="GPU")))
        elif _TO.search(row.name) or _COPY.search(row.name) or kind == "Reformat":
            others.append((at, replace(row, device="GPU")))
        else:
            layers.append(replace(row, device="DLA" if kind == "DLA" else "GPU"))
    if waits:
        settle()
    return tuple(layers), tuple(row for _, row in sorted(others, key=lambda item: item[0]))


def booked_rows(times: Sequence[tuple[str, float]]) -> tuple[tuple[ProfileRow, bool], ...]:
    """Returns the rows of a hybrid engine's profiler by device, in the profiler's order.

    Args:
        times: Name and microseconds of each row, without the loadables of waits.

    Returns:
        Rows with the waits booked to the loadables, and True for each row that is a layer.
    """
    layers, others = attribute_rows([ProfileRow(name, us) for name, us in times], {})
    both = [*((row, True) for row in layers), *((row, False) for row in others)]
    return tuple(sorted(both, key=lambda pair: pair[0].place))


class LayerRow(Document):
    """A sum of layers that ran as one on a device, in the formats of its border tensors.

    Attributes:
        samples: Number of values in the mean.
    """

    device: DeviceKind
    layers: list[str]
    us: float = Field(ge=0, le=1e12, description="microseconds of an inference")
    sd_us: float = Field(ge=0, le=1e12, description="its deviation")
    samples: int = Field(gt=0)
    formats: dict[str, str] = Field({}, description="by tensor")
    measured_at: Figure = Field(0.0, description="seconds of Unix time")
    source: str = ""

    @property
    def key(self) -> object:
        """The key of the sum."""
        return self.device, tuple(self.layers), tuple(sorted(self.formats.items()))

    def text(self) -> str:
        """Returns the measured layers and their device, for people."""
        return f"{listed(self.layers, 2)} on the {self.device}"


class FramePart(Document):
    """A plan that a share of the frames takes: its layers by device, and other work.

    Attributes:
        share: Part of the frames, 0 to 1.
    """

    share: Fraction = Field(ge=0, le=1 + 1e-6)
    layers: dict[DeviceKind, list[str]]
    extra: dict[str, Figure] = Field(description="counts of launches, transitions and so on")


class FrameRow(Document):
    """The mean time of whole frames; the other attributes are those of ``LayerRow``.

    Attributes:
        samples: Number of values in the mean.
    """

    parts: list[FramePart]
    device: Literal[""] = ""
    layers: list[str] = Field([], max_length=0)
    us: float = Field(ge=0, le=1e12, description="microseconds of a frame")
    sd_us: float = Field(ge=0, le=1e12, description="its deviation")
    samples: int = Field(gt=0)
    formats: dict[str, str] = Field({}, max_length=0)
    measured_at: Figure = Field(0.0, description="seconds of Unix time")
    source: str = ""

    @property
    def key(self) -> object:
        """The key of the frames."""
        return json.dumps([part.to_json() for part in self.parts], sort_keys=True)

    def text(self) -> str:
        """Returns the measured part, for people."""
        return "a whole frame"


class Contradiction(Document):
    """Two contradicting measurements of the same sum, and which measurement counts."""

    what: str
    us: Figure
    dropped_us: Figure
    why: str


class ProfileTable(Document):
    """Measurements on a board, of one plan or of many: an ``edgekit.profile/1``."""

    # A row is a sum of layers on a device, in the formats of its border tensors; several
    # measurements of the same sum are merged. Measurements that agree are pooled. Of contradicting
    # measurements the newest counts, unless it has far fewer samples, and the table lists the
    # contradiction.

    schema_: Literal["edgekit.profile/1"] = Field(alias="schema")
    clock: ClockName | None = Field(None, description="cpu-measured or board-measured")
    board: str | None = None
    power_mode: str | None = None
    precision: Precision | None = None
    model: str | None = Field(None, description="its digest")
    backend: str | None = None
    tensorrt: Release | Literal[""] = ""
    rows: list[LayerRow]
    frames: list[FrameRow]
    contradictions: list[Contradiction] = Field([])
    notes: list[str] = Field([])


_Row = TypeVar("_Row", LayerRow, FrameRow)


def merge_tables(tables: Sequence[ProfileTable]) -> ProfileTable:
    """Returns several tables merged.

    Raises:
        DataError: The tables are of different boards, power modes, precisions or models
            (``profile.merge``).
    """
    first, last = tables[0], tables[-1]
    for other in tables[1:]:
        wrong = [key for key in ORIGIN if getattr(other, key) != getattr(first, key)]
        if wrong:
            key = wrong[0]
            raise DataError(
                f"measurements of different origin cannot be merged: {key} is "
                f"{getattr(first, key)!r} and {getattr(other, key)!r}",
                code="profile.merge",
                hint="merge only measurements of one model on one board",
            )
    rows, differ = _merge_rows([row for table in tables for row in table.rows])
    frames, apart = _merge_rows([row for table in tables for row in table.frames])
    contradictions = [*differ, *apart]
    notes = [text for table in tables for text in table.notes]
    notes += [
        f"{case.what} was measured at {_time(case.dropped_us)} and at "
        f"{_time(case.us)}; the {case.why} is used"
        for case in contradictions
    ]
    return ProfileTable(
        schema="edgekit.profile/1",
        **{key: getattr(first, key) for key in ORIGIN},
        tensorrt=last.tensorrt,
        rows=rows,
        frames=frames,
        contradictions=contradictions,
        notes=list(dict.fromkeys(notes)),
    )


def _time(us: float) -> str:
    return f"{us / 1e3:,.4g} ms" if us >= 1e3 else f"{us:.4g} us"


def _merge_rows(rows: Sequence[_Row]) -> tuple[list[_Row], list[Contradiction]]:
    by_key: dict[object, list[_Row]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    merged, differ = [], []
    for same in by_key.values():
        ordered = sorted(same, key=lambda measurement: measurement.measured_at)
        known = ordered[0]
        for later in ordered[1:]:
            apart = abs(later.us - known.us)
            spread = math.hypot(later.sd_us, known.sd_us)
            if apart <= max(AGREE * known.us, SPREADS * spread):
                known = _pool_rows(known, later)
                continue
            newer = later.samples * FEWER >= known.samples
            newest, dropped = (later, known) if newer else (known, later)
            differ.append(
                Contradiction(
                    what=later.text(),
                    us=newest.us,
                    dropped_us=dropped.us,
                    why="newer one" if newer else "one with far more samples",
                )
            )
            known = newest
        merged.append(known)
    return merged, differ


def _pool_rows(older: _Row, newer: _Row) -> _Row:
    a, b = older.samples, newer.samples
    # two runs that differ are less certain than each by its own deviation
    sd = math.hypot(min(older.sd_us, newer.sd_us), abs(older.us - newer.us) / 2)
    us = (a * older.us + b * newer.us) / (a + b)
    return newer.model_copy(update={"us": us, "sd_us": sd, "samples": a + b})


def table_from_json(document: object, path: Path | str) -> ProfileTable:
    """Returns the table of an ``edgekit.profile/1`` document.

    Raises:
        DataError: The document is not an ``edgekit.profile/1`` (``profile.unreadable``), or has an
            invalid time (``profile.time``).
    """
    try:
        return ProfileTable.model_validate(document)
    except ValidationError as error:
        fault = faults(error)[0]
        if fault["loc"][-1] in ("us", "sd_us") and fault["type"] != "extra_forbidden":
            raise DataError(
                f"{fault['input']!r} us is not a valid time"
                if fault["type"] != "missing"
                else f"a row has no {fault['loc'][-1]}",
                code="profile.time",
                where=str(path),
                hint="tune again",
            ) from error
        raise DataError(
            f"the table of measured times is not valid: {fault_words(error)}",
            code="profile.unreadable",
            where=str(path),
            hint="use the file as `edgekit tune` wrote it",
        ) from error
