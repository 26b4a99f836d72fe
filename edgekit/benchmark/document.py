"""The ``edgekit.bench/1`` document: measurement, prediction and verdict. Measured and predicted
numbers never share an object, and each names its clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, ValidationError

from edgekit.benchmark.energy import Energy, energy
from edgekit.benchmark.measurement import (
    CPU_MEASURED,
    PREDICTED,
    Milli,
    Times,
    node_times,
)
from edgekit.benchmark.monitor import with_release_warning
from edgekit.benchmark.statistics import MeasurementLimits, coefficient_of_variation, limit
from edgekit.benchmark.trtexec import TrtexecTimes, compare_with_trtexec
from edgekit.benchmark.validity import (
    MeasurementFacts,
    Verdict,
    config_words,
    judge_measurement,
    measured_mode,
)
from edgekit.documents import (
    Coded,
    Count,
    Device,
    Document,
    Figure,
    Precision,
    Ruled,
    TargetName,
    first_fault,
)
from edgekit.errors import BoardError, DataError
from edgekit.placement.plan import PredictedCost
from edgekit.targets.board import Target
from edgekit_device.benchmark.measurement import (
    ColdStart,
    Fact,
    MeasuredNode,
    MeasuredSettings,
    Measurement,
    MemoryTaken,
    Pipelined,
    SegmentTimes,
    StreamRate,
    UsedRuntime,
    phase,
)
from edgekit_device.benchmark.statistics import summary as latency_summary
from edgekit_device.board.power import PowerReport
from edgekit_device.board.samples import Monitor
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import omitted_fields, read
from edgekit_device.protocol.fields import Clock
from edgekit_device.release.journal import TakenBack

if TYPE_CHECKING:
    from edgekit.placement.plan import Plan


SCHEMA: Final = "edgekit.bench/1"
CPU_NOTE = (
    "Measured on a CPU with the reference backend, which imitates the target's "
    "arithmetic; not a board time."
)
# values that only newer loaders report, unchanged
_COPIED_KEYS = (
    "segments_clock",
    "settings",
    "phases_ms",
    "streams",
    "cold",
    "memory",
    "monitor",
    "power",
)
PREDICTED_NOTE = "Nothing was measured; all times are predictions of the cost model."
# the profiler itself slows layers: a sum is reported only if it clearly exceeds the segment
_TIMES = 2.0
_LEAST_US = 50.0
_NOTES_SHOWN = 3
#: A layer's name and its device. JSON has lists, which a strict model does not accept as tuples.
PlacedName = Annotated[tuple[str, Device], Field(strict=False)]
#: Value of a measurement without the field: written as {}.
UNKNOWN_RUNTIME = read(UsedRuntime, {})
UNKNOWN_SETTINGS = read(MeasuredSettings, {})


class Limits(Document):
    """The limits of a VALID measurement: its least length and largest variation.

    Attributes:
        iterations: The least number of frames.
        coefficient_of_variation: The largest standard deviation of the latencies over their mean.
    """

    iterations: Count
    duration_s: Figure
    warmup_ms: Figure
    coefficient_of_variation: Figure


class PredictedRun(Document):
    """The plan's prediction, as a ``PredictedCost``, and those of its baselines; null if that
    placement is not possible.
    """

    latency_us: Figure | None
    throughput_qps: Figure | None
    energy_uj: Figure | None
    gpu_us: Figure | None
    clock: Literal["predicted"]
    kind: Literal["predicted"]
    target: TargetName
    model_error: str
    rate_hz: Figure | None = Field(
        None, description="frames a second that the energies are of; null: back to back"
    )
    baselines: dict[str, Annotated[PredictedCost, Coded()] | None]


class BoardName(Document):
    """The board of a measurement."""

    name: str | None = None
    kind: str | None = Field(None, description="sshd, local or remote")
    note: str | None = None


class Bench(Document):
    """A measurement with prediction and verdict; values that the backend does not report are null.
    ``Measurement`` describes the values that the board's loader measured.

    Attributes:
        iterations: Number of frames of all streams.
        coefficient_of_variation: Standard deviation of the latencies over their mean.
    """

    schema_: Literal["edgekit.bench/1"] = Field(SCHEMA, alias="schema")
    name: str = ""
    config: str | None = Field(None, description="the configuration's file, or the model's")
    kind: Literal["measured", "predicted"] | None = None
    note: str = ""
    clock: Clock | None = None
    backend: str | None = None
    iterations: Count | None = None
    warmup_ms: Figure | None = None
    duration_s: Figure | None = None
    latency_ms: Times | None = Field(None, description="min, mean, median, p50 to p999, max")
    coefficient_of_variation: Figure | None = None
    throughput_qps: Figure | None = None
    pipelined: Annotated[Pipelined, Coded()] | None = None
    segments: list[Annotated[SegmentTimes, Coded()]] = Field([])
    nodes: list[Annotated[MeasuredNode, Coded()]] | None = None
    samples_ms: list[Milli] | None = Field(None, description="in the order of their measurement")
    segments_clock: str | None = Field(None, description="gpu (CUDA events) or cpu")
    settings: Annotated[MeasuredSettings, Coded()] | None = None
    phases_ms: dict[Annotated[str, Ruled(phase)], Times | None] | None = None
    streams: list[Annotated[StreamRate, Coded()]] | None = None
    cold: Annotated[ColdStart, Coded()] | None = None
    memory: Annotated[MemoryTaken, Coded()] | None = None
    monitor: Annotated[Monitor, Coded()] | None = None
    power: Annotated[PowerReport, Coded()] | None = None
    runtime: Annotated[UsedRuntime, Coded()] | None = None
    environment: dict[str, Fact] | None = Field(None, description="release, versions, machine")
    trtexec: TrtexecTimes | None = None
    energy: Energy | None = None
    verdict: Verdict | None = None
    power_mode: str | None = Field(None, description="measured where the board reported one")
    limits: Limits | None = None
    target: TargetName | None = None
    planned_power_mode: str | None = None
    precision: Precision | None = None
    placement: list[list[PlacedName]] = Field(
        [], description="layer and device, by plan: a hybrid engine is a segment of several devices"
    )
    predicted: PredictedRun | None = None
    board: BoardName | None = None
    files: dict[str, str] = Field({})
    notes: list[str] = Field([])
    taken_back: Annotated[TakenBack, Coded()] | None = Field(
        None,
        description="the configuration's own release, which the board has taken back: another one "
        "was measured",
    )

    def measurement(self) -> Measurement:
        """Returns the measured values as the loader's document."""
        return Measurement(
            clock=self.clock,
            backend=self.backend,
            iterations=self.iterations,
            warmup_ms=self.warmup_ms,
            duration_s=self.duration_s,
            latency_ms=self.latency_ms,
            samples_ms=None if self.samples_ms is None else tuple(self.samples_ms),
            throughput_qps=self.throughput_qps,
            phases_ms=self.phases_ms,
            pipelined=self.pipelined,
            segments=tuple(self.segments),
            streams=None if self.streams is None else tuple(self.streams),
            segments_clock=self.segments_clock,
            settings=self.settings,
            cold=self.cold,
            memory=self.memory,
            runtime=self.runtime,
            monitor=self.monitor,
            power=self.power,
            nodes=None if self.nodes is None else tuple(self.nodes),
            environment=self.environment,
        )


