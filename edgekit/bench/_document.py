"""The ``edgekit.bench/1`` document: what was measured, what was predicted, and whether to trust it.

Measured and predicted numbers never share an object, and each carries its clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit.bench._stats import coefficient_of_variation, latency_summary
from edgekit.bench._types import CPU_MEASURED, PREDICTED, Limits
from edgekit.errors import BoardError

if TYPE_CHECKING:
    from edgekit.placement import Plan

__all__ = ["SCHEMA", "bench_document"]

SCHEMA = "edgekit.bench/1"
CPU_NOTE = (
    "Measured on a CPU with the reference backend, which imitates the target's numbers; "
    "this is not a board time."
)
PREDICTED_NOTE = "Nothing was measured; all times are predictions of the cost model."


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


def _reason(code: str, message: str, found: float, limit: float, remedy: str) -> dict[str, Any]:
    return {"code": code, "message": message, "found": found, "limit": limit, "remedy": remedy}


def _verdict(
    measured: Mapping[str, Any], samples: Sequence[float], limits: Limits
) -> dict[str, Any]:
    """Returns the VALID or INVALID verdict with every reason and its remedy."""
    reasons = []
    iterations, duration, warmup = (
        measured["iterations"], measured["duration_s"], measured["warmup_ms"],
    )  # fmt: skip
    if iterations < limits.iterations:
        reasons.append(_reason(
            "bench.iterations", f"{iterations} iterations, fewer than {limits.iterations}",
            iterations, limits.iterations, f"set bench.iterations to {limits.iterations} or more",
        ))  # fmt: skip
    if duration is not None and duration < limits.duration_s:
        reasons.append(_reason(
            "bench.duration", f"{duration:.2f} s measured, less than {limits.duration_s:g} s",
            duration, limits.duration_s, f"set bench.duration_s to {limits.duration_s:g} or more",
        ))  # fmt: skip
    if warmup is not None and warmup < limits.warmup_ms:
        reasons.append(_reason(
            "bench.warmup", f"{warmup:g} ms warm-up, less than {limits.warmup_ms:g} ms",
            warmup, limits.warmup_ms, f"set bench.warmup_ms to {limits.warmup_ms:g} or more",
        ))  # fmt: skip
    if len(samples) > 1:
        cv, most = coefficient_of_variation(samples), limits.cv_for(measured["clock"])
        if cv > most:
            reasons.append(_reason(
                "bench.unstable",
                f"times vary by {cv:.1%} (standard deviation over mean), more than {most:.0%}",
                cv, most,
                "stop other work on the machine, lock its clocks, or measure for longer",
            ))  # fmt: skip
    unchecked = [] if len(samples) > 1 else ["coefficient of variation: there are no single times"]
    status = "INVALID" if reasons else "VALID"
    return {"status": status, "reasons": reasons, "unchecked": unchecked}


def _measured(measurement: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
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
        "samples_ms": samples,
    }
    facts["verdict"] = _verdict(facts, samples, limits)
    return facts


def bench_document(
    measurement: Mapping[str, Any] | None,
    plan: Plan,
    *,
    name: str = "",
    board: Mapping[str, Any] | None = None,
    runtime: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """Makes the bench document from what the board's loader measured and what the plan predicts.

    Args:
        measurement: The loader's ``edgekit.device.bench/1``, or None where nothing was measured
            (the document then has the clock "predicted"). With "samples_ms", the single
            latencies, the statistics are made here and their stability is judged.
        plan: Its predictions stand beside the measurement, never mixed with it.
        name: Name of the release or config.
        board: {"name", "kind"} of where it ran.
        runtime: Flags of the runtime (threads, backend options).
        environment: Versions and machine; the measurement's own environment wins.
        limits: What a VALID measurement must fulfil; trtexec's defaults without it.

    Returns:
        A JSON-ready ``edgekit.bench/1`` document. Times in ``latency_ms`` are milliseconds.

    Raises:
        BoardError: The measurement holds no times, or samples that are no times.
    """
    limits = limits or Limits()
    if measurement is None:
        facts: dict[str, Any] = {
            "clock": PREDICTED, "kind": "predicted", "note": PREDICTED_NOTE, "backend": None,
            "latency_ms": None, "throughput_qps": None, "verdict": None,
        }  # fmt: skip
    else:
        facts = _measured(measurement, limits)
    said = measurement or {}
    return {
        "schema": SCHEMA,
        "name": name,
        **facts,
        "limits": {
            "iterations": limits.iterations, "duration_s": limits.duration_s,
            "warmup_ms": limits.warmup_ms,
            "coefficient_of_variation": limits.cv_for(facts["clock"]),
        },
        "target": plan.target,
        "power_mode": plan.power_mode,
        "precision": plan.precision,
        "predicted": {
            "clock": PREDICTED,
            "kind": "predicted",
            "target": plan.target,
            **plan.predicted.to_json(),
            "model_error": plan.model_error,
            "baselines": {
                key: value.to_json() if value else None for key, value in plan.baselines.items()
            },
        },
        "board": dict(board) if board else None,
        "runtime": dict(runtime or said.get("runtime") or {}),
        "environment": {**(environment or {}), **(said.get("environment") or {})},
    }  # fmt: skip
