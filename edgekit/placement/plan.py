"""The plan as a value: options in, placement, loadables, formats and predicted costs out. Its
JSON (``edgekit.plan/1``) both ways, what its layers and devices add up to, and two plans
compared (``edgekit.whatif/1``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgekit.dla.rules import loadables_per_core
from edgekit.dla.verdicts import MemoryNeed
from edgekit.errors import DataError
from edgekit.parsing.nvidia import ParserWord
from edgekit.placement.buckets import Bucket, RangeCost
from edgekit.placement.cuts import Cut
from edgekit.removed import FormerDict
from edgekit.text import PYTORCH, counted
from edgekit_device.errors import DeviceError
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    mapping,
    member,
    nullable,
    read,
    record,
    records,
    text,
    write,
)
from edgekit_device.protocol.fields import DEVICES

if TYPE_CHECKING:
    from edgekit.network.model import Network
    from edgekit.quantize.given_scales import ScaleBinding


OBJECTIVES = ("latency", "throughput", "period", "energy", "gpu_time")
#: An objective of several networks alone.
MAKESPAN = "makespan"
SCHEMA = "edgekit.plan/1"
_DIGITS = 6
_ROUNDING = 1e-6  # relative; a plan's figures are rounded
COMPARISON_SCHEMA = "edgekit.whatif/1"
#: The unit of each objective's value.
OBJECTIVE_UNITS = {
    "latency": "us", "throughput": "qps", "period": "us", "energy": "uj", "gpu_time": "us",
}  # fmt: skip
#: Where several plans are as good for an objective, but for its slack, the one with the least of:
SECOND_METRICS = {
    "latency": "energy_uj", "throughput": "latency_us", "period": "latency_us",
    "energy": "latency_us", "gpu_time": "latency_us",
}  # fmt: skip
#: The prediction's figure that each objective is about; a period is one over its throughput.
PREDICTED_KEYS = {
    "latency": "latency_us", "throughput": "throughput_qps", "period": "throughput_qps",
    "energy": "energy_uj", "gpu_time": "gpu_us", MAKESPAN: "latency_us",
}  # fmt: skip
_CLOCKS = ("measured", "predicted")
objectives = choice(*OBJECTIVES)
units = choice(*dict.fromkeys(OBJECTIVE_UNITS.values()))
_POOLS = ("managed_sram", "local_dram", "global_dram")

# what the fields of a plan take
pool_bytes = mapping(fields.count, choice(*_POOLS))
bounded = choice("latency_us", "energy_uj", "gpu_us", "period_us")
_band = array(fields.figure, 2, 2)
_bands = mapping(_band, choice("latency_us", "throughput_qps", "energy_uj", "gpu_us"))


@document(frozen=True)
class Pin:
    """Layers matching the glob ``layers`` go to ``device`` ("GPU", "DLA", "DLA0", "DLA1")."""

    layers: str = member(fields.name)
    device: str = member(choice(*DEVICES, "DLA"))


@dataclass(frozen=True, slots=True)
class Options:
    """What the user configures of the placement (the config's ``placement`` section).

    Attributes:
        objective: One of :data:`OBJECTIVES`.
        bounds: Limits by metric: "latency_us", "energy_uj", "gpu_us", "period_us".
        dla_cores: Cores that may be used.
        gpu: Whether the GPU may be used; without it the plan is standalone.
        pins: Devices that layers must have; a later pin wins over an earlier one.
        max_loadables: Loadables that a core may hold.
        fp16_layers: Layers that may not run in INT8 although the precision is INT8.
        max_transitions: The most changes between devices along the running order; None: any.
        min_loadable_layers: The fewest layers of a loadable.
        pools: Bytes that a loadable may have, by pool ("managed_sram", "local_dram",
            "global_dram"); None, and for a pool that is not named: what a build gets by itself.
        profile: Measured times (``read_profile``), which win over predicted ones; None: none.
        cores_why: Why ``dla_cores`` are fewer than the user requested, for where that
            matters; empty: they are not.
        split: Whether each segment is an engine of its own (``build.mode: split``); otherwise a
            plan on the GPU and a DLA core is one hybrid engine, whose GPU layers wait for a busy
            GPU.
        rate_hz: Frames a second that the energy is of; None: back to back.
        slack: How far from the optimum a plan may be that is better otherwise, as a share of it.
    """

    objective: str = "latency"
    bounds: Mapping[str, float] = field(default_factory=dict)
    dla_cores: tuple[int, ...] = (0,)
    gpu: bool = True
    pins: tuple[Pin, ...] = ()
    max_loadables: int = field(default_factory=loadables_per_core)
    fp16_layers: frozenset[str] = frozenset()
    max_transitions: int | None = None
    min_loadable_layers: int = 1
    pools: Mapping[str, int] | None = None
    profile: Any = None
    cores_why: str = ""
    split: bool = False
    rate_hz: float | None = None
    slack: float = 0.0


@document(frozen=True)
class PredictedCost:
    """Model predictions for one inference; None each where no layer has a known time.

    Attributes:
        latency_us: Microseconds.
        throughput_qps: Frames a second.
        energy_uj: Microjoules.
        gpu_us: Microseconds that the GPU works.
    """

    latency_us: float | None = member(nullable(fields.figure))
    throughput_qps: float | None = member(nullable(fields.figure))
    energy_uj: float | None = member(nullable(fields.figure))
    gpu_us: float | None = member(nullable(fields.figure))

    def to_json(self) -> dict[str, float | None]:
        """Returns the contract's ``predicted`` object."""
        found: dict[str, float | None] = write(self)
        return found


#: Of a network of which no layer has a known time.
UNKNOWN = PredictedCost(None, None, None, None)


@document(frozen=True)
class SlackChoice:
    """Which plan was taken of those whose objective is within the slack of the optimum.

    Attributes:
        allowed: The slack, as a share of the optimum.
        optimum: The best plan's value of the objective, which the plan's bound proves.
        given_up: By how much the plan is worse than the optimum, as a share of it.
        metric: The figure that decided, "latency_us" or "energy_uj".
        at_optimum: The best plan's value of that figure.
    """

    allowed: float = member(fields.figure)
    optimum: float = member(fields.figure)
    given_up: float = member(fields.figure)
    metric: str = member(choice("latency_us", "energy_uj"))
    at_optimum: float = member(fields.figure)


@document(frozen=True)
class FewerLoadables:
    """What a plan gives up for fewer loadables, against one as good within the prediction's noise.

    Attributes:
        instead_of: Loadables of the other plan.
        gpu_layers: Layers on the GPU that the other plan has on a DLA.
        gpu_modules: The outermost PyTorch modules with some of them that are whole on the GPU.
        dla_layers: Layers on a DLA that the other plan has on the GPU.
        given_up: By how much the objective is worse, as a share; negative where it is better.
        metric: The figure that decides between plans within the slack.
        given_up_second: By how much this figure is worse, as a share.
        noise: Of the prediction, as a share: less than that does not count.
    """

    instead_of: int = member(fields.count)
    gpu_layers: tuple[str, ...] = member(fields.names)
    gpu_modules: tuple[str, ...] = member(array(long_text))
    dla_layers: tuple[str, ...] = member(fields.names)
    given_up: float = member(fields.difference)
    metric: str = member(choice("latency_us", "energy_uj"))
    given_up_second: float = member(fields.difference)
    noise: float = member(fields.figure)


@document(frozen=True)
class PlacedLayer:
    """One layer's place: device "GPU", "DLA0" or "DLA1"; segment index in running order.

    Attributes:
        segment: Number of its segment in running order.
        predicted_us: Microseconds by the cost model.
        predicted_uj: Microjoules by the cost model.
    """

    name: str = member(fields.name)
    nodes: tuple[str, ...] = member(fields.names)
    device: str = member(fields.device)
    precision: str = member(fields.precision)
    segment: int = member(fields.count)
    predicted_us: float = member(fields.figure)
    predicted_uj: float = member(fields.figure)


@document(frozen=True)
class LeftLayer:
    """A call of a module that is left out of the network: it has no segment and no time.

    Attributes:
        name: The layer that stands for it.
        module: The module's path.
        device: "PyTorch".
    """

    name: str = member(fields.name)
    module: str = member(long_text)
    device: str = member(choice(PYTORCH), default=PYTORCH)


@document(frozen=True)
class PlannedLoadable:
    """One DLA subgraph of the plan; ``formats`` is the chosen tensor format by border tensor.

    Its layers' times are without ``launch_us``, what starting it takes, and ``border_us``, how much
    longer it takes to read and write border tensors in these formats than in its best ones.
    ``plan`` is the index in ``Plan.plans`` of the plan that has it.

    Attributes:
        core: Number of the DLA core.
        launch_us: Microseconds that starting it takes.
        launch_uj: Microjoules of the same.
        border_us: Microseconds that border tensors take more than in their best formats.
        border_uj: Microjoules of the same.
        plan: Index of the plan that has it.
    """

    core: int = member(fields.core)
    layers: tuple[str, ...] = member(fields.names)
    memory: MemoryNeed = member(record(MemoryNeed))
    formats: Mapping[str, str] = member(mapping(fields.name, fields.name), default=dict)
    launch_us: float = member(fields.figure, absent=0.0, as_given=True)
    launch_uj: float = member(fields.figure, absent=0.0, as_given=True)
    border_us: float = member(fields.figure, absent=0.0, as_given=True)
    border_uj: float = member(fields.figure, absent=0.0, as_given=True)
    plan: int = member(fields.count, default=0)


@document(frozen=True)
class Reformat:
    """A tensor that the GPU brings from one layout ("int8:CHW32", "fp32:LINEAR") to another.

    ``clock`` says whether the time is "measured" or "predicted"; ``plan`` is the index in
    ``Plan.plans`` of the plan that does it.

    Attributes:
        plan: Index of the plan that does it.
    """

    tensor: str = member(fields.name)
    source: str = member(fields.name, key="from")
    goal: str = member(fields.name, key="to")
    us: float = member(fields.figure)
    clock: str = member(choice(*_CLOCKS), default="predicted")
    plan: int = member(fields.count, default=0)
    uj: float = member(fields.figure, absent=0.0, as_given=True)


@document(frozen=True)
class Unfused:
    """What it costs that a border breaks a part that ``device`` would run fused.

    ``what`` is the tensor at the border, or says how many layers would be fused; ``plan`` is the
    index in ``Plan.plans`` of the plan that pays it.

    Attributes:
        plan: Index of the plan that pays it.
    """

    what: str = member(fields.name)
    device: str = member(fields.device)
    us: float = member(fields.difference)
    uj: float = member(fields.difference)
    plan: int = member(fields.count, default=0)


@document(frozen=True)
class BuilderDifference:
    """Where TensorRT's builder would group a core's layers otherwise than the plan.

    Attributes:
        plan: Index of the plan.
        core: The DLA core.
        kind: "merged", "regrouped" or "sent to the GPU".
        loadables: Indices of the plan's loadables on that core.
        layers: The first layers of the builder's group, and how many there are.
    """

    plan: int = member(fields.count)
    core: int = member(fields.core)
    kind: str = member(choice("merged", "regrouped", "sent to the GPU"))
    loadables: tuple[int, ...] = member(array(fields.count))
    layers: tuple[str, ...] = member(fields.names)


@document(frozen=True)
class BuilderGroups:
    """What TensorRT's builder makes of the device types of a plan's layers.

    Attributes:
        device_types: "GPU" or "DLA", by layer.
        candidates: Groups of layers that the builder would form on the cores.
        loadables: How many of them the cores hold.
        matches: Whether these are the plan's loadables.
        differences: Where they are not.
    """

    device_types: Mapping[str, str] = member(mapping(fields.device_kind, fields.name))
    candidates: int = member(fields.count, default=0)
    loadables: int = member(fields.count, default=0)
    matches: bool = member(flag, default=True)
    differences: tuple[BuilderDifference, ...] = member(records(BuilderDifference), default=())


@document(frozen=True)
class DeviceWork:
    """What a device has of a frame of a plan: layers, segments, and the microseconds it works.

    ``busy_us`` is None where no layer has a known time.

    Attributes:
        layers: How many run there.
        segments: How many run there.
        busy_us: Microseconds that it works for a frame.
    """

    device: str = member(fields.device)
    layers: int = member(fields.count)
    segments: int = member(fields.count)
    busy_us: float | None = member(nullable(fields.figure))
    clock: str = member(choice(*_CLOCKS), default="predicted")


@document(frozen=True)
class Share:
    """A plan variant of the ``throughput`` objective and the share of frames it takes.

    Latency and energy of ``predicted`` are the sums of what is paid: by its layers, by launches
    and borders of the loadables of this plan, by ``reformats`` and ``unfused``; at a rate the idle
    module's energy comes to that (``Plan.idle_uj``). The plan that has it fills in ``devices``.

    Attributes:
        share: Part of the frames, 0 to 1.
        transitions: Changes between devices along the running order.
    """

    share: float = member(fields.share)
    layers: tuple[PlacedLayer, ...] = member(records(PlacedLayer))
    transitions: int = member(fields.count, absent=0, as_given=True)
    predicted: PredictedCost | None = member(
        nullable(record(PredictedCost)), absent=None, as_given=True
    )
    reformats: tuple[Reformat, ...] = member(records(Reformat), absent=(), as_given=True)
    unfused: tuple[Unfused, ...] = member(records(Unfused), absent=(), as_given=True)
    builder: BuilderGroups | None = member(
        nullable(record(BuilderGroups)), absent=None, as_given=True
    )
    devices: tuple[DeviceWork, ...] = member(records(DeviceWork), absent=(), as_given=True)


@document(frozen=True)
class FrameTimes:
    """What a frame takes where the frames follow each other without a pause.

    Attributes:
        clock: "predicted".
        period_us: Microseconds between two frames; None where no layer has a known time.
        busy_us: How long each device works for a frame, the mean of the plans by their shares;
            None each as for the period.
        device: The busiest one.
        sharing_us: How much longer the period is than the busiest device works, because the
            devices share something.
        shared: What: the memory, and in a hybrid engine the GPU, for which the engine's own layers
            wait.
    """

    clock: str = member(choice(*_CLOCKS))
    period_us: float | None = member(nullable(fields.figure))
    busy_us: Mapping[str, float | None] = member(mapping(nullable(fields.figure), fields.device))
    device: str = member(choice("", "DLA", *DEVICES))
    sharing_us: float = member(fields.figure)
    shared: tuple[str, ...] = member(array(choice("memory", "gpu")))


@document(frozen=True)
class FrameEnergy:
    """What a plan's energies are of.

    Attributes:
        rate_hz: Frames a second; None: back to back.
        idle_uj: The part of a frame's energy that the module draws whether it works or not.
    """

    rate_hz: float | None = member(nullable(fields.figure), default=None)
    idle_uj: float = member(fields.figure, default=0.0)


@document(frozen=True)
class MeasuredPart:
    """How much of a plan's latency a profile measured.

    Attributes:
        file: The profile.
        kind: What the file is: "log", "trtexec", "iprofiler", "bench" or "table".
        fraction: Share of the latency that is measured.
        fraction_of: The same of the work of the "gpu" and of the "dla".
        measured_us: Microseconds of the latency that are measured.
        layers: "measured" or "predicted", by layer.
        rows: Rows of the profile.
        unmatched: Rows that are no layer of the model.
        notes: What to know before believing it.
    """

    file: str = member(fields.name)
    kind: str = member(text())
    fraction: float = member(fields.share)
    fraction_of: Mapping[str, float] = member(mapping(fields.share, choice("gpu", "dla")))
    measured_us: float = member(fields.difference)
    layers: Mapping[str, str] = member(mapping(choice(*_CLOCKS), fields.name))
    rows: int = member(fields.count)
    unmatched: tuple[str, ...] = member(fields.names)
    notes: tuple[str, ...] = member(fields.names)


@document(frozen=True)
class Constraints:
    """What a plan keeps to; the attributes are those of :class:`Options`.

    Attributes:
        dla_cores: Numbers of the cores that may be used.
        bounds: The most a figure may come to, in its unit.
        max_loadables: The most loadables of a core.
        max_transitions: The most changes between devices; None: no limit.
        min_loadable_layers: The fewest layers of a loadable.
        pools: Bytes that a loadable may have, by pool; None: the board's.
    """

    dla_cores: tuple[int, ...] = member(array(fields.core), default=(0,))
    gpu: bool = member(flag, default=True)
    pins: tuple[Pin, ...] = member(records(Pin), default=())
    bounds: Mapping[str, float] = member(
        mapping(fields.figure, bounded),
        default=dict,
    )
    max_loadables: int = member(fields.count, default=0)
    max_transitions: int | None = member(nullable(fields.count), default=None)
    min_loadable_layers: int = member(fields.count, default=1)
    split: bool = member(flag, default=False)
    rate_hz: float | None = member(nullable(fields.figure), default=None)
    pools: Mapping[str, int] | None = member(nullable(pool_bytes), default=None)


@document(frozen=True, kw_only=True)
class Plan:
    """Placement, loadables, pools, formats and predicted cost: an ``edgekit.plan/1``.

    ``layers`` is the plan (for mixed plans the one with the largest share, ``plans[0]``);
    ``plans`` always has at least one entry and its shares add up to 1. Segments are numbered in
    running order: every tensor a segment reads is a graph input or comes from a lower number.
    ``transitions`` counts device changes along the running order. ``pools`` are bytes by pool
    name, the largest any loadable needs. Baselines are placements of the network as given; those of
    ``baselines_rewritten`` are of the rewritten network that is placed, and empty where no rewrite
    was used. A baseline that is impossible is None; one that
    ``baselines_keep`` has as False breaks a constraint of the user. ``kept_off`` names the
    constraints without which a plan of the GPU alone would use the DLA, as far as that was looked
    for. ``unknown_cost`` names layers on the GPU that are in no time and no band: plugins, shapes
    that the data decide, and operators without a formula of their arithmetic.
    ``extrapolated`` says what the plan predicts without any published time of its kind: its bands
    are wide, and every text that calls it optimal says so (:func:`proof_of`). ``parser`` is the
    word of NVIDIA's own parser, where it was asked.
    ``optimal``, ``bound`` and ``gap`` are of the optimum; ``slack`` says how far the plan is from
    it, and why; ``fewer`` what was given up for fewer loadables. ``left`` are the calls of modules
    that are left out, which are none of ``layers``.
    ``buckets`` are the listed shapes of a range, the planned one first, and ``range`` is what they
    cost together; a plan of one shape has neither.
    All energies are those of a frame at ``rate_hz`` frames a second, None: back to back;
    ``idle_uj`` is the part of the plan's that the module draws whether it works or not.
    What its parts add up to is computed whenever a plan is made, whatever was given: ``frame``,
    ``doubts`` (why the prediction alone does not decide), and ``devices`` of ``plans``.

    Attributes:
        pools: Bytes that a loadable needs at most, by pool.
        transitions: Changes between devices along the running order.
        bound: No plan's objective is better; in the objective's unit.
        gap: How far the objective is from the bound, as a share.
        bands: Where each figure may lie by the prediction error, in its unit.
        cuts: Where to cut the network so that its first part runs on the DLA alone, best first.
    """

    target: str = member(fields.target)
    power_mode: str = member(fields.name)
    precision: str = member(fields.precision)
    tensorrt: str = member(fields.release)
    layers: tuple[PlacedLayer, ...] = member(records(PlacedLayer))
    loadables: tuple[PlannedLoadable, ...] = member(records(PlannedLoadable))
    pools: Mapping[str, int] = member(pool_bytes)
    transitions: int = member(fields.count)
    predicted: PredictedCost = member(record(PredictedCost))
    objective: str = member(choice(*OBJECTIVES, MAKESPAN))
    # a plan of several networks has no proof of its own
    optimal: bool = member(flag, absent=False, as_given=True)
    bound: float = member(fields.figure, absent=0.0, as_given=True)
    gap: float = member(fields.figure, absent=0.0, as_given=True)
    plans: tuple[Share, ...] = member(records(Share, least=1))
    baselines: Mapping[str, PredictedCost | None] = member(mapping(nullable(record(PredictedCost))))
    model_error: str = member(fields.name)
    notes: tuple[str, ...] = member(fields.names, default=())
    # plans that a former version saved lack some of these
    reformats: tuple[Reformat, ...] = member(records(Reformat), absent=(), as_given=True)
    builder: BuilderGroups | None = member(
        nullable(record(BuilderGroups)), absent=None, as_given=True
    )
    bands: Mapping[str, tuple[float, float]] = member(_bands, absent=dict, as_given=True)
    measured: MeasuredPart | None = member(
        nullable(record(MeasuredPart)), absent=None, as_given=True
    )
    constraints: Constraints = member(record(Constraints), absent=Constraints(), as_given=True)
    baselines_keep: Mapping[str, bool | None] = member(
        mapping(nullable(flag)), absent=dict, as_given=True
    )
    baselines_rewritten: Mapping[str, PredictedCost | None] = member(
        mapping(nullable(record(PredictedCost))), absent=dict, as_given=True
    )
    kept_off: tuple[str, ...] = member(fields.names, absent=(), as_given=True)
    unknown_cost: tuple[str, ...] = member(fields.names, absent=(), as_given=True)
    extrapolated: tuple[str, ...] = member(fields.names, absent=(), as_given=True)
    parser: ParserWord | None = member(nullable(record(ParserWord)), absent=None)
    energy: FrameEnergy = member(record(FrameEnergy), absent=FrameEnergy(), as_given=True)
    slack: SlackChoice | None = member(nullable(record(SlackChoice)), absent=None, as_given=True)
    fewer: FewerLoadables | None = member(nullable(record(FewerLoadables)), absent=None)
    frame: FrameTimes = member(record(FrameTimes), absent=None, as_given=True)
    doubts: tuple[str, ...] = member(fields.names, absent=(), as_given=True)
    left: tuple[LeftLayer, ...] = member(records(LeftLayer), absent=())
    buckets: tuple[Bucket, ...] = member(records(Bucket), absent=())
    range: RangeCost | None = member(nullable(record(RangeCost)), absent=None)
    cuts: tuple[Cut, ...] = member(records(Cut), absent=())
    schema: str = member(choice(SCHEMA), default=SCHEMA)

    def __post_init__(self) -> None:
        plans = tuple(
            replace(part, devices=_devices_of(self, index)) for index, part in enumerate(self.plans)
        )
        object.__setattr__(self, "plans", plans)
        object.__setattr__(self, "frame", _frame_of(self))
        object.__setattr__(self, "doubts", doubts(self))

    @property
    def dla_cores(self) -> frozenset[str]:
        """The DLA cores that its layers run on, "DLA0" and so on; of all ``plans``."""
        devices = {layer.device for share in self.plans for layer in share.layers}
        return frozenset(devices - {"GPU"})

    @property
    def rate_hz(self) -> float | None:
        """Frames a second that the energies are of; None: back to back."""
        return self.energy.rate_hz

    @property
    def idle_uj(self) -> float:
        """The part of a frame's energy that the module draws whether it works or not."""
        return self.energy.idle_uj

    @property
    def scale_binding(self) -> ScaleBinding:
        """What binds scales: the layers in INT8 on a DLA, and those that are not in INT8."""
        layers = [layer for share in self.plans for layer in share.layers]
        int8 = [layer for layer in layers if layer.precision == "int8"]
        on_dla = {layer.name for layer in int8 if layer.device != "GPU"}
        floats = {layer.name for layer in layers} - {layer.name for layer in int8}
        return {"dla_layers": on_dla, "fp16_layers": floats}

    def to_json(self) -> dict[str, Any]:
        """Returns the ``edgekit.plan/1`` document."""
        return dict(write(self))


def is_known(plan: Plan) -> bool:
    """Whether the plan's figures say anything: at least one layer has a known time."""
    return plan.predicted.latency_us is not None


def exception(unknown_cost: Sequence[str]) -> str:
    """Returns what a proof does not cover, such as "except for 2 layers not counted"."""
    return f"except for {counted(len(unknown_cost), 'layer')} not counted"


def proof_of(
    optimal: bool,
    extrapolated: Sequence[str],
    unknown_cost: Sequence[str],
    *,
    words: str = "proved optimal",
) -> str:
    """Returns ``words`` and what restricts them; "" for a plan that is not optimal.

    Args:
        optimal: Whether it is, for the times that are known.
        extrapolated: What is predicted without any published time of its kind.
        unknown_cost: Layers in no time.
        words: For a plan that is.
    """
    if not optimal:
        return ""
    parts = [words]
    if extrapolated:
        parts.append("extrapolated")
    if unknown_cost:
        parts.append(exception(unknown_cost))
    return ", ".join(parts)


def plan_from_json(document: object) -> Plan:
    """Returns the plan of an ``edgekit.plan/1`` document; equal to the plan that wrote it.

    Raises:
        DataError: "plan.schema": the document is none; ``where`` is the place that is wrong.
    """
    found = document.get("schema") if isinstance(document, Mapping) else None
    if found != SCHEMA:
        raise DataError(
            f"not a plan: its schema is {found!r}",
            code="plan.schema",
            hint=f"expected a document with schema {SCHEMA!r}",
        )
    try:
        return read(Plan, document)
    except DeviceError as error:
        raise DataError(
            f"not a valid plan: {error.message}",
            code="plan.schema",
            where=error.where,
            hint="write it again with `edgekit plan --json`",
        ) from error


def _devices_of(plan: Plan, index: int) -> tuple[DeviceWork, ...]:
    """Returns what each device has of a frame of a plan, the GPU first."""
    part = plan.plans[index]
    times = device_times(part, [one for one in plan.loadables if one.plan == index])
    found = []
    for device in sorted(times, key=lambda name: (name != "GPU", name)):
        own = [layer for layer in part.layers if layer.device == device]
        segments = len({layer.segment for layer in own})
        busy = times[device] if is_known(plan) else None
        found.append(DeviceWork(device, len(own), segments, busy))
    return tuple(found)


def device_times(share: Share, loadables: Sequence[PlannedLoadable]) -> dict[str, float]:
    """Returns the predicted microseconds that each device works for in a frame of a plan.

    All that is paid on a device counts: its layers, launches of loadables and what their tensors'
    formats cost, reformats (on the GPU), and what broken fusions take. The GPU's is the plan's
    ``gpu_us``.

    Args:
        share: A plan.
        loadables: The loadables of this plan alone.
    """
    found: dict[str, float] = {}

    def pay(device: str, us: float) -> None:
        found[device] = found.get(device, 0.0) + us

    for layer in share.layers:
        pay(layer.device, layer.predicted_us)
    for loadable in loadables:
        pay(f"DLA{loadable.core}", loadable.launch_us + loadable.border_us)
    for reformat in share.reformats:
        pay("GPU", reformat.us)
    for unfused in share.unfused:
        pay(unfused.device, unfused.us)
    return {device: round(us, _DIGITS) for device, us in found.items()}


def _frame_of(plan: Plan) -> FrameTimes:
    """Returns what a frame takes where the frames follow each other without a pause."""
    busy: dict[str, float] = {}
    for index, share in enumerate(plan.plans):
        own = [one for one in plan.loadables if one.plan == index]
        for device, us in device_times(share, own).items():
            busy[device] = busy.get(device, 0.0) + share.share * us
    device = max(busy, key=lambda name: busy[name], default="")
    rate, known = plan.predicted.throughput_qps or 0.0, is_known(plan)
    period = 1e6 / rate if rate > 0 else 0.0
    lost = period - busy.get(device, 0.0)
    return FrameTimes(
        "predicted",
        round(period, _DIGITS) if known else None,
        {name: round(us, _DIGITS) if known else None for name, us in busy.items()},
        device,
        round(lost, _DIGITS) if lost > _ROUNDING * period else 0.0,
        ("memory", "gpu") if _waits(plan) else ("memory",),
    )


def mixes_devices(shares: Iterable[Share]) -> bool:
    """Whether any of the plans has layers on the GPU and on a DLA core."""
    used = ({layer.device for layer in share.layers} for share in shares)
    return any("GPU" in devices and len(devices) > 1 for devices in used)


def _waits(plan: Plan) -> bool:
    """Whether any plan is a hybrid engine, whose layers on the GPU wait for it."""
    return mixes_devices(plan.plans) and not plan.constraints.split


def booked_layers(share: Share, network: Network | None) -> tuple[PlacedLayer, ...]:
    """Returns a plan's layers with what they take alone where they do not run with a neighbour.

    A plan's layers have the times of fused kernels: a layer that its device would compute with the
    one before it takes 0 of its own. Where the plan has that one on another device, ``unfused``
    holds what the layer then takes; here it is the layer's that reads the tensor between the two.
    What is not between two layers stays with ``unfused``.

    Args:
        share: A plan.
        network: Its layers; without it nothing is booked.
    """
    readers = _readers(share, network)
    us: dict[str, float] = {}
    uj: dict[str, float] = {}
    for one in share.unfused:
        reader = readers.get((one.what, one.device))
        if reader is not None:
            us[reader] = us.get(reader, 0.0) + one.us
            uj[reader] = uj.get(reader, 0.0) + one.uj
    return _with(share.layers, us, uj)


def unbooked_us(share: Share, network: Network | None) -> tuple[Unfused, ...]:
    """Returns what broken fusions cost that ``booked_layers`` books to no layer."""
    readers = _readers(share, network)
    return tuple(one for one in share.unfused if (one.what, one.device) not in readers)


def _readers(share: Share, network: Network | None) -> dict[tuple[str, str], str]:
    """Returns the first layer that reads a tensor on a device, by both."""
    readers: dict[tuple[str, str], str] = {}
    if network is None or not share.unfused:
        return readers
    device = {layer.name: layer.device for layer in share.layers}
    for layer in network.layers:
        for tensor in layer.inputs:
            readers.setdefault((tensor, device.get(layer.name, "")), layer.name)
    return readers


def _with(
    layers: Sequence[PlacedLayer], us: dict[str, float], uj: dict[str, float]
) -> tuple[PlacedLayer, ...]:
    return tuple(
        replace(
            layer,
            predicted_us=round(layer.predicted_us + us[layer.name], _DIGITS),
            predicted_uj=round(layer.predicted_uj + uj[layer.name], _DIGITS),
        )
        if layer.name in us
        else layer
        for layer in layers
    )


@document(frozen=True, kw_only=True)
class PlanSummary:
    """A plan's main figures, all predicted; None where no layer has a known time.

    Attributes:
        target: The board.
        power_mode: Its power mode.
        precision: The precision.
        objective: What was optimised.
        value: The objective's value, in ``unit``.
        unit: "us", "uj" or "qps".
        optimal: Whether the plan is proved optimal for predicted times.
        bound: What no plan is better than, in ``unit``.
        gap: How far the value is from the bound, as a share of the value.
        slack: How far the plan is from the optimum, and for what.
        extrapolated: What is predicted without any published time of its kind.
        unknown_cost: Layers that are in no time.
        predicted: The figures of an inference.
        rate_hz: Frames a second that the energy is of; None: back to back.
        bands: Between which values the figures may lie.
        layers: How many layers each device has.
        loadables: How many there are.
        transitions: Changes between devices along the running order.
    """

    target: str = member(fields.target)
    power_mode: str = member(fields.name)
    precision: str = member(fields.precision)
    objective: str = member(objectives)
    value: float | None = member(nullable(fields.figure))
    unit: str = member(units)
    optimal: bool = member(flag)
    bound: float = member(fields.figure)
    gap: float = member(fields.figure)
    slack: SlackChoice | None = member(nullable(record(SlackChoice)), absent=None, as_given=True)
    extrapolated: tuple[str, ...] = member(fields.names)
    unknown_cost: tuple[str, ...] = member(fields.names)
    predicted: PredictedCost = member(record(PredictedCost))
    rate_hz: float | None = member(nullable(fields.figure))
    bands: Mapping[str, tuple[float, float]] = member(_bands)
    layers: Mapping[str, int] = member(mapping(fields.count, fields.device))
    loadables: int = member(fields.count)
    transitions: int = member(fields.count)


def plan_summary(plan: Plan) -> PlanSummary:
    """Returns a plan's main figures."""
    return PlanSummary(
        target=plan.target,
        power_mode=plan.power_mode,
        precision=plan.precision,
        objective=plan.objective,
        value=plan_value(plan) if is_known(plan) else None,
        unit=OBJECTIVE_UNITS[plan.objective],
        optimal=plan.optimal,
        bound=plan.bound,
        gap=plan.gap,
        slack=plan.slack,
        extrapolated=plan.extrapolated,
        unknown_cost=plan.unknown_cost,
        predicted=plan.predicted,
        rate_hz=plan.rate_hz,
        bands=plan.bands,
        layers=dict(sorted(Counter(layer.device for layer in plan.layers).items())),
        loadables=len(plan.loadables),
        transitions=plan.transitions,
    )


def objective_band(plan: Plan) -> tuple[float, float] | None:
    """Returns where the objective's value may lie by the prediction error; None if unknown."""
    if plan.objective == "period":
        low, high = plan.bands.get("throughput_qps", (0.0, 0.0))
        return (1e6 / high, 1e6 / low) if low else None
    return plan.bands.get(PREDICTED_KEYS[plan.objective])


def within_error(plan: Plan) -> tuple[str, ...]:
    """Returns the figures (keys of ``bands``) of the GPU alone within the plan's prediction error.

    Empty for a plan without a DLA: the same model predicts both, so their errors are the same.
    """
    alone = plan.baselines.get("gpu_only")
    if not plan.dla_cores or alone is None:
        return ()
    figures = alone.to_json()
    return tuple(
        key
        for key, (low, high) in plan.bands.items()
        if (figure := figures[key]) is not None and low <= figure <= high
    )


def gpu_alone_doubt(plan: Plan) -> str:
    """Returns that the GPU alone may be as good as a plan with a DLA; "" if it is worse.

    By the figure of the objective, and by the latency whatever the objective is.
    """
    within = within_error(plan)
    if PREDICTED_KEYS[plan.objective] in within:
        what = "the GPU alone is"
    elif "latency_us" in within:
        what = "the latency of the GPU alone is"
    else:
        return ""
    return f"{what} within the prediction error of this plan: measure both on the board"


def doubts(plan: Plan) -> tuple[str, ...]:
    """Returns why the prediction alone does not decide, in clauses; empty without a doubt."""
    extrapolated = [f"extrapolated: {why}" for why in plan.extrapolated]
    return tuple(filter(None, (gpu_alone_doubt(plan), *extrapolated)))


def percent_change(before: float, after: float) -> float | None:
    """Returns by how many percent a figure grew; None from zero."""
    return 100 * (after - before) / before if before else None


@document(frozen=True)
class Change:
    """By how much a figure grew, and by how many percent; None where that is not known.

    Attributes:
        by: The difference, in the figure's unit.
    """

    by: float | None = member(nullable(fields.difference))
    percent: float | None = member(nullable(fields.difference))


@document(frozen=True)
class MovedLayer:
    """A layer that another plan has on another device."""

    layer: str = member(fields.name)
    source: str = member(fields.device, key="from")
    goal: str = member(fields.device, key="to")


@document(frozen=True)
class WhatIf(FormerDict):
    """An ``edgekit.whatif/1``: a plan compared with the plan that follows from changes.

    Attributes:
        changes: In the user's words.
        before: The plan as requested.
        after: The plan with the changes.
        objective: How the objective's value changes; None where the objectives are different.
        difference: The same of each predicted figure.
        moved: Layers that change the device.
        only_before: Layers of the first plan alone.
        only_after: Layers of the second plan alone.
    """

    changes: tuple[str, ...] = member(fields.names)
    before: PlanSummary = member(record(PlanSummary))
    after: PlanSummary = member(record(PlanSummary))
    objective: Change | None = member(nullable(record(Change)))
    difference: Mapping[str, Change] = member(mapping(record(Change)))
    moved: tuple[MovedLayer, ...] = member(records(MovedLayer))
    only_before: tuple[str, ...] = member(fields.names)
    only_after: tuple[str, ...] = member(fields.names)
    schema: str = member(choice(COMPARISON_SCHEMA), default=COMPARISON_SCHEMA)

    def to_json(self) -> dict[str, Any]:
        """Returns the ``edgekit.whatif/1`` document."""
        return dict(write(self))


def compare_plans(before: Plan, after: Plan, changes: Sequence[str]) -> WhatIf:
    """Returns both plans in short, their differences, and the layers that moved.

    Args:
        before: The plan as requested.
        after: The plan with the changes.
        changes: What was changed, in the user's words.
    """
    old, new = before.predicted.to_json(), after.predicted.to_json()
    was = {layer.name: layer.device for layer in before.layers}
    now = {layer.name: layer.device for layer in after.layers}
    first, second = plan_summary(before), plan_summary(after)
    same = before.objective == after.objective
    return WhatIf(
        changes=tuple(changes),
        before=first,
        after=second,
        objective=_change(first.value, second.value) if same else None,
        difference={key: _change(old[key], new[key]) for key in old},
        moved=tuple(
            MovedLayer(name, was[name], device)
            for name, device in now.items()
            if was.get(name, device) != device
        ),
        only_before=tuple(name for name in was if name not in now),
        only_after=tuple(name for name in now if name not in was),
    )


def _change(before: float | None, after: float | None) -> Change:
    if before is None or after is None:
        return Change(None, None)
    return Change(after - before, percent_change(before, after))


def plan_value(plan: Plan) -> float:
    """Returns the value of a plan's objective: microseconds, microjoules or frames a second.

    It is 0 where no layer has a known time.
    """
    return predicted_value(plan.objective, plan.predicted)


def optimum_value(plan: Plan) -> float:
    """Returns the objective's value of the best plan, from which the slack may have moved."""
    return plan.slack.optimum if plan.slack else plan_value(plan)


def predicted_value(objective: str, predicted: PredictedCost) -> float:
    """Returns what a prediction gives for an objective, in the objective's unit."""
    if objective == "period":
        return 1e6 / predicted.throughput_qps if predicted.throughput_qps else 0.0
    return float(getattr(predicted, PREDICTED_KEYS[objective]) or 0.0)
