"""The plan as a value: options in, placement, loadables, formats and predicted costs out. Its
JSON (``edgekit.plan/1``) both ways, what its layers and devices add up to, and two plans
compared (``edgekit.whatif/1``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from edgekit.dla.rules import loadables_per_core
from edgekit.dla.verdicts import MemoryNeed
from edgekit.errors import DataError
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.network.model import Network
    from edgekit.parsing.nvidia import ParserWord


OBJECTIVES = ("latency", "throughput", "period", "energy", "gpu_time")
SCHEMA = "edgekit.plan/1"
_COPIED_KEYS = (
    "target", "power_mode", "precision", "tensorrt", "transitions", "objective", "optimal",
    "bound", "gap", "model_error",
)  # fmt: skip
_PAID = ("launch_us", "launch_uj", "border_us", "border_uj", "plan")
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
    "energy": "energy_uj", "gpu_time": "gpu_us",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pin:
    """Layers matching the glob ``layers`` go to ``device`` ("GPU", "DLA", "DLA0", "DLA1")."""

    layers: str
    device: str


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


@dataclass(frozen=True, slots=True)
class PredictedCost:
    """Model predictions for one inference; microseconds, microjoules, queries a second."""

    latency_us: float
    throughput_qps: float
    energy_uj: float
    gpu_us: float

    def to_json(self) -> dict[str, float]:
        """Returns the contract's ``predicted`` object."""
        return {
            "latency_us": self.latency_us, "throughput_qps": self.throughput_qps,
            "energy_uj": self.energy_uj, "gpu_us": self.gpu_us,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class SlackChoice:
    """Which plan was taken of those whose objective is within the slack of the optimum.

    Attributes:
        allowed: The slack, as a share of the optimum.
        optimum: The best plan's value of the objective, which the plan's bound proves.
        given_up: By how much the plan is worse than the optimum, as a share of it.
        metric: The figure that decided, "latency_us" or "energy_uj".
        at_optimum: The best plan's value of that figure.
    """

    allowed: float
    optimum: float
    given_up: float
    metric: str
    at_optimum: float


@dataclass(frozen=True, slots=True)
class PlacedLayer:
    """One layer's place: device "GPU", "DLA0" or "DLA1"; segment index in running order."""

    name: str
    nodes: tuple[str, ...]
    device: str
    precision: str
    segment: int
    predicted_us: float
    predicted_uj: float


@dataclass(frozen=True, slots=True)
class PlannedLoadable:
    """One DLA subgraph of the plan; ``formats`` is the chosen tensor format by border tensor.

    Its layers' times are without ``launch_us``, what starting it takes, and ``border_us``, how much
    longer it takes to read and write border tensors in these formats than in its best ones.
    ``plan`` is the index in ``Plan.plans`` of the plan that has it.
    """

    core: int
    layers: tuple[str, ...]
    memory: MemoryNeed
    formats: Mapping[str, str] = field(default_factory=dict)
    launch_us: float = 0.0
    launch_uj: float = 0.0
    border_us: float = 0.0
    border_uj: float = 0.0
    plan: int = 0


@dataclass(frozen=True, slots=True)
class Reformat:
    """A tensor that the GPU brings from one layout ("int8:CHW32", "fp32:LINEAR") to another.

    ``clock`` says whether the time is "measured" or "predicted"; ``plan`` is the index in
    ``Plan.plans`` of the plan that does it.
    """

    tensor: str
    source: str
    goal: str
    us: float
    clock: str = "predicted"
    plan: int = 0
    uj: float = 0.0


@dataclass(frozen=True, slots=True)
class Unfused:
    """What it costs that a border breaks a part that ``device`` would run fused.

    ``what`` is the tensor at the border, or says how many layers would be fused; ``plan`` is the
    index in ``Plan.plans`` of the plan that pays it.
    """

    what: str
    device: str
    us: float
    uj: float
    plan: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """A plan variant of the ``throughput`` objective and the share of frames it takes.

    Latency and energy of ``predicted`` are the sums of what is paid: by its layers, by launches
    and borders of the loadables of this plan, by ``reformats`` and ``unfused``; at a rate the idle
    module's energy comes to that (``Plan.idle_uj``).
    """

    share: float
    layers: tuple[PlacedLayer, ...]
    transitions: int = 0
    predicted: PredictedCost | None = None
    reformats: tuple[Reformat, ...] = ()
    unfused: tuple[Unfused, ...] = ()
    builder: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Plan:
    """Placement, loadables, pools, formats and predicted cost.

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
    it, and why.
    All energies are those of a frame at ``rate_hz`` frames a second, None: back to back;
    ``idle_uj`` is the part of the plan's that the module draws whether it works or not.
    """

    target: str
    power_mode: str
    precision: str
    tensorrt: str
    layers: tuple[PlacedLayer, ...]
    loadables: tuple[PlannedLoadable, ...]
    pools: Mapping[str, int]
    transitions: int
    predicted: PredictedCost
    objective: str
    optimal: bool
    bound: float
    gap: float
    plans: tuple[Share, ...]
    baselines: Mapping[str, PredictedCost | None]
    model_error: str
    notes: tuple[str, ...] = ()
    reformats: tuple[Reformat, ...] = ()
    builder: Mapping[str, Any] | None = None
    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    measured: Mapping[str, Any] | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)
    baselines_keep: Mapping[str, bool | None] = field(default_factory=dict)
    baselines_rewritten: Mapping[str, PredictedCost | None] = field(default_factory=dict)
    kept_off: tuple[str, ...] = ()
    unknown_cost: tuple[str, ...] = ()
    extrapolated: tuple[str, ...] = ()
    parser: ParserWord | None = None
    rate_hz: float | None = None
    idle_uj: float = 0.0
    slack: SlackChoice | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the ``edgekit.plan/1`` document."""
        return plan_to_json(self)


def known_values(predicted: PredictedCost, unknown_cost: Sequence[str]) -> dict[str, float | None]:
    """Returns a prediction's figures; None each where no layer has a known time.

    Args:
        predicted: A plan's, a plan variant's or a baseline's.
        unknown_cost: The plan's layers that are in no time.
    """
    figures: dict[str, float | None] = {**predicted.to_json()}
    return dict.fromkeys(figures) if unknown_cost and not predicted.latency_us else figures


def is_known(plan: Plan) -> bool:
    """Whether the plan's figures say anything: at least one layer has a known time."""
    return not plan.unknown_cost or plan.predicted.latency_us > 0


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


