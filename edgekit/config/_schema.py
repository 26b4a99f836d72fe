"""The configuration file's schema; ``docs/config.md`` and the JSON Schema come from it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgekit.config._schema_bench import BenchSection
from edgekit.config._schema_build import BuildSection, ContainerSection
from edgekit.config._schema_calibration import CalibrationSection
from edgekit.config._schema_deploy import BoardSection, DeploySection, HealthSection
from edgekit.config._section import FilePath, Name, Positive
from edgekit.config._section import Section as _Section
from edgekit.dla import loadables_per_core
from edgekit.sensitivity import Metric

__all__ = [
    "AccuracySection",
    "BenchSection",
    "BoardSection",
    "BuildSection",
    "CalibrationSection",
    "ConfigFile",
    "ContainerSection",
    "DeploySection",
    "HealthSection",
    "ModelSection",
    "NetworkSection",
    "PlacementSection",
    "RewriteSection",
]

Dimension = Annotated[int, Field(ge=1, le=1 << 31)]
_SLOTS = loadables_per_core()


class PinSection(_Section):
    """Layers that must run on a device."""

    layers: str = Field(description="Glob over layer names.", examples=["*/conv1"])
    device: Literal["GPU", "DLA", "DLA0", "DLA1"] = Field(description="The device.")


class _Source(_Section):
    onnx: FilePath = Field(
        None, description="Path of the ONNX file, relative to this file.", examples=["model.onnx"]
    )
    builtin: str | None = Field(
        None,
        description="A network of the onnx package, filled from a seed, instead of a file.",
        examples=["light_resnet50"],
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of a built-in network's weights.")
    shapes: dict[str, list[Dimension]] = Field(
        default_factory=dict,
        description="Static shape by input name; needed where the file leaves more open than the "
        "batch. Also of tensors whose shape a plugin or the data decide.",
        examples=[{"input": [1, 3, 224, 224]}],
    )
    batch: Dimension | None = Field(
        None,
        description="The batch where the file leaves it open; 1 when absent, and said so.",
        examples=[4],
    )
    outputs: list[str] = Field(
        default_factory=list,
        description="Cut the network at these tensors, as detection heads need.",
        examples=[["head_0", "head_1"]],
    )


class NetworkSection(_Source):
    """One of several networks that share a board (`edgekit plan` and `report` only)."""

    name: Name = Field(description="Name of the network.", examples=["detect"])
    rate_hz: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = Field(
        None,
        description="Frames a second; for all networks or for none. Without rates every network "
        "runs once, or as often as it goes (objective `period`).",
        examples=[30],
    )
    deadline_ms: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = Field(
        None,
        description="Longest time from a frame's arrival to its result; the time between two "
        "frames when absent.",
        examples=[33],
    )
    precision: Literal["fp32", "fp16", "int8"] | None = Field(
        None, description="Lowest precision of this network; that of the file when absent."
    )
    pin: list[PinSection] = Field(
        default_factory=list, description="Layers of this network tied to a device."
    )

    @model_validator(mode="after")
    def _one_source(self) -> NetworkSection:
        if (self.onnx is None) == (self.builtin is None):
            raise ValueError("give exactly one of 'onnx' and 'builtin'")
        return self


class ModelSection(_Source):
    """The network: a file, one of the built-in networks, or several of both."""

    networks: list[NetworkSection] = Field(
        default_factory=list,
        max_length=16,
        description="Several networks on one board, instead of one; see "
        "[several-networks.md](several-networks.md).",
        examples=[[{"name": "detect", "onnx": "detect.onnx", "rate_hz": 30}]],
    )

    @model_validator(mode="after")
    def _one_source(self) -> ModelSection:
        given = [self.onnx is not None, self.builtin is not None, bool(self.networks)]
        if sum(given) != 1:
            raise ValueError("give exactly one of 'onnx', 'builtin' and 'networks'")
        if self.networks and (self.seed or self.shapes or self.batch or self.outputs):
            raise ValueError(
                "give 'seed', 'shapes', 'batch' and 'outputs' for each of the networks"
            )
        names = [network.name for network in self.networks]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two networks have the name '{twice}'")
        rated = sum(network.rate_hz is not None for network in self.networks)
        if rated not in (0, len(names)):
            raise ValueError("give every network a 'rate_hz', or none")
        return self


class RewriteSection(_Section):
    """Exact graph rewrites that make a network fit the DLA."""

    enable: Literal["all", "none"] | list[str] = Field(
        "all", description="`all`, `none` or names of rewrites."
    )
    disable: list[str] = Field(default_factory=list, description="Names of rewrites to leave out.")
    allow_approx: list[str] = Field(
        default_factory=list, description="Names of approximate rewrites to allow."
    )
    always: bool = Field(
        False,
        description="Use the rewrites also where the plan is predicted to be worse with them.",
    )


class BoundsSection(_Section):
    """Upper bounds that the plan must keep."""

    latency_us: Positive | None = Field(None, description="Latency of one inference, microseconds.")
    energy_uj: Positive | None = Field(None, description="Energy of one inference, microjoules.")
    gpu_us: Positive | None = Field(None, description="GPU time of one inference, microseconds.")
    period_us: Positive | None = Field(
        None, description="Time between two frames in steady state, microseconds."
    )


class PoolsSection(_Section):
    """DLA memory pool limits in bytes, powers of two."""

    managed_sram: int | None = Field(None, ge=4096, description="Managed SRAM.")
    local_dram: int | None = Field(None, ge=4096, description="Local DRAM.")
    global_dram: int | None = Field(None, ge=4096, description="Global DRAM.")

    @model_validator(mode="after")
    def _powers(self) -> PoolsSection:
        for name in ("managed_sram", "local_dram", "global_dram"):
            value = getattr(self, name)
            if value is not None and value & (value - 1):
                raise ValueError(f"{name} must be a power of two, got {value}")
        return self


class PlacementSection(_Section):
    """What the placement optimises and what it must keep."""

    objective: Literal["latency", "throughput", "period", "energy", "gpu_time", "makespan"] = Field(
        "latency",
        description="What is made as small (throughput: as large) as possible; `makespan` is for "
        "several networks.",
    )
    bounds: BoundsSection = Field(default_factory=BoundsSection, description="Upper bounds.")
    dla_cores: list[Annotated[int, Field(ge=0, le=7)]] = Field(
        default=[0], description="DLA cores that may be used; empty for none."
    )
    gpu: bool = Field(True, description="`false`: DLA only (standalone loadables).")
    pin: list[PinSection] = Field(default_factory=list, description="Layers tied to a device.")
    max_loadables: int = Field(_SLOTS, ge=1, le=_SLOTS, description="Loadables per DLA core.")
    max_transitions: int | None = Field(
        None, ge=0, description="The most changes between devices along the running order."
    )
    min_loadable_layers: int = Field(1, ge=1, description="The fewest layers of a loadable.")
    pools: Literal["auto"] | PoolsSection = Field(
        "auto", description="What a loadable may have of the DLA's memory pools."
    )
    profile: FilePath = Field(
        None,
        description="Measured times, relative to this file, which win over predicted ones: "
        "a profile of trtexec, a bench of edgekit or a builder's verbose log.",
        examples=["profile.json"],
    )
    layer_info: FilePath = Field(
        None,
        description="trtexec's `--exportLayerInfo` of the profile's engine, relative to this file: "
        "which of its rows are loadables, and their formats.",
        examples=["layers.json"],
    )


class AccuracySection(_Section):
    """The accuracy gate: the run fails (exit 1) below it."""

    metric: Metric = Field("cosine", description="What is compared with the FP32 network.")
    min: float | None = Field(
        None,
        description="Lowest value that passes. Without it the run still fails where an output's "
        "channels or a segment collapse (cosine below 0.9).",
    )
    scores: float = Field(
        0.95,
        ge=0,
        le=1,
        description="Share of a detector's scores above 0.25 in FP32 that must stay above it; 0 "
        "for none.",
    )
    fallback: Literal["fp16", "none"] = Field(
        "fp16",
        description="What an INT8 build below the gate does: keep the fewest layers in FP16 that "
        "bring it there (`fp16`), or fail at once.",
    )

    @model_validator(mode="after")
    def _can_be_reached(self) -> AccuracySection:
        from edgekit.sensitivity import impossible

        told = "" if self.min is None else impossible(self.metric, self.min)
        if told:
            raise ValueError(told)
        return self


class ConfigFile(_Section):
    """One network for one target, or several networks that share it."""

    version: Literal[1] = Field(description="Version of this schema.")
    name: Name = Field(description="Name of the application and of its releases.")
    model: ModelSection = Field(description="The network.")
    target: str = Field(description="A file under `targets/`.", examples=["jetson-agx-orin-64gb"])
    power_mode: str | None = Field(
        None, description="NVIDIA's name of the power mode; MAXN or the board's default if absent."
    )
    tensorrt: str | None = Field(
        None, description="TensorRT on the board; the target's usual release when absent."
    )
    precision: Literal["fp32", "fp16", "int8"] = Field("int8", description="Lowest precision.")
    rewrite: RewriteSection = Field(default_factory=RewriteSection, description="Rewrites.")
    calibration: CalibrationSection = Field(
        default_factory=CalibrationSection, description="INT8 scales."
    )
    placement: PlacementSection = Field(default_factory=PlacementSection, description="Placement.")
    build: BuildSection = Field(default_factory=BuildSection, description="Build.")
    accuracy: AccuracySection = Field(default_factory=AccuracySection, description="Accuracy gate.")
    deploy: DeploySection = Field(default_factory=DeploySection, description="Deployment.")
    bench: BenchSection = Field(default_factory=BenchSection, description="Benchmark.")

    @model_validator(mode="after")
    def _accuracy_can_be_reached(self) -> ConfigFile:
        from edgekit.sensitivity import impossible

        least = self.deploy.health.accuracy_min
        told = "" if least is None else impossible(self.accuracy.metric, least)
        if told:
            raise ValueError(f"deploy.health.accuracy_min: {told}")
        return self

    @model_validator(mode="after")
    def _objective_fits(self) -> ConfigFile:
        networks, wish = self.model.networks, self.placement.objective
        rated = any(network.rate_hz is not None for network in networks)
        if wish == "makespan" and not networks:
            raise ValueError("placement.objective 'makespan' is for several networks: use latency")
        if wish == "throughput" and networks:
            raise ValueError(
                "placement.objective 'throughput' is for one network: give rates, or use period"
            )
        if wish in ("makespan", "period") and rated:
            raise ValueError(
                f"placement.objective '{wish}' is for networks without rates: their rates say how "
                "often they run; use latency, energy or gpu_time"
            )
        if networks and self.placement.bounds.model_dump(exclude_none=True):
            raise ValueError("placement.bounds are for one network: give 'deadline_ms' instead")
        own = self.placement
        if networks and (own.max_transitions is not None or own.min_loadable_layers > 1):
            raise ValueError(
                "placement.max_transitions and placement.min_loadable_layers are for one network"
            )
        if networks and own.profile is not None:
            raise ValueError("placement.profile is for one network")
        if own.layer_info is not None and own.profile is None:
            raise ValueError("placement.layer_info belongs to a placement.profile")
        return self
