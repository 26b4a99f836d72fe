"""The schema of ``edgekit.report/1``: what a document must have before a page is made of it.
Documents of other packages that a report carries (the bench, a comparison, a board's build)
keep their further keys; a part that an older document lacks is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgekit.errors import DataError
from edgekit.files import parse_json, regular

Device = Annotated[str, Field(description='"GPU", "DLA0", "DLA1"')]
Micro = Annotated[float, Field(description="microseconds")]
Size = Annotated[int, Field(ge=0, description="bytes")]
Fraction = Annotated[float, Field(ge=0, le=1.000001)]
Clock = Literal["predicted", "cpu-measured", "board-measured"]
Facts = dict[str, Any]
_LARGEST = 256 << 20  # bytes of a report.json; 2,000 layers are 1.5 MB


class ReportModel(BaseModel):
    """A part of the document; keys that are not named here are kept."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, protected_namespaces=())


class Reason(ReportModel):
    """Why a measurement should not be quoted, and what to do about it."""

    code: str = ""
    message: str
    found: Any = None
    limit: Any = None
    remedy: str = ""


class Gate(ReportModel):
    """One thing that a run had to keep; ``passed`` is null where it was not judged."""

    gate: str
    passed: bool | None = None
    found: Any = None
    limit: Any = None


class Answer(ReportModel):
    """The answer to one of a user's first questions; ``ok`` is null where it does not arise."""

    question: Literal["fit", "speed", "accuracy", "release"]
    words: str
    ok: bool | None = None
    clock: Clock | Literal[""] = ""


class Verdict(ReportModel):
    """Whether the measurement may be quoted, and which gates held."""

    status: Literal["VALID", "INVALID", "NOT MEASURED"] = "NOT MEASURED"
    clock: Clock = "predicted"
    reasons: list[Reason] = []
    command: str = ""
    unchecked: list[Any] = []
    gates: list[Gate] = []


class Board(ReportModel):
    """The target that the network was placed for."""

    name: str
    title: str
    dla_cores: int = Field(ge=0)


class DeviceShare(ReportModel):
    """What runs on one device, and how long it works for it: launches and reformats included."""

    device: Device
    layers: int
    macs: int
    macs_fraction: Fraction
    predicted_us: Micro


class Loadable(ReportModel):
    """A DLA subgraph and the pools that it needs."""

    core: int
    layers: int
    first: str
    last: str
    memory: dict[str, Size]


class Placement(ReportModel):
    """Which layers run where, and what that takes."""

    layers: int
    macs: int
    devices: list[DeviceShare]
    dla_layers: int
    dla_macs_fraction: Fraction
    dla_capable_layers: int
    disputed_layers: int
    loadables: list[Loadable]
    pools: dict[str, Size]
    pool_limits: dict[str, Size] = {}
    transitions: int
    segments: int
    objective: str
    optimal: bool
    gap: float
    extrapolated: list[str] = []
    shares: list[float]
    plans: list[Facts] = Field(default=[], description="share and devices of each plan")


class Row(ReportModel):
    """The plan or one of its baselines; null times where that placement is not possible."""

    key: str
    label: str
    latency_us: Micro | None = None


class Predicted(ReportModel):
    """What the cost model says of the plan and of its baselines, the plan first."""

    clock: Literal["predicted"]
    model_error: str
    rows: list[Row] = Field(min_length=2)
    advantage: str = ""
    source: str = Field(
        default="", description="where the plan's times come from: how much a profile measured"
    )
    unknown_cost: int = Field(default=0, description="layers in no figure: their cost is unknown")


class ReportedSegment(ReportModel):
    """A run of layers on one device."""

    segment: int
    device: Device
    layers: int
    first: str
    last: str
    predicted_us: Micro
    reformats_us: Micro = Field(default=0.0, description="of predicted_us")
    launch_us: Micro = Field(default=0.0, description="of predicted_us: to start the loadable")


class Reformats(ReportModel):
    """Reformats that a device does for a segment, outside of any segment of its own."""

    segment: int
    device: Device
    predicted_us: Micro


class Graph(ReportModel):
    """Edges as numbers of layers, and as numbers of segments with how many tensors."""

    edges: list[tuple[int, int]] = []
    segments: list[ReportedSegment] = []
    reformats: list[Reformats] = []
    segment_edges: list[tuple[int, int, int]] = []


