"""The constants of the cost model, as ``targets/costs`` has them: each file is read once, into a
class whose attributes bear the file's names. What was fitted, measured or assumed stands in the
files (``source``); the formulas stand where the constants are used.
"""

# the annotations are read at run time, so they are no texts
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from edgekit.knowledge import data_folder, read_facts
from edgekit_device.protocol.codec import document

_File = TypeVar("_File")
_SCHEMA = "edgekit.costs/1"


@document(frozen=True)
class GpuConstants:
    """What the kernels of a GPU architecture take; microseconds are those at a clock of 1 GHz.

    Attributes:
        launch_us: Starting a kernel.
        floor_us: The least that a kernel with multiply-accumulates takes.
        light_floor_us: The least that another kernel takes.
        memory: The share of the DRAM's rate that kernels reach.
        efficiency: The share of the peak rate, by precision.
        depthwise: That share where every channel is a group of its own.
        groups: What other grouped convolutions reach of the efficiency.
        out_half: Channels out of a group that halve the rate.
        depth_half: Products summed for an output that halve it.
        overlap: Exponent by which floor, arithmetic and traffic overlap: 1 not at all.
        fp32_of_fp16: The peak rate in FP32 over that in FP16.
        clock_exponent: Fixed times grow with (1 GHz / clock) to this power.
        channel_atom: Channels that tensor cores take at a time, by precision.
        image_channels: Channels of an image, which are not filled up.
        tile: Pixels of a tile, and channels.
        cache_bytes_per_sm: Bytes of the L2 cache for each SM.
        cache_speedup: How much faster than the DRAM it is.
        row_us: Each row of a Gemm.
        tile_exponent: The power of the share of SMs that tiles occupy.
        broken: What a kernel of a transformer takes beside a DLA over what it takes alone.
        depth_us: Each thousand products summed for an output.
    """

    launch_us: float
    floor_us: float
    light_floor_us: float
    memory: float
    efficiency: Mapping[str, float]
    depthwise: float
    groups: float
    out_half: float
    depth_half: float
    overlap: float
    fp32_of_fp16: float
    clock_exponent: float
    channel_atom: Mapping[str, int]
    image_channels: int
    tile: int
    cache_bytes_per_sm: int
    cache_speedup: float
    row_us: float
    tile_exponent: float
    broken: float
    depth_us: float


@document(frozen=True)
class DlaConstants:
    """What the operations of a DLA generation take; fixed times are those at the highest clock.

    Attributes:
        operation_us: Microseconds of a pass, whatever its work.
        launch_us: Microseconds to start a loadable.
        memory: The share of the DRAM's rate that operations reach.
        efficiency: The share of the peak rate, by precision.
        channel_atom: Channels in that the array takes at a time, by precision.
        grouped_atom: Channels of a convolution that takes as long as a depthwise one, by precision.
        channel_half: Channels in that halve the rate (INT8).
        pool_bytes_per_clock: Bytes that a pooling reads a clock.
        softmax_clocks: Clocks for an element of a softmax along rows or columns.
        overlap: Exponent by which the parts of a time overlap: 1 not at all.
        image_channels: Channels of an image, which has a mode of its own.
        fp16_macs_per_clock: Multiply-accumulates a clock in FP16.
        row_gb_per_second: Gigabytes of weights a second, read again for each row of a Gemm.
        image_us_per_megabyte: Microseconds for a megabyte of padding of an image in vectors.
        linear_us_per_megabyte: Microseconds for a megabyte of a linear tensor, by "read" and
            "write".
    """

    operation_us: float
    launch_us: float
    memory: float
    efficiency: Mapping[str, float]
    channel_atom: Mapping[str, int]
    grouped_atom: Mapping[str, float]
    channel_half: float
    pool_bytes_per_clock: float
    softmax_clocks: float
    overlap: float
    image_channels: int
    fp16_macs_per_clock: float
    row_gb_per_second: float
    image_us_per_megabyte: float
    linear_us_per_megabyte: Mapping[str, float]


@document(frozen=True)
class DeviceConstants:
    """``devices.yaml``: constants by GPU architecture ("ampere") and by DLA generation ("2.0")."""

    gpu: Mapping[str, GpuConstants]
    dla: Mapping[str, DlaConstants]


@document(frozen=True)
class Fusion:
    """Kinds of layers that are placed together: what begins a kernel, and what may follow."""

    heads: tuple[str, ...]
    tails: tuple[str, ...]


@document(frozen=True)
class RunsAsOne:
    """Functions of pointwise layers that a convolution or product computes along with itself."""

    gpu: tuple[str, ...]
    dla: tuple[str, ...]


@document(frozen=True)
class InLoops:
    """Kinds of layers that run as one kernel where they follow each other in a loop's body."""

    joined: tuple[str, ...]


@document(frozen=True)
class FreeOnGpu:
    """Layers without a kernel on the GPU: their kinds, and the modes of shuffles."""

    kinds: tuple[str, ...]
    shuffle_modes: tuple[str, ...]


@document(frozen=True)
class WrittenOut:
    """Operations of a step and direction of a recurrence on a DLA, by ONNX operator."""

    operations: Mapping[str, int]


@document(frozen=True)
class NoInt8:
    """Kinds of layers without an INT8 kernel on the GPU."""

    kinds: tuple[str, ...]


@document(frozen=True)
class GpuFormats:
    """Tensor formats of GPU kernels.

    Attributes:
        vector: The vector format of 4-D tensors, by precision.
        linear_kinds: Kinds of layers that exist for linear tensors alone.
        any_kinds: Kinds that take both.
    """

    vector: Mapping[str, str]
    linear_kinds: tuple[str, ...]
    any_kinds: tuple[str, ...]


