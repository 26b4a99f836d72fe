"""The results on the page: headline tiles, accuracy, bundle and builds."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.bundles.files import PackedBundle
from edgekit.quantize.scales import ChangedScale
from edgekit.reference.accuracy import ChannelGroup, describe_channels, describe_snr
from edgekit.reports import charts, text
from edgekit.reports.facts import (
    MEASURES,
    SEGMENT_MEASURES,
    baseline_word,
    built_line,
    differences,
    measure_words,
    part_words,
    warning_words,
)
from edgekit.reports.html.verdict import clock_tag
from edgekit.reports.html.view import View
from edgekit.reports.layers import sharing_words
from edgekit.reports.schema import (
    Accuracy,
    Calibration,
    RefitAnswer,
    Report,
    ReportedPower,
)
from edgekit.tensorrt.built import BoardBuild, BoardEngine
from edgekit.text import ABSENT, counted, percent

CHANGES_SHOWN = 20


def tiles(report: Report) -> list[View]:
    """Returns the numbers at the top: name, value, and "measured" or "predicted"."""
    placement, predicted, bench = report.placement, report.predicted, report.bench
    # the plan is the first row, its first baseline the GPU alone
    plan, gpu_only = predicted.rows[:2]
    found = []
    if report.target.dla_cores and placement.macs:
        of = f", in plan 1 of {len(placement.shares)}" if len(placement.shares) > 1 else ""
        found.append(
            _tile(
                "MACs on the DLA",
                percent(placement.dla_macs_fraction),
                f"{placement.dla_layers} of {counted(placement.layers, 'layer')}{of}",
            )
        )
    said = " ".join(answer.words for answer in report.answer)
    # the answers above may state them already
    doubts = [doubt for doubt in predicted.doubts if doubt not in said]
    low_high = ""
    if predicted.latency_band_us:
        low_high = "{} to {}; ".format(*map(text.microseconds, predicted.latency_band_us))
    found.append(
        _tile(
            "Board latency",
            text.microseconds(plan.latency_us),
            f"{low_high}GPU alone: {text.microseconds(gpu_only.latency_us)}"
            + "".join(f"; {doubt}" for doubt in doubts),
            "predicted",
        )
    )
    found.append(
        _tile(
            "GPU time",
            text.microseconds(plan.gpu_us),
            ("mean of the plans; " if len(placement.shares) > 1 else "")
            + f"GPU alone: {text.microseconds(gpu_only.gpu_us)}",
            "predicted",
        )
    )
    lost = sharing_words(placement.frame, short=True)
    found.append(
        _tile(
            "Throughput",
            f"{text.significant(plan.throughput_qps)}/s",
            f"GPU alone: {text.significant(gpu_only.throughput_qps)}/s"
            + (f"; {lost}" if lost else ""),
            "predicted",
        )
    )
    if measure := report.accuracy:
        agreement = f"top-1 agreement {measure_words(measure, 'top1_agreement')}"
        found.append(
            _tile(
                "Cosine to FP32",
                measure_words(measure, "cosine"),
                "all inputs give the same output, as with random weights"
                if measure.constant
                else ", ".join(filter(None, (agreement, text.compared_on(measure)))),
            )
        )
    if bundle := report.bundle:
        found.append(
            _tile(
                "Stripped bundle",
                text.size(bundle.stripped_bytes),
                f"{text.size(bundle.bytes)} with weights",
            )
        )
    # a CPU's time is no answer: it is in a separate section
    if bench and bench.latency_ms and bench.clock and bench.clock != "cpu-measured":
        median = bench.latency_ms.get("median")
        found.append(
            _tile(
                "Measured latency",
                text.microseconds(None if median is None else 1000 * median),
                "median, for another release" if bench.taken_back else "median",
                bench.clock,
            )
        )
    return [*found, *_energy_tile(report.power)]


def _tile(name: str, value: str, detail: str, clock: str = "") -> View:
    tag = clock_tag(clock) if clock else None
    return {"name": name, "value": value, "detail": detail, "clock": tag}


def _energy_tile(power: ReportedPower | None) -> list[View]:
    """Returns the measured energy of an inference, if a board's rails were read."""
    energy = power.energy if power else None
    if energy is None or energy.total is None:
        return []
    over = energy.total.over_idle_uj
    value = text.energy(energy.total.uj_per_inference)
    detail = f"per inference; {text.energy(over)} over {baseline_word(energy)}"
    return [_tile("Energy", value, detail if over else "an inference", energy.clock)]


