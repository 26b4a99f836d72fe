"""Adds power from a separate tegrastats log to a measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgekit.benchmark.document import Bench, with_verdict
from edgekit.benchmark.statistics import MeasurementLimits
from edgekit.benchmark.trace.tegrastats import compare_with_target, read_tegrastats
from edgekit.errors import DataError, UsageError
from edgekit.targets.loader import get


def with_log(document: Bench, log: Path, where: str, hint: str) -> Bench:
    """Returns a measurement with monitor, energy and verdict from a log.

    The log's first load is assumed to be the warm-up, so the first measured frame begins
    ``warmup_ms`` later.

    Args:
        document: The measurement.
        log: The tegrastats log.
        where: Name of the measurement in errors.
        hint: Hint at suitable measurements.

    Raises:
        DataError: The document names no clock; the log is not a tegrastats log, or of another
            board.
        UsageError: The measurement sampled its power itself, or was not made on a board.
    """
    if document.clock is None:
        raise DataError(
            "the bench document does not name the clock it was measured with",
            code="bench.form",
            where=where,
            hint=hint,
        )
    if document.clock != "board-measured":
        raise UsageError(
            f"{where} is {document.clock}, so a board's power does not belong to it",
            hint=hint,
        )
    if document.energy and not (document.monitor and document.monitor.log):
        raise UsageError(
            f"{where} already has power samples",
            hint="give a measurement made with --no-monitor",
        )
    target = get(str(document.target))
    monitor = read_tegrastats(log, rails=target.rails)
    reason, differences = compare_with_target(monitor, target)
    if reason:
        raise DataError(
            f"the log is from another board: {reason}",
            code="tegrastats.board",
            where=str(log),
            hint=hint,
        )
    warmup_s = (document.warmup_ms or 0.0) / 1e3
    monitor = replace(
        monitor,
        warnings=(*monitor.warnings, *differences),
        samples=tuple(
            # 0 is the log's first load; in a measurement it is the first frame after the warm-up
            replace(sample, t_s=round(sample.t_s - warmup_s, 6))
            for sample in monitor.samples
        ),
        busy_from_s=-warmup_s,
        log=log.name,
    )
    # a monitor without rails is replaced by a monitor with rails
    mode = document.power_mode
    document = with_verdict(
        document.model_copy(update={"monitor": monitor}), target, MeasurementLimits()
    )
    # the log names no power mode: the measurement's stays
    document = document.model_copy(update={"power_mode": document.power_mode or mode})
    if document.energy is None:
        raise DataError(
            "the log has no power samples from the time of the measurement",
            code="tegrastats.power",
            where=str(log),
            hint="record until the measurement ends, as root if the rails need it",
        )
    return document
