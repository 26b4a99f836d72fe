"""The schema of the configuration file, one pydantic model a section. The JSON Schema and
`docs/config.md` come from it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from edgekit.dla.rules import loadables_per_core
from edgekit.errors import UsageError
from edgekit.network.expressions import parse_size
from edgekit.network.ranges import check_range, parse_axis, parse_shape, varies
from edgekit.reference.gate import Metric, impossible
from edgekit.targets.loader import match_words, parse_device
from edgekit.targets.releases import parse_release
from edgekit_device.protocol.fields import DAY_S

if TYPE_CHECKING:
    from edgekit_device.release.policy import Policy

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# pixels of a side
_LARGEST = 1 << 16
Pixels = Annotated[int, Field(ge=1, le=_LARGEST)]
Sides = Annotated[list[Pixels], Field(min_length=2, max_length=2)]
Share = Annotated[float, Field(gt=0, le=1)]
Level = Annotated[int, Field(ge=0, le=255)]
Text = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0, le=DAY_S, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
_LEAST_MS = 10
AUTO = "auto"
# of any release; the features of each release: trt/releases.yaml
TacticSource = Literal["CUBLAS", "CUBLAS_LT", "CUDNN", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"]
PreviewFeature = Literal[
    "ALIASED_PLUGIN_IO_10_03",
    "DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805",
    "FASTER_DYNAMIC_SHAPES_0805",
    "MULTIDEVICE_RUNTIME_10_16",
    "PROFILE_SHARING_0806",
    "RUNTIME_ACTIVATION_RESIZE_10_10",
]
Dimension = Annotated[int, Field(ge=1, le=1 << 31)]
Value = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]


def _bound_loadables(schema: JsonDict) -> None:
    """Adds a core's number of loadables to the JSON Schema: making models reads no file."""
    schema["default"] = schema["maximum"] = loadables_per_core()


@dataclass(frozen=True)
class IsPath:
    """Marks a key whose value is a path, relative to the configuration's file.

    Attributes:
        words: Values that are not paths.
    """

    words: tuple[str, ...] = ()


FilePath = Annotated[str | None, IsPath()]


class Section(BaseModel):
    """A mapping with known keys only."""

    # strict: a text such as "3" must not silently become a number
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def given_keys(section: Section) -> dict[str, Any]:
    """Returns the keys of a section that were given, as YAML has them."""
    return section.model_dump(mode="json", exclude_unset=True, exclude_none=True)


