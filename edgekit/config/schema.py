"""The schema of the configuration file, one pydantic model a section. The JSON Schema and
`docs/config.md` come from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from edgekit.dla.rules import loadables_per_core
from edgekit.reference.gate import Metric, impossible

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_LARGEST = 1 << 16
Pixels = Annotated[int, Field(ge=1, le=_LARGEST)]
Sides = Annotated[list[Pixels], Field(min_length=2, max_length=2)]
Share = Annotated[float, Field(gt=0, le=1)]
Level = Annotated[int, Field(ge=0, le=255)]
Text = Annotated[str, Field(min_length=1)]
_DAY_S = 86_400
Seconds = Annotated[float, Field(gt=0, le=_DAY_S, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
_LEAST_MS = 10
Dimension = Annotated[int, Field(ge=1, le=1 << 31)]
_SLOTS = loadables_per_core()


@dataclass(frozen=True)
class IsPath:
    """Marks a key whose value is a path, relative to the configuration's file."""


FilePath = Annotated[str | None, IsPath()]


class Section(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CalibrationSection(Section):
    """Where INT8 scales come from."""

    data: FilePath = Field(
        None,
        description="A folder of images, an `.npz` or `.npy` file or a folder of them, relative "
        "to this file, or `python:module:function`, which runs that function; see "
        "[calibration.md](calibration.md). Synthetic seeded inputs when absent, and said so.",
        examples=["images/"],
    )
    cache: FilePath = Field(
        None, description="A TensorRT calibration cache to use instead of data."
    )
    missing: Literal["error", "fp16"] = Field(
        "error",
        description="What a tensor without a scale in the cache means: an error, or FP16 for the "
        "layers that need it.",
    )
    method: Literal["auto", "entropy", "minmax", "percentile", "mse"] = Field(
        "auto",
        description="How a range follows from the values seen; `auto` is the method with the best "
        "SNR on inputs held out, measured here for each network.",
    )
    count: int = Field(
        16, ge=1, le=100_000, description="At most this many samples (of a batch of one)."
    )
    pick: Literal["first", "spread"] = Field(
        "first", description="Which samples of more than `count`: the first, or evenly spread ones."
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the synthetic inputs.")
    preset: Literal["imagenet", "yolo", "tf", "caffe"] | None = Field(
        None,
        description="Values of the keys below as well-known training pipelines have them; a key "
        "that is given wins.",
    )
    resize: Literal["cover", "letterbox", "stretch"] | Pixels | Sides | None = Field(
        None,
        description="How an image becomes as large as the input: `cover` it and cut the rest off "
        "(the default), fit into it with bars (`letterbox`), `stretch`, or the shorter side or "
        "[height, width] in pixels, from whose middle the input is cut.",
        examples=[256],
    )
    crop: Share | Pixels | Sides | None = Field(
        None,
        description="The middle that is kept: a share of the sides with `resize: cover`, or the "
        "input's size in pixels.",
        examples=[0.875],
    )
    pad: Level | list[Level] | None = Field(
        None, description="Colour of a letterbox's bars, one value or one per channel; 114."
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "area"] | None = Field(
        None, description="Pillow's filter for resizing; `bilinear`."
    )
    color: Literal["RGB", "BGR", "gray"] | None = Field(
        None, description="Order of the channels; `RGB`, and `gray` for an input with one channel."
    )
    scale: Positive | None = Field(
        None, description="What pixels 0 to 255 are multiplied by before mean and std; 1/255."
    )
    mean: list[float] | None = Field(
        None, description="Per-channel mean of image data, after `scale`, in the order of `color`."
    )
    std: list[float] | None = Field(
        None, description="Per-channel deviation of image data, likewise."
    )
    layout: Literal["NCHW", "NHWC"] | None = Field(
        None,
        description="Layout of image data; `NHWC` where only the input's last dimension can be "
        "channels, `NCHW` otherwise.",
    )
    skip_broken: bool = Field(
        False, description="Leave out images that cannot be read, and say which."
    )
    fp16_layers: list[str] = Field(
        default_factory=list,
        description="Globs over names of layers and ONNX nodes that are kept in FP16; see "
        "[sensitivity.md](sensitivity.md).",
        examples=[["conv1", "head.*"]],
    )

    @model_validator(mode="after")
    def _one_source(self) -> CalibrationSection:
        if self.data is not None and self.cache is not None:
            raise ValueError("give 'data' or 'cache', not both")
        return self

    @field_validator("resize", "crop", mode="before")
    @classmethod
    def _sizes(cls, value: object, info: ValidationInfo) -> object:
        # a union would report one of its members only
        words = ("cover", "letterbox", "stretch")
        resize = info.field_name == "resize"
        if value is None or (resize and isinstance(value, str) and value in words):
            return value
        if not resize and isinstance(value, float) and 0 < value <= 1:
            return value
        sides = value if isinstance(value, list) and len(value) == 2 else [value]
        if all(type(side) is int and 1 <= side <= _LARGEST for side in sides):
            return value
        first = ", ".join(words) if resize else "a share such as 0.875"
        raise ValueError(f"give {first}, a size in pixels or [height, width]")


class BuildSection(Section):
    """How engines are built; what goes together on which release: [tensorrt.md](tensorrt.md)."""

    mode: Literal["hybrid", "standalone", "split"] = Field(
        "hybrid",
        description="`hybrid`: DLA with GPU fallback; `standalone`: DLA loadables only; `split`: "
        "segments on GPU and DLA cores as a pipeline.",
    )
    backend: Literal["auto", "reference", "tensorrt", "trtexec"] = Field(
        "auto", description="`auto`: the reference backend without a board that has TensorRT."
    )
    strip: Literal["auto"] | bool = Field(
        "auto", description="Take the weights out of the engines and refit on the board."
    )
    refit: Literal["identical", "any"] | list[Text] = Field(
        "identical",
        description="Which weights a TensorRT engine takes: those that it was built with, any "
        "(slower: fewer fusions), or the named ones.",
        examples=[["head.weight"]],
    )
    version_compatible: Literal["auto"] | bool = Field(
        "auto", description="Build engines that a newer TensorRT can load."
    )
    lean: Literal["auto", "embedded", "external"] = Field(
        "auto",
        description="Where a version compatible engine's lean runtime is: in the engine (code that "
        "the board runs, so for signed bundles only) or on the board; `auto` is `external`.",
    )
    hardware_compatible: bool = Field(
        False, description="Build engines for other GPUs too; no Jetson has it."
    )
    constraints: Literal["prefer", "obey"] = Field(
        "prefer",
        description="Whether the builder prefers the plan's precisions or must obey them (up to "
        "TensorRT 10; later the types in the network count).",
    )
    optimization_level: int | None = Field(
        None, ge=0, le=5, description="How long the builder searches; TensorRT's own when absent."
    )
    workspace_mib: int | None = Field(
        None, ge=1, le=1 << 20, description="The GPU memory that a layer may use while it runs."
    )
    strict: bool = Field(
        False, description="Fail where the engine's placement differs from the plan."
    )
    timing_cache: bool = Field(
        True, description="Keep timings on the board and use them again for the next build."
    )

    @field_validator("refit")
    @classmethod
    def _names(cls, refit: str | list[str]) -> str | list[str]:
        if refit == []:
            raise ValueError("name the weights, or give 'identical' or 'any'")
        if isinstance(refit, list) and len(set(refit)) < len(refit):
            raise ValueError("a weight is named twice")
        return refit


class ContainerSection(Section):
    """A container on the board in which the loader runs (`docker run`)."""

    image: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$",
        description="Its image, which must be on the board or where its docker finds it.",
        examples=["nvcr.io/nvidia/l4t-tensorrt:r10.3.0-runtime"],
    )
    runtime: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] | None = Field(
        "nvidia", description="Docker's runtime; `null` for docker's default."
    )
    options: list[Text] = Field(
        default_factory=list,
        description="More options for `docker run`, one word each.",
        examples=[["--device", "/dev/nvhost-ctrl"]],
    )