class Histogram(Document):
    """Counts of equal bins from the fastest to the slowest latency.

    Attributes:
        counts: Number of latencies of each bin.
    """

    low_ms: Milli
    high_ms: Milli
    counts: list[Count]


class ReportedBench(Bench):
    """The measurement in a report: without the single samples (only in the bench document) and
    without the monitor (in the report's "power").
    """

    histogram: Histogram | None = None


def read_bench(document: Mapping[str, object]) -> Bench | Measurement:
    """Returns the document of ``edgekit bench`` or of a board's loader, by its schema.

    Raises:
        DataError: "bench.form", with the place in the document.
    """
    schema = document["schema"]
    try:
        return Bench.model_validate(document) if schema == SCHEMA else read(Measurement, document)
    except ValidationError as error:
        where, message = first_fault(error)
    except DeviceError as error:
        where, message = error.where, error.message
    raise DataError(
        f"not a valid {schema}: {message}",
        code="bench.form",
        where=where or str(schema),
        hint="measure again with edgekit bench",
    )


def bench_document(
    measurement: Measurement | None,
    plan: Plan | None,
    *,
    name: str = "",
    board: BoardName | None = None,
    environment: Mapping[str, Fact] | None = None,
    limits: MeasurementLimits | None = None,
    target: Target | None = None,
    config: str = "",
) -> Bench:
    """Makes the bench document from the loader's measurement and the plan's prediction.

    Args:
        measurement: The loader's, or None without a measurement (the clock is then "predicted"). If
            it has "samples_ms", the single latencies, the statistics are computed here and their
            stability is judged.
        plan: The plan, whose predictions have separate fields. None if unknown: "predicted" and
            "precision" are then None, and ``target`` is required.
        name: Name of the release or config.
        board: The measured board.
        environment: Versions and machine; the measurement's own environment takes precedence.
        limits: Least length of a VALID measurement; trtexec's defaults if None.
        target: The board's facts, for its power modes, clocks and rails.
        config: File of the configuration or model, for the commands in the verdict's remedies.

    Returns:
        Times in ``latency_ms`` are milliseconds. "power_mode" is the mode that the board reported
        during the measurement, None if it reported none; without a measurement it is the plan's
        mode. The plan's mode is always in "planned_power_mode".

    Raises:
        BoardError: The measurement has no times ("bench.empty"), or trtexec's times are not numbers
            ("board.protocol").
    """
    limits = limits or MeasurementLimits()
    clock = (measurement.clock or CPU_MEASURED) if measurement else PREDICTED
    own = (measurement.environment if measurement else None) or {}
    document = Bench(
        schema=SCHEMA,
        name=name,
        config=config or None,
        clock=clock,
        kind="predicted",
        note=PREDICTED_NOTE,
        backend=None,
        latency_ms=None,
        throughput_qps=None,
        verdict=None,
        power_mode=plan.power_mode if plan else "",
        limits=Limits(
            iterations=limits.iterations,
            duration_s=limits.duration_s,
            warmup_ms=limits.warmup_ms,
            coefficient_of_variation=limit("variation", clock),
        ),
        target=plan.target if plan else target.name if target else "",
        planned_power_mode=plan.power_mode if plan else "",
        precision=(plan.precision or None) if plan else None,
        placement=[
            [(layer.name, layer.device) for layer in share.layers]
            for share in (plan.plans if plan else ())
        ],
        predicted=_predicted_run(plan) if plan else None,
        board=board,
        runtime=(measurement.runtime if measurement else None) or UNKNOWN_RUNTIME,
        environment={**(environment or {}), **own},
    )
    return _with_measurement(document, measurement, limits, target) if measurement else document