class CalibrationSection(Section):
    """The source of the INT8 scales."""

    data: FilePath = Field(
        None,
        description="A folder of images, Ultralytics' `data.yaml`, an `.npz` or `.npy` file or a "
        "folder of such files, relative to this file, or `python:module:function`, which runs that "
        "function; see [calibration.md](calibration.md). When absent, synthetic seeded inputs are "
        "used and noted in the results.",
        examples=["images/"],
    )
    cache: FilePath = Field(
        None, description="A TensorRT calibration cache to use instead of data."
    )
    missing: Literal["error", "fp16"] = Field(
        "error",
        description="How to handle tensors without a scale in the cache: fail, or run the layers "
        "that need one in FP16.",
    )
    method: Literal["auto", "entropy", "minmax", "percentile", "mse"] = Field(
        "auto",
        description="How ranges are computed from the observed values. `auto` measures all methods "
        "on held-out inputs and takes the one with the best SNR; where that one misses the "
        "accuracy gate, the best of the others.",
    )
    count: int = Field(
        16, ge=1, le=100_000, description="At most this many samples (of a batch of one)."
    )
    pick: Literal["first", "spread"] = Field(
        "first",
        description="Which samples to use if there are more than `count`: the first, or evenly "
        "spread ones.",
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the synthetic inputs.")
    preset: Literal["imagenet", "yolo", "tf", "caffe"] | None = Field(
        None,
        description="Defaults for the keys below, as in well-known training pipelines; keys given "
        "here win.",
    )
    resize: Literal["cover", "letterbox", "stretch"] | Pixels | Sides | None = Field(
        None,
        description="How images are resized to the input: `cover` it and crop (the default), fit "
        "into it with bars (`letterbox`), `stretch`, or resize to a shorter side or "
        "[height, width] in pixels and crop the centre.",
        examples=[256],
    )
    crop: Share | Pixels | Sides | None = Field(
        None,
        description="Centre crop: a share of the sides with `resize: cover`, or the input's size "
        "in pixels.",
        examples=[0.875],
    )
    pad: Level | list[Level] | None = Field(
        None,
        description="Colour of the letterbox bars, one value or one per channel; 114 when absent.",
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "area"] | None = Field(
        None, description="Pillow's filter for resizing; `bilinear` when absent."
    )
    color: Literal["RGB", "BGR", "gray"] | None = Field(
        None,
        description="Order of the channels; when absent `RGB`, or `gray` for an input with one "
        "channel.",
    )
    scale: Positive | None = Field(
        None,
        description="Factor for pixel values 0 to 255, applied before mean and std; 1/255 when "
        "absent.",
    )
    mean: list[float] | None = Field(
        None, description="Mean per channel of image data, after `scale`, in the order of `color`."
    )
    std: list[float] | None = Field(
        None,
        description="Standard deviation per channel of image data, after `scale`, in the order of "
        "`color`.",
    )
    layout: Literal["NCHW", "NHWC"] | None = Field(
        None,
        description="Layout of image data. When absent, `NHWC` if only the input's last dimension "
        "can be channels, otherwise `NCHW`.",
    )
    skip_broken: bool = Field(False, description="Skip images that cannot be read, and list them.")
    fp16_layers: list[str] = Field(
        default_factory=list,
        description="Names (globs) of layers, ONNX nodes or PyTorch modules to keep in FP16; see "
        "[sensitivity.md](sensitivity.md).",
        examples=[["conv1", "head.*"]],
    )

    @model_validator(mode="after")
    def _check_one_source(self) -> CalibrationSection:
        if self.data is not None and self.cache is not None:
            raise ValueError("give 'data' or 'cache', not both")
        return self

    @field_validator("resize", "crop", mode="before")
    @classmethod
    def _check_sizes(cls, value: object, info: ValidationInfo) -> object:
        # a union would report only one member's fault
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
    """How engines are built; the combinations by release: [tensorrt.md](tensorrt.md)."""

    mode: Literal["hybrid", "standalone", "split"] = Field(
        "hybrid",
        description="`hybrid`: DLA with GPU fallback; `standalone`: DLA loadables only; `split`: "
        "segments on GPU and DLA cores as a pipeline.",
    )
    backend: Literal["auto", "reference", "tensorrt"] = Field(
        "auto", description="`auto`: the reference backend without a board that has TensorRT."
    )
    strip: Literal["auto"] | bool = Field(
        "auto", description="Build engines without weights and refit them on the board."
    )
    refit: Literal["identical", "any"] | list[Text] = Field(
        "identical",
        description="Which weights a TensorRT engine accepts at refit: only those it was built "
        "with, any (slower: fewer fusions), or the named ones.",
        examples=[["head.weight"]],
    )
    version_compatible: Literal["auto"] | bool = Field(
        "auto", description="Build engines that a newer TensorRT can load."
    )
    lean: Literal["auto", "embedded", "external"] = Field(
        "auto",
        description="Where the lean runtime of a version compatible engine is: in the engine (the "
        "board runs this code, so only in signed bundles) or on the board; `auto` is "
        "`external`.",
    )
    hardware_compatible: bool = Field(
        False, description="Build engines for other GPUs too; not available on Jetson."
    )
    constraints: Literal["prefer", "obey"] = Field(
        "prefer",
        description="Whether the builder should prefer or must obey the plan's precisions (up to "
        "TensorRT 10; later releases follow the types in the network).",
    )
    optimization_level: int | None = Field(
        None,
        ge=0,
        le=5,
        description="TensorRT's builder optimisation level; its default when absent.",
    )
    workspace_mib: int | None = Field(
        None, ge=1, le=1 << 20, description="GPU workspace memory that a layer may use."
    )
    typing: Literal["auto", "weak", "strong"] = Field(
        "auto",
        description="`weak`: precisions are the builder's flags; `strong`: the types in the "
        "network, which with `precision: fp32` are the file's own; `auto`: `weak` where the "
        "release has it.",
    )
    weight_streaming: bool = Field(
        False,
        description="Build engines that can keep weights in host memory while they run "
        "(`deploy.memory.weights_mib`: how much stays on the GPU); needs `typing: strong` (or "
        "TensorRT 11) and no DLA.",
    )
    sparsity: bool = Field(False, description="Use sparse kernels for weights with 2:4 zeros.")
    tf32: bool = Field(True, description="Layers in FP32 may compute products in TF32.")
    bf16: bool = Field(
        False,
        description="Layers may compute in BF16; needs `precision: fp32` (up to TensorRT 10; later "
        "releases follow the types in the network).",
    )
    fp8: bool | None = Field(
        None,
        description="The GPU runs the file's FP8 Q/DQ nodes, where the board's has FP8 (no Orin "
        "does); when absent, where the file has them (up to TensorRT 10, likewise).",
    )
    int4: bool | None = Field(
        None,
        description="The GPU takes the file's INT4 weights in blocks; when absent, where the file "
        "has them (up to TensorRT 10, likewise).",
    )
    tactic_sources: list[TacticSource] | None = Field(
        None,
        description="Where the builder takes tactics from: these alone; TensorRT's own choice "
        "when absent.",
        examples=[["JIT_CONVOLUTIONS"]],
    )
    tactic_dram_mib: int | None = Field(
        None, ge=1, le=1 << 20, description="Memory that tactics may use while they are timed."
    )
    tactic_shared_memory_kib: int | None = Field(
        None, ge=1, lt=1 << 20, description="Most shared memory of a tactic."
    )
    max_aux_streams: int | None = Field(
        None,
        ge=0,
        le=64,
        description="Most streams that an engine uses beside its own; 0: one stream alone.",
    )
    tiling_optimization_level: Literal["none", "fast", "moderate", "full"] | None = Field(
        None, description="How hard the builder looks for tiles that stay in the L2 cache."
    )
    l2_limit_for_tiling_kib: int | None = Field(
        None, ge=1, le=1 << 20, description="L2 cache that tiles may use; needs tiling."
    )
    preview_features: dict[PreviewFeature, bool] | None = Field(
        None,
        description="TensorRT's preview features, each on or off.",
        examples=[{"ALIASED_PLUGIN_IO_10_03": True}],
    )
    profiling_verbosity: Literal["none", "layer_names_only", "detailed"] = Field(
        "detailed",
        description="The engine's information about its layers; below `detailed` only the build's "
        "log is compared with the plan.",
    )
    strict: bool = Field(False, description="Fail if the engine's placement differs from the plan.")
    timing_cache: bool = Field(
        True, description="Keep the timing cache on the board and reuse it for the next build."
    )
    editable_timing_cache: bool = Field(
        False, description="Keep a timing cache whose entries can be read and changed."
    )
    error_on_timing_cache_miss: bool = Field(
        False, description="Fail where the timing cache lacks a tactic that is timed."
    )

    @field_validator("refit")
    @classmethod
    def _check_names(cls, refit: str | list[str]) -> str | list[str]:
        if refit == []:
            raise ValueError("name the weights, or give 'identical' or 'any'")
        if isinstance(refit, list) and len(set(refit)) < len(refit):
            raise ValueError("a weight is listed twice")
        return refit

    @model_validator(mode="after")
    def _check_compared(self) -> BuildSection:
        # only detailed layer information names devices and formats
        if self.strict and self.profiling_verbosity != "detailed":
            raise ValueError(
                "strict compares the engine, which needs profiling_verbosity: detailed"
            )
        return self


class ContainerSection(Section):
    """A container on the board in which the loader runs (`docker run`)."""

    image: str = Field(
        # without a leading "-", which docker would take for an option
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$",
        description="Container image; it must be on the board or available to its docker.",
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
    """The requirements for a release, first and while it serves: [health.md](health.md)."""

    latency_ms: Positive | None = Field(
        None,
        description="Highest median latency on the board, in milliseconds.",
        examples=[33],
    )
    accuracy_min: Finite | None = Field(
        None,
        description="Lowest `accuracy.metric` on the board, measured on the samples; needs "
        "`samples`.",
        examples=[0.99],
    )
    samples: int = Field(
        0,
        ge=0,
        le=4096,
        description="How many calibration inputs to put into the bundle, with the FP32 network's "
        "outputs for them.",
    )
    labels: FilePath = Field(
        None,
        description="Text file, relative to this file, with the correct class of each sample, one "
        "number per line: `accuracy_min` is then the share of samples that the first "
        "output must classify correctly.",
        examples=["labels.txt"],
    )
    measure_s: float = Field(0.5, ge=0, le=600, description="How long latency is measured.")
    soak_s: float = Field(
        0, ge=0, le=DAY_S, description="How long the new release is monitored after the switch."
    )
    soak_every_s: float = Field(
        1, ge=0.01, le=DAY_S, description="Time between two checks during the soak."
    )
    refit_s: Seconds = Field(600, description="Time limit for a refit.")
    test_s: Seconds = Field(300, description="Time limit for the tests.")

    @model_validator(mode="after")
    def _check_samples(self) -> HealthSection:
        if self.accuracy_min is not None and not self.samples:
            raise ValueError("accuracy_min is measured on samples: set their number with 'samples'")
        if self.labels is not None and not self.samples:
            raise ValueError("labels belong to samples: set their number with 'samples'")
        return self

    def policy(self) -> Policy:
        """Returns the rules by which a board judges a release."""
        from edgekit_device.release.policy import Policy, Timeouts

        return Policy(
            **self.model_dump(exclude={"samples", "labels", "refit_s", "test_s"}),
            timeouts=Timeouts(self.refit_s, self.test_s),
        )


class BoardSection(Section):
    """A board to deploy to."""

    name: Name = Field(
        description="Name of the board in messages: lower-case letters, digits, `.`, `_` and `-`.",
        examples=["lab"],
    )
    host: str = Field(
        min_length=1,
        description="Host name or address; `${ENV}` is expanded.",
        examples=["192.0.2.7"],
    )
    port: int | None = Field(None, ge=1, le=65535, description="SSH port.")
    user: str | None = Field(None, description="SSH user; `${ENV}` is expanded.")
    key: FilePath = Field(None, description="Private key file; `${ENV}` is expanded.")
    host_key: str | None = Field(
        None,
        # 32 bytes in base64; OpenSSH leaves the padding out
        pattern=r"^SHA256:[A-Za-z0-9+/]{43}=?$",
        description="Pinned host key: `SHA256:` and 43 characters, as `ssh-keyscan HOST | "
        "ssh-keygen -lf -` prints it.",
        examples=["SHA256:kL6qVXSZ3zU1jV0rCHbyT0pPqWmM9vYk2E8dN5xQeGs"],
    )
    root: str = Field("~/.edgekit", description="Folder on the board.")
    python: str = Field("python3", description="Python on the board.")
    container: ContainerSection | None = Field(
        None, description="Run edgekit_device on the board in a container."
    )


class ReleaseSection(Section):
    """Release information in a signed bundle; boards check it at unattended installs."""

    counter: int | None = Field(
        None,
        ge=1,
        lt=1 << 63,
        description="Release counter: `install` on a board refuses a bundle with a lower counter "
        "than the last one of this signer and application. Also set by `edgekit bundle "
        "--counter`.",
        examples=[42],
    )
    valid_until: str | None = Field(
        None,
        pattern=r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?$",
        description="`install` accepts the bundle until this day (its end) or time, in UTC.",
        examples=["2027-01-31", "2027-01-31T12:00:00Z"],
    )

    @model_validator(mode="after")
    def _check_time(self) -> ReleaseSection:
        if self.valid_until is not None:
            # the pattern accepts 31 February; fromisoformat knows "Z" only from Python 3.11 on
            datetime.fromisoformat(self.valid_until.replace("Z", "+00:00"))
        return self


class MemorySection(Section):
    """GPU memory settings of a board; they are in the bundle, so a change is a new release."""

    shared: bool = Field(
        True,
        description="Engines of one device share the memory that they need while they run; "
        "`false`: each has its own.",
    )
    persistent_cache: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        0,
        description="Part of the GPU's persistent L2 cache for the engines together "
        "(--persistentCacheRatio); from Ampere on.",
        examples=[0.5],
    )
    weights_mib: Annotated[int, Field(ge=0, le=1 << 22)] | Literal["auto"] | None = Field(
        None,
        description="MiB of each engine's streamed weights that stay on the GPU; `auto`: "
        "TensorRT's choice; all when absent. For engines with weight streaming, from TensorRT "
        "10.1 on.",
        examples=[512],
    )


class DeploySection(Section):
    """Boards, releases kept, how a board judges a release, and the signing key."""

    boards: list[BoardSection] = Field(
        default_factory=list,
        description="Boards to deploy to; an embedded loopback board when empty.",
    )
    # at least the release that serves and the one to roll back to
    keep: int = Field(3, ge=2, le=100, description="How many releases a board keeps.")
    health: HealthSection = Field(
        default_factory=HealthSection, description="Limits that a release must meet on a board."
    )
    memory: MemorySection = Field(
        default_factory=MemorySection, description="How a board uses the GPU's memory."
    )
    release: ReleaseSection = Field(
        default_factory=ReleaseSection,
        description="Release counter and end of validity: [signing.md](signing.md).",
    )
    sign_with: FilePath = Field(
        None,
        description="OpenSSH private key that signs bundles; `${ENV}` is expanded. When absent, "
        "edgekit makes a key of its own.",
        examples=["~/.ssh/id_ed25519"],
    )


class BenchSection(Section):
    """How the benchmark measures: trtexec's method, its option in brackets."""

    # the defaults of trtexec: --warmUp=200, --duration=3, --iterations=10
    warmup_ms: float = Field(
        200, ge=0, le=600_000, description="Warm up at least this long (--warmUp)."
    )
    duration_s: float = Field(
        3, ge=0, le=3600, description="Measure at least this long (--duration)."
    )
    iterations: int = Field(
        10, ge=1, le=1_000_000, description="Measure at least this many inferences (--iterations)."
    )
    streams: int = Field(
        1,
        ge=1,
        le=64,
        description="Frames in flight at once, each in its own stream (--infStreams).",
    )
    graph: bool = Field(
        False,
        description="Replay frames as a CUDA graph (--useCudaGraph). Fails before the build if the "
        "plan uses a DLA.",
    )
    spin: bool | None = Field(
        None,
        description="Wait for the GPU by spinning (--useSpinWait) or by blocking; CUDA's choice "
        "when absent.",
    )
    transfers: bool = Field(
        True, description="Copy inputs and outputs for each frame (false: --noDataTransfers)."
    )
    sleep_ms: float = Field(0, ge=0, le=60_000, description="Pause after each frame (--idleTime).")
    inputs: FilePath = Field(
        None,
        description="Input frames (.npz, .npy, images), relative to this file, in pinned memory "
        "and cycled (--loadInputs); checked against the network before the build. The "
        "bundle's samples or golden frames when absent.",
        examples=["frames.npz"],
    )
    shapes: dict[str, list[Dimension]] = Field(
        default_factory=dict,
        description="Shape to measure by input, of those that the release is built for; the first "
        "one's when absent. `--shape` of `edgekit bench` sets it where `model.shapes` has a range.",
        examples=[{"x": [1, 3, 640, 640]}],
    )
    lock_clocks: bool = Field(
        False,
        description="Lock all clocks at their maximum (jetson_clocks) while measuring, and restore "
        "them.",
    )
    power_mode: str | None = Field(
        None,
        description="Power mode to measure in, by name or id; restored afterwards. The board's "
        "current mode when absent.",
        examples=["MAXN"],
    )
    with_trtexec: bool = Field(
        False, description="Also measure the same plans with trtexec and compare."
    )
    monitor_ms: float = Field(
        100,
        ge=0,
        le=60_000,
        description="Sampling interval for clocks, temperatures, power and load; 0 turns sampling "
        "off.",
    )
    idle_s: float | None = Field(
        None,
        ge=0,
        le=600,
        description="How long the idle board is sampled first, as the power baseline. When absent, "
        "2 s on a board with TensorRT and 0 on the reference backend.",
    )

    @model_validator(mode="after")
    def _check_monitor(self) -> BenchSection:
        if 0 < self.monitor_ms < _LEAST_MS:
            raise ValueError(f"monitor_ms is 0 (off) or at least {_LEAST_MS}")
        return self


class PinSection(Section):
    """Layers that must run on a device."""

    layers: str = Field(
        description="Names of layers, ONNX nodes or PyTorch modules (glob).", examples=["*/conv1"]
    )
    device: Annotated[Literal["GPU", "DLA", "DLA0", "DLA1"], BeforeValidator(parse_device)] = Field(
        description="Device for these layers; `dla:0`, `dla:1`, `gpu` and `0`, as Ultralytics "
        "writes them, are DLA0, DLA1 and the GPU.",
        examples=["DLA"],
    )


class PluginOutput(Section):
    """An output of a plugin."""

    shape: list[Dimension | Text] = Field(
        description="Sizes: numbers, or expressions of the inputs' sizes (`x0[2]` is the third of "
        "the first input) and the node's attributes, with `+ - * // %`, `min` and `max`.",
        examples=[["x0[0]", "x0[1]", "x0[2] // stride[0]", "x0[3] // stride[1]"]],
    )
    type: Literal["x0", "float32", "float16", "int8", "int32", "int64", "bool"] = Field(
        "x0", description="Element type in the ONNX file; `x0` is the type of the first input."
    )

    @field_validator("shape")
    @classmethod
    def _check_expressions(cls, value: list[int | str]) -> list[int | str]:
        for size in value:
            if isinstance(size, str):
                parse_size(size)
        return value


class PluginSection(Section):
    """A plugin of your own: a layer that TensorRT runs with your code."""

    operator: str = Field(
        pattern=r"^([A-Za-z_][\w.-]*::)?[A-Za-z_]\w*$",
        description="The node's operator, with its domain or for every domain.",
        examples=["acme::MyOp"],
    )
    version: Text = Field("1", description="Version of the plugin's creator.")
    namespace: str = Field("", description="Namespace of the plugin's creator.")
    library: FilePath = Field(
        None,
        description="Library for the board, relative to this file; it travels in the bundle.",
        examples=["libmyop.so"],
    )
    source: FilePath = Field(
        None,
        description="Folder with a `CMakeLists.txt`, relative to this file; the board compiles it.",
        examples=["myop/"],
    )
    python: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="A function that computes the operator with NumPy, for the reference backend: "
        "`module:function`, from this file's folder or Python's path. It takes the inputs by "
        "position and the attributes by name, and returns an array, or a tuple of arrays.",
        examples=["myop:compute"],
    )
    outputs: list[PluginOutput] = Field(
        default_factory=list,
        description="The outputs. When absent, `python` is run once to see them.",
        examples=[[{"shape": ["x0[0]", 10], "type": "float32"}]],
    )
    formats: list[Text] = Field(
        default_factory=list,
        description="Types and formats that the plugin takes and gives, as trtexec writes them; "
        "`chw` is linear. When absent, FP16 in linear format is assumed.",
        examples=[["int8:chw32", "fp16:chw"]],
    )

    @field_validator("formats")
    @classmethod
    def _check_possible(cls, value: list[str]) -> list[str]:
        from edgekit.dla.plugin_formats import possible_formats

        known = possible_formats()
        for text in value:
            if text not in known:
                raise ValueError(f"TensorRT has no plugins with {text!r}: use {', '.join(known)}")
        return value

    @model_validator(mode="after")
    def _check_one_origin(self) -> PluginSection:
        if self.library and self.source:
            raise ValueError("give 'library' or 'source', not both")
        return self

    @property
    def name(self) -> str:
        """The operator without its domain: the name of the plugin's creator."""
        return self.operator.rpartition("::")[2]


