"""The constants of the cost model from ``targets/costs``: each file is read once, into a class
whose attributes have the file's names. The files name the source of each constant (fitted, measured
or assumed: ``source``); the formulas are in the modules that use the constants.
"""

# the annotations are evaluated at run time, so they are not strings
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
    """Kernel costs of a GPU architecture; microseconds are at a clock of 1 GHz.

    Attributes:
        launch_us: Microseconds to start a kernel.
        floor_us: Minimum microseconds of a kernel with multiply-accumulates.
        light_floor_us: Minimum microseconds of other kernels.
        memory: The share of the DRAM's rate that kernels reach.
        efficiency: The share of the peak rate that kernels reach, by precision.
        depthwise: The share of the peak rate for depthwise convolutions.
        groups: Factor of the efficiency for other grouped convolutions.
        out_half: Output channels of a group that halve the rate.
        depth_half: Products summed for an output that halve the rate.
        overlap: Exponent by which floor, arithmetic and traffic overlap; 1 is no overlap.
        fp32_of_fp16: Ratio of the FP32 peak rate to the FP16 peak rate.
        clock_exponent: Fixed times grow with (1 GHz / clock) to this power.
        channel_atom: Channels that tensor cores take at a time, by precision.
        image_channels: Channels of an image, which are not padded.
        tile: Pixels of a tile, and channels.
        cache_bytes_per_sm: Bytes of the L2 cache for each SM.
        cache_speedup: The L2 cache's rate over the DRAM's rate.
        row_us: Microseconds for each row of a Gemm.
        tile_exponent: The power of the share of SMs that tiles occupy.
        broken: Ratio of a transformer kernel's time beside a DLA to its time alone.
        depth_us: Microseconds for each thousand products summed for an output.
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
    """Operation costs of a DLA generation; fixed times are at the highest clock.

    Attributes:
        operation_us: Fixed microseconds of a pass.
        launch_us: Microseconds to start a loadable.
        memory: The share of the DRAM's rate that operations reach.
        efficiency: The share of the peak rate that operations reach, by precision.
        channel_atom: Input channels that the array takes at a time, by precision.
        grouped_atom: Channels of a convolution with the time of a depthwise convolution, by
            precision.
        channel_half: Input channels that halve the rate (INT8).
        pool_bytes_per_clock: Bytes that a pooling reads in a clock.
        softmax_clocks: Clocks for an element of a softmax along rows or columns.
        overlap: Exponent by which the parts of a time overlap; 1 is no overlap.
        image_channels: Channels of an image, which has a mode of its own.
        fp16_macs_per_clock: Multiply-accumulates in a clock in FP16.
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
    """Kinds of layers that are placed together: first layers of a kernel, and later layers."""

    heads: tuple[str, ...]
    tails: tuple[str, ...]


@document(frozen=True)
class RunsAsOne:
    """Functions of pointwise layers that a convolution or product computes along with itself."""

    gpu: tuple[str, ...]
    dla: tuple[str, ...]


@document(frozen=True)
class InLoops:
    """Kinds of layers that run as one kernel if they follow each other in a loop's body."""

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
        linear_kinds: Kinds of layers that exist only for linear tensors.
        any_kinds: Kinds that take both formats.
    """

    vector: Mapping[str, str]
    linear_kinds: tuple[str, ...]
    any_kinds: tuple[str, ...]


@document(frozen=True)
class RegionKinds:
    """The parts that the GPU's compiler fuses.

    Attributes:
        anchors: Kinds; a part has at least one such layer.
        fused: Kinds that the fusion makes cheaper.
        kinds: Kinds that a part may contain.
        ops: ONNX operators of the convolutions that a part may contain.
    """

    anchors: tuple[str, ...]
    fused: tuple[str, ...]
    kinds: tuple[str, ...]
    ops: tuple[str, ...]


@document(frozen=True)
class LayerKinds:
    """``kinds.yaml``: kinds of layers that run together, are free, or lack a kernel."""

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
    """The model's error on some rows: the number of rows, and percentages."""

    rows: int
    median_percent: float
    of_90_percent: float
    max_percent: float


@document(frozen=True)
class ModelErrors:
    """``error.yaml``: the model's errors on published times.

    Attributes:
        fitted: On networks, with the final constants.
        without_network: With constants fitted without a row's network.
        without_board: With constants fitted without a row's board.
        automatic: On TensorRT's automatic placements.
        operations: On operations that were timed alone.
        bands: Range of most ratios of measured to predicted times, by "all" or device and precision
            ("gpu_int8").
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
    """Networks of depthwise blocks without a similar published row on a DLA.

    Attributes:
        gates: Functions of layers in such a network.
        shuffle_rank: Minimum dimensions of a shuffle's input in such a network.
        why: The missing support, in words.
    """

    gates: tuple[str, ...]
    shuffle_rank: int
    why: str


@document(frozen=True)
class Unsupported:
    """Layers that no published time includes, in words."""

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
    """A number for the GPU and a number for a DLA core."""

    gpu: float
    dla: float


@document(frozen=True)
class PowerConstants:
    """``power.yaml``: watts that a device adds to the idle module.

    Attributes:
        clock_exponent: The watts grow with the clock in GHz to this power.
        gpu_watts_per_sm: By GPU architecture and precision, at 1 GHz.
        dla_watts: By DLA generation, at 1 GHz.
        standby_watts: Watts of a device in use between its work.
    """

    clock_exponent: ByDevice
    gpu_watts_per_sm: Mapping[str, Mapping[str, float]]
    dla_watts: Mapping[str, float]
    standby_watts: ByDevice


@document(frozen=True)
class PublishedPair:
    """A published slowdown of a device ("gpu" or "dla") beside ``cores`` and ``gpus`` others.

    ``hybrid``: the device's engine also has layers on the GPU, which wait for the GPU.
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
    """``contention.yaml``: slowdowns of devices that work at the same time.

    Attributes:
        extra: By DLA generation, the addition to a slowdown of 1 for each other working device.
        hybrid_of: By DLA generation, the module on which hybrid factors were measured.
        pairs: The published slowdowns.
        sources: The sources of the pairs.
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
