"""``read_profile``: measured times from whichever file has them.

A verbose build log, trtexec's ``--exportProfile``, the times of an ``IProfiler`` as JSON, or a
document of ``edgekit bench``; which of them a file is, it says itself.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._files import regular
from edgekit.errors import DataError, UsageError
from edgekit.placement._profile_json import profile_of_json
from edgekit.placement._profile_rows import attributed
from edgekit.placement._profile_types import MeasuredReformat, Profile, Row

if TYPE_CHECKING:
    from edgekit.buildlog import BuildLog, Timings, UnitTiming

__all__ = ["read_profile"]

_JSON = re.compile(r'\s*(?:\[\s*(?:[\[{"\]]|$)|\{\s*(?:["}]|$))')
_HINT = (
    "give a verbose build log (trtexec --verbose), trtexec's --exportProfile, a list of "
    '{"name", "timeMs"} or a document of `edgekit bench`'
)


def read_profile(path: str | Path, *, layer_info: str | Path | None = None) -> Profile:
    """Reads measured times; the kind of file is recognised.

    Args:
        path: A verbose build log, or JSON as trtexec, an ``IProfiler`` or ``edgekit bench``
            writes it. Logs of any size are read in a stream.
        layer_info: trtexec's ``--exportLayerInfo`` of the same engine; tells which of the
            profile's subgraphs are loadables.

    Raises:
        DataError: The file is missing or unreadable (``profile.missing``,
            ``profile.unreadable``), empty (``profile.empty``), binary (``profile.binary``), none
            of the above (``profile.unknown``), has no layer times (``profile.no_times``) or ones
            that cannot be (``profile.time``), or its times are a CPU's or predicted
            (``profile.clock``).
    """
    path = Path(path)
    # a pipe can be read once only, and in a stream
    if not path.is_fifo() and _JSON.match(_head(path)):
        return profile_of_json(path, layer_info)
    return _of_log(path)


def _head(path: Path) -> str:
    try:
        with regular(path).open("rb") as file:
            data = file.read(4096)
    except FileNotFoundError as error:
        raise DataError(
            "no such profile", code="profile.missing", where=str(path), hint=_HINT
        ) from error
    except OSError as error:
        raise DataError(
            f"cannot read the profile: {error.strerror or error}",
            code="profile.unreadable", where=str(path), hint="check the path and its permissions",
        ) from error  # fmt: skip
    if not data.strip():
        raise DataError("the profile is empty", code="profile.empty", where=str(path), hint=_HINT)
    wide = data[1::2].count(0) > 0.3 * len(data) or data[::2].count(0) > 0.3 * len(data)
    if (
        b"\0" in data
        and not wide
        and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    ):
        raise DataError(
            "the profile is a binary file (an engine, perhaps)",
            code="profile.binary", where=str(path), hint=_HINT,
        )  # fmt: skip
    return data.decode("utf-8", errors="replace").lstrip("\ufeff")


def _of_log(path: Path) -> Profile:
    from edgekit.buildlog import read_timings

    try:
        log, timings = read_timings(path)
    except UsageError as error:
        code = error.code.replace("log.", "profile.")
        words = "this holds no measured times" if code == "profile.unknown" else error.message
        raise DataError(words, code=code, where=str(path), hint=_HINT) from error
    notes: list[str] = []
    if timings.units:
        rows = tuple(row for unit in timings.units if (row := _row(unit)) is not None)
        missing = len(timings.units) - len(rows)
        if missing:
            notes.append(f"the log gives no time of {missing} of {len(timings.units)} units")
        if not timings.finished:
            notes.append("the log ends before the builder had chosen its tactics")
        if rows:
            overhead: tuple[Row, ...] = ()
            return _profile("log", path, rows, overhead, log, timings, notes)
    if timings.table:
        rows, overhead = attributed([Row(row.name, row.us) for row in timings.table], {})
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


def _row(unit: UnitTiming) -> Row | None:
    timed = tuple(c for c in unit.combinations if c.us is not None)
    if not timed:
        return None
    best = min(c.us for c in timed if c.us is not None)
    return Row(unit.name, best, "DLA" if unit.on_dla else "GPU", variants=timed)


def _profile(
    kind: str, path: Path, rows: tuple[Row, ...], overhead: tuple[Row, ...],
    log: BuildLog, timings: Timings, notes: list[str],
) -> Profile:  # fmt: skip
    reformats = tuple(MeasuredReformat(r.tensor, r.source, r.goal, r.us) for r in timings.reformats)
    return Profile(
        kind, str(path), rows, reformats, overhead, log.device, log.tensorrt, log.precisions,
        log.model, tuple(notes), log, timings,
    )  # fmt: skip
