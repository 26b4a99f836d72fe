"""``read_profile``: measured times from a verbose build log, trtexec's ``--exportProfile`` (with
``--exportLayerInfo``), the times of an ``IProfiler`` as JSON, a document of ``edgekit bench``, or
an ``edgekit.profile/1``.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgekit.buildlog.facts import BuildLog
from edgekit.buildlog.reading import read_timings
from edgekit.buildlog.timings import Combination, Timings, UnitTiming
from edgekit.errors import DataError, UsageError
from edgekit.files import parse_json, read_file, regular_file
from edgekit.placement.profiles.profile import (
    SCHEMA,
    MeasuredReformat,
    Profile,
    ProfileRow,
    ProfileTable,
    attribute_rows,
    table_from_json,
)
from edgekit.text import listed
from edgekit_device.benchmark.measurement import Measurement

_JSON = re.compile(r'\s*(?:\[\s*(?:[\[{"\]]|$)|\{\s*(?:["}]|$))')
_HINT = (
    "give a verbose build log (trtexec --verbose), trtexec's --exportProfile, a list of "
    '{"name", "timeMs"} or a document of `edgekit bench`'
)
# bytes of a JSON file, which is read whole
_LARGEST = 256 << 20
_SLOWEST = 1e12  # microseconds; longer than any inference
_BENCH = ("edgekit.bench/1", "edgekit.device.bench/1")
_LONGEST = 1 << 14
#: From a document to its class's instance.
ReadDocument = Callable[[Mapping[str, Any]], Any]
# trtexec writes names without escaping them, and nan if a total is zero
_LINE = re.compile(r'^[\s,\[]*\{ "name" : "(.*)", "timeMs" : (\S+?)((?:, "\w+" : \S+?)*) \}')
_MORE = re.compile(r', "(\w+)" : ([^\s,}]+)')
_COUNT = re.compile(r'\{ "count" : (\d{1,12}) \}')
# The first that a row has: one slow run does not move a median.
_TIMES = (
    ("medianMs", 1e3),
    ("averageMs", 1e3),
    ("timeMs", 1e3),
    ("time_ms", 1e3),
    ("mean_ms", 1e3),
    ("ms", 1e3),
    ("averageUs", 1.0),
    ("time_us", 1.0),
    ("mean_us", 1.0),
    ("us", 1.0),
)
_NAN = re.compile(r"-?nan", re.IGNORECASE)  # Windows writes -nan(ind)
_LISTS = ("layers", "Layers", "profile", "times")
MEASURED = "board-measured"
_KNOWN = 0.5  # minimum share of a segment's layers that its profile must name
_TRUSTED = (0.2, 5.0)  # factors by which a profiler may change a sum


def read_profile(
    path: str | Path, *, layer_info: str | Path | None = None, documents: ReadDocument | None = None
) -> Profile:
    """Reads measured times; the kind of file is recognised.

    Args:
        path: A verbose build log, or JSON as trtexec, an ``IProfiler`` or ``edgekit bench``
            writes it. Logs of any size are read in a stream.
        layer_info: trtexec's ``--exportLayerInfo`` of the same engine; identifies the profile's
            subgraphs that are loadables.
        documents: Reads a document of ``edgekit bench``:
            :func:`edgekit.benchmark.document.read_bench`. None to refuse such documents.

    Raises:
        DataError: The file is missing or unreadable (``profile.missing``,
            ``profile.unreadable``), empty (``profile.empty``), binary (``profile.binary``), of an
            unknown kind (``profile.unknown``), has no layer times (``profile.no_times``) or
            impossible times (``profile.time``), or its times are a CPU's or predicted
            (``profile.clock``).
    """
    path = Path(path)
    # a pipe can only be read once, as a stream
    if not path.is_fifo() and _JSON.match(_read_head(path)):
        return _read_json(path, layer_info, documents)
    return _read_log(path)


def _read_head(path: Path) -> str:
    try:
        with regular_file(path).open("rb") as file:
            data = file.read(4096)
    except FileNotFoundError as error:
        raise DataError(
            "no such profile", code="profile.missing", where=str(path), hint=_HINT
        ) from error
    except OSError as error:
        raise DataError(
            f"cannot read the profile: {error.strerror or error}",
            code="profile.unreadable",
            where=str(path),
            hint="check the path and its permissions",
        ) from error
    if not data.strip():
        raise DataError("the profile is empty", code="profile.empty", where=str(path), hint=_HINT)
    # UTF-16 text without a byte order mark: every other byte is zero
    wide = data[1::2].count(0) > 0.3 * len(data) or data[::2].count(0) > 0.3 * len(data)
    if (
        b"\0" in data
        and not wide
        and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    ):
        raise DataError(
            "the profile is a binary file (an engine, perhaps)",
            code="profile.binary",
            where=str(path),
            hint=_HINT,
        )
    return data.decode("utf-8", errors="replace").lstrip("\ufeff")


def _read_log(path: Path) -> Profile:
    try:
        log, timings = read_timings(path)
    except UsageError as error:
        code = error.code.replace("log.", "profile.")
        words = (
            "this file contains no measured times" if code == "profile.unknown" else error.message
        )
        raise DataError(words, code=code, where=str(path), hint=_HINT) from error
    notes: list[str] = []
    if timings.units:
        rows = tuple(row for unit in timings.units if (row := _fastest_row(unit)) is not None)
        missing = len(timings.units) - len(rows)
        if missing:
            notes.append(f"the log has no time for {missing} of {len(timings.units)} units")
        if not timings.finished:
            notes.append("the log ends before the builder had chosen its tactics")
        if rows:
            overhead: tuple[ProfileRow, ...] = ()
            return _profile("log", path, rows, overhead, log, timings, notes)
    if timings.table:
        rows, overhead = attribute_rows([ProfileRow(row.name, row.us) for row in timings.table], {})
        if rows:
            return _profile("trtexec", path, rows, overhead, log, timings, notes)
    run = dict(timings.run_us)
    whole = f" (only the whole engine's: {run['gpu'] / 1e3:.4g} ms)" if "gpu" in run else ""
    raise DataError(
        f"the log has no times of layers{whole}",
        code="profile.no_times",
        where=str(path),
        hint="build with trtexec --verbose, or run with --dumpProfile --separateProfileRun",
    )


def _fastest_row(unit: UnitTiming) -> ProfileRow | None:
    timed = tuple(c for c in unit.combinations if c.us is not None)
    if not timed:
        return None
    best = min(c.us for c in timed if c.us is not None)
    return ProfileRow(unit.name, best, "DLA" if unit.on_dla else "GPU", variants=timed)


def _profile(
    kind: str,
    path: Path,
    rows: tuple[ProfileRow, ...],
    overhead: tuple[ProfileRow, ...],
    log: BuildLog,
    timings: Timings,
    notes: list[str],
) -> Profile:
    reformats = tuple(MeasuredReformat(r.tensor, r.source, r.goal, r.us) for r in timings.reformats)
    return Profile(
        kind,
        str(path),
        rows,
        reformats,
        overhead,
        log.device,
        log.tensorrt,
        log.precisions,
        log.model,
        tuple(notes),
        log,
        timings,
    )


def _read_json(
    path: Path, layer_info: str | Path | None, documents: ReadDocument | None
) -> Profile:
    try:
        profile = _parse_json(path, layer_info, documents)
    except InvalidTime as error:
        raise DataError(
            str(error),
            code="profile.time",
            where=str(path),
            hint="times are plain numbers",
        ) from None
    wrong = [row for row in (*profile.rows, *profile.overhead) if not 0 <= row.us <= _SLOWEST]
    if wrong:
        raise DataError(
            f"{wrong[0].us / 1e3:g} ms is not a valid layer time: "
            + listed((repr(row.name) for row in wrong), 1),
            code="profile.time",
            where=str(path),
            hint="export the profile again",
        )
    return profile


def _parse_json(
    path: Path, layer_info: str | Path | None, documents: ReadDocument | None
) -> Profile:
    text = _read_text(path)
    infos = _infos(Path(layer_info)) if layer_info is not None else {}
    # before JSON: a name with a quote makes trtexec's file invalid
    if '"name" : "' in text and (found := trtexec_rows(text)):
        return _profile_from_rows("trtexec", path, found, infos)
    try:
        document = parse_json(text)
    except (ValueError, RecursionError) as error:
        where, why = str(path), f"not JSON: {_error_text(error)}"
        if isinstance(error, json.JSONDecodeError):
            where, why = f"{path}:{error.lineno}", "cut off or not JSON"
        raise DataError(
            f"the profile is {why}",
            code="profile.unreadable",
            where=where,
            hint="export it again",
        ) from error
    if isinstance(document, dict) and document.get("schema"):
        return _bench(path, document, documents)
    rows = listed_rows(document)
    if not rows:
        raise DataError(
            "the profile has no layer times",
            code="profile.no_times",
            where=str(path),
            hint='expected a list of {"name", "timeMs"} as trtexec --exportProfile writes it',
        )
    return _profile_from_rows("iprofiler", path, rows, infos)


def _profile_from_rows(
    kind: str, path: Path, rows: Sequence[ProfileRow], infos: Mapping[str, LayerInfo]
) -> Profile:
    layers, others = attribute_rows(
        rows,
        {name: info.kind for name, info in infos.items()},
        {name: info.outputs for name, info in infos.items()},
    )
    if not sum(row.us for row in layers):
        raise DataError(
            "every time in the profile is zero",
            code="profile.no_times",
            where=str(path),
            hint="run trtexec with --dumpProfile --separateProfileRun and more --iterations",
        )
    layers = tuple(_with_formats(row, infos.get(row.name)) for row in layers)
    return Profile(kind, str(path), layers, _find_conversions(others, infos), others)


def _with_formats(row: ProfileRow, info: LayerInfo | None) -> ProfileRow:
    if info is None or not (info.reads or info.writes):
        return row
    return replace(row, variants=(Combination(info.reads, info.writes, row.us),))


def _find_conversions(
    rows: Sequence[ProfileRow], infos: Mapping[str, LayerInfo]
) -> tuple[MeasuredReformat, ...]:
    found = []
    for row in rows:
        info = infos.get(row.name)
        if info and info.kind == "Reformat" and len(info.reads) == len(info.writes) == 1 and row.us:
            found.append(MeasuredReformat(info.inputs[0], info.reads[0], info.writes[0], row.us))
    return tuple(found)


def _read_text(path: Path) -> str:
    try:
        data = read_file(path, _LARGEST)
    except OSError as error:
        raise DataError(
            f"cannot read the profile: {error.strerror or error}",
            code="profile.unreadable",
            where=str(path),
            hint="check the path and its permissions",
        ) from error
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return data.decode(encoding, errors="replace")


def _error_text(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _infos(path: Path) -> dict[str, LayerInfo]:
    try:
        return layer_infos(parse_json(_read_text(path)))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"the layer information is not JSON: {_error_text(error)}",
            code="profile.layer_info",
            where=str(path),
            hint="give trtexec's --exportLayerInfo with --profilingVerbosity=detailed",
        ) from error


def _bench(path: Path, document: Mapping[str, Any], documents: ReadDocument | None) -> Profile:
    if document["schema"] not in (*(_BENCH if documents else ()), SCHEMA):
        raise DataError(
            f"a document of schema {document['schema']!r} contains no measured times",
            code="profile.unknown",
            where=str(path),
            hint="give the output of `edgekit bench` or the profile that `edgekit tune` writes",
        )
    clock = document.get("clock")
    if clock != MEASURED:
        what = "a CPU's" if clock == "cpu-measured" else "predicted"
        raise DataError(
            f"the times are {what} (clock {clock!r}) and are no times of the board",
            code="profile.clock",
            where=str(path),
            hint="give a bench of the board itself",
        )
    if document["schema"] == SCHEMA:
        return _profile_from_table(path, table_from_json(document, path))
    assert documents is not None
    try:
        bench = documents(document)
    except DataError as error:
        raise DataError(
            error.message,
            code="profile.unreadable",
            where=": ".join(filter(None, (str(path), error.where))),
            hint="give the file as `edgekit bench` wrote it",
        ) from error
    if isinstance(bench, Measurement):
        return _profile_from_measurement(path, bench)
    reasons = bench.verdict.reasons if bench.verdict else ()
    found = _profile_from_measurement(path, bench.measurement(), bench.placement)
    return replace(
        found,
        board=bench.target or "",
        precisions=(bench.precision,) if bench.precision else (),
        notes=(*(f"the bench is not valid: {reason.message}" for reason in reasons), *found.notes),
    )


def _profile_from_measurement(
    path: Path, measured: Measurement, placement: Sequence[Iterable[tuple[str, str]]] = ()
) -> Profile:
    rows, notes = bench_rows(measured, placement)
    if not rows:
        raise DataError(
            next(iter(notes), "the bench has no times of segments"),
            code="profile.no_times",
            where=str(path),
            hint="bench a bundle on the board",
        )
    tensorrt = str((measured.environment or {}).get("tensorrt") or "")
    return Profile("bench", str(path), rows, tensorrt=tensorrt, notes=notes)


def _profile_from_table(path: Path, table: ProfileTable) -> Profile:
    rows = tuple(
        ProfileRow(f"row {number}", row.us, row.device, tuple(row.layers))
        for number, row in enumerate(table.rows)
    )
    if not rows:
        raise DataError(
            "the table has no measured times",
            code="profile.no_times",
            where=str(path),
            hint="tune again, and measure a plan",
        )
    return Profile(
        "table",
        str(path),
        rows,
        board=table.board or "",
        tensorrt=table.tensorrt,
        precisions=(table.precision,) if table.precision else (),
        notes=tuple(table.notes),
        table=table,
    )


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def trtexec_rows(text: str) -> list[ProfileRow]:
    """Returns the rows of a trtexec profile, parsed by line: its output is not strict JSON."""
    rows = []
    count = int(match[1]) if (match := _COUNT.search(text)) else 1
    for line in text.splitlines():
        if line.count('"timeMs"') > 1:
            return []  # several entries in a line: not trtexec's
        # a hostile line must not take quadratic time
        match = _LINE.match(line[:_LONGEST])
        if match is None:
            continue
        fields = dict(_MORE.findall(match[3]))
        fields["timeMs"] = match[2]
        median, average, total = (
            _listed_us(fields.get(key), 1e3, key, match[1])
            for key in ("medianMs", "averageMs", "timeMs")
        )
        # timeMs is the sum over all runs
        us = median or average or total / max(count, 1)
        rows.append(ProfileRow(match[1], us))
    return rows


def listed_rows(document: Any) -> list[ProfileRow]:
    """Returns the mean of each name, in the order of first appearance."""
    if isinstance(document, dict):
        for key in _LISTS:
            if isinstance(document.get(key), list | dict):
                return listed_rows(document[key])
        pairs = list(document.items())
        document = pairs if all(_is_time(value) for _, value in pairs) else []
    if not isinstance(document, list):
        return []
    times: dict[str, list[float]] = {}
    count = 1
    for entry in document:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            key, scale = next(((k, s) for k, s in _TIMES if k in entry), ("", 0.0))
            share = count if key == "timeMs" else 1
            if key:
                times.setdefault(entry["name"], []).append(
                    _listed_us(entry[key], scale, key, entry["name"]) / share
                )
        elif isinstance(entry, dict) and isinstance(entry.get("count"), int):
            count = max(1, entry["count"])
        elif isinstance(entry, list | tuple) and len(entry) == 2 and _is_time(entry[1]):
            times.setdefault(str(entry[0]), []).append(
                _listed_us(entry[1], 1e3, "the time", str(entry[0]))
            )
    return [ProfileRow(name, sum(each) / len(each)) for name, each in times.items()]


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class InvalidTime(Exception):
    """A field that should hold a time has another value."""


def _listed_us(value: Any, scale: float, field: str, name: str) -> float:
    """Returns microseconds; 0 if trtexec has no sum (it writes nan, or omits the field).

    Raises:
        InvalidTime: The value is not a time.
    """
    try:
        us = float(0 if value is None else value) * scale
    except (TypeError, ValueError, OverflowError):
        if isinstance(value, str) and _NAN.match(value):
            return 0.0
        raise InvalidTime(
            f"{field} of the layer {name[:80]!r} is {value!r:.60}, no number"
        ) from None
    return 0.0 if math.isnan(us) else round(us, 6) if math.isfinite(us) else us


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """A layer's type, and its tensors' names and formats if built with detailed verbosity."""

    kind: str
    inputs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def layer_infos(document: Any) -> dict[str, LayerInfo]:
    """Returns the layers by name; empty for names alone (the default verbosity)."""
    layers = document.get("Layers") if isinstance(document, dict) else None
    found = {}
    for layer in layers if isinstance(layers, list) else ():
        if not isinstance(layer, dict) or not isinstance(layer.get("Name"), str):
            continue
        inputs, outputs = _objects(layer.get("Inputs")), _objects(layer.get("Outputs"))
        found[layer["Name"]] = LayerInfo(
            str(layer.get("LayerType", "")),
            tuple(str(tensor.get("Name", "")) for tensor in inputs),
            tuple(map(_format, inputs)),
            tuple(map(_format, outputs)),
            tuple(str(tensor.get("Name", "")) for tensor in outputs),
        )
    return found


def _format(tensor: Mapping[str, Any]) -> str:
    """Returns a tensor's format: up to TensorRT 10 a single text, from TensorRT 11 two texts."""
    both = tensor.get("Format/Datatype")
    if isinstance(both, str):
        return both
    return f"{tensor.get('Format', '')} {tensor.get('DataType', '')}".strip()