def baselines_json(
    plan: Plan, baselines: Mapping[str, PredictedCost | None]
) -> dict[str, dict[str, float | None] | None]:
    """Returns the figures of a plan's baselines; None for one that is impossible."""
    return {
        name: None if cost is None else known_values(cost, plan.unknown_cost)
        for name, cost in baselines.items()
    }


def _predicted(document: Mapping[str, float | None]) -> PredictedCost:
    return PredictedCost(**{name: value or 0.0 for name, value in document.items()})


def _baselines(
    documents: Mapping[str, dict[str, float | None] | None],
) -> dict[str, PredictedCost | None]:
    return {name: None if x is None else _predicted(x) for name, x in documents.items()}


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """Returns the ``edgekit.plan/1`` document of a plan: the contract's keys and the board's."""
    return {
        "schema": SCHEMA,
        "layers": [_layer(layer) for layer in plan.layers],
        "loadables": [
            {
                "core": loadable.core,
                "layers": list(loadable.layers),
                "memory": loadable.memory.to_json(),
                "formats": dict(loadable.formats),
                **{name: getattr(loadable, name) for name in _PAID},
            }
            for loadable in plan.loadables
        ],
        "pools": dict(plan.pools),
        "predicted": known_values(plan.predicted, plan.unknown_cost),
        "energy": {"rate_hz": plan.rate_hz, "idle_uj": plan.idle_uj},
        "frame": frame_times(plan),
        "plans": [
            {
                "share": part.share,
                "layers": [_layer(layer) for layer in part.layers],
                "transitions": part.transitions,
                "predicted": part.predicted and known_values(part.predicted, plan.unknown_cost),
                "reformats": [_reformat(one) for one in part.reformats],
                "unfused": [asdict(one) for one in part.unfused],
                "builder": part.builder,
                "devices": plan_devices(plan, number),
            }
            for number, part in enumerate(plan.plans)
        ],
        "baselines": baselines_json(plan, plan.baselines),
        "baselines_rewritten": baselines_json(plan, plan.baselines_rewritten),
        "notes": list(plan.notes),
        "baselines_keep": dict(plan.baselines_keep),
        "kept_off": list(plan.kept_off),
        "unknown_cost": list(plan.unknown_cost),
        "extrapolated": list(plan.extrapolated),
        "doubts": list(doubts(plan)),
        "reformats": [_reformat(one) for one in plan.reformats],
        "builder": plan.builder,
        "bands": {name: list(band) for name, band in plan.bands.items()},
        "measured": plan.measured,
        "constraints": dict(plan.constraints),
        "slack": plan.slack and asdict(plan.slack),
        **({} if plan.parser is None else {"parser": plan.parser.to_json()}),
        **{name: getattr(plan, name) for name in _COPIED_KEYS},
    }


