"""The plan as a value: options in, placement, loadables, formats and predicted costs out. Its
JSON (``edgekit.plan/1``) both ways, the totals of its layers and devices, and the comparison of
two plans (``edgekit.whatif/1``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgekit.dla.rules import loadables_per_core
from edgekit.dla.verdicts import MemoryNeed
from edgekit.errors import DataError
from edgekit.parsing.nvidia import ParserResult
from edgekit.placement.buckets import Bucket, RangeCost
from edgekit.placement.cuts import Cut
from edgekit.placement.forecast import DIGITS
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
#: An objective for several networks only.
MAKESPAN = "makespan"
SCHEMA = "edgekit.plan/1"
_ROUNDING = 1e-6  # relative; a plan's figures are rounded
COMPARISON_SCHEMA = "edgekit.whatif/1"
#: The unit of each objective's value.
OBJECTIVE_UNITS = {
    "latency": "us",
    "throughput": "qps",
    "period": "us",
    "energy": "uj",
    "gpu_time": "us",
}
#: Of the plans within an objective's slack, the plan with the least of this figure is chosen:
SECOND_METRICS = {
    "latency": "energy_uj",
    "throughput": "latency_us",
    "period": "latency_us",
    "energy": "latency_us",
    "gpu_time": "latency_us",
}
#: The predicted figure of each objective; a period is 1 / throughput.
PREDICTED_KEYS = {
    "latency": "latency_us",
    "throughput": "throughput_qps",
    "period": "throughput_qps",
    "energy": "energy_uj",
    "gpu_time": "gpu_us",
    MAKESPAN: "latency_us",
}
_CLOCKS = ("measured", "predicted")
objectives = choice(*OBJECTIVES)
units = choice(*dict.fromkeys(OBJECTIVE_UNITS.values()))
_POOLS = ("managed_sram", "local_dram", "global_dram")

# the types of a plan's fields
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
    """The user's placement options (the config's ``placement`` section).

    Attributes:
        objective: One of :data:`OBJECTIVES`.
        bounds: Limits by metric: "latency_us", "energy_uj", "gpu_us", "period_us".
        dla_cores: Cores that may be used.
        gpu: True if the GPU may be used; otherwise the plan is standalone.
        pins: Devices that layers must have; a later pin wins over an earlier one.
        max_loadables: Loadables that a core may hold.
        fp16_layers: Layers that may not run in INT8 although the precision is INT8.
        max_transitions: Maximum device changes along the running order; None if unlimited.
        min_loadable_layers: Minimum layers of a loadable.
        pools: Bytes that a loadable may have, by pool ("managed_sram", "local_dram",
            "global_dram"). None, or a pool that is not named: the build's default.
        profile: Measured times (``read_profile``), which replace predicted times; None if there
            are none.
        cores_why: Why ``dla_cores`` are fewer than the user requested, for messages; empty if they
            are not.
        split: True if each segment is an engine of its own (``build.mode: split``); otherwise a
            plan on the GPU and a DLA core is one hybrid engine, whose GPU layers wait for a busy
            GPU.
        rate_hz: Frames a second at which the energy is computed; None if frames run back to back.
        slack: Allowed distance from the optimum, as a share of the optimum, for a plan that is
            better in the second figure.
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
    """Model predictions for one inference; each is None if no layer has a known time.

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


#: The cost of a network in which no layer has a known time.
UNKNOWN = PredictedCost(None, None, None, None)


@document(frozen=True)
class SlackChoice:
    """The plan that was chosen among those whose objective is within the slack of the optimum.

    Attributes:
        allowed: The slack, as a share of the optimum.
        optimum: The best plan's value of the objective, which the plan's bound proves.
        given_up: How much worse the plan is, as a share of the optimum.
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
    """The cost of fewer loadables, against a plan that is equal within the prediction's noise.

    Attributes:
        instead_of: Loadables of the other plan.
        gpu_layers: Layers on the GPU that the other plan has on a DLA.
        gpu_modules: The outermost PyTorch modules that contain such layers and are entirely on the
            GPU.
        dla_layers: Layers on a DLA that the other plan has on the GPU.
        given_up: How much worse the objective is, as a share; negative if it is better.
        metric: The figure that decides between plans within the slack.
        given_up_second: How much worse this figure is, as a share.
        noise: The prediction's noise, as a share; smaller differences do not count.
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
        name: The layer that represents the call.
        module: The module's path.
        device: "PyTorch".
    """

    name: str = member(fields.name)
    module: str = member(long_text)
    device: str = member(choice(PYTORCH), default=PYTORCH)