@dataclass(frozen=True, slots=True)
class _Segment:
    """A timed segment of a bench: its microseconds, and "GPU" or "DLA" by layer.

    A segment's own time is the sum; it is divided in proportion to its profiled layers, because a
    profiler slows the timed layers. A hybrid engine is a segment of two devices: only its layers
    distinguish them, and the wait for the DLA is booked to the loadable (see ``profile``).
    """

    lane: int
    index: int
    device: str
    us: float
    devices: Mapping[str, str]


def bench_rows(
    measured: Measurement, placement: Sequence[Iterable[tuple[str, str]]]
) -> tuple[tuple[ProfileRow, ...], tuple[str, ...]]:
    """Returns the rows of a bench, and notes on them.

    Frames of a mix take several lanes; a layer's first time on a device counts.

    Args:
        measured: Its segments and, if the board was profiled, its nodes.
        placement: Layer and device, by plan; a layer that is not named is on its segment's device.
    """
    rows: list[ProfileRow] = []
    notes: list[str] = []
    timed: set[tuple[str, str]] = set()
    # a CPU's profile has other layers than the board's engine
    nodes = _profiled_layers(measured) if measured.clock == MEASURED else {}
    for segment in _segments(measured, placement):
        names, used = tuple(segment.devices), set(segment.devices.values())
        keys = {(device, name) for name, device in segment.devices.items()}
        # counted in another plan of the mix
        if keys & timed:
            continue
        timed |= keys
        own = nodes.get((segment.lane, segment.index), [])
        # cuDLA has no profiler: profiled layers on a DLA are a hybrid engine's
        hybrid = len(used) > 1 or bool(own and segment.device == "DLA" and "DLA" in used)
        found = (
            _divide_segment(own, segment.us)
            if own and (hybrid or _names_layers(own, names))
            else []
        )
        if found:
            rows += found
        elif hybrid:
            notes.append(
                f"segment {segment.index} is a hybrid engine whose times are not split by device: "
                "bench it with layer profiling"
            )
        else:
            rows.append(ProfileRow(f"segment {segment.index}", segment.us, used.pop(), names))
    return tuple(replace(row, place=number) for number, row in enumerate(rows)), tuple(notes)