class HealthSection(Section):
    """What a release must reach on a board, first and while it serves: [health.md](health.md)."""

    latency_ms: Positive | None = Field(
        None,
        description="Longest time that half of the frames may need on the board, milliseconds.",
        examples=[33],
    )
    accuracy_min: Finite | None = Field(
        None,
        description="What `accuracy.metric` must reach on the board, on the samples; needs "
        "`samples`.",
        examples=[0.99],
    )
    samples: int = Field(
        0,
        ge=0,
        le=4096,
        description="How many of the calibration inputs travel with the bundle, with what the FP32 "
        "network makes of them.",
    )
    labels: FilePath = Field(
        None,
        description="Text file, relative to this file, with the right class of each sample, a "
        "number a line: `accuracy_min` is then the share of them that the first output must name.",
        examples=["labels.txt"],
    )
    measure_s: float = Field(0.5, ge=0, le=600, description="How long latency is measured.")
    soak_s: float = Field(
        0, ge=0, le=_DAY_S, description="How long the new release is watched while it serves."
    )
    soak_every_s: float = Field(
        1, ge=0.01, le=_DAY_S, description="Time between two looks at it in that time."
    )
    download_s: Seconds = Field(3600, description="Longest time of a download by the board.")
    refit_s: Seconds = Field(600, description="Longest time of a refit.")
    test_s: Seconds = Field(300, description="Longest time of the tests.")

    @model_validator(mode="after")
    def _has_samples(self) -> HealthSection:
        if self.accuracy_min is not None and not self.samples:
            raise ValueError("accuracy_min is measured on samples: say how many with 'samples'")
        if self.labels is not None and not self.samples:
            raise ValueError("labels are of the samples: say how many with 'samples'")
        return self

    def policy(self) -> dict[str, Any]:
        """Returns what travels with a deployment: what ``edgekit_device`` reads as a policy."""
        found = self.model_dump(exclude={"samples", "labels", "download_s", "refit_s", "test_s"})
        limits = ("download_s", "refit_s", "test_s")
        return {**found, "timeouts": {name: getattr(self, name) for name in limits}}