@document(frozen=True)
class PlannedLoadable:
    """One DLA subgraph of the plan; ``formats`` is the chosen tensor format by border tensor.

    Its layers' times exclude ``launch_us``, the time to start it, and ``border_us``, the extra time
    to read and write border tensors in these formats instead of its best formats. ``plan`` is the
    index of its plan in ``Plan.plans``.

    Attributes:
        core: Number of the DLA core.
        launch_us: Microseconds that starting it takes.
        launch_uj: Microjoules of the launch.
        border_us: Extra microseconds for border tensors, against their best formats.
        border_uj: Microjoules of ``border_us``.
        plan: Index of its plan.
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

    ``clock`` is "measured" or "predicted"; ``plan`` is the index of its plan in ``Plan.plans``.

    Attributes:
        plan: Index of its plan.
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
    """The cost of a border inside a part that ``device`` would run fused.

    ``what`` is the tensor at the border, or the number of layers that would be fused; ``plan`` is
    the index of its plan in ``Plan.plans``.

    Attributes:
        plan: Index of its plan.
    """

    what: str = member(fields.name)
    device: str = member(fields.device)
    us: float = member(fields.difference)
    uj: float = member(fields.difference)
    plan: int = member(fields.count, default=0)


@document(frozen=True)
class BuilderDifference:
    """A difference between the plan's loadables on a core and the groups of TensorRT's builder.

    Attributes:
        plan: Index of the plan.
        core: The DLA core.
        kind: "merged", "regrouped" or "sent to the GPU".
        loadables: Indices of the plan's loadables on that core.
        layers: The first layers of the builder's group, and their number.
    """

    plan: int = member(fields.count)
    core: int = member(fields.core)
    kind: str = member(choice("merged", "regrouped", "sent to the GPU"))
    loadables: tuple[int, ...] = member(array(fields.count))
    layers: tuple[str, ...] = member(fields.names)


@document(frozen=True)
class BuilderGroups:
    """The loadables that TensorRT's builder makes from the device types of a plan's layers.

    Attributes:
        device_types: "GPU" or "DLA", by layer.
        candidates: Groups of layers that the builder would form on the cores.
        loadables: Number of these groups that the cores hold.
        matches: True if these are the plan's loadables.
        differences: The differences from the plan's loadables.
    """

    device_types: Mapping[str, str] = member(mapping(fields.device_kind, fields.name))
    candidates: int = member(fields.count, default=0)
    loadables: int = member(fields.count, default=0)
    matches: bool = member(flag, default=True)
    differences: tuple[BuilderDifference, ...] = member(records(BuilderDifference), default=())


@document(frozen=True)
class DeviceWork:
    """A device's work for a frame of a plan: layers, segments, and busy microseconds.

    ``busy_us`` is None if no layer has a known time.

    Attributes:
        layers: Number of layers on the device.
        segments: Number of segments on the device.
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

    Latency and energy of ``predicted`` are the sums over its layers, the launches and borders of
    this plan's loadables, ``reformats`` and ``unfused``; at a rate the idle module's energy is
    added (``Plan.idle_uj``). ``Plan`` fills in ``devices``.

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
    """The times of a frame if frames follow each other without a pause.

    Attributes:
        clock: "predicted".
        period_us: Microseconds between two frames; None if no layer has a known time.
        busy_us: Microseconds that each device works for a frame, the mean of the plans weighted by
            their shares; each is None if the period is.
        device: The busiest device.
        sharing_us: Microseconds by which the period exceeds the busiest device's work, because the
            devices share a resource.
        shared: The shared resource: the memory, and in a hybrid engine the GPU, for which the
            engine's own layers wait.
    """

    clock: str = member(choice(*_CLOCKS))
    period_us: float | None = member(nullable(fields.figure))
    busy_us: Mapping[str, float | None] = member(mapping(nullable(fields.figure), fields.device))
    device: str = member(choice("", "DLA", *DEVICES))
    sharing_us: float = member(fields.figure)
    shared: tuple[str, ...] = member(array(choice("memory", "gpu")))


@document(frozen=True)
class FrameEnergy:
    """The frame rate of a plan's energies and their idle part.

    Attributes:
        rate_hz: Frames a second; None if frames run back to back.
        idle_uj: The part of a frame's energy that the idle module draws, in microjoules.
    """

    rate_hz: float | None = member(nullable(fields.figure), default=None)
    idle_uj: float = member(fields.figure, default=0.0)


