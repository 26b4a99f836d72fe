"""What came out, on the page: headline tiles, accuracy and bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.reference.accuracy import describe_channels
from edgekit.reports import charts, text
from edgekit.reports.facts import (
    MEASURES,
    SEGMENT_MEASURES,
    baseline_word,
    measure_words,
    part_words,
    warning_words,
)
from edgekit.reports.layers import sharing_words
from edgekit.text import ABSENT, counted, percent
from edgekit_device.arrays.deviation import decibels

CHANGES_SHOWN = 20


def tiles(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Returns the numbers at the top: what, how much, and whether measured or predicted."""
    placement, bench = document["placement"], document["bench"]
    plan, gpu_only = document["predicted"]["rows"][0], document["predicted"]["rows"][1]
    found = []
    if document["target"]["dla_cores"] and placement["macs"]:
        found.append({
            "name": "MACs on the DLA", "value": percent(placement["dla_macs_fraction"]),
            "detail": f"{placement['dla_layers']} of {counted(placement['layers'], 'layer')}"
            + (f", in plan 1 of {len(shares)}" if len(shares := placement["shares"]) > 1 else ""),
            "clock": "",
        })  # fmt: skip
    predicted = document["predicted"]
    said = " ".join(one["words"] for one in document.get("answer") or ())
    doubts = [doubt for doubt in predicted.get("doubts", ()) if doubt not in said]
    band, against = predicted.get("latency_band_us"), text.microseconds(gpu_only["latency_us"])
    low_high = f"{text.microseconds(band[0])} to {text.microseconds(band[1])}; " if band else ""
    found.append({
        "name": "Board latency", "value": text.microseconds(plan["latency_us"]),
        "detail": f"{low_high}GPU alone: {against}"
        + "".join(f"; {doubt}" for doubt in doubts),
        "clock": "predicted",
    })  # fmt: skip
    found.append({
        "name": "GPU time", "value": text.microseconds(plan["gpu_us"]),
        "detail": ("mean of the plans; " if len(placement["shares"]) > 1 else "")
        + f"GPU alone: {text.microseconds(gpu_only.get('gpu_us'))}", "clock": "predicted",
    })  # fmt: skip
    lost = sharing_words(placement.get("frame"), short=True)
    found.append({
        "name": "Throughput", "value": f"{text.significant(plan.get('throughput_qps'))}/s",
        "detail": f"GPU alone: {text.significant(gpu_only.get('throughput_qps'))}/s"
        + (f"; {lost}" if lost else ""),
        "clock": "predicted",
    })  # fmt: skip
    if document["accuracy"]:
        measure = document["accuracy"]
        agreement = measure_words(measure, "top1_agreement")
        found.append({
            "name": "Cosine to FP32",
            "value": measure_words(measure, "cosine"),
            "detail": "all inputs give the same output, as with random weights"
            if measure.get("constant")
            else ", ".join(
                one for one in (f"top-1 agreement {agreement}", text.compared_on(measure)) if one
            ), "clock": "",
        })  # fmt: skip
    if document["bundle"]:
        bundle = document["bundle"]
        found.append({
            "name": "Stripped bundle", "value": text.size(bundle.get("stripped_bytes")),
            "detail": f"{text.size(bundle.get('bytes'))} with weights", "clock": "",
        })  # fmt: skip
    # a CPU's time is no answer: it stands in a section of its own
    if bench and bench["latency_ms"] and bench["clock"] != "cpu-measured":
        median = bench["latency_ms"].get("median")
        found.append({
            "name": "Measured latency",
            "value": text.microseconds(None if median is None else 1000 * median),
            "detail": "median, for another release" if bench.get("taken_back") else "median",
            "clock": bench["clock"],
        })  # fmt: skip
    return [*found, *_energy_tile(document["power"])]