class BoardSection(Section):
    """A board to deploy to."""

    name: Name = Field(description="Name for messages.", examples=["lab"])
    host: str = Field(min_length=1, description="Host name or address; `${ENV}` is expanded.")
    port: int | None = Field(None, ge=1, le=65535, description="SSH port.")
    user: str | None = Field(None, description="SSH user; `${ENV}` is expanded.")
    key: FilePath = Field(None, description="Private key file; `${ENV}` is expanded.")
    host_key: str | None = Field(
        None,
        pattern=r"^SHA256:[A-Za-z0-9+/]{43}=?$",
        description="Pinned host key, as `ssh-keygen -lf` prints it.",
    )
    root: str = Field("~/.edgekit", description="Folder on the board.")
    python: str = Field("python3", description="Python on the board.")
    container: ContainerSection | None = Field(
        None, description="Run the loader in a container there instead."
    )


class ReleaseSection(Section):
    """What a signed bundle says of itself; boards check unattended installs by it."""

    counter: int | None = Field(
        None,
        ge=1,
        lt=1 << 63,
        description="Release counter: `install` on a board takes no bundle of a lower one than it "
        "has seen of this signer and application. `edgekit bundle --counter` gives it too.",
        examples=[42],
    )
    valid_until: str | None = Field(
        None,
        pattern=r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?$",
        description="`install` takes the bundle until then: a day (its end) or a time, in UTC.",
        examples=["2027-01-31"],
    )

    @model_validator(mode="after")
    def _is_a_time(self) -> ReleaseSection:
        if self.valid_until is not None:
            datetime.fromisoformat(self.valid_until.replace("Z", "+00:00"))
        return self


class DeploySection(Section):
    """Boards, releases kept, how a board judges a release, and the signing key."""

    boards: list[BoardSection] = Field(
        default_factory=list, description="Boards; an embedded loopback board when empty."
    )
    keep: int = Field(3, ge=2, le=100, description="Releases kept on a board.")
    mirror: list[Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]] = Field(
        default_factory=list,
        description="Where boards fetch bundles themselves, in this order: URLs of mirrors "
        "that `edgekit bundle push` wrote. `${ENV}` is expanded.",
        examples=["https://mirror.example.org/edgekit/"],
    )
    health: HealthSection = Field(
        default_factory=HealthSection, description="What a release must reach on a board."
    )
    release: ReleaseSection = Field(
        default_factory=ReleaseSection,
        description="Release counter and end of validity: [signing.md](signing.md).",
    )
    sign_with: FilePath = Field(
        None,
        description="OpenSSH private key that signs bundles; `${ENV}` is expanded. A key of "
        "edgekit's own when absent.",
        examples=["~/.ssh/id_ed25519"],
    )