@document(frozen=True)
class MeasuredPart:
    """The part of a plan's latency that a profile measured.

    Attributes:
        file: The profile.
        kind: The file's kind: "log", "trtexec", "iprofiler", "bench" or "table".
        fraction: Share of the latency that is measured.
        fraction_of: Measured share of the work of the "gpu" and of the "dla".
        measured_us: Microseconds of the latency that are measured.
        layers: "measured" or "predicted", by layer.
        rows: Rows of the profile.
        unmatched: Rows that match no layer of the model.
        notes: Caveats about the measurement.
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
    """The constraints of a plan; the attributes are those of :class:`Options`.

    Attributes:
        dla_cores: Numbers of the cores that may be used.
        bounds: Maximum of each figure, in its unit.
        max_loadables: Maximum loadables of a core.
        max_transitions: Maximum device changes; None if unlimited.
        min_loadable_layers: Minimum layers of a loadable.
        pools: Bytes that a loadable may have, by pool; None for the board's sizes.
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

    ``layers`` is the plan (for mixed plans the plan with the largest share, ``plans[0]``);
    ``plans`` always has at least one entry and its shares add up to 1. Segments are numbered in
    running order: every tensor a segment reads is a graph input or comes from a lower number.
    ``transitions`` counts device changes along the running order. ``pools`` are bytes by pool
    name, the largest any loadable needs. ``baselines`` are placements of the given network;
    ``baselines_rewritten`` are placements of the rewritten network, empty if no rewrite was used.
    An impossible baseline is None; a baseline with False in ``baselines_keep`` breaks a constraint
    of the user. ``kept_off`` names the constraints that keep a GPU-only plan off the DLA, as far as
    they were searched for. ``unknown_cost`` names layers on the GPU that no time and no band
    includes: plugins, data-dependent shapes, and operators without a formula for their arithmetic.
    ``extrapolated`` lists predictions that no published time of their kind supports: the plan's
    bands are wide, and every text that calls it optimal mentions this (:func:`qualify_proof`).
    ``parser`` is the result of NVIDIA's own parser, if it was run.
    ``optimal``, ``bound`` and ``gap`` describe the optimum; ``slack`` is the plan's distance from
    the optimum and its reason; ``fewer`` is the cost of fewer loadables. ``left`` are the calls of
    left-out modules, which are not in ``layers``.
    ``buckets`` are the listed shapes of a range, the planned shape first, and ``range`` is their
    total cost; a plan of one shape has neither.
    All energies are those of a frame at ``rate_hz`` frames a second (None: back to back);
    ``idle_uj`` is the part that the idle module draws.
    ``frame``, ``doubts`` (why the prediction alone does not decide), and ``devices`` of ``plans``
    are computed whenever a plan is made; given values are replaced.

    Attributes:
        pools: Bytes by pool, the largest need of any loadable.
        transitions: Changes between devices along the running order.
        bound: Proven bound in the objective's unit; no plan is better.
        gap: Distance of the objective from the bound, as a share.
        bands: Range of each figure by the prediction error, in its unit.
        cuts: Cuts after which the network's first part runs on the DLA alone, best first.
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
    # a plan of several networks has no separate proof
    optimal: bool = member(flag, absent=False, as_given=True)
    bound: float = member(fields.figure, absent=0.0, as_given=True)
    gap: float = member(fields.figure, absent=0.0, as_given=True)
    plans: tuple[Share, ...] = member(records(Share, least=1))
    baselines: Mapping[str, PredictedCost | None] = member(mapping(nullable(record(PredictedCost))))
    model_error: str = member(fields.name)
    notes: tuple[str, ...] = member(fields.names, default=())
    # plans saved by an earlier version lack some of these
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
    parser: ParserResult | None = member(nullable(record(ParserResult)), absent=None)
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
            replace(part, devices=_device_work(self, index))
            for index, part in enumerate(self.plans)
        )
        # the class is frozen: this is the only way to set derived fields
        object.__setattr__(self, "plans", plans)
        object.__setattr__(self, "frame", _frame_times(self))
        object.__setattr__(self, "doubts", doubts(self))

    @property
    def dla_cores(self) -> frozenset[str]:
        """The DLA cores of its layers ("DLA0", ...), over all ``plans``."""
        devices = {layer.device for share in self.plans for layer in share.layers}
        return frozenset(devices - {"GPU"})

    @property
    def rate_hz(self) -> float | None:
        """Frames a second at which the energies are computed; None if back to back."""
        return self.energy.rate_hz

    @property
    def idle_uj(self) -> float:
        """The part of a frame's energy that the idle module draws, in microjoules."""
        return self.energy.idle_uj

    @property
    def scale_binding(self) -> ScaleBinding:
        """The layers that bind scales: INT8 layers on a DLA, and layers that are not in INT8."""
        layers = [layer for share in self.plans for layer in share.layers]
        int8 = [layer for layer in layers if layer.precision == "int8"]
        on_dla = {layer.name for layer in int8 if layer.device != "GPU"}
        floats = {layer.name for layer in layers} - {layer.name for layer in int8}
        return {"dla_layers": on_dla, "fp16_layers": floats}

    def to_json(self) -> dict[str, Any]:
        """Returns the ``edgekit.plan/1`` document."""
        return dict(write(self))


