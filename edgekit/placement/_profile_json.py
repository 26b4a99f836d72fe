"""Profiles as JSON: trtexec's, an IProfiler's list, and edgekit's own bench documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit._files import parse_json, regular
from edgekit._listed import listed
from edgekit.buildlog import Combination
from edgekit.errors import DataError
from edgekit.placement._profile_bench import MEASURED, bench_rows
from edgekit.placement._profile_inspector import LayerInfo, layer_infos
from edgekit.placement._profile_layers import NoTime, listed_rows, trtexec_rows
from edgekit.placement._profile_rows import attributed
from edgekit.placement._profile_table import SCHEMA, check_table
from edgekit.placement._profile_types import MeasuredReformat, Profile, Row

__all__ = ["profile_of_json"]

_LARGEST = 256 << 20
_SLOWEST = 1e12  # microseconds; longer than any inference
_BENCH = ("edgekit.bench/1", "edgekit.device.bench/1")


def profile_of_json(path: Path, layer_info: str | Path | None) -> Profile:
    """Returns the profile in a JSON file; raises DataError as ``read_profile`` does."""
    try:
        profile = _read(path, layer_info)
    except NoTime as error:
        raise DataError(
            str(error), code="profile.time", where=str(path), hint="times are plain numbers",
        ) from None  # fmt: skip
    wrong = [row for row in (*profile.rows, *profile.overhead) if not 0 <= row.us <= _SLOWEST]
    if wrong:
        raise DataError(
            f"{wrong[0].us / 1e3:g} ms is no time of a layer: "
            + listed((repr(row.name) for row in wrong), 1),
            code="profile.time", where=str(path), hint="export the profile again",
        )  # fmt: skip
    return profile


def _read(path: Path, layer_info: str | Path | None) -> Profile:
    text = _text(path)
    infos = _infos(Path(layer_info)) if layer_info is not None else {}
    if '"name" : "' in text and (found := trtexec_rows(text)):
        return _of_rows("trtexec", path, found, infos)
    try:
        document = parse_json(text)
    except (ValueError, RecursionError) as error:
        where, why = str(path), f"no JSON: {_why(error)}"
        if isinstance(error, json.JSONDecodeError):
            where, why = f"{path}:{error.lineno}", "cut off or no JSON"
        raise DataError(
            f"the profile is {why}",
            code="profile.unreadable", where=where, hint="export it again",
        ) from error  # fmt: skip
    if isinstance(document, dict) and document.get("schema"):
        return _bench(path, document)
    rows = listed_rows(document)
    if not rows:
        raise DataError(
            "the profile has no layer times",
            code="profile.no_times", where=str(path),
            hint='expected a list of {"name", "timeMs"} as trtexec --exportProfile writes it',
        )  # fmt: skip
    return _of_rows("iprofiler", path, rows, infos)


def _of_rows(kind: str, path: Path, rows: Sequence[Row], infos: Mapping[str, LayerInfo]) -> Profile:
    layers, others = attributed(
        rows,
        {name: info.kind for name, info in infos.items()},
        {name: info.outputs for name, info in infos.items()},
    )
    if not sum(row.us for row in layers):
        raise DataError(
            "every time in the profile is zero",
            code="profile.no_times", where=str(path),
            hint="run trtexec with --dumpProfile --separateProfileRun and more --iterations",
        )  # fmt: skip
    layers = tuple(_with_formats(row, infos.get(row.name)) for row in layers)
    return Profile(kind, str(path), layers, _conversions(others, infos), others)


def _with_formats(row: Row, info: LayerInfo | None) -> Row:
    if info is None or not (info.reads or info.writes):
        return row
    return replace(row, variants=(Combination(info.reads, info.writes, row.us),))


def _conversions(
    rows: Sequence[Row], infos: Mapping[str, LayerInfo]
) -> tuple[MeasuredReformat, ...]:
    found = []
    for row in rows:
        info = infos.get(row.name)
        if info and info.kind == "Reformat" and len(info.reads) == len(info.writes) == 1 and row.us:
            found.append(MeasuredReformat(info.inputs[0], info.reads[0], info.writes[0], row.us))
    return tuple(found)


def _text(path: Path) -> str:
    try:
        if regular(path).stat().st_size > _LARGEST:
            raise DataError(
                f"the profile is larger than {_LARGEST >> 20} MiB",
                code="profile.unreadable", where=str(path), hint="export one engine's profile",
            )  # fmt: skip
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"cannot read the profile: {error.strerror or error}",
            code="profile.unreadable", where=str(path), hint="check the path and its permissions",
        ) from error  # fmt: skip
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, errors="replace")


def _why(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _infos(path: Path) -> dict[str, LayerInfo]:
    try:
        return layer_infos(parse_json(_text(path)))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"the layer information is no JSON: {_why(error)}",
            code="profile.layer_info", where=str(path),
            hint="give trtexec's --exportLayerInfo with --profilingVerbosity=detailed",
        ) from error  # fmt: skip


def _bench(path: Path, document: Mapping[str, Any]) -> Profile:
    if document["schema"] not in (*_BENCH, SCHEMA):
        raise DataError(
            f"a document of schema {document['schema']!r} holds no measured times",
            code="profile.unknown", where=str(path),
            hint="give the output of `edgekit bench` or the profile that `edgekit tune` writes",
        )  # fmt: skip
    clock = document.get("clock")
    if clock != MEASURED:
        what = "a CPU's" if clock == "cpu-measured" else "predicted"
        raise DataError(
            f"the times are {what} (clock {clock!r}), they say nothing about the board's",
            code="profile.clock", where=str(path), hint="give a bench of the board itself",
        )  # fmt: skip
    if document["schema"] == SCHEMA:
        return _table(path, document)
    rows, notes = bench_rows(document)
    if not rows:
        raise DataError(
            next(iter(notes), "the bench has no times of segments"),
            code="profile.no_times", where=str(path), hint="bench a bundle on the board",
        )  # fmt: skip
    reasons = _objects(_object(document.get("verdict")).get("reasons"))
    invalid = tuple(f"the bench is not valid: {reason.get('message')}" for reason in reasons)
    precision = document.get("precision")
    return Profile(
        "bench", str(path), rows, board=str(document.get("target") or ""),
        tensorrt=str(_object(document.get("environment")).get("tensorrt") or ""),
        precisions=(precision,) if isinstance(precision, str) else (), notes=(*invalid, *notes),
    )  # fmt: skip


def _table(path: Path, document: Mapping[str, Any]) -> Profile:
    table = check_table(document, path)
    rows = tuple(
        Row(f"row {number}", row["us"], row["device"], tuple(row["layers"]))
        for number, row in enumerate(table["rows"])
    )
    if not rows:
        raise DataError(
            "the table has no measured times",
            code="profile.no_times", where=str(path), hint="tune again, and measure a plan",
        )  # fmt: skip
    precision, notes = table.get("precision"), table.get("notes")
    return Profile(
        "table", str(path), rows, board=str(table.get("board") or ""),
        tensorrt=str(table.get("tensorrt") or ""),
        precisions=(precision,) if isinstance(precision, str) else (),
        notes=tuple(map(str, notes)) if isinstance(notes, list) else (), table=table,
    )  # fmt: skip


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    listed = value if isinstance(value, list) else []
    return [entry for entry in listed if isinstance(entry, dict)]