def _as_plugin(value: Any) -> Any:
    # a name alone: the board's TensorRT brings the plugin
    return {"operator": value} if isinstance(value, str) else value


PluginItem = Annotated[
    PluginSection,
    BeforeValidator(_as_plugin, json_schema_input_type=str | PluginSection),
]


class RangeSection(Section):
    """The smallest, best and largest sizes of an input: a profile of TensorRT."""

    min: list[Dimension] = Field(description="Smallest sizes.", examples=[[1, 3, 320, 320]])
    opt: list[Dimension] | None = Field(
        None,
        description="Sizes to optimise for; the largest when absent.",
        examples=[[1, 3, 640, 640]],
    )
    max: list[Dimension] = Field(description="Largest sizes.", examples=[[1, 3, 1280, 1280]])

    @model_validator(mode="after")
    def _check_order(self) -> RangeSection:
        check_range(self.min, self.opt, self.max)
        return self


class ValuesSection(Section):
    """The smallest, best and largest values of an input that holds sizes."""

    min: list[Value] = Field(description="Smallest values.", examples=[[320, 320]])
    opt: list[Value] | None = Field(
        None, description="Values to optimise for; the largest when absent.", examples=[[640, 640]]
    )
    max: list[Value] = Field(description="Largest values.", examples=[[1280, 1280]])

    @model_validator(mode="after")
    def _check_order(self) -> ValuesSection:
        check_range(self.min, self.opt, self.max, "values")
        return self


