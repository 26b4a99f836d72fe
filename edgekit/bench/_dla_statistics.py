"""cuDLA's task statistics: a loadable's layers with begin and end, as NVIDIA's samples write them.

Format: CSV with ``layer_name,start_ms,end_ms`` and, in later releases, columns of durations,
precisions and units (README of cuDLALayerwiseStatsHybrid, NVIDIA/Deep-Learning-Accelerator-SW);
made by ``etiTranslateStats`` of cuDLA's export table from the buffers of
CUDLA_OUTPUT_TASK_STATISTICS_DESCRIPTORS. Times are cycles divided by a clock that the caller
states: with a wrong one they are all off by the same factor. Layers may overlap.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit._files import regular
from edgekit.bench._trace_process import Process, nanoseconds
from edgekit.bench._types import BOARD_MEASURED
from edgekit.errors import DataError

__all__ = ["TaskLayer", "read_statistics", "statistics_process"]

_LARGEST = 64 << 20
_SLOWEST_MS = 1e9


@dataclass(frozen=True, slots=True)
class TaskLayer:
    """One layer of a DLA task; milliseconds from the task's begin, and what else the file says."""

    name: str
    start_ms: float
    end_ms: float
    more: tuple[tuple[str, str], ...] = ()


def read_statistics(path: str | Path) -> tuple[TaskLayer, ...]:
    """Reads the CSV of one task.

    Raises:
        DataError: It cannot be read ("statistics.unreadable"), is none of these files
            ("statistics.form"), or has a time that is none ("statistics.value").
    """
    path = Path(path)
    try:
        if regular(path).stat().st_size > _LARGEST:
            raise _no(path, "larger than any task's")
        text = path.read_bytes().decode("utf-8", "replace").replace("\0", "")
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}", code="statistics.unreadable", where=str(path)
        ) from None
    # names are in single quotes and may have commas
    lines = csv.reader(text.splitlines(), quotechar="'", skipinitialspace=True)
    found: list[TaskLayer] = []
    columns: list[str] = []
    try:
        for row in lines:
            cells = [cell.strip() for cell in row]
            if not columns:
                columns = [cell.lower() for cell in cells]
                if not {"layer_name", "start_ms", "end_ms"} <= set(columns):
                    raise _no(path, "no columns layer_name, start_ms, end_ms")
            elif any(cells):
                found.append(_layer(path, dict(zip(columns, cells, strict=False)), lines.line_num))
    except csv.Error as error:
        raise _no(path, str(error)) from None
    if not found:
        raise _no(path, "it has no layers")
    return tuple(found)


def _layer(path: Path, cells: dict[str, str], line: int) -> TaskLayer:
    times = []
    for key in ("start_ms", "end_ms"):
        try:
            times.append(float(cells.pop(key, "")))
        except ValueError:
            times.append(math.nan)
    if not 0 <= times[0] <= times[1] <= _SLOWEST_MS:
        raise DataError(
            f"{times[0]:g} to {times[1]:g} ms is no time of a layer", code="statistics.value",
            where=f"{path}:{line}", hint="translate the task's statistics again",
        )  # fmt: skip
    name = cells.pop("layer_name", "") or "layer"
    return TaskLayer(name, times[0], times[1], tuple(cells.items()))


def statistics_process(
    layers: tuple[TaskLayer, ...], *, pid: int, core: int = 0, dla_cores: int = 1,
    linked: Callable[[str], dict[str, Any] | None] | None = None,
) -> Process:  # fmt: skip
    """Makes the process of one task; layers that overlap stand on further tracks."""
    process = Process(
        pid, f"a task of DLA{core}, by cuDLA", BOARD_MEASURED, max(dla_cores, core + 1)
    )
    process.label = "cycles at the clock that was stated when they were translated"
    for layer in sorted(layers, key=lambda one: (one.start_ms, -one.end_ms)):
        begin, end = nanoseconds(1e3 * layer.start_ms), nanoseconds(1e3 * layer.end_ms)
        args = dict((linked(layer.name) if linked else None) or {})
        process.add(
            process.free_track(f"DLA{core}", begin), layer.name, begin, end, "layer",
            **{**dict(layer.more[:20]), **args, "device": f"DLA{core}"},
        )  # fmt: skip
    return process


def _no(path: Path, why: str) -> DataError:
    return DataError(
        f"no statistics of a DLA task: {why}", code="statistics.form", where=str(path),
        hint="give the CSV that etiTranslateStats makes (cuDLALayerwiseStats samples)",
    )  # fmt: skip
