"""The report's document ``edgekit.report/1``: ``Report`` and its parts. ``report_document`` makes
it, and every page, Markdown and terminal summary is rendered from it. The bench, the verdict's
reasons, the energy and the comparison are models of the packages that make them. A part that an
older document lacks is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationError

from edgekit.benchmark.document import BoardName, ReportedBench
from edgekit.benchmark.energy import Energy
from edgekit.benchmark.validity import Reason
from edgekit.bundles.files import PackedBundle
from edgekit.documents import (
    Band,
    ClockName,
    Coded,
    Core,
    Count,
    Device,
    Document,
    Figure,
    Fraction,
    Number,
    Precision,
    Release,
    TargetName,
    fault_words,
    load_json,
    omitted,
)
from edgekit.error_document import FinishedStep, VerdictReason
from edgekit.errors import DataError
from edgekit.network.module_tree import ModuleTotals
from edgekit.placement.buckets import Bucket, RangeCost
from edgekit.placement.cuts import Cut
from edgekit.placement.gpu_reasons import Why
from edgekit.placement.placing import Objective
from edgekit.placement.plan import DeviceWork, FrameTimes, SlackChoice
from edgekit.quantize.scales import ChangedScale
from edgekit.reference.accuracy import (
    ChannelGroup,
    ConstantOutput,
    KeptScores,
    NonfiniteOutput,
    SegmentMeasures,
)
from edgekit.reference.gate import Metric
from edgekit.results.comparison import Comparison
from edgekit.rewriting.graph import Applied
from edgekit.tensorrt.built import BoardBuild
from edgekit_device.board.power import PowerReport
from edgekit_device.board.samples import MonitorFacts
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import document, long_text, member
from edgekit_device.protocol.fields import Clock

Micro = Annotated[Figure, Field(description="microseconds")]
Size = Annotated[Count, Field(description="bytes")]
# JSON has lists, which a strict model does not accept for tuples
Edge = Annotated[tuple[Count, Count], Field(strict=False)]
Point = Annotated[tuple[Number, Number], Field(strict=False)]
Facts = dict[str, JsonValue]  # versions, settings and flags, as their programs name them
LARGEST = 256 << 20  # bytes of a report.json; 2,000 layers are 1.5 MB


class Gate(Document):
    """A gate of a run; ``passed`` is null if it was not judged. ``metric`` and ``on`` (the data)
    are for accuracy, ``pool`` is for memory, and ``message`` is why a measurement is INVALID, or
    which metrics regressed.

    Attributes:
        found: The run's value, in the metric's unit.
        limit: The required value, in the same unit.
    """

    gate: str
    passed: bool | None = None
    found: Number | None = None
    limit: Number | None = None
    metric: str = ""
    on: str = ""
    pool: str = ""
    message: str = ""


class ReportedAnswer(Document):
    """The answer to one of a user's first questions; ``ok`` is null if it does not arise."""

    question: Literal["fit", "speed", "accuracy", "release"]
    words: str
    ok: bool | None = None
    clock: Clock | Literal[""] = ""


class ReportedVerdict(Document):
    """The measurement's verdict (may it be quoted), and the gates."""

    status: Literal["VALID", "INVALID", "NOT MEASURED"] = "NOT MEASURED"
    clock: Clock = "predicted"
    reasons: list[Reason] = Field([])
    command: str = ""
    unchecked: list[str] = Field([])
    gates: list[Gate] = Field([])


class ReportedBoard(Document):
    """The target that the network was placed for.

    Attributes:
        dla_cores: Number of DLA cores.
    """

    name: TargetName
    title: str
    dla_cores: Count


class DeviceShare(Document):
    """The layers and the time of one device, launches and reformats included.

    Attributes:
        layers: Number of its layers.
        macs: Multiply-accumulates of a frame.
        macs_fraction: Their fraction of the network's multiply-accumulates, 0 to 1.
    """

    device: Device
    layers: Count
    macs: Count
    macs_fraction: Fraction
    predicted_us: Micro