def has_known_time(plan: Plan) -> bool:
    """Returns True if at least one layer of the plan has a known time."""
    return plan.predicted.latency_us is not None


def exception_text(unknown_cost: Sequence[str]) -> str:
    """Returns the exception to a proof, such as "except for 2 layers not counted"."""
    return f"except for {counted(len(unknown_cost), 'layer')} not counted"


def qualify_proof(
    optimal: bool,
    extrapolated: Sequence[str],
    unknown_cost: Sequence[str],
    *,
    words: str = "proved optimal",
) -> str:
    """Returns ``words`` with their restrictions; "" for a plan that is not optimal.

    Args:
        optimal: True if the plan is optimal for the known times.
        extrapolated: Predictions that no published time of their kind supports.
        unknown_cost: Layers that no time includes.
        words: The text for an optimal plan.
    """
    if not optimal:
        return ""
    parts = [words]
    if extrapolated:
        parts.append("extrapolated")
    if unknown_cost:
        parts.append(exception_text(unknown_cost))
    return ", ".join(parts)


def plan_from_json(document: object) -> Plan:
    """Returns the plan of an ``edgekit.plan/1`` document; equal to the plan that wrote it.

    Raises:
        DataError: "plan.schema": the document is not a plan; ``where`` is the invalid field.
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


def _device_work(plan: Plan, index: int) -> tuple[DeviceWork, ...]:
    """Returns each device's work for a frame of a plan, the GPU first."""
    part = plan.plans[index]
    times = device_times(part, [loadable for loadable in plan.loadables if loadable.plan == index])
    found = []
    for device in sorted(times, key=lambda name: (name != "GPU", name)):
        own = [layer for layer in part.layers if layer.device == device]
        segments = len({layer.segment for layer in own})
        busy = times[device] if has_known_time(plan) else None
        found.append(DeviceWork(device, len(own), segments, busy))
    return tuple(found)