class BucketsSection(Section):
    """The number of shapes that are chosen for the DLA."""

    count: int = Field(
        ge=1,
        le=16,
        description="At most this many, chosen from the sizes of the calibration images to waste "
        "the least.",
        examples=[4],
    )


def _check_axis(text: str) -> str:
    parse_axis(text)
    return text


def _check_picture_size(text: str) -> str:
    sides = text.split("x")
    if len(sides) != 2 or not all(s.isdecimal() and 1 <= int(s) <= _LARGEST for s in sides):
        raise ValueError("give HEIGHTxWIDTH, such as 640x960, or {input: [1, 3, 640, 960]}")
    return text


def _form(value: object) -> str:
    """Returns the kind of a value for a key that takes several kinds."""
    if isinstance(value, dict | Section):
        return "mapping"
    if isinstance(value, list | tuple):
        ranges = value and all(isinstance(item, dict | Section) for item in value)
        return "ranges" if ranges else "list"
    return "text" if isinstance(value, str) else "size"


def _size_form(value: object) -> str:
    kind = _form(value)
    return kind if kind in ("list", "text") else "size"


def _shape_form(value: object) -> str:
    kind = _form(value)
    return kind if kind in ("mapping", "ranges", "text") else "list"


def _bucket_form(value: object) -> str:
    return "mapping" if _form(value) == "mapping" else "text"