class Loadable(Document):
    """A DLA subgraph and the pools that it needs.

    Attributes:
        core: Number of the DLA core.
        layers: Number of its layers.
        memory: Bytes, by pool.
    """

    core: Core
    layers: Count
    first: str
    last: str
    memory: dict[str, Size]
    formats: dict[str, str] = Field({}, description="by tensor")


@document(frozen=True, kw_only=True)
class PlanDevice(DeviceWork):
    """A device's work for a frame of one of several plans.

    Attributes:
        macs: Multiply-accumulates of its layers.
        macs_fraction: Their fraction of the network's multiply-accumulates.
    """

    macs: int = member(fields.count)
    macs_fraction: float = member(fields.share)


class ReportedPlanShare(Document):
    """A plan's share of the frames, and its devices.

    Attributes:
        share: Part of the frames, 0 to 1.
    """

    share: Fraction
    devices: list[Annotated[PlanDevice, Coded()]]


class Placement(Document):
    """The placement of the layers, and its needs.

    Attributes:
        layers: Number of layers of the network.
        macs: Multiply-accumulates of a frame.
        dla_layers: Number of layers on a DLA.
        dla_macs_fraction: Part of the multiply-accumulates that run on a DLA, 0 to 1.
        dla_capable_layers: Number of layers that could run on a DLA.
        disputed_layers: Number of these with disputed verdicts.
        pools: The largest need of a loadable in bytes, by pool.
        pool_limits: Bytes allowed for a loadable, by pool.
        transitions: Changes between devices along the running order.
        segments: Number of segments.
        gap: Distance of the objective from the bound, as a share.
        shares: Part of the frames of each plan, 0 to 1.
    """

    layers: Count
    macs: Count
    devices: list[DeviceShare]
    dla_layers: Count
    dla_macs_fraction: Fraction
    dla_capable_layers: Count
    disputed_layers: Count
    loadables: list[Loadable]
    pools: dict[str, Size]
    pool_limits: dict[str, Size] = Field({})
    transitions: Count
    segments: Count
    objective: Objective
    optimal: bool
    bound: Figure | None = Field(None, description="no plan's objective is better")
    gap: Figure
    slack: Annotated[SlackChoice, Coded()] | None = None
    extrapolated: list[str] = Field([])
    unknown_cost: list[str] = Field(
        default=[], description="layers whose cost is unknown, not counted in any figure"
    )
    shares: list[Fraction]
    frame: Annotated[FrameTimes, Coded()] | None = None
    plans: list[ReportedPlanShare] = Field([])


class Row(Document):
    """The plan or one of its baselines; times are null if that placement is not possible, or if
    no layer has a known time."""

    key: str
    label: str
    latency_us: Micro | None = None
    throughput_qps: Figure | None = None
    energy_uj: Figure | None = None
    gpu_us: Micro | None = None
    latency_ratio: Figure | None = Field(None, description="to the plan's")
    change: Number | None = Field(None, description="of the plan's objective")
    keeps: bool | None = Field(None, description="whether it keeps the limits")
    possible: bool = True

    def figure(self, key: str) -> float | None:
        """Returns one of ``latency_us``, ``throughput_qps``, ``energy_uj`` and ``gpu_us``."""
        value: float | None = getattr(self, key)
        return value


class Predicted(Document):
    """The cost model's predictions for the plan and its baselines, the plan first."""

    clock: Literal["predicted"]
    model_error: str
    rows: list[Row] = Field(min_length=2)
    advantage: str = ""
    source: str = Field(
        default="", description="where the plan's times come from: how much a profile measured"
    )
    unknown_cost: Count = Field(
        default=0, description="layers of unknown cost, not counted in any figure"
    )
    rate_hz: Figure | None = Field(
        default=None, description="frames a second that the energies are of; null: back to back"
    )
    latency_band_us: Band | None = Field(
        default=None, description="range of the plan's latency by the prediction error"
    )
    doubts: list[str] = Field(
        default=[], description="why the prediction alone does not decide between plan and GPU"
    )