def device_times(share: Share, loadables: Sequence[PlannedLoadable]) -> dict[str, float]:
    """Returns the predicted microseconds that each device works for a frame of a plan.

    All costs on a device count: its layers, launches of loadables and the cost of their tensors'
    formats, reformats (on the GPU), and broken fusions. The GPU's time is the plan's ``gpu_us``.

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
    return {device: round(us, DIGITS) for device, us in found.items()}


def _frame_times(plan: Plan) -> FrameTimes:
    """Returns the times of a frame if frames follow each other without a pause."""
    busy: dict[str, float] = {}
    for index, share in enumerate(plan.plans):
        own = [loadable for loadable in plan.loadables if loadable.plan == index]
        for device, us in device_times(share, own).items():
            busy[device] = busy.get(device, 0.0) + share.share * us
    device = max(busy, key=lambda name: busy[name], default="")
    rate, known = plan.predicted.throughput_qps or 0.0, has_known_time(plan)
    period = 1e6 / rate if rate > 0 else 0.0
    lost = period - busy.get(device, 0.0)
    # the GPU layers of a hybrid engine wait for a busy GPU
    waits_for_gpu = mixes_devices(plan.plans) and not plan.constraints.split
    return FrameTimes(
        "predicted",
        round(period, DIGITS) if known else None,
        {name: round(us, DIGITS) if known else None for name, us in busy.items()},
        device,
        round(lost, DIGITS) if lost > _ROUNDING * period else 0.0,
        ("memory", "gpu") if waits_for_gpu else ("memory",),
    )


def mixes_devices(shares: Iterable[Share]) -> bool:
    """Returns True if any of the plans has layers on the GPU and on a DLA core."""
    used = ({layer.device for layer in share.layers} for share in shares)
    return any("GPU" in devices and len(devices) > 1 for devices in used)


def booked_layers(share: Share, network: Network | None) -> tuple[PlacedLayer, ...]:
    """Returns a plan's layers, each with the cost of its broken fusions.

    A plan's layers have the times of fused kernels: a layer that its device computes together with
    the previous layer takes 0. If the previous layer is on another device, ``unfused`` has the
    layer's time; this function adds it to the layer that reads the tensor between the two. Costs
    that are not between two layers remain in ``unfused`` only.

    Args:
        share: A plan.
        network: Its layers; None adds no costs.
    """
    readers = _first_readers(share, network)
    us: dict[str, float] = {}
    uj: dict[str, float] = {}
    for part in share.unfused:
        reader = readers.get((part.what, part.device))
        if reader is not None:
            us[reader] = us.get(reader, 0.0) + part.us
            uj[reader] = uj.get(reader, 0.0) + part.uj
    return _add_costs(share.layers, us, uj)


def unbooked_us(share: Share, network: Network | None) -> tuple[Unfused, ...]:
    """Returns the broken fusions whose cost ``booked_layers`` adds to no layer."""
    readers = _first_readers(share, network)
    return tuple(part for part in share.unfused if (part.what, part.device) not in readers)


def _first_readers(share: Share, network: Network | None) -> dict[tuple[str, str], str]:
    """Returns, by tensor and device, the first layer there that reads the tensor."""
    readers: dict[tuple[str, str], str] = {}
    if network is None or not share.unfused:
        return readers
    device = {layer.name: layer.device for layer in share.layers}
    for layer in network.layers:
        for tensor in layer.inputs:
            readers.setdefault((tensor, device.get(layer.name, "")), layer.name)
    return readers


def _add_costs(
    layers: Sequence[PlacedLayer], us: dict[str, float], uj: dict[str, float]
) -> tuple[PlacedLayer, ...]:
    return tuple(
        replace(
            layer,
            predicted_us=round(layer.predicted_us + us[layer.name], DIGITS),
            predicted_uj=round(layer.predicted_uj + uj[layer.name], DIGITS),
        )
        if layer.name in us
        else layer
        for layer in layers
    )


@document(frozen=True, kw_only=True)
class PlanSummary:
    """A plan's main figures, all predicted; None if no layer has a known time.

    Attributes:
        target: The board.
        power_mode: Its power mode.
        precision: The precision.
        objective: The objective.
        value: The objective's value, in ``unit``.
        unit: "us", "uj" or "qps".
        optimal: True if the plan is proved optimal for predicted times.
        bound: Proven bound, in ``unit``; no plan is better.
        gap: Distance of the value from the bound, as a share of the value.
        slack: The plan's distance from the optimum, and the reason.
        extrapolated: Predictions that no published time of their kind supports.
        unknown_cost: Layers that no time includes.
        predicted: The figures of an inference.
        rate_hz: Frames a second at which the energy is computed; None if back to back.
        bands: Range of each figure by the prediction error.
        layers: Number of layers, by device.
        loadables: Number of loadables.
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
        value=plan_value(plan) if has_known_time(plan) else None,
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
    """Returns the range of the objective's value by the prediction error; None if unknown."""
    if plan.objective == "period":
        low, high = plan.bands.get("throughput_qps", (0.0, 0.0))
        # a period is the inverse of the rate, so the ends change places
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

    Both the objective's figure and the latency are compared.
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
    """Returns the growth of a figure in percent; None if it was 0."""
    return 100 * (after - before) / before if before else None


@document(frozen=True)
class Change:
    """The growth of a figure, absolute and in percent; None if unknown.

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
        objective: Change of the objective's value; None if the objectives are different.
        difference: Change of each predicted figure.
        moved: Layers that change the device.
        only_before: Layers in the first plan only.
        only_after: Layers in the second plan only.
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
    """Returns summaries of both plans, their differences, and the layers that moved.

    Args:
        before: The plan as requested.
        after: The plan with the changes.
        changes: The changes, in the user's words.
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

    It is 0 if no layer has a known time.
    """
    return predicted_value(plan.objective, plan.predicted)


def optimum_value(plan: Plan) -> float:
    """Returns the optimum's objective value; the plan's own may be worse by the slack."""
    return plan.slack.optimum if plan.slack else plan_value(plan)


def predicted_value(objective: str, predicted: PredictedCost) -> float:
    """Returns the predicted value of an objective, in the objective's unit."""
    if objective == "period":
        return 1e6 / predicted.throughput_qps if predicted.throughput_qps else 0.0
    return float(getattr(predicted, PREDICTED_KEYS[objective]) or 0.0)