def _buckets_form(value: object) -> str:
    return "mapping" if _form(value) == "mapping" else "list"


_AxisRange = Annotated[
    str,
    Field(json_schema_extra={"pattern": r"^[0-9]+[.][.]([0-9]+[.][.])?[0-9]+$"}),
    AfterValidator(_check_axis),
]
Axis = Annotated[
    Annotated[Dimension, Tag("size")] | Annotated[_AxisRange, Tag("text")],
    Discriminator(lambda value: "text" if isinstance(value, str) else "size"),
]
Shape = Annotated[
    Annotated[list[Axis], Tag("list")]
    | Annotated[RangeSection, Tag("mapping")]
    | Annotated[list[RangeSection], Field(min_length=1, max_length=16), Tag("ranges")]
    | Annotated[
        str,
        Field(json_schema_extra={"pattern": r"^[0-9.]+(x[0-9.]+)*$"}),
        AfterValidator(parse_shape),
        Tag("text"),
    ],
    # the kind by the value's form: a plain union would report the faults of every member
    Discriminator(_shape_form),
]
Values = Annotated[
    Annotated[list[Value], Field(min_length=1), Tag("list")]
    | Annotated[ValuesSection, Tag("mapping")],
    Discriminator(_buckets_form),
]
Named = Annotated[
    Annotated[Dimension, Tag("size")]
    | Annotated[_AxisRange, Tag("text")]
    | Annotated[list[Dimension], Field(min_length=1), Tag("list")],
    Discriminator(_size_form),
]
Bucket = Annotated[
    Annotated[
        str,
        Field(json_schema_extra={"pattern": r"^[0-9]+x[0-9]+$"}),
        AfterValidator(_check_picture_size),
        Tag("text"),
    ]
    | Annotated[dict[str, list[Dimension]], Field(min_length=1), Tag("mapping")],
    Discriminator(_bucket_form),
]
Buckets = Annotated[
    Annotated[list[Bucket], Field(min_length=1, max_length=64), Tag("list")]
    | Annotated[BucketsSection, Tag("mapping")],
    Discriminator(_buckets_form),
]