class ReportedSegment(Document):
    """A run of layers on one device.

    Attributes:
        segment: Its number in running order.
        layers: Number of its layers.
        macs: Multiply-accumulates of a frame.
    """

    segment: Count
    device: Device
    layers: Count
    first: str
    last: str
    macs: Count = 0
    predicted_us: Micro
    reformats_us: Micro = Field(0.0, description="of predicted_us")
    launch_us: Micro = Field(0.0, description="of predicted_us: to start the loadable")


class Reformats(Document):
    """Reformats by a device for a segment, outside of the device's segments.

    Attributes:
        segment: Number of the segment.
    """

    segment: Count
    device: Device
    predicted_us: Micro


class Graph(Document):
    """Edges between layers and between segments, by their numbers.

    Attributes:
        edges: Pairs of layer numbers: from, to.
        segment_edges: Two segment numbers, from and to, and the number of tensors.
    """

    edges: list[Edge] = Field([])
    segments: list[ReportedSegment] = Field([])
    reformats: list[Reformats] = Field([])
    segment_edges: list[Annotated[tuple[Count, Count, Count], Field(strict=False)]] = Field([])


class Slot(Document):
    """A turn of a device, from the frame's start: a segment, or reformats for one (no layers).

    Attributes:
        plan: Index of the plan.
        segment: Number of the segment.
        layers: Number of layers that it runs.
    """

    plan: Count
    segment: Count
    device: Device
    start_us: Micro
    duration_us: Micro
    layers: Count | None = None
    first: str = ""
    last: str = ""
    reformats_us: Micro = 0.0
    launch_us: Micro = 0.0


class ReportedFrame(Document):
    """One measured frame.

    Attributes:
        frame: Number of the shown frame.
    """

    clock: Literal["cpu-measured", "board-measured"]
    frame: Count = 0
    end_us: Micro
    slots: list[Slot]


class Timeline(Document):
    """Start and duration of the segments: predicted, and of a measured frame if there is one."""

    clock: Literal["predicted"]
    end_us: Micro
    busy_us: dict[Device, Micro] = Field({})
    tracks: list[Device]
    slots: list[Slot]
    measured: ReportedFrame | None = None


class Line(Document):
    """A value over time; points are [seconds, value].

    Attributes:
        min: In the unit of the series.
        mean: In the unit of the series.
        max: In the unit of the series.
        points: Seconds from the measurement's start, and the value.
    """

    name: str
    min: Number
    mean: Number
    max: Number
    points: list[Point]


class MonitorSummary(Document):
    """The monitor's sampling; the bench document has the samples.

    Attributes:
        samples: Number of samples.
        idle_samples: Number of samples before and after the measurement.
        unknown: Number of fields in tegrastats' lines that were not understood.
    """

    interval_ms: Figure | None = None
    sources: list[str] = Field([])
    samples: Count = 0
    idle_samples: Count = 0
    facts: Annotated[MonitorFacts, Coded()] = MonitorFacts()
    unknown: Count = 0
    warnings: list[str] = Field([])


class ReportedPower(Document):
    """The monitor's values during the measurement, and the energy by rail."""

    clock: Clock
    monitor: MonitorSummary | None = None
    series: dict[str, list[Line]] = Field({})
    energy: Energy | None = None
    settings: Annotated[PowerReport, Coded()] | None = None


