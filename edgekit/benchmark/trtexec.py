"""trtexec's iterations (``--exportTimes``), and the comparison of a measurement with trtexec's for
the same plans (``--with-trtexec``), by the medians of the same quantity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from edgekit.buildlog.summary import parse_summary
from edgekit.documents import Count, Device, Document, Figure, Number, fault_words
from edgekit.errors import BoardError, DataError
from edgekit.files import read_file
from edgekit_device.benchmark.measurement import Measurement, TrtexecRun
from edgekit_device.benchmark.statistics import summary as latency_summary

# trtexec's --exportTimes: an object for each measured iteration.
#
# Written by trtexec's own code (``samples/common/sampleReporting.cpp``), not by a JSON library,
# with six significant digits; a number can be nan. The iterations of several streams are mixed.


_LARGEST = 256 << 20
_OBJECT = re.compile(r"\{([^{}]*)\}")
_FIELD = re.compile(r'"(\w{1,40})"\s*:\s*([^\s,{}]{1,40})')
_NEEDED = ("h2dMs", "computeMs", "d2hMs", "startComputeMs", "startEnqMs", "endEnqMs")


@dataclass(frozen=True, slots=True)
class Iteration:
    """An inference; times are in milliseconds from the start of the measurement.

    Attributes:
        start_ms: Start of its computation on the device.
        enqueue_ms: Duration of the host's enqueue call.
        h2d_ms: Duration of the copy to the device.
        compute_ms: Duration of the computation.
        d2h_ms: Duration of the copy back.
        enqueued_ms: Start of the host's enqueue call.
    """

    start_ms: float
    enqueue_ms: float
    h2d_ms: float
    compute_ms: float
    d2h_ms: float
    enqueued_ms: float = 0.0

    @property
    def latency_ms(self) -> float:
        """Copies and computation, without waiting for other streams."""
        return self.h2d_ms + self.compute_ms + self.d2h_ms


def read_times(path: str | Path) -> tuple[Iteration, ...]:
    """Reads the file of --exportTimes.

    Raises:
        DataError: The file is missing, unreadable or too large ("times.unreadable"), of another
            format or truncated ("times.form"), or has an invalid time ("times.value").
    """
    path = Path(path)
    try:
        text = read_file(path, _LARGEST).decode("utf-8")
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}",
            code="times.unreadable",
            where=str(path),
            hint="give a file of trtexec --exportTimes=FILE",
        ) from None
    except UnicodeDecodeError:
        raise _times_error(path, "not UTF-8 text") from None
    return parse_times(text, path)


def parse_times(text: str, path: Path = Path("--exportTimes")) -> tuple[Iteration, ...]:
    """Parses the text of an --exportTimes file.

    Raises:
        DataError: See ``read_times``.
    """
    body = text.strip()
    if not (body.startswith("[") and body.endswith("]")):
        raise _times_error(path, "cut off, or not from --exportTimes")
    found = tuple(
        _iteration(number, dict(_FIELD.findall(item)), path)
        for number, item in enumerate(_OBJECT.findall(body))
    )
    if not found:
        raise _times_error(path, "it has no iterations")
    return found


def _iteration(number: int, fields: dict[str, str], path: Path) -> Iteration:
    missing = [name for name in _NEEDED if name not in fields]
    if missing:
        raise _times_error(path, f"iteration {number} has no {missing[0]}")
    values = {}
    for name in _NEEDED:
        try:
            values[name] = float(fields[name])
        except ValueError:
            values[name] = math.nan
        if not math.isfinite(values[name]):
            raise DataError(
                f"iteration {number}: {name} is {fields[name]}, which is not a valid time",
                code="times.value",
                where=str(path),
                hint="measure again",
            )
    return Iteration(
        values["startComputeMs"],
        values["endEnqMs"] - values["startEnqMs"],
        values["h2dMs"],
        values["computeMs"],
        values["d2hMs"],
        values["startEnqMs"],
    )


def _times_error(path: Path, why: str) -> DataError:
    return DataError(
        f"not times from trtexec: {why}",
        code="times.form",
        where=str(path),
        hint="give a file from trtexec --exportTimes",
    )


class TrtexecEngine(Document):
    """A plan: our median and trtexec's; ``difference`` is relative to trtexec's.

    ``compared`` is "compute" or "latency"; ``times_ms`` has a summary of each quantity.

    Attributes:
        lane: Index of the segment's plan.
        index: The segment's number in the plan.
        difference: Our median's difference from trtexec's, relative to trtexec's.
    """

    lane: Count | None = None
    index: Count | None = None
    device: Device | None = None
    command: str | None = None
    compared: str
    ours_ms: Figure | None = None
    trtexec_ms: Figure | None = None
    difference: Number | None = None
    throughput_qps: Figure | None = None
    times_ms: dict[str, dict[str, Number]] = Field({})
    warnings: list[str] = Field([])
    why: str | None = None


class TrtexecTimes(Document):
    """trtexec's times of the measured plans, or the reason ``why`` there are none."""

    program: str | None = None
    why: str | None = None
    engines: list[TrtexecEngine] = Field([])