class _Source(Section):
    onnx: FilePath = Field(
        None, description="Path of the ONNX file, relative to this file.", examples=["model.onnx"]
    )
    builtin: str | None = Field(
        None,
        description="A network of the onnx package with weights from a seed, instead of a file.",
        examples=["light_resnet50"],
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of a built-in network's weights.")
    shapes: dict[str, Shape] = Field(
        default_factory=dict,
        description="Shape by input name, with a range (`320..1280`, or `min`, `opt`, `max`) where "
        "it may vary; needed if the file leaves more open than the batch. Also for tensors whose "
        "shape depends on a plugin or on data.",
        examples=[{"input": [1, 3, 224, 224]}],
    )
    batch: Dimension | None = Field(
        None,
        description="Batch size if the file leaves it open. When absent, 1 is used and noted in "
        "the results.",
        examples=[4],
    )
    outputs: list[str] = Field(
        default_factory=list,
        description="Cut the network at these tensors, for example before a detection head.",
        examples=[["head_0", "head_1"]],
    )
    cut: Literal["auto"] | None = Field(
        None,
        description="`auto`: cut the network where edgekit proposes it first, so that the first "
        "part runs on the DLA alone; by `placement.objective`, or by the GPU's time where none is "
        "given. A note lists the tensors, as `outputs`. See [cutting.md](cutting.md).",
        examples=["auto"],
    )
    plugins: list[PluginItem] = Field(
        default_factory=list,
        description="Plugins of your own, for operators that TensorRT neither imports nor has a "
        "plugin for. A name alone is a plugin that the board's TensorRT already has. See "
        "[plugins.md](plugins.md).",
        examples=[[{"operator": "acme::MyOp", "library": "libmyop.so"}]],
    )

    @field_validator("plugins")
    @classmethod
    def _check_unique_plugins(cls, value: list[PluginSection]) -> list[PluginSection]:
        names = [plugin.operator for plugin in value]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"{twice!r} is listed twice")
        return value


class NetworkSection(_Source):
    """A network of several that share a board (`edgekit plan` and `report` only)."""

    name: Name = Field(
        description="Name of the network: lower-case letters, digits, `.`, `_` and `-`.",
        examples=["detect"],
    )
    rate_hz: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] | None = Field(
        None,
        description="Frames per second; for all networks or for none. Without rates every network "
        "runs once, or as often as possible (objective `period`).",
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
        default_factory=list, description="Layers of this network pinned to a device."
    )

    @field_validator("shapes")
    @classmethod
    def _check_static(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, form in value.items():
            if varies(form):
                raise ValueError(f"the range of {name!r} is for one network: give one shape")
        return value

    @model_validator(mode="after")
    def _check_one_source(self) -> NetworkSection:
        if (self.onnx is None) == (self.builtin is None):
            raise ValueError("give exactly one of 'onnx' and 'builtin'")
        return self


class ModelSection(_Source):
    """The network: a file, a built-in network, a PyTorch network, or several files."""

    python: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="A function that returns a PyTorch module, or a module and its example inputs: "
        "`package.module:factory`, from Python's path. See [pytorch.md](pytorch.md).",
        examples=["models.lenet:make"],
    )
    pt2: FilePath = Field(
        None,
        description="A program of `torch.export`, or a TorchScript file, relative to this file.",
        examples=["lenet.pt2"],
    )
    head: Annotated[str | None, IsPath((AUTO,))] = Field(
        None,
        description="`auto`: recognise the detection head by its structure, cut the network at its "
        "raw maps, and decode them after the network; or the path of a document "
        "`edgekit.head/1`, relative to this file. See `detection`.",
        examples=[AUTO],
    )
    inputs: dict[str, Text] = Field(
        default_factory=dict,
        description="Sizes of a PyTorch network's inputs, if the program or function has no "
        "example.",
        examples=[{"x": "1x3x224x224:float32"}],
    )
    dimensions: dict[str, Named] = Field(
        default_factory=dict,
        description="Sizes of the file's open axes by their names: a size, a range, or a list of "
        "the only sizes.",
        examples=[{"batch": 1, "height": "320..1280", "width": [320, 640]}],
    )
    values: dict[str, Values] = Field(
        default_factory=dict,
        description="Values of inputs that hold sizes, such as those of a Resize: constants then, "
        "or a range (`min`, `opt`, `max`) for the GPU's engine of the range.",
        examples=[{"size": {"min": [320, 320], "opt": [640, 640], "max": [1280, 1280]}}],
    )
    buckets: Buckets = Field(
        default_factory=list,
        description="Shapes for the DLA, each a network of its own: `HEIGHTxWIDTH` of the input "
        "that is a picture, shapes by input, or `{count: N}`.",
        examples=[["640x640", "544x960"]],
    )
    load: Literal["together", "demand"] = Field(
        "together",
        description="When a board opens the engines of `buckets`: all with the bundle, as far as "
        "the DLA cores hold their loadables, or each at the first frame of its shape.",
    )
    exporter: Literal["dynamo", "legacy"] | None = Field(
        None,
        description="PyTorch's exporter; when absent the first that fits the board's TensorRT.",
    )
    trust: str | None = Field(
        None,
        pattern=r"^[0-9a-fA-F]{64}$",
        description="SHA-256 of a PyTorch file whose pickle may be run.",
    )
    leave: list[Text] = Field(
        default_factory=list,
        description="Globs of the modules that are left out of the network, for check and plan; "
        "`edgekit.compile` builds the parts around them. See "
        "[pytorch.md](pytorch.md#what-stays-in-pytorch).",
        examples=[["head.*"]],
    )
    networks: list[NetworkSection] = Field(
        default_factory=list,
        max_length=16,
        description="Several networks on one board, instead of one; see "
        "[several-networks.md](several-networks.md).",
        examples=[[{"name": "detect", "onnx": "detect.onnx", "rate_hz": 30}]],
    )

    @model_validator(mode="after")
    def _check_one_source(self) -> ModelSection:
        sources = self.onnx, self.builtin, self.python, self.pt2
        if sum(source is not None for source in sources) + bool(self.networks) != 1:
            raise ValueError(
                "give exactly one of 'onnx', 'builtin', 'python', 'pt2' and 'networks'"
            )
        if not self.is_torch and (self.inputs or self.exporter or self.trust):
            raise ValueError("'inputs', 'exporter' and 'trust' are for 'python' and 'pt2'")
        if self.cut and self.outputs:
            raise ValueError("give 'outputs' or 'cut', not both")
        if self.head and (self.cut or self.outputs):
            raise ValueError(
                "give only one of 'head', 'outputs' and 'cut': each cuts the network; with 'head' "
                "the plan keeps layers that no DLA runs on the GPU"
            )
        if self.head and self.networks:
            raise ValueError("'head' is for one network")
        parts = self.seed, self.shapes, self.batch, self.outputs, self.plugins
        if self.networks and (self.dimensions or self.buckets or self.values):
            raise ValueError("'dimensions', 'buckets' and 'values' are for one network")
        if self.builtin and self.values:
            raise ValueError("'values' is not for 'builtin': no built-in network has such inputs")
        if self.networks and any(parts):
            raise ValueError(
                "give 'seed', 'shapes', 'batch', 'outputs' and 'plugins' for each of the networks"
            )
        if self.leave and (self.networks or self.builtin):
            raise ValueError("'leave' is for 'python', 'pt2' and 'onnx'")
        names = [network.name for network in self.networks]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two networks have the name '{twice}'")
        rated = sum(network.rate_hz is not None for network in self.networks)
        # the timetable repeats after the hyperperiod of all rates: without a rate there is none
        if rated not in (0, len(names)):
            raise ValueError("give every network a 'rate_hz', or none")
        return self

    @property
    def is_torch(self) -> bool:
        """True if it is a PyTorch network, which is exported first."""
        return self.python is not None or self.pt2 is not None


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
        description="Use the rewrites even if the plan is predicted to be worse with them.",
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
    def _check_powers(self) -> PoolsSection:
        for name in ("managed_sram", "local_dram", "global_dram"):
            value = getattr(self, name)
            # the guide requires it of all DLA memory pools; a power of two has a single bit
            if value is not None and value & (value - 1):
                raise ValueError(f"{name} must be a power of two, got {value}")
        return self