class Accuracy(Document):
    """The build's difference from FP32: the worst output's figures, and warnings about these.

    Attributes:
        top1_agreement: Share of inputs whose largest value is at the same place, 0 to 1.
        inputs: Number of inputs compared.
    """

    cosine: Number | None = Field(None, description="the mean over the inputs, -1 to 1")
    cosine_min: Number | None = Field(None, description="the worst input's")
    snr_db: Number | None = Field(
        default=None, description="decibels; null with max_abs 0: exact, else a constant output"
    )
    max_abs: Figure | None = Field(
        None, description="largest absolute difference, in the output's unit"
    )
    exact: bool | None = Field(None, description="no error at all; null: not kept")
    top1_agreement: Fraction | None = None
    boxes: Fraction | None = Field(
        None, description="F1 score of a detector's objects against FP32's; null: no head"
    )
    metric: Metric = "cosine"
    min: Number | None = Field(None, description="the gate's limit")
    passed: bool | None = None
    stand_in: str = Field(
        default="", description="replacement for user data: random weights, synthetic inputs"
    )
    data: str | None = None
    inputs: Count | None = None
    computed: str | None = None
    groups: list[Annotated[ChannelGroup, Coded()]] = Field([])
    scores: list[Annotated[KeptScores, Coded()]] = Field([])
    failures: list[str] = Field([])
    constant: list[Annotated[ConstantOutput, Coded()]] = Field(
        default=[], description="outputs nearly the same for all inputs, so figures mean little"
    )
    nonfinite: list[Annotated[NonfiniteOutput, Coded()]] = Field(
        [], description="outputs with NaN or infinity"
    )
    segments: list[Annotated[SegmentMeasures, Coded()]] = Field([])

    def figure(self) -> float | None:
        """Returns the value of the gate's metric."""
        value: float | None = getattr(self, self.metric)
        return value


class Calibration(Document):
    """The source of the INT8 scales.

    Attributes:
        tensors: Number of tensors with a scale.
    """

    method: str
    data: str
    tensors: int
    changes: list[Annotated[ChangedScale, Coded()]] = Field([])


class RefitAnswer(Document):
    """The comparison of the refitted release's outputs with the unstripped build's.

    Attributes:
        tensors: Number of weights in the bundle besides its engines.
    """

    bit_equal: bool | None = None
    tensors: Count | None = None


@document(frozen=True, kw_only=True)
class ReportedRewrite(Applied):
    """A rewrite that was applied; ``name`` repeats its name."""

    name: str = member(long_text)

    @classmethod
    def of(cls, applied: Applied) -> ReportedRewrite:
        """Returns the report's entry of a rewrite."""
        return cls(name=applied.rewrite, **vars(applied))


class MoreComparison(Comparison):
    """The comparison of the median latencies, and in ``more`` those of further metrics."""

    more: list[Comparison] = Field([])


class Refused(Document):
    """Why the run was not compared."""

    code: str
    reasons: list[str] = Field(min_length=1)
    where: str | None = None


class RefusedComparison(Document):
    """A comparison that was requested and could not be made."""

    refused: Refused


class UnbookedTime(Document):
    """Measured time of a frame that belongs to no layer.

    Attributes:
        nodes: Number of rows of the profile in the sum.
    """

    what: str
    us: Micro
    nodes: Count


class TraceSummary(Document):
    """The trace's file and contents.

    Attributes:
        events: Number of events in the trace.
        frames: Number of frames.
        measured_layers: Number of layers with a measured time.
    """

    file: str | None = None
    events: Count = 0
    frames: Count = 0
    measured_layers: Count = 0
    clocks: dict[str, str] = Field({})
    unbooked: list[UnbookedTime] = Field([])


class OnGpu(Document):
    """Why a DLA-capable layer is on the GPU."""

    rule: str
    message: str


class MeasuredTime(Document):
    """A layer's own time."""

    clock: ClockName
    us: Micro


class Whole(Document):
    """A group of layers that was timed as a whole and contains a layer.

    Attributes:
        layers: Number of its layers.
    """

    name: str
    clock: ClockName
    us: Micro
    layers: Count


class ReportedLayer(Document):
    """A layer in graph order; ``number`` counts from 1.

    Attributes:
        number: Its place in the graph's order, from 1.
        shape: Sizes of the axes of each output.
        segment: Number of the segment that it is in.
        macs: Multiply-accumulates of a frame.
    """

    number: int = Field(ge=1)
    name: str
    op: str = ""
    shape: list[list[Count | str]] = Field([])
    on_gpu: OnGpu | None = None
    kind: str
    nodes: list[str] = Field([])
    device: Device
    precision: Precision
    segment: Count
    dla_ok: bool | None
    certainty: str
    reasons: list[Annotated[VerdictReason, Coded()]]
    macs: Count
    predicted_us: Micro
    predicted_uj: Figure | None = Field(None, description="microjoules")
    measured: MeasuredTime | None = None
    within: Whole | None = None


