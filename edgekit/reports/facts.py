"""The facts of a run (``RunFacts``), and texts about measurement, accuracy and builds that the
page, Markdown and the terminal share; power, temperatures and energy from the bench's monitor
document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgekit.benchmark.document import Bench, BoardName
from edgekit.benchmark.energy import Energy
from edgekit.benchmark.statistics import sparse_percentiles
from edgekit.bundles.files import PackedBundle
from edgekit.error_document import FinishedStep
from edgekit.reference.accuracy import (
    ConstantOutput,
    NonfiniteOutput,
    SegmentMeasures,
    describe_parts,
)
from edgekit.reports import text
from edgekit.reports.schema import (
    Accuracy,
    Facts,
    Line,
    MonitorSummary,
    RefitAnswer,
    ReportedPower,
    ReportedRewrite,
)
from edgekit.results.comparison import describe_value
from edgekit.tensorrt.built import BoardBuild
from edgekit.text import ABSENT, counted, percent
from edgekit_device.board.samples import Sample
from edgekit_device.runtime.deviation import decibels

if TYPE_CHECKING:
    from edgekit.benchmark.trace.chrome import Trace
    from edgekit.dla.verdicts import Judgement
    from edgekit.network.model import Network
    from edgekit.placement.cuts import Cut
    from edgekit.placement.plan import Plan
    from edgekit.quantize.scales import Scales
    from edgekit.targets.board import Target

PERCENTILES = {
    "min": "min",
    "mean": "mean",
    "median": "p50 (median)",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "p999": "p99.9",
    "max": "max",
}
_BASELINES = {"idle": "idle", "floor": "its lowest"}  # the baseline that energy is given above
POINTS = 240
"""Points of a line that a page's width can show; the bench document keeps every sample."""
MEASURES = (
    ("cosine", "Cosine"),
    ("snr_db", "SNR"),
    ("max_abs", "Largest difference"),
    ("top1_agreement", "Top-1 agreement"),
    ("boxes", "Boxes"),
)
# top-1 agreement and boxes are meaningful for the network's outputs only
SEGMENT_MEASURES = MEASURES[:3]


