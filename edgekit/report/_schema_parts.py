"""Parts of the report's schema; `_schema` joins them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Accuracy", "Bench", "Board", "Device", "Facts", "Graph", "Micro", "Part", "Placement", "Power",
    "Predicted", "Timeline", "Verdict",
]  # fmt: skip

Device = Annotated[str, Field(description='"GPU", "DLA0", "DLA1"')]
Micro = Annotated[float, Field(description="microseconds")]
Size = Annotated[int, Field(ge=0, description="bytes")]
Fraction = Annotated[float, Field(ge=0, le=1.000001)]
Clock = Literal["predicted", "cpu-measured", "board-measured"]
Facts = dict[str, Any]


class Part(BaseModel):
    """A part of the document; keys that are not named here are kept."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, protected_namespaces=())


class Reason(Part):
    """Why a measurement is not worth quoting, and what to do about it."""

    code: str = ""
    message: str
    found: Any = None
    limit: Any = None
    remedy: str = ""


class Gate(Part):
    """One thing that a run had to keep; ``passed`` is null where it was not judged."""

    gate: str
    passed: bool | None = None
    found: Any = None
    limit: Any = None


class Answer(Part):
    """The answer to one of a user's first questions; ``ok`` is null where nothing was asked."""

    question: Literal["fit", "speed", "accuracy", "release"]
    words: str
    ok: bool | None = None
    clock: Clock | Literal[""] = ""


class Verdict(Part):
    """Whether the measurement is worth quoting, and which gates held."""

    status: Literal["VALID", "INVALID", "NOT MEASURED"] = "NOT MEASURED"
    clock: Clock = "predicted"
    reasons: list[Reason] = []
    command: str = ""
    unchecked: list[Any] = []
    gates: list[Gate] = []


class Board(Part):
    """The target that the network was placed for."""

    name: str
    title: str
    dla_cores: int = Field(ge=0)


class DeviceShare(Part):
    """What runs on one device, and how long it works for it: launches and reformats included."""

    device: Device
    layers: int
    macs: int
    macs_fraction: Fraction
    predicted_us: Micro


class Loadable(Part):
    """A DLA subgraph and the pools that it needs."""

    core: int
    layers: int
    first: str
    last: str
    memory: dict[str, Size]


class Placement(Part):
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


class Row(Part):
    """The plan or one of its baselines; null times where that placement is not possible."""

    key: str
    label: str
    latency_us: Micro | None = None


class Predicted(Part):
    """What the cost model says of the plan and of its baselines, the plan first."""

    clock: Literal["predicted"]
    model_error: str
    rows: list[Row] = Field(min_length=2)
    advantage: str = ""
    source: str = Field(
        default="", description="where the plan's times come from: how much a profile measured"
    )
    unknown_cost: int = Field(default=0, description="layers in no figure: their cost is unknown")


class Segment(Part):
    """A run of layers on one device."""

    segment: int
    device: Device
    layers: int
    first: str
    last: str
    predicted_us: Micro
    reformats_us: Micro = Field(default=0.0, description="of predicted_us")
    launch_us: Micro = Field(default=0.0, description="of predicted_us: to start the loadable")


class Reformats(Part):
    """Reformats that a device does for a segment, outside of any segment of its own."""

    segment: int
    device: Device
    predicted_us: Micro


class Graph(Part):
    """Edges as numbers of layers, and as numbers of segments with how many tensors."""

    edges: list[tuple[int, int]] = []
    segments: list[Segment] = []
    reformats: list[Reformats] = []
    segment_edges: list[tuple[int, int, int]] = []


class Slot(Part):
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


class Frame(Part):
    """One measured frame."""

    clock: Literal["cpu-measured", "board-measured"]
    end_us: Micro
    slots: list[Slot]


class Timeline(Part):
    """When the segments run: predicted, and a measured frame where there is one."""

    clock: Literal["predicted"]
    end_us: Micro
    busy_us: dict[Device, Micro] = Field(default_factory=dict)
    tracks: list[Device]
    slots: list[Slot]
    measured: Frame | None = None


class Line(Part):
    """A value over time; points are [seconds, value]."""

    name: str
    min: float
    mean: float
    max: float
    points: list[tuple[float, float]]


class Power(Part):
    """What the monitor saw beside the measurement, and the energy by rail."""

    clock: Clock
    monitor: Facts | None = None
    series: dict[str, list[Line]] = {}
    energy: Facts | None = None
    settings: Facts | None = None


class Worst(Part):
    """The channel of a group that is farthest from FP32."""

    channel: int
    snr_db: float | None = Field(description="null: exact, or nothing varies")
    exact: bool | None = Field(default=None, description="no error at all; null: not kept")


class ChannelGroup(Part):
    """Channels of an output that are alike in range, where those of others are not."""

    output: str
    channels: list[tuple[int, int]] = Field(description="pairs of first and last channel")
    range: float = Field(description="largest magnitude in FP32")
    snr_db: float | None = Field(description="null: exact, or nothing varies")
    exact: bool | None = Field(default=None, description="no error at all; null: not kept")
    cosine: float
    worst: Worst
    collapsed: bool = Field(description="nothing is left of what FP32 gives")


class KeptScores(Part):
    """A detector's scores above 0.25 in FP32, and how many of them are above it still."""

    output: str
    above: int
    kept: int


class Accuracy(Part):
    """How far the build is from FP32, the worst output's figures, and what these may hide."""

    cosine: float | None = None
    snr_db: float | None = Field(
        default=None, description="null with max_abs 0: exact, else nothing varies"
    )
    max_abs: float | None = None
    top1_agreement: Fraction | None = None
    groups: list[ChannelGroup] = []
    scores: list[KeptScores] = []
    failures: list[str] = []
    constant: list[Facts] = Field(
        default=[], description="outputs nearly the same for all inputs: the figures say nothing"
    )
    segments: list[Facts] = []


class Histogram(Part):
    """Counts of equal bins from the fastest to the slowest latency."""

    low_ms: float
    high_ms: float
    counts: list[int]


class Bench(Part):
    """The ``edgekit.bench/1`` document without its single samples."""

    clock: Clock
    note: str = ""
    latency_ms: dict[str, float | None] | None = None
    throughput_qps: float | None = None
    verdict: Facts | None = None
    histogram: Histogram | None = None