class MeasuredPart(Document):
    """A loadable or a fusion of layers, timed as a whole.

    Attributes:
        segment: Number of the segment.
    """

    name: str
    device: Device
    segment: Count = 0
    layers: list[str]
    us: Micro
    clock: ClockName | Literal[""] = ""


class Report(Document):
    """One run: verdict, placement, predictions, measurement, and how it was made."""

    schema_: Literal["edgekit.report/1"] = Field(alias="schema")
    name: str
    model: str
    target: ReportedBoard
    power_mode: str
    precision: Precision
    tensorrt: Release
    mode: str
    backend: str | None
    headline: str
    answer: list[ReportedAnswer] = Field([])
    verdict: ReportedVerdict = ReportedVerdict()
    placement: Placement
    predicted: Predicted
    accuracy: Accuracy | None = None
    calibration: Calibration | None = None
    bundle: Annotated[PackedBundle, Coded()] | None = None
    refit: RefitAnswer | None = None
    built: list[Annotated[BoardBuild, Coded()]] = Field([])
    bench: ReportedBench | None = None
    power: ReportedPower | None = None
    baseline: MoreComparison | RefusedComparison | None = None
    board: BoardName | None = None
    rewrites: list[Annotated[ReportedRewrite, Coded()]] = Field([])
    cuts: list[Annotated[Cut, Coded()]] = omitted(
        [], description="where cutting the network takes its first part off the GPU, best first"
    )
    layers: list[ReportedLayer]
    modules: list[Annotated[ModuleTotals, Coded()]] = omitted(
        [], description="PyTorch's modules, each before those inside it"
    )
    buckets: list[Annotated[Bucket, Coded()]] = omitted(
        [], description="the listed shapes of a range, the one that the report is of first"
    )
    range: Annotated[RangeCost, Coded()] | None = omitted(
        description="the cost of the range; none of one shape"
    )
    measured_parts: list[MeasuredPart] = Field([])
    why_not: list[Why]
    why_gpu: list[Why] = Field([])
    graph: Graph = Graph()
    timeline: Timeline
    trace: TraceSummary | None = None
    steps: list[Annotated[FinishedStep, Coded()]]
    files: dict[str, str]
    config: str
    environment: Facts
    notes: list[str]
    note_groups: dict[str, list[str]] = Field({})

    def answers(self) -> list[ReportedAnswer]:
        """Returns the report's first sentences; for an older document its headline."""
        return self.answer or [ReportedAnswer(question="fit", words=self.headline)]


def parse_report(document: Any, *, where: str = "the report document") -> Report:
    """Returns the report of a JSON document.

    Args:
        document: An ``edgekit.report/1``, the content of ``report.json``.
        where: The document's source, for errors.

    Raises:
        DataError: It is no report, or one of its parts does not fit the schema.
    """
    said = document.get("schema") if isinstance(document, Mapping) else None
    if said != "edgekit.report/1":
        raise DataError(
            f"this is not an edgekit.report/1 document: its schema is {said!r}",
            code="report.schema",
            where=where,
            hint="give a configuration or the report.json of a run",
        )
    try:
        return Report.model_validate(document)
    except ValidationError as error:
        raise DataError(
            f"the report document does not fit its schema: {fault_words(error)}",
            code="report.schema",
            where=where,
            hint="write the report again from its configuration; the schema is in "
            "docs/schemas/report.schema.json",
        ) from None


def read_report(path: Path) -> Report:
    """Returns the report of a ``report.json``.

    Raises:
        DataError: The file cannot be read, is no JSON, or does not fit the schema.
    """
    document = load_json(
        path,
        LARGEST,
        unreadable="report.file",
        invalid="report.file",
        hint="give the report.json of a run",
    )
    return parse_report(document, where=str(path))