@dataclass(frozen=True, eq=False)
class RunFacts:
    """The facts of a run. Parts that a run did not reach are None or empty.

    Attributes:
        name: The config's name.
        model: The model's source, as text.
        target: The board.
        plan: The placement with its predictions and baselines.
        network: The layers that were placed (after rewrites).
        judgement: The verdict of each layer.
        mode: Build mode: "hybrid", "standalone" or "split".
        backend: "reference", "tensorrt" or "trtexec"; empty without a build.
        scales: INT8 scales and the data they come from.
        accuracy: Against FP32, with the gate and the data that it was measured on.
        bundle: The bundle's sizes.
        refit: The comparison of the refitted release's outputs.
        built: The boards' builds.
        bench: The measurement.
        trace: The ``edgekit.trace/1`` document of the same measurement: gives the measured frame
            and the layers' measured times.
        board: The board that it ran on.
        rewrites: Applied rewrites.
        cuts: Proposed cuts of the original network.
        steps: The steps of the run, in order.
        files: Paths by kind: "report", "trace", "bundle", ...
        config_text: The user's configuration, unchanged.
        environment: Versions and machine, as text.
        notes: Notes for the reader.
        note_groups: The notes by subject: "accuracy", "run", "plan", "build"; others belong to the
            run.
    """

    name: str
    model: str
    target: Target
    plan: Plan
    network: Network
    judgement: Judgement
    mode: str = "hybrid"
    backend: str = ""
    scales: Scales | None = None
    accuracy: Accuracy | None = None
    bundle: PackedBundle | None = None
    refit: RefitAnswer | None = None
    built: tuple[BoardBuild, ...] = ()
    bench: Bench | None = None
    trace: Trace | None = None
    board: BoardName | None = None
    rewrites: tuple[ReportedRewrite, ...] = ()
    cuts: tuple[Cut, ...] = ()
    steps: tuple[FinishedStep, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    config_text: str = ""
    note_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    environment: Facts = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def clock(self) -> str:
        """The measurement's clock; "" without a measurement."""
        return (self.bench.clock or "") if self.bench else ""


def latency_shown(bench: Bench) -> dict[str, str]:
    """Returns the statistics to show, by key, with their names.

    A percentile without a frame beyond it is left out, for it is the maximum. A percentile with few
    frames beyond it has a "*", which :func:`footnote_words` explains.
    """
    latency, count = bench.latency_ms or {}, bench.iterations
    empty, few, _ = ((), (), 0) if count is None else sparse_percentiles(count)
    return {
        key: name + "*" * (key in few)
        for key, name in PERCENTILES.items()
        if key in latency and key not in empty
    }


def footnote_words(bench: Bench) -> str:
    """Returns the meaning of the "*" and the omitted percentiles, as text; "" if there is none."""
    count = bench.iterations
    if count is None:
        return ""
    latency = bench.latency_ms or {}
    empty, few, least = sparse_percentiles(count)
    sentences, frames = [], counted(count, "inference")
    if any(key in latency for key in few):
        sentences.append(
            f"* fewer than {least} of the {frames} are slower, so this value varies between runs."
        )
    if absent := [PERCENTILES[key] for key in empty if key in latency]:
        names = f"{', '.join(absent[:-1])} and {absent[-1]}" if absent[1:] else absent[0]
        sentences.append(f"{frames} are too few for {names}.")
    return " ".join(sentences)


def baseline_word(energy: Energy) -> str:
    """Returns the baseline of the energy's second figure: idle board or the run's lowest power."""
    return _BASELINES.get(energy.baseline or "", "its baseline")


def serving_words(bench: Bench | None) -> str:
    """Returns the measured release if it is not the plan's; "" if it is.

    A release that was rolled back on a board is not measured, but the release that serves there.
    """
    if bench is None or bench.taken_back is None:
        return ""
    back, release = bench.taken_back, (bench.environment or {}).get("release")
    return text.clean(
        f"release {release or 'another release'}, which is running: this configuration's release, "
        f"{back.release}, was rolled back at {back.at}: {back.reason}"
    )


def cost_facts(bench: Bench) -> Iterable[tuple[str, str]]:
    """Yields the costs of start and run: cold start, memory, and energy if it was read."""
    cold, memory = bench.cold, bench.memory
    if cold is not None and cold.open_ms is not None:
        yield "Cold start: open", text.microseconds(1000 * cold.open_ms)
    if cold is not None and cold.first_ms is not None:
        yield "Cold start: first inference", text.microseconds(1000 * cold.first_ms)
    if memory is not None and memory.peak_rss_bytes is not None:
        yield "Peak memory", text.size(memory.peak_rss_bytes)
    if memory is not None and memory.gpu_bytes is not None:
        yield "Memory of the GPU", text.size(memory.gpu_bytes)
    if bench.energy is not None and (total := bench.energy.total):
        yield "Energy per inference", text.energy(total.uj_per_inference)
        if total.over_idle_uj is not None:
            yield (
                f"thereof over {baseline_word(bench.energy)}",
                text.energy(total.over_idle_uj),
            )


def flatten_facts(facts: Mapping[str, object] | None) -> Iterable[tuple[str, str]]:
    """Yields the leaves of settings, flags or versions by their path, with values as text.

    Values that are not set are left out.
    """
    for key, value in (facts or {}).items():
        if isinstance(value, Mapping):
            yield from (
                (f"{text.clean(key)}.{name}", inner) for name, inner in flatten_facts(value)
            )
        elif words := describe_value(value):
            yield text.clean(key), text.clean(words)


def differences(board: BoardBuild) -> tuple[str, ...]:
    """Returns the differences of a board's build from the plan, as sentences."""
    return () if board.plan is None else board.plan.differences


def built_line(board: BoardBuild) -> str:
    """Returns a board's build in one line."""
    module = board.fingerprint.get("module")
    found = differences(board)
    return ", ".join(
        part
        for part in (
            f"TensorRT {board.tensorrt}",
            "" if module is None else str(module),
            counted(len(found), "difference") + " from the plan" if found else "as planned",
        )
        if part
    )


def reported_power(bench: Bench | None) -> ReportedPower | None:
    """Returns the report's power section, or None if no monitor ran."""
    if bench is None or bench.clock is None:
        return None
    monitor = bench.monitor
    if not (monitor or bench.energy or bench.power):
        return None
    return ReportedPower(
        clock=bench.clock,
        monitor=MonitorSummary(
            interval_ms=monitor.interval_ms,
            sources=list(monitor.sources),
            samples=len(monitor.samples),
            idle_samples=len(monitor.idle),
            facts=monitor.facts,
            unknown=len(monitor.unknown),
            warnings=list(monitor.warnings),
        )
        if monitor
        else None,
        series=_series(monitor.samples) if monitor else {},
        energy=bench.energy,
        settings=bench.power,
    )


def _series(samples: Sequence[Sample]) -> dict[str, list[Line]]:
    groups: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for sample in samples:
        for group, name, value in _values(sample):
            if value is not None:
                points = groups.setdefault(group, {}).setdefault(name, [])
                points.append((float(sample.t_s), value))
    return {
        group: [_line(name, points) for name, points in lines.items()]
        for group, lines in groups.items()
    }


def _values(sample: Sample) -> Iterable[tuple[str, str, float | None]]:
    for name, power in sample.rails().items():
        yield "rails_mw", name, power
    for name, value in sample.temperatures_c.items():
        yield "temperatures_c", name, value
    for name, engine in sample.engines.items():
        yield "load_percent", name, engine.percent
        for number, clock in enumerate(engine.mhz):
            # GR3D has a clock for each of its clusters
            yield "clocks_mhz", name if number == 0 else f"{name} {number}", clock
    known = [core.percent for core in sample.cpu if core and core.percent is not None]
    if known:
        yield "load_percent", "CPU", sum(known) / len(known)
    for name, hertz in sample.clocks_hz.items():
        yield "clocks_mhz", name, hertz / 1e6


def _line(name: str, points: Sequence[tuple[float, float]]) -> Line:
    values = [value for _, value in points]
    return Line(
        name=name,
        min=min(values),
        mean=sum(values) / len(values),
        max=max(values),
        points=thin_points(points),
    )


def thin_points(
    points: Sequence[tuple[float, float]], most: int = POINTS
) -> list[tuple[float, float]]:
    """Returns at most ``most`` points: the lowest and the highest of each stretch, in time order.

    Averages would hide the peaks that a reader looks for.
    """
    if len(points) <= most:
        return list(points)
    stretches = most // 2
    chosen: list[tuple[float, float]] = []
    for number in range(stretches):
        part = points[number * len(points) // stretches : (number + 1) * len(points) // stretches]
        pair = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        # a set, since a flat stretch has a single point as both; sorted by time
        chosen += sorted(pair)
    return chosen


def measure_words(measures: Accuracy | SegmentMeasures, key: str) -> str:
    """Formats one of ``MEASURES``, which is an attribute.

    Outputs that are the same for all inputs ("constant") give no measure.
    """
    if measures.constant:
        return ABSENT
    value: float | None = getattr(measures, key)
    if key == "snr_db" and (value is not None or measures.max_abs is not None):
        # older documents have no `exact`
        exact = measures.max_abs == 0 if measures.exact is None else measures.exact
        return decibels(value, value is None and exact)
    if value is None:
        return ABSENT
    if key in ("top1_agreement", "boxes"):
        return percent(value)
    return f"{value:.5f}" if key == "cosine" else text.significant(value)


def warning_words(accuracy: Accuracy) -> list[str]:
    """Returns a sentence for each output without meaningful figures: it holds NaN or infinity, or
    is the same for all inputs.
    """
    outputs: list[NonfiniteOutput | ConstantOutput] = [*accuracy.nonfinite, *accuracy.constant]
    return [text.clean(output.message) for output in outputs]


def part_words(accuracy: Accuracy) -> list[str]:
    """Returns the worst channels of outputs whose channels differ in range, and scores kept."""
    constant = [output.output for output in accuracy.constant]
    return [text.clean(part) for part in describe_parts(accuracy.groups, accuracy.scores, constant)]
