"""The values of this floor: options in, a plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.dla import MemoryNeed, loadables_per_core

__all__ = [
    "OBJECTIVES", "Loadable", "Options", "Pin", "PlacedLayer", "Plan", "Predicted", "Reformat",
    "Share", "Unfused", "proof_of",
]  # fmt: skip

OBJECTIVES = ("latency", "throughput", "period", "energy", "gpu_time")


@dataclass(frozen=True, slots=True)
class Pin:
    """Layers matching the glob ``layers`` go to ``device`` ("GPU", "DLA", "DLA0", "DLA1")."""

    layers: str
    device: str


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asks of the placement (the config's ``placement`` section).

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
        cores_why: Why ``dla_cores`` are fewer than the user asked for, to be said where that
            matters; empty: they are not.
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


@dataclass(frozen=True, slots=True)
class Predicted:
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
class Loadable:
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
    and borders of the loadables of this plan, by ``reformats`` and ``unfused``.
    """

    share: float
    layers: tuple[PlacedLayer, ...]
    transitions: int = 0
    predicted: Predicted | None = None
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
    name, the largest any loadable needs. A baseline that is impossible is None; one that
    ``baselines_keep`` has as False breaks what was asked, as no plan may. ``kept_off`` names the
    wishes without which a plan of the GPU alone would use the DLA, as far as that was looked for.
    ``unknown_cost`` names layers on the GPU that are in no time and no band: plugins, and shapes
    that the data decide.
    ``extrapolated`` says what the plan predicts without any published time of its kind: its bands
    are wide, and whoever calls it optimal says so (:func:`proof_of`).
    """

    target: str
    power_mode: str
    precision: str
    tensorrt: str
    layers: tuple[PlacedLayer, ...]
    loadables: tuple[Loadable, ...]
    pools: Mapping[str, int]
    transitions: int
    predicted: Predicted
    objective: str
    optimal: bool
    bound: float
    gap: float
    plans: tuple[Share, ...]
    baselines: Mapping[str, Predicted | None]
    model_error: str
    notes: tuple[str, ...] = ()
    reformats: tuple[Reformat, ...] = ()
    builder: Mapping[str, Any] | None = None
    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    measured: Mapping[str, Any] | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)
    baselines_keep: Mapping[str, bool | None] = field(default_factory=dict)
    kept_off: tuple[str, ...] = ()
    unknown_cost: tuple[str, ...] = ()
    extrapolated: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the ``edgekit.plan/1`` document."""
        from edgekit.placement._json import plan_to_json

        return plan_to_json(self)


def proof_of(optimal: bool, extrapolated: Sequence[str]) -> str:
    """Returns "optimal under the model" as it must be said; "" for a plan that is not proved."""
    if not optimal:
        return ""
    return "optimal under the model, extrapolated" if extrapolated else "optimal under the model"