class Slot(ReportModel):
    """A turn of a device, from the frame's start: a segment, or reformats for one (no layers)."""

    plan: int
    segment: int
    device: Device
    start_us: Micro
    duration_us: Micro
    layers: int | None = None
    first: str = ""
    last: str = ""
    reformats_us: Micro = 0.0
    launch_us: Micro = 0.0


class Frame(ReportModel):
    """One measured frame."""

    clock: Literal["cpu-measured", "board-measured"]
    end_us: Micro
    slots: list[Slot]


class Timeline(ReportModel):
    """When the segments run: predicted, and a measured frame where there is one."""

    clock: Literal["predicted"]
    end_us: Micro
    busy_us: dict[Device, Micro] = Field(default_factory=dict)
    tracks: list[Device]
    slots: list[Slot]
    measured: Frame | None = None


class Line(ReportModel):
    """A value over time; points are [seconds, value]."""

    name: str
    min: float
    mean: float
    max: float
    points: list[tuple[float, float]]


class Power(ReportModel):
    """What the monitor saw during the measurement, and the energy by rail."""

    clock: Clock
    monitor: Facts | None = None
    series: dict[str, list[Line]] = {}
    energy: Facts | None = None
    settings: Facts | None = None


class Worst(ReportModel):
    """The channel of a group that is farthest from FP32."""

    channel: int
    snr_db: float | None = Field(description="null: exact, or nothing varies")
    exact: bool | None = Field(default=None, description="no error at all; null: not kept")


class ChannelGroup(ReportModel):
    """Channels of an output that are alike in range, where those of others are not."""

    output: str
    channels: list[tuple[int, int]] = Field(description="pairs of first and last channel")
    range: float = Field(description="largest magnitude in FP32")
    snr_db: float | None = Field(description="null: exact, or nothing varies")
    exact: bool | None = Field(default=None, description="no error at all; null: not kept")
    cosine: float
    worst: Worst
    collapsed: bool = Field(description="nothing is left of what FP32 gives")


class RemainingScores(ReportModel):
    """A detector's scores above 0.25 in FP32, and how many of them are above it still."""

    output: str
    above: int
    kept: int


class Accuracy(ReportModel):
    """How far the build is from FP32, the worst output's figures, and what these may hide."""

    cosine: float | None = None
    snr_db: float | None = Field(
        default=None, description="null with max_abs 0: exact, else nothing varies"
    )
    max_abs: float | None = None
    top1_agreement: Fraction | None = None
    groups: list[ChannelGroup] = []
    scores: list[RemainingScores] = []
    failures: list[str] = []
    constant: list[Facts] = Field(
        default=[], description="outputs nearly the same for all inputs: the figures say nothing"
    )
    segments: list[Facts] = []


class Histogram(ReportModel):
    """Counts of equal bins from the fastest to the slowest latency."""

    low_ms: float
    high_ms: float
    counts: list[int]


class Bench(ReportModel):
    """The ``edgekit.bench/1`` document without its single samples."""

    clock: Clock
    note: str = ""
    latency_ms: dict[str, float | None] | None = None
    throughput_qps: float | None = None
    verdict: Facts | None = None
    histogram: Histogram | None = None


class LayerReason(ReportModel):
    """A rule that keeps a layer off the DLA."""

    rule: str
    message: str
    fix: str = ""


class ReportedLayer(ReportModel):
    """A layer in graph order; ``number`` counts from 1."""

    number: int = Field(ge=1)
    name: str
    op: str = ""
    shape: list[list[int]] = Field(default=[])
    on_gpu: Facts | None = None
    kind: str
    nodes: list[str] = Field(default=[])
    device: Device
    precision: str
    segment: int
    dla_ok: bool | None
    certainty: str
    reasons: list[LayerReason]
    macs: int
    predicted_us: Micro
    measured: Facts | None = Field(default=None, description="{clock, us}")
    within: Facts | None = Field(
        default=None, description="what was timed as a whole with it in: {name, clock, us, layers}"
    )


class MeasuredPart(ReportModel):
    """What was timed as a whole: a loadable or a fusion of layers."""

    name: str
    device: Device
    segment: int = 0
    layers: list[str]
    us: Micro
    clock: str = ""


