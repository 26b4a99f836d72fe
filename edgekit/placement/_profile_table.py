"""``edgekit.profile/1``: a table of what was measured on a board, of one plan or of many.

A row is a sum of layers on a device, in the formats of its border tensors; several measurements of
one sum are one row. Where they agree they are pooled; where they contradict each other the newest
counts, unless it rests on far fewer samples, and the table says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit._listed import listed
from edgekit.errors import DataError

__all__ = ["SCHEMA", "check_table", "frame_row", "layer_row", "merge_tables"]

SCHEMA = "edgekit.profile/1"
AGREE = 0.05
"""Relative distance up to which two measurements of one sum agree, whatever their spread."""
SPREADS = 3.0
FEWER = 4
"""How many times fewer samples a newer measurement may have to win."""
ORIGIN = ("clock", "board", "power_mode", "precision", "model", "backend")
_KEYS = ("device", "layers", "formats", "parts")


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
                f"measurements of different origin cannot be merged: {key} {first[key]!r} and "
                f"{other.get(key)!r}",
                code="profile.merge", hint="merge what one board measured of one model",
            )  # fmt: skip
    told = [str(text) for table in found for text in table.get("notes") or ()]
    parts: dict[str, list[Any]] = {}
    contradictions: list[dict[str, Any]] = []
    for part in ("rows", "frames"):
        parts[part], differ = _merged([row for table in found for row in table.get(part) or ()])
        contradictions += differ
    for one in contradictions:
        told.append(
            f"{one['what']} was measured at {_time(one['dropped_us'])} and at {_time(one['us'])}; "
            f"the {one['why']} counts"
        )
    return {
        "schema": SCHEMA, **first, "tensorrt": found[-1].get("tensorrt") or "",
        **parts, "contradictions": contradictions, "notes": list(dict.fromkeys(told)),
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
            kept, dropped = (dict(row), known) if newer else (known, row)
            differ.append({
                "what": _what(row), "us": kept["us"], "dropped_us": dropped["us"],
                "why": "newer one" if newer else "one with far more samples",
            })  # fmt: skip
            known = kept
        merged.append(known)
    return merged, differ


def _pooled(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    a, b = int(one["samples"]), int(other["samples"])
    us = (a * one["us"] + b * other["us"]) / (a + b)
    spread = abs(one["us"] - other["us"]) / 2
    sd = math.hypot(min(float(one["sd_us"]), float(other["sd_us"])), spread)
    return {**other, "us": us, "sd_us": sd, "samples": a + b}


def _what(row: Mapping[str, Any]) -> str:
    if "parts" in row:
        return "a whole frame"
    return f"{listed(row['layers'], 2)} on the {row['device']}"


def check_table(document: Any, path: Path | str) -> dict[str, Any]:
    """Returns a table whose rows are what they should be.

    Raises:
        DataError: They are not (``profile.unreadable``, ``profile.time``).
    """
    told = document.get("notes")
    if told is not None and not _texts(told):
        raise DataError(
            "the table of measured times has notes that are none", code="profile.unreadable",
            where=str(path), hint="take the file as `edgekit tune` wrote it",
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
                    f"the table of measured times has {name} that are none",
                    code="profile.unreadable", where=str(path),
                    hint="take the file as `edgekit tune` wrote it",
                )  # fmt: skip
            if not all(_number(row.get(key)) and row[key] >= 0 for key in ("us", "sd_us")):
                raise DataError(
                    f"{row.get('us')!r} us is no time", code="profile.time", where=str(path),
                    hint="tune again",
                )  # fmt: skip
    return dict(document)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _number(value: Any) -> bool:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return good and math.isfinite(value) and value <= 1e12


def _is_frame(parts: Any) -> bool:
    return isinstance(parts, list) and all(
        isinstance(part, dict) and _number(part.get("share"))
        and isinstance(part.get("layers"), dict)
        and all(key in ("GPU", "DLA") and _texts(some) for key, some in part["layers"].items())
        and isinstance(part.get("extra"), dict) and all(map(_number, part["extra"].values()))
        for part in parts
    )  # fmt: skip
