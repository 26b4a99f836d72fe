"""The ``edgekit.bench/1`` document: what was measured, what was predicted, and whether to trust
it. Measured and predicted numbers never share an object, and each carries its clock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.benchmark.energy import energy, with_release_warning
from edgekit.benchmark.measurement import CPU_MEASURED, PREDICTED, node_times
from edgekit.benchmark.statistics import (
    MeasurementLimits,
    coefficient_of_variation,
    latency_summary,
    limit,
)
from edgekit.benchmark.trtexec import compared
from edgekit.benchmark.validity import MeasurementFacts, config_words, measured_mode, verdict_of
from edgekit.errors import BoardError
from edgekit.files import write_atomically
from edgekit.targets.board import Target

if TYPE_CHECKING:
    from edgekit.placement.plan import Plan


SCHEMA = "edgekit.bench/1"
CPU_NOTE = (
    "Measured on a CPU with the reference backend, which imitates the target's numbers; "
    "this is not a board time."
)
_COPIED_KEYS = (
    "segments_clock", "settings", "phases_ms", "streams", "cold", "memory", "monitor", "power",
)  # fmt: skip
PREDICTED_NOTE = "Nothing was measured; all times are predictions of the cost model."
# the profiler itself slows layers: a sum is reported only if it clearly exceeds the segment
_TIMES = 2.0
_LEAST_US = 50.0
_NOTES_SHOWN = 3


def _number(measurement: Mapping[str, Any], key: str) -> float | None:
    value = measurement.get(key)
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good and value is not None else None


def _samples(measurement: Mapping[str, Any]) -> list[float]:
    samples = measurement.get("samples_ms") or measurement.get("samples") or []
    for value in samples:
        ok = isinstance(value, int | float) and math.isfinite(value) and value >= 0
        if not ok:
            raise BoardError(
                f"the measurement holds a sample that is no time: {value!r}",
                code="bench.malformed", hint="run `edgekit bench` again; report it if it stays",
            )  # fmt: skip
    return [float(value) for value in samples]


def _measured(measurement: Mapping[str, Any]) -> dict[str, Any]:
    samples = _samples(measurement)
    latency = (
        latency_summary(samples) if samples else dict(measurement.get("latency_ms") or {})
    )  # fmt: skip
    if not latency:
        raise BoardError(
            "the measurement holds no times",
            code="bench.empty", hint="set bench.iterations to 1 or more and run it again",
        )  # fmt: skip
    clock = str(measurement.get("clock") or CPU_MEASURED)
    facts: dict[str, Any] = {
        "clock": clock,
        "kind": "measured",
        "note": CPU_NOTE if clock == CPU_MEASURED else "Measured on the board.",
        "backend": str(measurement.get("backend") or "reference"),
        "iterations": int(measurement.get("iterations") or len(samples)),
        "warmup_ms": _number(measurement, "warmup_ms"),
        "duration_s": _number(measurement, "duration_s"),
        "latency_ms": latency,
        "throughput_qps": _number(measurement, "throughput_qps"),
        "coefficient_of_variation": coefficient_of_variation(samples) if samples else None,
        "pipelined": measurement.get("pipelined"),
        "segments": [dict(segment) for segment in measurement.get("segments") or ()],
        "nodes": [dict(node) for node in measurement.get("nodes") or ()],
        "samples_ms": samples,
    }
    # what only newer loaders report, as they report it
    facts |= {key: measurement[key] for key in _COPIED_KEYS if key in measurement}
    facts["trtexec"] = compared(measurement.get("trtexec"), measurement)
    return facts


def _energy(facts: Mapping[str, Any], target: Target | None) -> dict[str, Any] | None:
    """Returns the measurement's "energy", or None if no rail was sampled."""
    monitor, seconds = facts.get("monitor"), facts["duration_s"]
    if not isinstance(monitor, Mapping) or not seconds:
        return None
    rails = target.rails if target else None
    return energy(monitor, rails, facts["iterations"], seconds, clock=facts["clock"])