def accuracy_view(accuracy: Accuracy | None, calibration: Calibration | None) -> View | None:
    """Returns the measures of the whole network and of each segment, and their data."""
    if accuracy is None:
        return None
    gate = ""
    if accuracy.min is not None:
        passed = None if accuracy.constant else accuracy.passed
        answer = {True: "passed", False: "failed", None: "not judged"}[passed]
        gate = f"Gate: {accuracy.metric} of at least {accuracy.min:g}: {answer}."
    segments = accuracy.segments
    return {
        "nonfinite": warning_words(accuracy),
        "measures": [
            {"name": name, "value": measure_words(accuracy, key)}
            for key, name in MEASURES
            if not accuracy.constant
        ],
        "data": text.compared_on(accuracy),
        "gate": gate,
        "calibration": text.clean(
            f"INT8 scales of {calibration.tensors} tensors by {calibration.method}: "
            f"{calibration.data}"
        )
        if calibration
        else "",
        "changes": _changes(calibration.changes if calibration else ()),
        "groups": _groups(accuracy.groups),
        "scores": part_words(Accuracy(scores=accuracy.scores)),
        "columns": [name for _, name in SEGMENT_MEASURES],
        "several": text.several_plans(segment.lane for segment in segments),
        "segments": [
            {
                "plan": (segment.lane or 0) + 1,
                "index": segment.segment,
                "device": text.clean(segment.device),
                "css": charts.device_class(segment.device),
                "constant": segment.constant,
                "cells": [measure_words(segment, key) for key, _ in SEGMENT_MEASURES],
            }
            for segment in segments
        ],
    }


def _groups(groups: Sequence[ChannelGroup]) -> list[View]:
    """Returns a row for each group of channels, in the order of the outputs."""
    return [
        {
            "output": text.clean(group.output),
            "channels": describe_channels(group.channels),
            "range": text.significant(group.range),
            "snr": describe_snr(group),
            "cosine": f"{group.cosine:.5f}",
            "worst": f"{group.worst.channel} ({describe_snr(group.worst)})",
        }
        for group in groups
    ]


def _changes(changes: Sequence[ChangedScale]) -> View | None:
    """Returns the scales that constraints of the hardware changed, worst first."""
    if not changes:
        return None
    more = len(changes) - CHANGES_SHOWN
    many = f"{counted(len(changes), 'scale')} widened, because the hardware cannot rescale there"
    return {
        "caption": many + (f"; {more} that lose less are in the JSON" if more > 0 else ""),
        "rows": [
            {
                "tensor": text.clean(change.tensor),
                "old": text.significant(change.old),
                "new": text.significant(change.new),
                "bits": f"{change.bits:.1f}",
                "rule": text.clean(change.rule),
                "layers": text.clean(", ".join(change.layers)),
            }
            for change in changes[:CHANGES_SHOWN]
        ],
    }


def bundle_view(bundle: PackedBundle | None, refit: RefitAnswer | None) -> View | None:
    """Returns the bundle's sizes before and after stripping, its digest and the refit's answer."""
    if bundle is None:
        return None
    full, stripped = bundle.bytes, bundle.stripped_bytes
    words = {True: "equal bit for bit", False: "different", None: "not compared"}
    return {
        "full": text.size(full),
        "stripped": text.size(stripped),
        "share": percent(stripped / full, 2) if full and stripped is not None else ABSENT,
        "digest": text.clean(bundle.digest),
        "path": text.clean(bundle.path),
        "refit": words[refit.bit_equal] if refit else "",
    }


def built_view(boards: Sequence[BoardBuild]) -> list[View]:
    """Returns each board's build for the page: its engines, and differences from the plan."""
    return [
        {
            "board": text.clean(board.board),
            "facts": text.clean(built_line(board)),
            "engines": [_engine(engine) for engine in board.engines],
            "differences": [text.clean(difference) for difference in differences(board)],
        }
        for board in boards
    ]


def _engine(engine: BoardEngine) -> View:
    """Returns an engine's row; the sizes are of the file, stripped and with its weights."""
    whole = engine.full_bytes if engine.stripped else None
    tried = len(engine.attempts)
    held = [f"{key}: {what}" for key, what in engine.settings.items()]
    return {
        "name": text.clean(engine.key),
        "size": text.size(engine.bytes),
        "whole": text.size(whole) if whole else ABSENT,
        "share": percent(engine.bytes / whole) if whole else ABSENT,
        "seconds": text.seconds(engine.seconds),
        "flags": text.clean(", ".join([*engine.attempts[engine.attempt].flags, *held])) or ABSENT,
        "tried": f"{tried}th attempt" if tried > 3 else ("first", "second", "third")[tried - 1],
    }