def plan_devices(plan: Plan, number: int) -> list[dict[str, Any]]:
    """Returns what each device has of a frame of a plan, and how long it works for it."""
    part = plan.plans[number]
    times = device_times(part, [one for one in plan.loadables if one.plan == number])
    found = []
    for device in sorted(times, key=lambda name: (name != "GPU", name)):
        own = [layer for layer in part.layers if layer.device == device]
        found.append({
            "device": device, "layers": len(own),
            "segments": len({layer.segment for layer in own}),
            "busy_us": times[device] if is_known(plan) else None, "clock": "predicted",
        })  # fmt: skip
    return found


def _reformat(one: Reformat) -> dict[str, Any]:
    return {
        "tensor": one.tensor,
        "from": one.source,
        "to": one.goal,
        "us": one.us,
        "uj": one.uj,
        "clock": one.clock,
        "plan": one.plan,
    }


def _layer(layer: PlacedLayer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "nodes": list(layer.nodes),
        "device": layer.device,
        "precision": layer.precision,
        "segment": layer.segment,
        "predicted_us": layer.predicted_us,
        "predicted_uj": layer.predicted_uj,
    }


def _word(document: Mapping[str, Any] | None) -> ParserWord | None:
    if document is None:
        return None
    from edgekit.parsing.nvidia import ParserWord
    from edgekit_device.protocol.codec import read

    return read(ParserWord, document)


def plan_from_json(document: Mapping[str, Any]) -> Plan:
    """Returns the plan that :func:`plan_to_json` wrote; equal to the one it was written from.

    Raises:
        DataError: The document is not an ``edgekit.plan/1`` document.
    """
    if document.get("schema") != SCHEMA:
        raise DataError(
            f"not a plan: its schema is {document.get('schema')!r}",
            code="plan.schema",
            hint=f"expected a document with schema {SCHEMA!r}",
        )
    try:
        return Plan(
            layers=_layers(document["layers"]),
            loadables=tuple(
                PlannedLoadable(
                    x["core"],
                    tuple(x["layers"]),
                    MemoryNeed(**x["memory"]),
                    x["formats"],
                    **{name: x[name] for name in _PAID if name in x},
                )
                for x in document["loadables"]
            ),
            pools=dict(document["pools"]),
            predicted=_predicted(document["predicted"]),
            plans=tuple(_share(x) for x in document["plans"]),
            baselines=_baselines(document["baselines"]),
            baselines_rewritten=_baselines(document.get("baselines_rewritten", {})),
            notes=tuple(document["notes"]),
            baselines_keep=dict(document.get("baselines_keep", {})),
            kept_off=tuple(document.get("kept_off", ())),
            unknown_cost=tuple(document.get("unknown_cost", ())),
            extrapolated=tuple(document.get("extrapolated", ())),
            rate_hz=document.get("energy", {}).get("rate_hz"),
            idle_uj=document.get("energy", {}).get("idle_uj", 0.0),
            reformats=_reformats(document),
            builder=document.get("builder"),
            bands={name: (low, high) for name, (low, high) in document.get("bands", {}).items()},
            measured=document.get("measured"),
            constraints=dict(document.get("constraints", {})),
            slack=SlackChoice(**slack) if (slack := document.get("slack")) else None,
            parser=_word(document.get("parser")),
            **{name: document[name] for name in _COPIED_KEYS},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the plan document is incomplete: {error}",
            code="plan.schema",
            hint="write it again with `edgekit plan --json`",
        ) from error


def _share(x: Mapping[str, Any]) -> Share:
    predicted = x.get("predicted")
    return Share(
        x["share"],
        _layers(x["layers"]),
        x.get("transitions", 0),
        predicted and _predicted(predicted),
        _reformats(x),
        tuple(Unfused(**one) for one in x.get("unfused", ())),
        x.get("builder"),
    )


def _reformats(x: Mapping[str, Any]) -> tuple[Reformat, ...]:
    return tuple(
        Reformat(r["tensor"], r["from"], r["to"], r["us"], r["clock"], r["plan"], r.get("uj", 0.0))
        for r in x.get("reformats", ())
    )


def _layers(documents: list[dict[str, Any]]) -> tuple[PlacedLayer, ...]:
    return tuple(PlacedLayer(**{**x, "nodes": tuple(x["nodes"])}) for x in documents)


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