class PlacementSection(Section):
    """The objective and the constraints of the placement."""

    objective: Literal["latency", "throughput", "period", "energy", "gpu_time", "makespan"] = Field(
        "latency",
        description="What to optimise: minimised, except for throughput; `makespan` is for several "
        "networks.",
    )
    bounds: BoundsSection = Field(default_factory=BoundsSection, description="Upper bounds.")
    rate_hz: Positive | None = Field(
        None,
        description="Frames a second of one network: the plan keeps up with them, and an energy is "
        "that of a frame at this rate. Absent: back to back, frame after frame without a pause.",
    )
    dla_cores: list[Annotated[int, Field(ge=0, le=7)]] = Field(
        default=[0], description="DLA cores that may be used; empty for none."
    )
    gpu: bool = Field(True, description="`false`: DLA only (standalone loadables).")
    slack: float = Field(
        0.03,
        ge=0,
        le=1,
        description="Share of the best objective that a plan may give up for less latency "
        "(objective latency: for less energy). 0: always the best.",
    )
    pin: list[PinSection] = Field(default_factory=list, description="Layers pinned to a device.")
    max_loadables: int = Field(
        default_factory=loadables_per_core,
        ge=1,
        description="Most loadables per DLA core.",
        json_schema_extra=_bound_loadables,
    )
    max_transitions: int | None = Field(
        None, ge=0, description="Most changes between devices along the running order."
    )
    min_loadable_layers: int = Field(1, ge=1, description="Fewest layers in a loadable.")
    pools: Literal["auto"] | PoolsSection = Field(
        "auto", description="Limits of the DLA's memory pools for each loadable."
    )
    profile: FilePath = Field(
        None,
        description="File with measured times to use instead of predicted ones, relative to this "
        "file: a trtexec profile, an edgekit bench or a verbose build log.",
        examples=["profile.json"],
    )
    layer_info: FilePath = Field(
        None,
        description="`trtexec --exportLayerInfo` of the profiled engine, relative to this file, to "
        "identify the loadables' rows and formats.",
        examples=["layers.json"],
    )

    @property
    def pool_limits(self) -> dict[str, int] | None:
        """The limits in bytes by pool, of pools that have one; None for `auto`."""
        return None if self.pools == "auto" else self.pools.model_dump(exclude_none=True)

    @field_validator("max_loadables")
    @classmethod
    def _check_core_limit(cls, value: int) -> int:
        most = loadables_per_core()
        if value > most:
            # as pydantic's own limit would: the number comes from a file, which is read only when
            # needed
            raise PydanticCustomError(
                "less_than_equal", "Input should be less than or equal to {le}", {"le": most}
            )
        return value

    @field_validator("dla_cores")
    @classmethod
    def _check_distinct_cores(cls, cores: list[int]) -> list[int]:
        twice = next((core for core in cores if cores.count(core) > 1), None)
        if twice is not None:
            raise ValueError(f"core {twice} is listed twice")
        return cores


