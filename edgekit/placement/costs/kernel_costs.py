"""The time of a kernel on the GPU and of an operation on a DLA, and the tensor formats that each
can read and write. The constants are files under ``targets/costs``; a shape's work is separate from
the constants, so that ``scripts/fit_costs.py`` can fit them.
Times are in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from edgekit.dla.formats import nbytes
from edgekit.dla.plugin_formats import DLA_VECTOR, plugin_layouts
from edgekit.network.model import SHUFFLES, Layer, Network
from edgekit.placement.costs.constants import (
    DlaConstants,
    GpuConstants,
    extrapolation,
    layer_kinds,
    model_errors,
)
from edgekit.placement.kernels import LayerKernel, operations
from edgekit.targets.board import PowerMode, Target

BYTES = {"int8": 1, "fp16": 2, "fp32": 4}
#: A tensor's type ("int8", "fp16", "fp32") and its format.
Layout = tuple[str, str]
NUMPY = {"int8": "int8", "fp16": "float16", "fp32": "float32"}
HWC8 = 8  # channels that TensorRT's channel-last FP16 format pads to
# no cost for a product in a fused part: its tensors stay on the chip, its rows are not a batch
ON_CHIP = {"depth": 0.0, "rows": 0.0, "weight_us": 0.0, "tensor_us": 0.0}
_SPATIAL = (-2, -1)  # rows and columns, counted from the last dimension
_IN_FP16 = frozenset({"SIGMOID", "TANH"})  # inside an INT8 loadable, too: dla/activation.yaml


def noise(*, extrapolated: bool = False) -> float:
    """Returns the smallest relative gain between predicted times that counts, 0 to 1.

    It is the model's median error on networks that it was not fitted on, or the assumed band if no
    published time supports the prediction.
    """
    if extrapolated:
        return 1 - extrapolation().band[0]
    return model_errors().without_network.median_percent / 100


def model_error() -> str:
    """Returns a sentence on the model's error."""
    error = model_errors().without_network
    return (
        f"predicted by a model whose median error is {error.median_percent} % (90 % "
        f"within {error.of_90_percent} %) on {error.rows} published network "
        "measurements, each left out of the fit"
    )


def convolution_groups(layer: Layer) -> int:
    """Returns the groups of a convolution."""
    return int(layer.params.get("groups", 1) or 1)


def input_channels(network: Network, layer: Layer) -> int:
    """Returns the channels that a layer reads."""
    shape = network.tensors[layer.inputs[0]].shape if layer.inputs else ()
    return shape[1] if len(shape) > 1 else 1


def is_depthwise(network: Network, layer: Layer) -> bool:
    """Returns True if every channel is a group of its own."""
    many = convolution_groups(layer)
    return many > 1 and input_channels(network, layer) == many


def batch_size(network: Network, layer: Layer) -> int:
    """Returns the batch size; batching does not help a DLA: it reads weights for every item."""
    shape = network.tensors[layer.outputs[0]].shape
    return shape[0] if len(shape) > 1 else 1