def frame_times(plan: Plan) -> dict[str, Any]:
    """Returns what a frame takes where the frames follow each other without a pause.

    ``busy_us`` is how long each device works for a frame, the mean of the plans by their shares;
    ``device`` the busiest one; the times are None where no layer has a known one. A frame comes
    out every ``period_us``: that is more than the busiest device works by ``sharing_us``, which
    the devices lose because of ``shared``: the memory, and in a hybrid engine the GPU, for which
    the engine's own layers wait.
    """
    busy: dict[str, float] = {}
    for number, share in enumerate(plan.plans):
        own = [one for one in plan.loadables if one.plan == number]
        for device, us in device_times(share, own).items():
            busy[device] = busy.get(device, 0.0) + share.share * us
    device = max(busy, key=lambda name: busy[name], default="")
    rate = plan.predicted.throughput_qps
    period = 1e6 / rate if rate > 0 else 0.0
    lost = period - busy.get(device, 0.0)
    return {
        "clock": "predicted",
        "period_us": round(period, _DIGITS) if is_known(plan) else None,
        "busy_us": {
            name: round(us, _DIGITS) if is_known(plan) else None for name, us in busy.items()
        },
        "device": device,
        "sharing_us": round(lost, _DIGITS) if lost > _ROUNDING * period else 0.0,
        "shared": ["memory", "gpu"] if _waits(plan) else ["memory"],
    }


def mixes_devices(shares: Iterable[Share]) -> bool:
    """Whether any of the plans has layers on the GPU and on a DLA core."""
    used = ({layer.device for layer in share.layers} for share in shares)
    return any("GPU" in devices and len(devices) > 1 for devices in used)


def _waits(plan: Plan) -> bool:
    """Whether any plan is a hybrid engine, whose layers on the GPU wait for it."""
    return mixes_devices(plan.plans) and not plan.constraints.get("split", False)


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


def plan_summary(plan: Plan) -> dict[str, Any]:
    """Returns a plan's main figures, all predicted; None where no layer has a known time."""
    return {
        "target": plan.target,
        "power_mode": plan.power_mode,
        "precision": plan.precision,
        "objective": plan.objective,
        "value": plan_value(plan) if is_known(plan) else None,
        "unit": OBJECTIVE_UNITS[plan.objective],
        "optimal": plan.optimal,
        "bound": plan.bound,
        "gap": plan.gap,
        "slack": plan.slack and asdict(plan.slack),
        "extrapolated": list(plan.extrapolated),
        "unknown_cost": list(plan.unknown_cost),
        "predicted": known_values(plan.predicted, plan.unknown_cost),
        "rate_hz": plan.rate_hz,
        "bands": {name: list(band) for name, band in plan.bands.items()},
        "layers": dict(sorted(Counter(layer.device for layer in plan.layers).items())),
        "loadables": len(plan.loadables),
        "transitions": plan.transitions,
    }


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
    on_dla = any(layer.device != "GPU" for share in plan.plans for layer in share.layers)
    if not on_dla or alone is None:
        return ()
    figures = alone.to_json()
    return tuple(key for key, (low, high) in plan.bands.items() if low <= figures[key] <= high)


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


def compare_plans(before: Plan, after: Plan, changes: Sequence[str]) -> dict[str, Any]:
    """Returns an ``edgekit.whatif/1``: both plans in short, their differences, layers that moved.

    Args:
        before: The plan as requested.
        after: The plan with the changes.
        changes: What was changed, in the user's words.
    """
    old = known_values(before.predicted, before.unknown_cost)
    new = known_values(after.predicted, after.unknown_cost)
    was = {layer.name: layer.device for layer in before.layers}
    now = {layer.name: layer.device for layer in after.layers}
    same = before.objective == after.objective
    difference = {key: _difference(old[key], new[key]) for key in old}
    return {
        "schema": COMPARISON_SCHEMA,
        "changes": list(changes),
        "before": plan_summary(before),
        "after": plan_summary(after),
        "objective": _difference(plan_summary(before)["value"], plan_summary(after)["value"])
        if same
        else None,
        "difference": difference,
        "moved": [
            {"layer": name, "from": was[name], "to": device}
            for name, device in now.items()
            if was.get(name, device) != device
        ],
        "only_before": [name for name in was if name not in now],
        "only_after": [name for name in now if name not in was],
    }


def _difference(before: float | None, after: float | None) -> dict[str, float | None]:
    if before is None or after is None:
        return {"by": None, "percent": None}
    return {"by": after - before, "percent": percent_change(before, after)}


def plan_value(plan: Plan) -> float:
    """Returns the value of a plan's objective: microseconds, microjoules or frames a second."""
    return predicted_value(plan.objective, plan.predicted)


def optimum_value(plan: Plan) -> float:
    """Returns the objective's value of the best plan, from which the slack may have moved."""
    return plan.slack.optimum if plan.slack else plan_value(plan)


def predicted_value(objective: str, predicted: PredictedCost) -> float:
    """Returns what a prediction gives for an objective, in the objective's unit."""
    if objective == "period":
        return 1e6 / predicted.throughput_qps if predicted.throughput_qps else 0.0
    return float(getattr(predicted, PREDICTED_KEYS[objective]))