@document(frozen=True)
class RegionKinds:
    """What the GPU's compiler fuses as one.

    Attributes:
        anchors: Kinds of which a part has at least one.
        fused: Kinds that the fusion makes cheaper.
        kinds: Kinds that a part may have.
        ops: ONNX operators of the convolutions that it may have.
    """

    anchors: tuple[str, ...]
    fused: tuple[str, ...]
    kinds: tuple[str, ...]
    ops: tuple[str, ...]


@document(frozen=True)
class LayerKinds:
    """``kinds.yaml``: what kinds of layers run together, cost nothing, or lack a kernel."""

    fusion: Fusion
    runs_as_one: RunsAsOne
    free_on_gpu: FreeOnGpu
    written_out: WrittenOut
    no_int8_on_gpu: NoInt8
    gpu_formats: GpuFormats
    regions: RegionKinds
    in_loops: InLoops


@document(frozen=True)
class Spread:
    """The model's error on some rows: how many there are, and percents."""

    rows: int
    median_percent: float
    of_90_percent: float
    max_percent: float


@document(frozen=True)
class ModelErrors:
    """``error.yaml``: how far the model is from published times.

    Attributes:
        fitted: Of networks, by the constants as they are.
        without_network: By constants fitted without a row's network.
        without_board: By constants fitted without its board.
        automatic: Of what TensorRT placed by itself.
        operations: Of what was timed alone.
        bands: The factors between which measured times mostly lie of predicted ones, by "all" or
            device and precision ("gpu_int8").
        rows_of: Open rows by device and precision ("gpu ampere int8").
    """

    fitted: Spread
    without_network: Spread
    without_board: Spread
    automatic: Spread
    operations: Spread
    bands: Mapping[str, tuple[float, float]]
    rows_of: Mapping[str, int]


@document(frozen=True)
class MobileOnDla:
    """Networks of depthwise blocks that no published row on a DLA is like.

    Attributes:
        gates: Functions of layers that such a network has.
        shuffle_rank: Dimensions of a shuffle that it has else.
        why: What is not supported, in words.
    """

    gates: tuple[str, ...]
    shuffle_rank: int
    why: str


@document(frozen=True)
class Unsupported:
    """Layers that no published time has, in words."""

    why: str


@document(frozen=True)
class Extrapolation:
    """``extrapolated.yaml``: predictions that no published time supports, and their band."""

    band: tuple[float, float]
    mobile_on_dla: MobileOnDla
    recurrences: Unsupported
    control_flow: Unsupported


@document(frozen=True)
class ByDevice:
    """A number of the GPU's and one of a DLA core's."""

    gpu: float
    dla: float


@document(frozen=True)
class PowerConstants:
    """``power.yaml``: watts that a device adds to the idle module.

    Attributes:
        clock_exponent: The power of the clock in GHz that they grow with.
        gpu_watts_per_sm: By GPU architecture and precision, at 1 GHz.
        dla_watts: By DLA generation, at 1 GHz.
        standby_watts: Between its work, of a device in use.
    """

    clock_exponent: ByDevice
    gpu_watts_per_sm: Mapping[str, Mapping[str, float]]
    dla_watts: Mapping[str, float]
    standby_watts: ByDevice


@document(frozen=True)
class PublishedPair:
    """A published slowdown of a device ("gpu" or "dla") beside ``cores`` and ``gpus`` others.

    ``hybrid``: its engine also has layers on the GPU, which wait for it.
    """

    generation: str
    device: str
    cores: int
    gpus: int
    slowdown: float
    source: str
    hybrid: bool = False
    board: str = ""
    what: str = ""


@document(frozen=True)
class ContentionConstants:
    """``contention.yaml``: how devices that work at once slow each other down.

    Attributes:
        extra: By DLA generation, what each other device that works adds to 1.
        hybrid_of: By DLA generation, the module that hybrid factors were measured on.
        pairs: What was published.
        sources: Of the pairs.
    """

    extra: Mapping[str, Mapping[str, float]]
    hybrid_of: Mapping[str, str]
    pairs: tuple[PublishedPair, ...]
    sources: Mapping[str, str]


@cache
def device_constants() -> DeviceConstants:
    """Returns ``targets/costs/devices.yaml``."""
    return read_costs(DeviceConstants, "devices")


@cache
def layer_kinds() -> LayerKinds:
    """Returns ``targets/costs/kinds.yaml``."""
    return read_costs(LayerKinds, "kinds")


@cache
def model_errors() -> ModelErrors:
    """Returns ``targets/costs/error.yaml``."""
    return read_costs(ModelErrors, "error")


@cache
def extrapolation() -> Extrapolation:
    """Returns ``targets/costs/extrapolated.yaml``."""
    return read_costs(Extrapolation, "extrapolated")


@cache
def power_constants() -> PowerConstants:
    """Returns ``targets/costs/power.yaml``."""
    return read_costs(PowerConstants, "power")


@cache
def contention_constants() -> ContentionConstants:
    """Returns ``targets/costs/contention.yaml``."""
    return read_costs(ContentionConstants, "contention")


def read_costs(kind: type[_File], name: str) -> _File:
    """Returns ``targets/costs/NAME.yaml``; errors are those of ``read_facts``."""
    return read_facts(kind, costs_file(name), _SCHEMA)


def costs_file(name: str) -> Path:
    """Returns the path of ``targets/costs/NAME.yaml``."""
    return data_folder("targets") / "costs" / f"{name}.yaml"