def _predicted_run(plan: Plan) -> PredictedRun:
    return PredictedRun(
        clock=PREDICTED,
        kind="predicted",
        target=plan.target,
        **plan.predicted.to_json(),
        model_error=plan.model_error,
        rate_hz=plan.rate_hz,
        baselines=dict(plan.baselines),
    )


def _with_measurement(
    document: Bench, facts: Measurement, limits: MeasurementLimits, target: Target | None
) -> Bench:
    """Returns the document with the measured part, its energy and its verdict."""
    trtexec = compare_with_trtexec(facts)
    samples = list(facts.samples_ms or ())
    # the loader's own statistics only if it gives no single times
    latency = latency_summary(samples) if samples else dict(facts.latency_ms or {})
    if "median" not in latency:
        raise BoardError(
            "the measurement contains no times",
            code="bench.empty",
            hint="set bench.iterations to 1 or more and run it again",
        )
    document = document.model_copy(
        update={
            "kind": "measured",
            "note": CPU_NOTE if document.clock == CPU_MEASURED else "Measured on the board.",
            "backend": facts.backend or "reference",
            "iterations": facts.iterations or len(samples),
            "warmup_ms": facts.warmup_ms,
            "duration_s": facts.duration_s,
            "latency_ms": latency,
            "throughput_qps": facts.throughput_qps,
            "coefficient_of_variation": coefficient_of_variation(samples) if samples else None,
            "pipelined": facts.pipelined,
            "segments": list(facts.segments),
            "nodes": list(facts.nodes or ()),
            "samples_ms": samples,
            **{
                # a field that the loader left out stays out of the document
                key: list(value) if isinstance(value := getattr(facts, key), tuple) else value
                for key in _COPIED_KEYS
                if key not in omitted_fields(facts)
            },
            "trtexec": trtexec,
        }
    )
    return with_verdict(document, target, limits)