class BenchSection(Section):
    """How the benchmark measures: trtexec's method, its option in brackets."""

    warmup_ms: float = Field(
        200, ge=0, le=600_000, description="Warm up at least this long (--warmUp)."
    )
    duration_s: float = Field(
        3, ge=0, le=3600, description="Measure at least this long (--duration)."
    )
    iterations: int = Field(
        10, ge=1, le=1_000_000, description="Measure at least this often (--iterations)."
    )
    streams: int = Field(
        1,
        ge=1,
        le=64,
        description="Frames in flight at once, each in a stream of its own (--infStreams).",
    )
    graph: bool = Field(
        False,
        description="Replay frames as a CUDA graph (--useCudaGraph); refused where the plan uses "
        "a DLA, whatever the backend, before anything is built.",
    )
    spin: bool | None = Field(
        None,
        description="Wait for the GPU spinning (--useSpinWait), or blocked; as CUDA chooses when "
        "absent.",
    )
    transfers: bool = Field(
        True, description="Copy inputs and outputs for each frame (false: --noDataTransfers)."
    )
    sleep_ms: float = Field(0, ge=0, le=60_000, description="Pause after each frame (--idleTime).")
    inputs: FilePath = Field(
        None,
        description="Frames to measure with (.npz, .npy, images), relative to this file, in "
        "pinned memory and cycled (--loadInputs); what does not fit the network is refused before "
        "anything is built. The bundle's samples or golden frames when absent.",
        examples=["frames.npz"],
    )
    lock_clocks: bool = Field(
        False,
        description="Hold every clock at its highest (jetson_clocks) meanwhile, and restore them.",
    )
    power_mode: str | None = Field(
        None,
        description="Power mode to measure in, by name or id, and to come back from; the board's "
        "present one when absent.",
        examples=["MAXN"],
    )
    with_trtexec: bool = Field(
        False, description="Measure the same plans with trtexec, too, and compare."
    )
    monitor_ms: float = Field(
        100,
        ge=0,
        le=60_000,
        description="Between two looks at clocks, temperatures, power and load; 0: do not look.",
    )
    idle_s: float | None = Field(
        None,
        ge=0,
        le=600,
        description="Watch the board idle this long first: the baseline of its power. 2 s on a "
        "board with TensorRT, not at all on the reference backend when absent.",
    )

    @model_validator(mode="after")
    def _can_look(self) -> BenchSection:
        if 0 < self.monitor_ms < _LEAST_MS:
            raise ValueError(f"monitor_ms is 0 (off) or at least {_LEAST_MS}")
        return self


class PinSection(Section):
    """Layers that must run on a device."""

    layers: str = Field(description="Glob over layer names.", examples=["*/conv1"])
    device: Literal["GPU", "DLA", "DLA0", "DLA1"] = Field(description="The device.")


class _Source(Section):
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


class RewriteSection(Section):
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


class BoundsSection(Section):
    """Upper bounds that the plan must keep."""

    latency_us: Positive | None = Field(None, description="Latency of one inference, microseconds.")
    energy_uj: Positive | None = Field(None, description="Energy of one inference, microjoules.")
    gpu_us: Positive | None = Field(None, description="GPU time of one inference, microseconds.")
    period_us: Positive | None = Field(
        None, description="Time between two frames in steady state, microseconds."
    )


class PoolsSection(Section):
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


class PlacementSection(Section):
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


class AccuracySection(Section):
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
        fault = "" if self.min is None else impossible(self.metric, self.min)
        if fault:
            raise ValueError(fault)
        return self


class ConfigFile(Section):
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
        least = self.deploy.health.accuracy_min
        fault = "" if least is None else impossible(self.accuracy.metric, least)
        if fault:
            raise ValueError(f"deploy.health.accuracy_min: {fault}")
        return self

    @model_validator(mode="after")
    def _objective_fits(self) -> ConfigFile:
        networks, objective = self.model.networks, self.placement.objective
        rated = any(network.rate_hz is not None for network in networks)
        if objective == "makespan" and not networks:
            raise ValueError("placement.objective 'makespan' is for several networks: use latency")
        if objective == "throughput" and networks:
            raise ValueError(
                "placement.objective 'throughput' is for one network: give rates, or use period"
            )
        if objective in ("makespan", "period") and rated:
            raise ValueError(
                f"placement.objective '{objective}' is for networks without rates: their rates say "
                "how often they run; use latency, energy or gpu_time"
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
