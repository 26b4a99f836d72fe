"""Measured times as values: the rows of a profile, which of them are layers and whose time a row
shows, and ``edgekit.profile/1``, a table of what was measured on a board of one plan or many.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    r"|^Input copy|^Output copy", re.IGNORECASE,
)  # fmt: skip
SCHEMA = "edgekit.profile/1"
AGREE = 0.05
"""Relative distance up to which two measurements of one sum agree, whatever their spread."""
SPREADS = 3.0
FEWER = 4
"""How many times fewer samples a newer measurement may have to win."""
ORIGIN = ("clock", "board", "power_mode", "precision", "model", "backend")
_KEYS = ("device", "layers", "formats", "parts")


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The time of one layer, fusion or loadable, in microseconds of one inference.

    Attributes:
        name: As the file has it.
        us: Its time, in its fastest formats where there are several.
        device: "GPU" or "DLA"; empty where the file does not say (a ForeignNode without layer
            information can be a loadable or a subgraph on the GPU).
        layers: Our names of its layers, where the file lists them.
        variants: Its times by the formats of its tensors.
        place: Its place in the running order, where the file has one.
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
        path: The file, as it was given.
        rows: Layers and loadables, in running order.
        reformats: Conversions by tensor.
        overhead: Rows that are no layer (copies, reformats of a finished engine).
        board: What the file says of the board, empty where it does not.
        tensorrt: Release, empty where unknown.
        precisions: As the build allowed them; empty where unknown.
        model: The model's file, empty where unknown.
        notes: What to know before believing it.
        log: The build log it comes from, or None.
        timings: The log's timings, or None.
        table: The ``edgekit.profile/1`` document it comes from, or None.
    """

    kind: str
    path: str
    rows: tuple[ProfileRow, ...]
    reformats: tuple[MeasuredReformat, ...] = ()
    overhead: tuple[ProfileRow, ...] = ()
    board: str = ""
    tensorrt: str = ""
    precisions: tuple[str, ...] = ()
    model: str = ""
    notes: tuple[str, ...] = ()
    log: BuildLog | None = field(default=None, repr=False)
    timings: Timings | None = field(default=None, repr=False)
    table: Mapping[str, Any] | None = field(default=None, repr=False)

    def to_json(self) -> Mapping[str, Any]:
        """Returns what identifies it, and its rows."""
        return {
            "kind": self.kind,
            "file": self.path,
            "board": self.board,
            "tensorrt": self.tensorrt,
            "precisions": list(self.precisions),
            "model": self.model,
            "rows": [{"name": r.name, "us": r.us, "device": r.device} for r in self.rows],
            "reformats": len(self.reformats),
            "notes": list(self.notes),
        }


# Which rows of a profile are layers, and whose time a row shows.
#
# Up to TensorRT 8 a loadable's own row shows only its start; the wait for the DLA is in the first
# "... from nvm" after it (NVIDIA/TensorRT issue 3143: 0.0085 ms and 7.69 ms).


def attributed(
    rows: Sequence[ProfileRow],
    kinds: Mapping[str, str],
    writes: Mapping[str, Sequence[str]] | None = None,
) -> tuple[tuple[ProfileRow, ...], tuple[ProfileRow, ...]]:
    """Returns (layers, what is no layer) with the DLA's time on the DLA's rows.

    Several loadables can run before the first wait (two cores, or one after the other): a wait
    belongs to the loadable that writes its tensor, where the layer information lists that; else
    each loadable has the next wait in turn, and where waits are fewer the last loadables have
    them; the earlier ones were waited for together with it.

    Each row keeps its place in that order; a wait is drawn where its loadable began.

    Args:
        rows: In running order.
        kinds: Layer types of --exportLayerInfo by name; empty without.
        writes: Tensors that each layer writes, of the same file.
    """
    nvm = any(_FROM.search(row.name) or _TO.search(row.name) for row in rows)
    layers: list[ProfileRow] = []
    others: list[tuple[int, ProfileRow]] = []
    pending: list[int] = []  # loadables whose wait is still to come
    waits: list[tuple[int, ProfileRow]] = []  # waits that no tensor's name gives to one of them

    def settle() -> None:
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
    """Returns what a profiler of a hybrid engine timed, in its order, by the device it is of.

    Args:
        times: Name and microseconds of each row; none says which loadable a wait is for.

    Returns:
        Rows, the waits booked to the loadables, and whether each is a layer.
    """
    layers, others = attributed([ProfileRow(name, us) for name, us in times], {})
    both = [*((row, True) for row in layers), *((row, False) for row in others)]
    return tuple(sorted(both, key=lambda one: one[0].place))


# ``edgekit.profile/1``: a table of what was measured on a board, of one plan or of many.
#
# A row is a sum of layers on a device, in the formats of its border tensors; several measurements
# of one sum are one row. Where they agree they are pooled; where they contradict each other the
# newest counts, unless it rests on far fewer samples, and the table says so.