def _segments(
    measured: Measurement, placement: Sequence[Iterable[tuple[str, str]]]
) -> Iterator[_Segment]:
    """Yields the segments with a time and layers."""
    places = [dict(plan) for plan in placement]
    for segment in measured.segments:
        latency = segment.latency_ms or {}
        us = round(1e3 * (latency.get("median") or latency.get("mean") or 0.0), 6)
        place = places[segment.lane] if segment.lane < len(places) else {}
        devices = {name: parse_device(place.get(name, segment.device)) for name in segment.layers}
        if us and devices:
            yield _Segment(segment.lane, segment.index, parse_device(segment.device), us, devices)


def parse_device(name: str) -> str:
    """Returns "GPU" or "DLA"."""
    return "GPU" if name == "GPU" else "DLA"


def _divide_segment(nodes: Sequence[ProfileRow], us: float) -> list[ProfileRow]:
    """Returns a segment's layers, with its time divided over its layers and other rows."""
    layers, others = attribute_rows(nodes, {})
    total = sum(row.us for row in (*layers, *others))
    if not total or not sum(row.us for row in layers):
        return []
    factor = us / total
    if not _TRUSTED[0] <= factor <= _TRUSTED[1]:
        factor = 1.0
    return [replace(row, us=row.us * factor) for row in layers]


def _names_layers(nodes: Sequence[ProfileRow], layers: Sequence[str]) -> bool:
    """Returns True if a segment's profile names its layers, and not kernels."""
    text = "\n".join(row.name for row in nodes)
    return sum(name in text for name in layers) >= _KNOWN * len(layers)


def _profiled_layers(measured: Measurement) -> dict[tuple[int, int], list[ProfileRow]]:
    """Returns the profiled layers by lane and index of their segment."""
    found: dict[tuple[int, int], list[ProfileRow]] = {}
    for node in measured.nodes or ():
        row = ProfileRow(node.node, round(node.median_us or 0.0, 6))
        found.setdefault((node.lane, node.index), []).append(row)
    return found