class WhyLayer(ReportModel):
    """A layer against a rule."""

    name: str
    message: str
    found: str
    limit: str


class Why(ReportModel):
    """A rule with the layers that it keeps off the DLA."""

    rule: str
    count: int
    sources: list[str]
    fixes: list[str]
    layers: list[WhyLayer]


class Step(ReportModel):
    """A step of the pipeline."""

    name: str
    status: str
    seconds: float | None = None


class Report(ReportModel):
    """One run: verdict, placement, predictions, measurement, and how it was made."""

    schema_: Literal["edgekit.report/1"] = Field(alias="schema")
    name: str
    model: str
    target: Board
    power_mode: str
    precision: str
    tensorrt: str
    mode: str
    backend: str | None
    headline: str
    answer: list[Answer] = Field(default=[])
    verdict: Verdict = Verdict()
    placement: Placement
    predicted: Predicted
    accuracy: Accuracy | None = None
    calibration: Facts | None = None
    bundle: Facts | None = None
    refit: Facts | None = None
    built: list[Facts] = Field(default=[])
    bench: Bench | None = None
    power: Power | None = None
    baseline: Facts | None = None
    board: Facts | None = None
    rewrites: list[Facts] = Field(default=[])
    layers: list[ReportedLayer]
    measured_parts: list[MeasuredPart] = Field(default=[])
    why_not: list[Why]
    why_gpu: list[Why] = Field(default=[])
    graph: Graph = Graph()
    timeline: Timeline
    trace: Facts | None = None
    steps: list[Step]
    files: dict[str, str]
    config: str
    environment: Facts
    notes: list[str]
    note_groups: dict[str, list[str]] = Field(default={})


def report_schema() -> dict[str, Any]:
    """Returns the JSON Schema of ``edgekit.report/1``, as docs/report.schema.json has it."""
    schema = Report.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "edgekit.report/1"
    return schema


def checked(document: Any, *, where: str = "the report document") -> dict[str, Any]:
    """Returns the document with the parts that it lacks as null or empty.

    Args:
        document: An ``edgekit.report/1``, as ``report.json`` has it.
        where: What it came from, for an error.

    Raises:
        DataError: It is no report, or one of its parts is not as the schema has it.
    """
    said = document.get("schema") if isinstance(document, Mapping) else None
    if said != "edgekit.report/1":
        raise DataError(
            f"this is no edgekit.report/1 document: its schema is {said!r}",
            code="report.schema", where=where,
            hint="edgekit report takes a configuration, or the report.json of a run",
        )  # fmt: skip
    try:
        return Report.model_validate(document).model_dump(by_alias=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in wrong[:5]) + (
            f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        )
        raise DataError(
            f"the report document does not fit its schema: {text}",
            code="report.schema", where=where,
            hint="docs/report.schema.json has the schema; write the report again from its "
            "configuration",
        ) from None  # fmt: skip


def read_report(path: Path) -> dict[str, Any]:
    """Returns the document of a ``report.json``, checked.

    Raises:
        DataError: The file cannot be read, is no JSON, or does not fit the schema.
    """

    try:
        if regular(path).stat().st_size > _LARGEST:
            raise DataError(
                f"the file is larger than {_LARGEST >> 20} MiB", code="report.too-large",
                where=str(path),
                hint="edgekit report takes the report.json of a run",
            )  # fmt: skip
        document = parse_json(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise DataError(
            f"the report document cannot be read: {error.strerror or error}",
            code="report.file", where=str(path), hint="name the report.json of a run",
        ) from None  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"the file is no JSON: {error}",
            code="report.file", where=str(path), hint="name the report.json of a run",
        ) from None  # fmt: skip
    return checked(document, where=str(path))


@contextmanager
def shown(where: str) -> Iterator[None]:
    """Reports what of a document from a file cannot be shown although it fits the schema.

    Documents of other packages that a report carries are open to further keys, and what stands in
    them is not checked; a run's own document has no such guard, so that our faults are seen.

    Raises:
        DataError: A part is not what its writer would have written.
    """
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise DataError(
            f"a part of the report document is not as edgekit writes it: {error}",
            code="report.schema", where=where,
            hint="write the report again from its configuration",
        ) from error  # fmt: skip


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")