def measured_facts(
    measurement: Mapping[str, Any],
    target: Target | None = None,
    power_mode: str = "",
    limits: MeasurementLimits | None = None,
    config: str = "",
) -> dict[str, Any]:
    """Returns the measured part of the bench document, with its energy and its verdict.

    Args:
        measurement: The loader's ``edgekit.device.bench/1``.
        target: The board's facts, for its power modes, clocks and rails.
        power_mode: The power mode that it should run in; "" if that does not matter.
        limits: How long a VALID measurement is; trtexec's defaults without it.
        config: What the remedies' commands take, from ``config_words``.

    Raises:
        BoardError: See ``bench_document``.
    """
    try:
        facts = _measured(measurement)
        if isinstance(facts.get("monitor"), Mapping):
            facts["monitor"] = with_release_warning(facts["monitor"])
        facts["energy"] = _energy(facts, target)
        facts["verdict"] = verdict_of(
            MeasurementFacts(facts, limits or MeasurementLimits(), target, power_mode, config)
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # a board's word, which another loader may have written
        raise BoardError(
            f"the measurement is not as a loader writes it ({error})",
            code="bench.malformed", hint="run `edgekit bench` again; report it if it stays",
        ) from error  # fmt: skip
    return facts


def _predicted(plan: Plan) -> dict[str, Any]:
    return {
        "clock": PREDICTED,
        "kind": "predicted",
        "target": plan.target,
        **plan.predicted.to_json(),
        "model_error": plan.model_error,
        "baselines": {
            key: value.to_json() if value else None for key, value in plan.baselines.items()
        },
    }


def bench_document(
    measurement: Mapping[str, Any] | None,
    plan: Plan | None,
    *,
    name: str = "",
    board: Mapping[str, Any] | None = None,
    runtime: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    limits: MeasurementLimits | None = None,
    target: Target | None = None,
    config: str = "",
) -> dict[str, Any]:
    """Makes the bench document from what the board's loader measured and what the plan predicts.

    Args:
        measurement: The loader's ``edgekit.device.bench/1``, or None if nothing was measured
            (the document then has the clock "predicted"). With "samples_ms", the single
            latencies, the statistics are made here and their stability is judged.
        plan: Its predictions stand next to the measurement, never mixed with it. None if it is
            not known: "predicted" and "precision" are None then, and ``target`` is needed.
        name: Name of the release or config.
        board: {"name", "kind"} of where it ran.
        runtime: Flags of the runtime (threads, backend options).
        environment: Versions and machine; the measurement's own environment wins.
        limits: How long a VALID measurement is; trtexec's defaults without it.
        target: The board's facts, for its power modes, clocks and rails.
        config: The configuration's file or the model's, which the verdict's remedies name.

    Returns:
        A JSON-ready ``edgekit.bench/1`` document. Times in ``latency_ms`` are milliseconds.
        "power_mode" is what the board reported during the measurement, None if it reported or has
        none; a prediction's is the plan's, which is always "planned_power_mode".

    Raises:
        BoardError: The measurement holds no times, or samples that are no times.
    """
    limits = limits or MeasurementLimits()
    name_of = plan.target if plan else target.name if target else ""
    power_mode, precision = (plan.power_mode, plan.precision) if plan else ("", "")
    if measurement is None:
        facts: dict[str, Any] = {
            "clock": PREDICTED, "kind": "predicted", "note": PREDICTED_NOTE, "backend": None,
            "latency_ms": None, "throughput_qps": None, "verdict": None,
            "power_mode": power_mode,
        }  # fmt: skip
    else:
        words = config_words(config, name_of, precision)
        facts = measured_facts(measurement, target, power_mode, limits, words)
        facts["power_mode"] = measured_mode(facts)  # never the plan's
    said = measurement or {}
    return {
        "schema": SCHEMA,
        "name": name,
        "config": config or None,
        **facts,
        "limits": {
            "iterations": limits.iterations, "duration_s": limits.duration_s,
            "warmup_ms": limits.warmup_ms,
            "coefficient_of_variation": limit("variation", facts["clock"]),
        },
        "target": name_of,
        "planned_power_mode": power_mode,
        "precision": precision or None,
        # a hybrid engine is one segment of several devices
        "placement": [
            [[layer.name, layer.device] for layer in share.layers]
            for share in (plan.plans if plan else ())
        ],
        "predicted": _predicted(plan) if plan else None,
        "board": dict(board) if board else None,
        "runtime": dict(runtime or said.get("runtime") or {}),
        "environment": {**(environment or {}), **(said.get("environment") or {})},
    }  # fmt: skip


def profile_notes(measurement: Mapping[str, Any]) -> list[str]:
    """Returns a note where layers add up to clearly more than their segment's median.

    Args:
        measurement: With "nodes" and "segments", as the loader's or the bench document's.

    Raises:
        DataError: "trace.time".
    """
    sums = {key: sum(node.us for node in nodes) for key, nodes in node_times(measurement).items()}
    found = []
    for segment in measurement.get("segments") or ():
        median = (segment.get("latency_ms") or {}).get("median")
        if not isinstance(median, int | float) or "index" not in segment:
            continue
        total = sums.get((int(segment.get("lane") or 0), int(segment["index"])), 0.0)
        if total > _TIMES * 1000 * median and total - 1000 * median > _LEAST_US:
            words = (
                f"segment {segment['index']} on {segment.get('device')}: {total / 1000:.3g} ms "
                f"of layers, {median:.3g} ms measured"
            )
            found.append((total / 1000 - median, words))
    if not found:
        return []
    worst = [words for _, words in sorted(found, reverse=True)]
    more = f"; and {len(worst) - _NOTES_SHOWN} more" if len(worst) > _NOTES_SHOWN else ""
    listed = "; ".join(worst[:_NOTES_SHOWN])
    return [
        "single layers were timed in a few runs of their own, under the profiler, which were "
        f"slower than what was measured: {listed}{more}. Their times say which layer takes "
        "most, not how long"
    ]


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text under a temporary name in the same folder and renames it.

    Raises:
        EnvironmentLack: The folder cannot be made or written (code "file.write").
    """
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, document: Any) -> None:
    """Writes one JSON document (no NaN or infinity: ValueError) with a trailing newline."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    write_text(path, text + "\n")