class AccuracySection(Section):
    """The accuracy gate: the run fails (exit 1) below it."""

    metric: Metric = Field(
        "cosine",
        description="Metric for the comparison with the FP32 network. `boxes` needs `model.head`: "
        "the F1 score of the build's objects against FP32's, matched by class and an intersection "
        "over union of at least 0.5.",
    )
    min: float | None = Field(
        None,
        description="Lowest value that passes. Without it the run still fails if channels of an "
        "output or a segment collapse (cosine below 0.9).",
    )
    labelled: FilePath = Field(
        None,
        description="Labelled inputs, relative to this file. Of a classifier an `.npz` file of "
        "`labels` and an array for each input with one row a label: the number of labels that "
        "match the first output's largest value is noted, as built and in FP32. With `model.head` "
        "COCO's JSON, Ultralytics' `data.yaml` (its `val`), or a folder with `images/` and "
        "`labels/`: mAP50 and mAP50-95 are noted.",
        examples=["digits.npz", "data.yaml"],
    )
    # 0.25 is the usual score above which a detector's objects count (``detection.score``)
    scores: float = Field(
        0.95,
        ge=0,
        le=1,
        description="Share of a detector's scores above 0.25 in FP32 that must stay above 0.25; "
        "with `model.head` the least of `boxes`, whatever `metric` is. 0 turns the checks off.",
    )
    fallback: Literal["fp16", "none"] = Field(
        "fp16",
        description="How to handle an INT8 build below the gate: try the other calibration methods "
        "(with `calibration.method: auto`), then keep the fewest layers in FP16 that make it pass "
        "(`fp16`); or fail at once (`none`).",
    )
    thorough: bool = Field(
        False,
        description="Search for these layers without bounds on builds and inputs "
        "([sensitivity.md](sensitivity.md#how-far-it-searches)).",
    )

    @model_validator(mode="after")
    def _check_reachable(self) -> AccuracySection:
        fault = "" if self.min is None else impossible(self.metric, self.min)
        if fault:
            raise ValueError(fault)
        return self


class DetectionSection(Section):
    """The objects of the head in `model.head` that are kept."""

    classes: list[Text] | Annotated[str, IsPath()] | None = Field(
        None,
        description="Names of the classes, or the path of a file, relative to this one, with a "
        "name on each line or with Ultralytics' `names`; when absent those in the model's "
        "metadata.",
        examples=[["person", "bicycle"]],
    )
    score: float = Field(0.25, ge=0, le=1, description="Least score of an object.")
    iou: float = Field(
        0.45,
        ge=0,
        le=1,
        description="Intersection over union above which the object with the lower score goes.",
    )
    most: int = Field(300, ge=1, le=30_000, description="Objects of a picture at most.")
    agnostic: bool = Field(
        False, description="Whether objects of different classes suppress each other."
    )


class ConfigFile(Section):
    """One network for one target, or several networks that share it."""

    version: Literal[1] = Field(description="Version of this schema.", examples=[1])
    name: Name = Field(
        description="Name of the application and of its releases: lower-case letters, digits, `.`, "
        "`_` and `-`.",
        examples=["resnet50"],
    )
    model: ModelSection = Field(description="The network.", examples=[{"onnx": "model.onnx"}])
    target: str = Field(
        description="A file under `targets/`; its words may be in any order.",
        examples=["jetson-agx-orin-64gb"],
    )
    power_mode: str | None = Field(
        None, description="NVIDIA's name of the power mode; MAXN or the board's default if absent."
    )
    tensorrt: str | None = Field(
        None, description="TensorRT on the board; the target's usual release when absent."
    )
    precision: Literal["fp32", "fp16", "int8"] = Field("int8", description="Lowest precision.")
    parser: bool = Field(
        False,
        description="Also let NVIDIA's own parser read the model; needs `edgekit[parser]` "
        "([check.md](check.md)).",
    )
    rewrite: RewriteSection = Field(default_factory=RewriteSection, description="Rewrites.")
    calibration: CalibrationSection = Field(
        default_factory=CalibrationSection, description="INT8 scales."
    )
    placement: PlacementSection = Field(default_factory=PlacementSection, description="Placement.")
    build: BuildSection = Field(default_factory=BuildSection, description="Build.")
    accuracy: AccuracySection = Field(default_factory=AccuracySection, description="Accuracy gate.")
    detection: DetectionSection = Field(
        default_factory=DetectionSection, description="The objects that a detector's head keeps."
    )
    deploy: DeploySection = Field(default_factory=DeploySection, description="Deployment.")
    bench: BenchSection = Field(default_factory=BenchSection, description="Benchmark.")

    @field_validator("target")
    @classmethod
    def _canonical_board(cls, name: str) -> str:
        """Returns the board's own name if its words are in another order."""
        # an unknown name is unchanged: the loader reports it with the other errors
        return match_words(name) or name

    @field_validator("tensorrt")
    @classmethod
    def _canonical_release(cls, text: str | None) -> str | None:
        """Returns the release's standard spelling; an unknown release is refused later."""
        with suppress(UsageError):
            return None if text is None else parse_release(text)
        return text

    @model_validator(mode="after")
    def _check_accuracy(self) -> ConfigFile:
        least = self.deploy.health.accuracy_min
        fault = "" if least is None else impossible(self.accuracy.metric, least)
        if fault:
            raise ValueError(f"deploy.health.accuracy_min: {fault}")
        return self

    @model_validator(mode="after")
    def _check_boxes(self) -> ConfigFile:
        if self.accuracy.metric == "boxes" and self.model.head is None:
            raise ValueError("accuracy.metric boxes needs model.head, which decodes the outputs")
        return self

    @model_validator(mode="after")
    def _check_objective(self) -> ConfigFile:
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
                f"placement.objective '{objective}' is for networks without rates; use latency, "
                "energy or gpu_time"
            )
        if networks and self.placement.bounds.model_dump(exclude_none=True):
            raise ValueError("placement.bounds are for one network: give 'deadline_ms' instead")
        own = self.placement
        if networks and (own.max_transitions is not None or own.min_loadable_layers > 1):
            raise ValueError(
                "placement.max_transitions and placement.min_loadable_layers are for one network"
            )
        if networks and own.rate_hz is not None:
            raise ValueError(
                "placement.rate_hz is for one network: give each of model.networks its 'rate_hz'"
            )
        if networks and own.profile is not None:
            raise ValueError("placement.profile is for one network")
        if own.layer_info is not None and own.profile is None:
            raise ValueError("placement.layer_info belongs to a placement.profile")
        return self