def layer_row(
    device: str, layers: Sequence[str], us: float, *, sd_us: float = 0.0, samples: int = 1,
    formats: Mapping[str, str] | None = None, measured_at: float = 0.0, source: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Returns a row of layers that ran as one on a device ("GPU" or "DLA")."""
    return {
        "device": device, "layers": list(layers), "us": us, "sd_us": sd_us, "samples": samples,
        "formats": dict(sorted((formats or {}).items())), "measured_at": measured_at,
        "source": source,
    }  # fmt: skip


def frame_row(parts: Sequence[Mapping[str, Any]], us: float, **more: Any) -> dict[str, Any]:
    """Returns a row of whole frames.

    Args:
        parts: Of each plan that frames take "share", "layers" (by device) and "extra": what else is
            in its time.
        us: Mean microseconds of a frame.
        more: As for :func:`layer_row`.
    """
    row = layer_row("", (), us, **more)
    return {"parts": [dict(part) for part in parts], **row}


def merge_tables(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns one table of several.

    Raises:
        DataError: They are of different boards, power modes, precisions or models
            (``profile.merge``).
    """
    found = list(tables)
    first = {key: found[0].get(key) for key in ORIGIN}
    for other in found[1:]:
        wrong = [key for key in ORIGIN if other.get(key) != first[key]]
        if wrong:
            key = wrong[0]
            raise DataError(
                f"measurements of different origin cannot be merged: {key} is {first[key]!r} "
                f"and {other.get(key)!r}",
                code="profile.merge",
                hint="merge only measurements of one model on one board",
            )
    notes = [str(text) for table in found for text in table.get("notes") or ()]
    parts: dict[str, list[Any]] = {}
    contradictions: list[dict[str, Any]] = []
    for part in ("rows", "frames"):
        parts[part], differ = _merged([row for table in found for row in table.get(part) or ()])
        contradictions += differ
    for one in contradictions:
        notes.append(
            f"{one['what']} was measured at {_time(one['dropped_us'])} and at "
            f"{_time(one['us'])}; the {one['why']} is used"
        )
    return {
        "schema": SCHEMA, **first, "tensorrt": found[-1].get("tensorrt") or "",
        **parts, "contradictions": contradictions, "notes": list(dict.fromkeys(notes)),
    }  # fmt: skip


def _time(us: float) -> str:
    return f"{us / 1e3:,.4g} ms" if us >= 1e3 else f"{us:.4g} us"


def _merged(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[dict[str, Any]]]:
    by_key: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        key = json.dumps([row.get(name) for name in _KEYS], sort_keys=True)
        by_key.setdefault(key, []).append(row)
    merged, differ = [], []
    for same in by_key.values():
        first, *others = sorted(same, key=lambda row: float(row.get("measured_at") or 0))
        known = dict(first)
        for row in others:
            apart = abs(row["us"] - known["us"])
            spread = math.hypot(float(row.get("sd_us") or 0), float(known.get("sd_us") or 0))
            if apart <= max(AGREE * known["us"], SPREADS * spread):
                known = _pooled(known, row)
                continue
            newer = int(row["samples"]) * FEWER >= int(known["samples"])
            newest, dropped = (dict(row), known) if newer else (known, row)
            differ.append({
                "what": _row_text(row), "us": newest["us"], "dropped_us": dropped["us"],
                "why": "newer one" if newer else "one with far more samples",
            })  # fmt: skip
            known = newest
        merged.append(known)
    return merged, differ


def _pooled(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    a, b = int(one["samples"]), int(other["samples"])
    us = (a * one["us"] + b * other["us"]) / (a + b)
    spread = abs(one["us"] - other["us"]) / 2
    sd = math.hypot(min(float(one["sd_us"]), float(other["sd_us"])), spread)
    return {**other, "us": us, "sd_us": sd, "samples": a + b}


def _row_text(row: Mapping[str, Any]) -> str:
    if "parts" in row:
        return "a whole frame"
    return f"{listed(row['layers'], 2)} on the {row['device']}"


def check_table(document: Any, path: Path | str) -> dict[str, Any]:
    """Returns a table whose rows are what they should be.

    Raises:
        DataError: They are not (``profile.unreadable``, ``profile.time``).
    """
    notes = document.get("notes")
    if notes is not None and not _texts(notes):
        raise DataError(
            "the table of measured times has invalid notes", code="profile.unreadable",
            where=str(path), hint="use the file as `edgekit tune` wrote it",
        )  # fmt: skip
    for name in ("rows", "frames"):
        rows = document.get(name)
        each: list[Any] = rows if isinstance(rows, list) else [None]
        for row in each:
            good = isinstance(row, dict) and isinstance(row.get("samples"), int)
            good = good and _number(row.get("measured_at", 0.0)) and row["samples"] > 0 and (
                _is_frame(row.get("parts")) if name == "frames"
                else _texts(row.get("layers")) and row.get("device") in ("GPU", "DLA")
            )  # fmt: skip
            if not good:
                raise DataError(
                    f"the table of measured times has invalid {name}",
                    code="profile.unreadable", where=str(path),
                    hint="use the file as `edgekit tune` wrote it",
                )  # fmt: skip
            if not all(_number(row.get(key)) and row[key] >= 0 for key in ("us", "sd_us")):
                raise DataError(
                    f"{row.get('us')!r} us is not a valid time",
                    code="profile.time",
                    where=str(path),
                    hint="tune again",
                )
    return dict(document)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _number(value: Any) -> bool:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return good and math.isfinite(value) and abs(value) <= 1e12


def _is_frame(parts: Any) -> bool:
    return isinstance(parts, list) and all(
        isinstance(part, dict) and _number(part.get("share")) and 0 <= part["share"] <= 1 + 1e-6
        and isinstance(part.get("layers"), dict)
        and all(key in ("GPU", "DLA") and _texts(some) for key, some in part["layers"].items())
        and isinstance(part.get("extra"), dict) and all(map(_number, part["extra"].values()))
        for part in parts
    )  # fmt: skip