def compare_with_trtexec(measurement: Measurement) -> TrtexecTimes | None:
    """Returns "trtexec" of the bench document; None if trtexec was not requested.

    The same quantity is compared: if our segments' times are CUDA events, their median is compared
    with trtexec's "GPU Compute Time", otherwise with its "Latency", which includes the copies.

    Raises:
        BoardError: "board.protocol": trtexec printed invalid numbers.
    """
    answer = measurement.trtexec
    if answer is None:
        return None
    try:
        engines = [_engine(engine, measurement) for engine in answer.engines]
    except ValidationError as error:
        raise BoardError(
            f"trtexec printed times that are none ({fault_words(error)})",
            code="board.protocol",
            hint="run `edgekit bench` again; report it if it happens again",
        ) from error
    return TrtexecTimes(program=answer.program, why=answer.why, engines=engines)


def _engine(run: TrtexecRun, measurement: Measurement) -> TrtexecEngine:
    what = "compute" if measurement.segments_clock == "gpu" else "latency"
    said = parse_summary(run.console.splitlines())
    times = {key: dict(value) for key, value in said.times_ms.items()}
    why = run.why
    if run.times:
        try:
            times |= _exact_summaries(run.times)
        except DataError as error:
            why = why or error.message
    ours = next(
        (
            segment.latency_ms.get("median")
            for segment in measurement.segments
            if (segment.lane, segment.index) == (run.lane, run.index) and segment.latency_ms
        ),
        None,
    )
    theirs = (times.get(what) or {}).get("median")
    # the error that ended trtexec is its last one
    if why and said.errors:
        why = f"{why}: {said.errors[-1]}"
    if theirs is None and why is None:
        why = "it printed no times"
    known = ours is not None and theirs is not None and theirs > 0
    return TrtexecEngine(
        lane=run.lane,
        index=run.index,
        device=run.device,
        command=run.command,
        compared=what,
        ours_ms=ours,
        trtexec_ms=theirs,
        difference=(ours - theirs) / theirs if known else None,  # type: ignore[operator]
        throughput_qps=said.throughput_qps,
        times_ms=times,
        warnings=list(said.warnings),
        why=why,
    )


def _exact_summaries(text: str) -> dict[str, dict[str, float]]:
    """Returns summaries of the single times (the console rounds them and omits p99.9)."""
    rows = parse_times(text)
    columns: dict[str, Sequence[float]] = {
        "latency": [row.latency_ms for row in rows],
        "enqueue": [row.enqueue_ms for row in rows],
        "h2d": [row.h2d_ms for row in rows],
        "compute": [row.compute_ms for row in rows],
        "d2h": [row.d2h_ms for row in rows],
    }
    return {name: latency_summary(values) for name, values in columns.items()}