def _energy_tile(power: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Returns the measured energy of an inference, where a board's rails were read."""
    energy = (power or {}).get("energy") or {}
    total = energy.get("total")
    if not isinstance(total, Mapping) or total.get("uj_per_inference") is None:
        return []
    over = total.get("over_idle_uj")
    return [{
        "name": "Energy", "value": text.energy(total["uj_per_inference"]),
        "detail": f"per inference; {text.energy(over)} over {baseline_word(energy)}"
        if over
        else "an inference",
        "clock": str(energy.get("clock") or power["clock"] if power else ""),
    }]  # fmt: skip


def accuracy_view(
    accuracy: Mapping[str, Any] | None, calibration: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Returns the measures of the whole network and of each segment, and on what data."""
    if not accuracy:
        return None
    gate = ""
    if accuracy.get("min") is not None:
        metric = str(accuracy.get("metric", "cosine"))
        passed = None if accuracy.get("constant") else accuracy.get("passed")
        answer = {True: "passed", False: "failed"}.get(passed, "not judged")  # type: ignore[arg-type]
        gate = f"Gate: {metric} of at least {accuracy['min']:g}: {answer}."
    segments = accuracy.get("segments") or ()
    several = text.several_plans(segments)
    return {
        "nonfinite": warning_words(accuracy),
        "measures": [
            {"name": name, "value": measure_words(accuracy, key)}
            for key, name in MEASURES
            if not accuracy.get("constant")
        ],
        "data": text.compared_on(accuracy),
        "gate": text.clean(gate),
        "calibration": text.clean(
            f"INT8 scales of {calibration['tensors']} tensors by {calibration['method']}: "
            f"{calibration['data']}"
        )
        if calibration
        else "",
        "changes": _changes(calibration.get("changes", ()) if calibration else ()),
        "groups": _groups(accuracy.get("groups") or ()),
        "scores": part_words({"scores": accuracy.get("scores") or ()}),
        "columns": [name for _, name in SEGMENT_MEASURES],
        "several": several,
        "segments": [
            {
                "plan": (segment.get("lane") or 0) + 1,
                "index": text.clean(segment.get("segment", position)),
                "device": text.clean(segment.get("device", "")),
                "css": charts.device_class(str(segment.get("device", ""))),
                "constant": bool(segment.get("constant")),
                "cells": [measure_words(segment, key) for key, _ in SEGMENT_MEASURES],
            }
            for position, segment in enumerate(segments)
        ],
    }  # fmt: skip


def _groups(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Returns a row for each group of channels, as the outputs have them."""
    return [
        {
            "output": text.clean(group["output"]),
            "channels": describe_channels(group["channels"]).removeprefix("channels "),
            "range": text.significant(group["range"]),
            "snr": _decibels(group),
            "cosine": measure_words(group, "cosine"),
            "worst": f"{group['worst']['channel']} ({_decibels(group['worst'])})",
        }
        for group in groups
    ]


def _decibels(measures: Mapping[str, Any]) -> str:
    value = measures["snr_db"]
    return decibels(value, value is None and measures["exact"])


def _changes(changes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Returns the scales that constraints of the hardware changed, worst first."""
    if not changes:
        return None
    more = len(changes) - CHANGES_SHOWN
    many = f"{counted(len(changes), 'scale')} widened, because the hardware cannot rescale there"
    return {
        "caption": many + (f"; {more} that lose less are in the JSON" if more > 0 else ""),
        "rows": [
            {
                "tensor": text.clean(change["tensor"]),
                "old": ABSENT if change["old"] is None else text.significant(change["old"]),
                "new": text.significant(change["new"]),
                "bits": f"{change['bits']:.1f}",
                "rule": text.clean(change["rule"]),
                "layers": text.clean(", ".join(change["layers"])),
            }
            for change in changes[:CHANGES_SHOWN]
        ],
    }


def bundle_view(
    bundle: Mapping[str, Any] | None, refit: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Returns the bundle's sizes before and after stripping, its digest and the refit's answer."""
    if not bundle:
        return None
    full, stripped = bundle.get("bytes"), bundle.get("stripped_bytes")
    words = {True: "equal bit for bit", False: "different"}
    return {
        "full": text.size(full),
        "stripped": text.size(stripped),
        "share": percent(stripped / full, 2) if full and stripped is not None else ABSENT,
        "digest": text.clean(bundle.get("digest", "")),
        "path": text.clean(bundle.get("path", "")),
        "refit": words.get(refit.get("bit_equal"), "not compared") if refit else "",  # type: ignore[arg-type]
    }