def with_verdict(document: Bench, target: Target | None, limits: MeasurementLimits) -> Bench:
    """Returns a measurement with energy, verdict and power mode from its monitor.

    Args:
        document: The document with its measurement.
        target: The board's facts, for its power modes, clocks and rails.
        limits: Least length of a VALID measurement.
    """
    if (monitor := document.monitor) is not None:
        warnings = with_release_warning(monitor.warnings, monitor.facts.l4t)
        if warnings != monitor.warnings:
            monitor = replace(monitor, warnings=warnings)
            document = document.model_copy(update={"monitor": monitor})
    words = config_words(document.config or "", document.target or "", document.precision or "")
    planned = document.planned_power_mode or document.power_mode or ""
    measured = document.measurement()
    # trtexec's times as compared before: the document does not keep its console output
    facts = MeasurementFacts(measured, limits, document.trtexec, target, planned, words)
    return document.model_copy(
        update={
            "energy": _energy(measured, target),
            "verdict": judge_measurement(facts),
            "power_mode": measured_mode(measured),
        }
    )


def _energy(facts: Measurement, target: Target | None) -> Energy | None:
    """Returns the measurement's "energy"; None if no rail was sampled."""
    if facts.monitor is None or not facts.duration_s:
        return None
    rails, clock = target.rails if target else None, facts.clock or CPU_MEASURED
    return energy(facts.monitor, rails, facts.iterations or 0, facts.duration_s, clock=clock)


def profile_notes(measurement: Measurement) -> list[str]:
    """Returns a note if a segment's layers add up to clearly more than its median."""
    sums = {key: sum(node.us for node in own) for key, own in node_times(measurement).items()}
    found = []
    for segment in measurement.segments:
        median = (segment.latency_ms or {}).get("median")
        total = sums.get((segment.lane, segment.index), 0.0)
        if median is None:
            continue
        if total > _TIMES * 1000 * median and total - 1000 * median > _LEAST_US:
            words = (
                f"segment {segment.index} on {segment.device}: {total / 1000:.3g} ms "
                f"of layers, {median:.3g} ms measured"
            )
            found.append((total / 1000 - median, words))
    if not found:
        return []
    worst = [words for _, words in sorted(found, reverse=True)]
    more = f"; and {len(worst) - _NOTES_SHOWN} more" if len(worst) > _NOTES_SHOWN else ""
    listed = "; ".join(worst[:_NOTES_SHOWN])
    return [
        "layer times come from a few separate runs under the profiler, which were "
        f"slower than the measurement: {listed}{more}. They show which layers take "
        "most, not how long they take"
    ]