def product_rows(network: Network, layer: Layer) -> int:
    """Returns the rows of a matrix product, which a DLA runs as a batch; 1 for anything else.

    Shuffles and sums that the importer makes from a Gemm have its operator, but are not products.
    """
    if layer.op not in ("Gemm", "MatMul") or not layer.macs:
        return 1
    shape = network.tensors[layer.outputs[0]].shape
    out = int(layer.params.get("out_maps", shape[-1] if shape else 1) or 1)
    return max(1, math.prod(shape) // out)


def pointwise_function(layer: Layer) -> str:
    """Returns a pointwise layer's function ("RELU", "SUM"); its kind's usual function if unset."""
    usual = {"ACTIVATION": "RELU", "ELEMENTWISE": "SUM", "SCALE": "SCALE"}
    if layer.kind == "SCALE":
        return "SCALE"
    return str(layer.params.get("function") or usual.get(layer.kind, layer.kind))


@cache
def padded_bytes(shape: tuple[int, ...], layout: Layout, generation: str = "2.0") -> int:
    """Returns a tensor's bytes in a layout, including padded channels and lines.

    A format has its name in TensorRT's documentation ("LINEAR", "HWC8", "CHW16", "CHW32",
    "DLA_LINEAR", "DLA_HWC4"); a tensor's layout is its type and its format, ("int8", "CHW32").
    """
    dtype, form = layout
    if form == "LINEAR" or len(shape) < 2:
        return math.prod(shape) * BYTES[dtype]
    if form in ("HWC8", "CHW4"):
        vector = int(form[3:])
        channels = -(-shape[1] // vector) * vector
        return shape[0] * channels * math.prod(shape[2:]) * BYTES[dtype]
    # a DLA's tensors have four dimensions
    held = (*shape, 1, 1)[:4] if len(shape) < 4 else shape
    return nbytes(held, NUMPY[dtype], form, generation)


def gpu_formats(layers: Sequence[Layer], network: Network, precision: str) -> tuple[str, ...]:
    """Returns a GPU kernel's possible formats at its borders, its best first."""
    rules = layer_kinds().gpu_formats
    declared = plugin_layouts(layers[0], precision)
    # a plugin has no other formats than the declared ones
    if declared:
        return declared
    vector = rules.vector.get(precision)
    linear = rules.linear_kinds
    if vector is None or any(layer.opaque or layer.kind in linear for layer in layers):
        return ("LINEAR",)
    # vectors of channels exist for four dimensions only
    if any(len(network.tensors[n].shape) < 4 for layer in layers for n in layer.outputs):
        return ("LINEAR",)
    if all(layer.kind in rules.any_kinds for layer in layers):
        writers = network.producers()
        read = {writers[n].kind for n in layers[0].inputs if n in writers}
        # linear tensors stay linear, such as the heads of an attention: no vectors to fill
        return ("LINEAR", vector) if read and read <= set(linear) else (vector, "LINEAR")
    return (vector,)


def dla_formats(kernel: LayerKernel, network: Network, precision: str) -> tuple[str, ...]:
    """Returns the formats in which a loadable can read or write at this kernel, its best first.

    DLA_HWC4 is for reading only.
    """
    vector = DLA_VECTOR.get(precision, "DLA_LINEAR")
    if takes_image(kernel, network):
        return ("DLA_HWC4", vector, "DLA_LINEAR")
    return (vector, "DLA_LINEAR")


def takes_image(kernel: LayerKernel, network: Network) -> bool:
    """Returns True if a kernel starts with a convolution on an image of 1, 3 or 4 channels."""
    first = network.layers[kernel.layers[0]]
    if first.kind != "CONVOLUTION" or len(first.inputs) != 1:
        return False
    shape = network.tensors[first.inputs[0]].shape
    return len(shape) == 4 and shape[1] in (1, 3, 4)


class GpuWork(NamedTuple):
    """The work of one kernel on a GPU, independent of the fitted constants.

    A GPU kernel's time: launch, and a floor, arithmetic and memory traffic that overlap in part.

    A kernel's work (:class:`GpuWork`) is separate from its time by the constants
    (:func:`gpu_time`), so that ``scripts/fit_costs.py`` computes the work once and the times over
    arrays.

    Attributes:
        macs_us: Microseconds of its multiply-accumulates at the peak rate, padded channels
            included.
        tiles: The share of the SMs that its tiles occupy.
        depthwise: 1 for a depthwise convolution, else 0.
        grouped: 1 for another convolution with groups, else 0.
        narrow: 1 / output channels of a group; 0 if ``depthwise``.
        shallow: 1 / products summed for an output; 0 if ``depthwise``.
        depth: Products summed for an output.
        rows: Rows of a Gemm.
        weight_us: Microseconds to read weights at the DRAM's full rate.
        tensor_us: Microseconds to read and write tensors at the DRAM's full rate.
        cached: 1 if its tensors fit the L2 cache, else 0.
        slowdown: 1 GHz / clock.
        light: 1 without multiply-accumulates, else 0.
        steps: Number of sequential repetitions: the steps of a recurrence.
        once_us: Microseconds of reads and writes that occur only once, at the DRAM's full rate.
    """

    macs_us: float
    tiles: float
    depthwise: float
    grouped: float
    narrow: float
    shallow: float
    depth: float
    rows: float
    weight_us: float
    tensor_us: float
    cached: float
    slowdown: float
    light: float
    steps: float = 1.0
    once_us: float = 0.0


def gpu_time(work: Any, precision: str, data: GpuConstants) -> Any:
    """Returns the microseconds of a kernel; an array if the attributes of ``work`` are arrays.

    Args:
        work: A :class:`GpuWork`, or anything with its attributes.
        precision: "int8", "fp16" or "fp32".
        data: The constants of the GPU's architecture.
    """
    # docs/cost-model.md explains the terms; fixed times are nearly constant in clock cycles
    slower = work.slowdown**data.clock_exponent
    share = data.efficiency[precision] * work.tiles**data.tile_exponent
    share = share * (1 - work.grouped + work.grouped * data.groups)
    share = share * (1 - work.depthwise) + data.depthwise * work.depthwise
    narrow = (1 + data.out_half * work.narrow) * (1 + data.depth_half * work.shallow)
    busy = work.macs_us * narrow / share
    cached = work.tensor_us * (1 - work.cached + work.cached / data.cache_speedup)
    moved = (work.weight_us + cached) / data.memory
    minimum_us = slower * (data.floor_us * (1 - work.light) + data.light_floor_us * work.light)
    power = data.overlap
    # parts that overlap, but not wholly: 1 would be their sum, infinity the largest
    together = (minimum_us**power + busy**power + moved**power) ** (1 / power)
    fixed = slower * (data.launch_us + data.row_us * work.rows + data.depth_us / 1e3 * work.depth)
    return work.steps * (fixed + together) + work.once_us / data.memory


def gpu_us(
    network: Network,
    kernel: LayerKernel,
    precision: str,
    format: str,
    target: Target,
    mode: PowerMode,
    data: GpuConstants,
) -> float:
    """Returns microseconds of a kernel; 0 for layers that TensorRT removes.

    Args:
        network, kernel: The kernel, and its network.
        precision: "int8", "fp16" or "fp32".
        format: The tensor format that it reads and writes.
        target, mode: The board and its clocks.
        data: The constants of the GPU's architecture.
    """
    works = gpu_works(network, kernel, precision, format, target, mode, data)
    return float(sum(gpu_time(work, precision, data) for _, work in works))


def gpu_works(
    network: Network,
    kernel: LayerKernel,
    precision: str,
    format: str,
    target: Target,
    mode: PowerMode,
    data: GpuConstants,
) -> Iterator[tuple[LayerKernel, GpuWork]]:
    """Yields the GPU's kernels for a kernel of the plan, in order, each with its work."""
    for part in operations(network, kernel, gpu_joins):
        layers = [network.layers[i] for i in part.layers]
        if not all(is_free(layer) for layer in layers):
            yield part, _gpu_work(network, part, layers, precision, format, target, mode, data)


def gpu_joins(before: Sequence[Layer], layer: Layer) -> bool:
    """Returns True if the GPU runs a layer along with those before it.

    A convolution computes some functions along with itself; other layers share a pointwise kernel.
    """
    if not before[0].macs:
        return True
    done = [pointwise_function(previous) for previous in before[1:]]
    own = pointwise_function(layer)
    return own in layer_kinds().runs_as_one.gpu and not (own == "SUM" and "SUM" in done)


def product_us(
    network: Network,
    layer: Layer,
    precision: str,
    target: Target,
    mode: PowerMode,
    data: GpuConstants,
) -> float:
    """Returns a product's microseconds inside a fused part, whose tensors stay on the chip."""
    kernel = LayerKernel((), (), ())
    work = _gpu_work(network, kernel, [layer], precision, "LINEAR", target, mode, data)
    return float(gpu_time(work._replace(**ON_CHIP), precision, data))


def _gpu_work(
    network: Network,
    kernel: LayerKernel,
    layers: Sequence[Layer],
    precision: str,
    format: str,
    target: Target,
    mode: PowerMode,
    data: GpuConstants,
) -> GpuWork:
    gpu = target.gpu
    rate = gpu.int8_ops_per_clock_per_sm if precision == "int8" else gpu.fp16_ops_per_clock_per_sm
    peak = rate / 2 * mode.gpu_sms * mode.gpu_mhz  # multiply-accumulates a microsecond
    if precision == "fp32":
        peak *= data.fp32_of_fp16
    macs_us, tiles, depth, heavy = 0.0, 1.0, 0.0, None
    for layer in layers:
        if layer.macs:
            heavy = layer
            fill, tiles = _fill_and_share(network, layer, precision, mode.gpu_sms, data)
            macs_us += layer.macs * fill / peak
            depth += layer.macs / (network.tensors[layer.outputs[0]].elements or 1)
    slow = 1000 / mode.gpu_mhz
    rate_us = target.dram.bytes_per_second * mode.memory_share / 1e6
    if layers[0].params.get("steps"):
        return _recurrence(network, layers[0], precision, peak, rate_us, slow, target, data)
    most = max(product_rows(network, layer) for layer in layers)
    layout = (precision, format)
    names = (*kernel.inputs, *kernel.outputs)
    tensors = sum(padded_bytes(network.tensors[name].shape, layout) for name in names)
    weights = BYTES[precision] * sum(layer.weight_elements for layer in layers)
    deep = bool(heavy and is_depthwise(network, heavy))
    narrow = shallow = 0.0
    if heavy is not None and not deep and heavy.weight_elements:
        shallow = 1 / max(1.0, depth)
        narrow = convolution_groups(heavy) * depth / heavy.weight_elements
    return GpuWork(
        macs_us,
        tiles,
        float(deep),
        float(bool(heavy) and not deep and heavy is not None and convolution_groups(heavy) > 1),
        narrow,
        shallow,
        depth,
        float(most if most > 1 else 0),
        weights / rate_us,
        tensors / rate_us,
        float(tensors <= data.cache_bytes_per_sm * target.gpu.sms),
        slow,
        float(heavy is None),
    )


def _recurrence(
    network: Network,
    layer: Layer,
    precision: str,
    peak: float,
    rate_us: float,
    slow: float,
    target: Target,
    data: GpuConstants,
) -> GpuWork:
    """Returns a recurrence's work: its steps are sequential, each a kernel of its own.

    A step reads the weights again: from the L2 cache if they fit, else from DRAM.
    """
    steps = layer.params["steps"]
    weights = layer.weight_elements * BYTES[precision]
    names = (*layer.inputs, *layer.outputs)
    tensors = sum(padded_bytes(network.tensors[n].shape, (precision, "LINEAR")) for n in names)
    fits = weights <= data.cache_bytes_per_sm * target.gpu.sms
    return GpuWork(
        macs_us=layer.macs / steps / peak,
        tiles=1.0,
        depthwise=0.0,
        grouped=0.0,
        narrow=0.0,
        shallow=0.0,
        depth=layer.params["products"],
        rows=0.0,
        weight_us=0.0,
        # not `weight_us`: a step's weights may be in the cache, and only `tensor_us` is divided by
        # the cache's speed-up
        tensor_us=weights / rate_us,
        cached=float(fits),
        slowdown=slow,
        light=0.0,
        steps=float(steps),
        once_us=(tensors + weights) / rate_us,
    )


def gpu_slowdown(mode: PowerMode, mhz: float, data: GpuConstants) -> float:
    """Returns the factor of a fixed time at another clock."""
    return float((mhz / mode.gpu_mhz) ** data.clock_exponent)


def _fill_and_share(
    network: Network, layer: Layer, precision: str, sms: int, data: GpuConstants
) -> tuple[float, float]:
    """Returns a layer's work factor for padded channels, and the share of SMs that it occupies."""
    if is_depthwise(network, layer):
        return 1.0, 1.0
    shape = network.tensors[layer.outputs[0]].shape
    if not layer.weight_elements or len(shape) < 2:
        return 1.0, 1.0
    many = convolution_groups(layer)
    maps = int(layer.params.get("out_maps", shape[1]) or shape[1])
    pixels = shape[0] * math.prod(shape[2:]) if len(shape) > 2 else math.prod(shape) // maps
    # tensor cores work on whole atoms of channels, SMs on whole tiles of pixels by channels
    atom = data.channel_atom["fp16" if many > 1 else precision]
    inside = max(1, input_channels(network, layer) // many)
    fill = 1.0
    # an image's few channels have a mode of their own, without padding
    if inside > data.image_channels:
        fill *= -(-inside // atom) * atom / inside
    each = -(-maps // many)
    fill *= -(-each // atom) * atom / each
    tile = data.tile
    tiles = many * -(-pixels // tile) * max(1, -(-each // tile))
    # the last round may leave SMs idle
    rounds = -(-tiles // sms)
    return float(fill), float(tiles / (rounds * sms))


def is_free(layer: Layer) -> bool:
    """Returns True if TensorRT needs no kernel for a layer on the GPU."""
    free = layer_kinds().free_on_gpu
    if layer.kind in free.kinds:
        return True
    return layer.kind in SHUFFLES and layer.params.get("mode") in free.shuffle_modes


class DlaWork(NamedTuple):
    """The work of one operation on a DLA core, independent of the fitted constants.

    As on the GPU, an operation's work (:class:`DlaWork`) is separate from its time by the constants
    (:func:`dla_time`).

    Attributes:
        macs_us: Microseconds of its multiply-accumulates at the peak rate, padding included.
        deep_us: Microseconds of a depthwise convolution at the peak rate, unpadded.
        few: 1 / input channels of a group, for INT8 layers with weights that read no image; else 0.
        moved_us: Microseconds to read and write tensors, and weights for every item of a batch, at
            the DRAM's full rate.
        again: Bytes of weights, read again for every row of a Gemm.
        pooled: Bytes that a pooling reads, over the clock in MHz.
        softmax: Elements of a softmax along rows or columns, over the clock in MHz.
        slowdown: The highest clock over the clock.
        operations: Number of sequential passes: several for an unrolled recurrence.
    """

    macs_us: float
    deep_us: float
    few: float
    moved_us: float
    again: float
    pooled: float
    softmax: float
    slowdown: float
    operations: float = 1.0


def dla_time(work: Any, precision: str, data: DlaConstants) -> Any:
    """Returns the microseconds of an operation; an array if ``work`` has arrays.

    Args:
        work: A :class:`DlaWork`, or anything with its attributes.
        precision: "int8" or "fp16".
        data: The constants of the DLA's generation.
    """
    few = 1 + data.channel_half * work.few
    # a depthwise convolution takes the time of a full one with `grouped_atom` channels
    busy = (work.macs_us * few + work.deep_us * data.grouped_atom[precision]) / data.efficiency[
        precision
    ]
    moved = work.moved_us / data.memory
    again = work.again / (data.row_gb_per_second * 1e3)
    pooled = work.pooled / data.pool_bytes_per_clock
    softmax = work.softmax * data.softmax_clocks
    power = data.overlap
    parts = busy**power + moved**power + again**power + pooled**power + softmax**power
    together = parts ** (1 / power)
    return data.operation_us * work.slowdown * work.operations + together


def dla_us(
    network: Network,
    kernel: LayerKernel,
    precision: str,
    core: int,
    target: Target,
    mode: PowerMode,
    data: DlaConstants,
) -> float:
    """Returns microseconds of a kernel inside a loadable.

    Weights are read for every item of a batch, so a batch of n takes n times as long.

    Args:
        network, kernel: The kernel, and its network.
        precision: "int8" or "fp16".
        core: The DLA core, 0 or 1.
        target, mode: The board and its clocks.
        data: The constants of the DLA's generation.
    """
    works = dla_works(network, kernel, precision, core, target, mode, data)
    return float(sum(dla_time(work, precision, data) for _, work in works))


def dla_works(
    network: Network,
    kernel: LayerKernel,
    precision: str,
    core: int,
    target: Target,
    mode: PowerMode,
    data: DlaConstants,
) -> Iterator[tuple[LayerKernel, DlaWork]]:
    """Yields the operations of a kernel in order, each with its work."""
    for part in operations(network, kernel, dla_joins):
        layers = [network.layers[i] for i in part.layers]
        yield part, _dla_work(network, part, layers, precision, core, target, mode, data)


def dla_joins(before: Sequence[Layer], layer: Layer) -> bool:
    """Returns True if a layer needs no pass of its own: the pointwise engine runs it on output."""
    allowed = layer_kinds().runs_as_one.dla
    done = [pointwise_function(previous) for previous in before[1:]]
    own = pointwise_function(layer)
    if not before[0].macs:
        # after a pass without products only one activation: a sum is a pass of its own
        return own in allowed and own != "SUM" and not done
    return own in allowed and not (own == "SUM" and "SUM" in done)


def _dla_work(
    network: Network,
    kernel: LayerKernel,
    layers: Sequence[Layer],
    precision: str,
    core: int,
    target: Target,
    mode: PowerMode,
    data: DlaConstants,
) -> DlaWork:
    slow = precision != "int8"
    rate = data.fp16_macs_per_clock if slow else target.dla.int8_macs_per_clock
    mhz = mode.dla_mhz[core]
    peak = rate * mhz
    macs_us = deep_us = few = 0.0
    for layer in layers:
        if is_depthwise(network, layer):
            deep_us += layer.macs / peak
        else:
            macs_us += layer.macs * _padding(network, layer, precision, data) / peak
            inside = max(1, input_channels(network, layer) // convolution_groups(layer))
            # fitted for INT8 only (devices.yaml)
            if layer.weight_elements and inside > data.image_channels and not slow:
                few = 1 / inside
    steps = int(layers[0].params.get("steps", 0))
    # weights are read for every item of a batch, or in every step
    many = steps or max(batch_size(network, layer) for layer in layers)
    weights = BYTES[precision] * sum(layer.weight_elements for layer in layers)
    # tensors beside a Sigmoid or tanh are in FP16, whatever the loadable's precision
    held = precision
    if any(pointwise_function(layer) in _IN_FP16 for layer in layers):
        held = "fp16"
    layout = (held, DLA_VECTOR.get(held, "LINEAR"))
    names: Sequence[str] = (*kernel.inputs, *kernel.outputs)
    moved = many * weights + sum(
        _bytes_inside(network.tensors[name].shape, layout) for name in names
    )
    rate_us = target.dram.bytes_per_second * mode.memory_share / 1e6
    # a recurrence's weights are counted for each step already
    most = 1 if steps else max((product_rows(network, layer) for layer in layers), default=1)
    pooled = 0.0
    if layers[0].kind == "POOLING":
        pooled = (
            sum(_bytes_inside(network.tensors[name].shape, layout) for name in kernel.inputs) / mhz
        )
    return DlaWork(
        macs_us,
        deep_us,
        few,
        moved / rate_us,
        float(most * weights if most > 1 else 0),
        pooled,
        _spatial_softmax(network, layers[0]) / mhz,
        target.dla.max_mhz / mhz,
        float(steps * _unrolled_operations(layers[0])) if steps else 1.0,
    )


def _spatial_softmax(network: Network, layer: Layer) -> int:
    """Returns the elements of a softmax along rows or columns; 0 for anything else."""
    axis = layer.params.get("axis")
    if layer.kind != "SOFTMAX" or axis is None:
        return 0
    tensor = network.tensors[layer.outputs[0]]
    from_end = axis if axis < 0 else axis - len(tensor.shape)
    return tensor.elements if from_end in _SPATIAL else 0


def _unrolled_operations(layer: Layer) -> int:
    """Returns the operations of a step of a recurrence, which is unrolled for a DLA."""
    known = layer_kinds().written_out.operations
    return int(known.get(layer.op, max(known.values()))) * int(layer.params["directions"])


def _bytes_inside(shape: tuple[int, ...], layout: tuple[str, str]) -> float:
    """Returns a tensor's bytes inside a loadable; images keep their few channels."""
    if len(shape) == 4 and shape[1] > 4:
        return padded_bytes(shape, layout)
    return math.prod(shape) * BYTES[layout[0]]


def _padding(network: Network, layer: Layer, precision: str, data: DlaConstants) -> float:
    """Returns the MAC array's work over the layer's work."""
    if not layer.macs or not layer.weight_elements:
        return 1.0
    many = convolution_groups(layer)
    inside = max(1, input_channels(network, layer) // many)
    atom = data.channel_atom[precision]
    if many > 1:  # one group at a time: few input and output channels, both padded
        maps = int(layer.params.get("out_maps", 0) or input_channels(network, layer)) // many
        return _padding_factor(inside, atom) * _padding_factor(max(1, maps), atom)
    if inside <= data.image_channels:
        atom = data.image_channels
    return _padding_factor(inside, atom)


def _padding_factor(count: int, atom: int) -> float:
    return float(math.ceil(count / atom) * atom / count)


def io_us(
    shape: tuple[int, ...],
    format: str,
    precision: str,
    direction: str,
    generation: str,
    data: DlaConstants,
) -> float:
    """Returns the extra microseconds of a format at a loadable's border, at the highest clock.

    They are relative to the best format. An image of 1, 3 or 4 channels that is not in DLA_HWC4 is
    processed as vectors of channels, mostly padding; linear tensors are rearranged. Both costs are
    proportional to the padded bytes, from two backbones in three formats each
    (``targets/costs/devices.yaml``).
    """
    if format == "DLA_HWC4" or len(shape) < 2:
        return 0.0
    found = 0.0
    vector = (precision, DLA_VECTOR.get(precision, "CHW32"))
    if direction == "read" and len(shape) == 4 and shape[1] in (1, 3, 4):
        held = padded_bytes(shape, (precision, "DLA_HWC4"), generation)
        wide = padded_bytes(shape, vector, generation)
        found += (wide - held) * data.image_us_per_megabyte / 1e6
    if format == "DLA_LINEAR":
        lines = padded_bytes(shape, (precision, "DLA_LINEAR"), generation)
        found += lines * data.linear_us_per_megabyte[direction] / 1e6
    return found
