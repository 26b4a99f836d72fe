"""A GPU kernel's time: launch, and a floor, arithmetic and memory traffic that overlap in part.

What a kernel's shape gives (:class:`GpuWork`) and what the constants make of it (:func:`gpu_time`)
are apart, so that ``scripts/fit_costs.py`` computes the first once and the second over arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgekit.network import Layer, Network
from edgekit.placement._costs_data import cost_data
from edgekit.placement._costs_formats import BYTES, padded_bytes
from edgekit.placement._costs_shapes import channels, function, groups, is_depthwise, rows
from edgekit.placement._kernels import Kernel, operations
from edgekit.targets import PowerMode, Target

__all__ = [
    "ON_CHIP",
    "GpuWork",
    "gpu_joins",
    "gpu_slowdown",
    "gpu_time",
    "gpu_us",
    "gpu_works",
    "is_free",
    "product_us",
]


# what a product in a fused part does not need: its tensors stay on the chip, its rows are no batch
ON_CHIP = {"depth": 0.0, "rows": 0.0, "weight_us": 0.0, "tensor_us": 0.0}


@dataclass(frozen=True, slots=True)
class GpuWork:
    """What one kernel asks of a GPU, whatever the fitted constants are.

    Attributes:
        macs_us: Its multiply-accumulates at the peak rate, with what fills up channels.
        tiles: The share of the SMs that its tiles occupy.
        depthwise: 1 where every channel is a group of its own, else 0.
        grouped: 1 for another convolution with groups, else 0.
        narrow: One over the channels out of a group; 0 where ``depthwise``.
        shallow: One over the products behind one output; 0 where ``depthwise``.
        depth: Products behind one output.
        rows: Rows of a Gemm.
        weight_us: Reading weights at the DRAM's full rate.
        tensor_us: Reading and writing tensors at that rate.
        cached: 1 where its tensors fit the L2 cache, else 0.
        slowdown: 1 GHz over the clock.
        light: 1 without multiply-accumulates, else 0.
        steps: How often all of it is done, one after the other: those of a recurrence.
        once_us: What is read and written once beside that, at the DRAM's full rate.
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


def gpu_time(work: Any, precision: str, data: Mapping[str, Any]) -> Any:
    """Returns the microseconds of a kernel; of many, where the attributes of ``work`` are arrays.

    Args:
        work: A :class:`GpuWork`, or anything with its attributes.
        precision: "int8", "fp16" or "fp32".
        data: The constants of the GPU's architecture.
    """
    slower = work.slowdown ** data["clock_exponent"]
    share = data["efficiency"][precision] * work.tiles ** data["tile_exponent"]
    share = share * (1 - work.grouped + work.grouped * data["groups"])
    share = share * (1 - work.depthwise) + data["depthwise"] * work.depthwise
    narrow = (1 + data["out_half"] * work.narrow) * (1 + data["depth_half"] * work.shallow)
    busy = work.macs_us * narrow / share
    cached = work.tensor_us * (1 - work.cached + work.cached / data["cache_speedup"])
    moved = (work.weight_us + cached) / data["memory"]
    floor = slower * (data["floor_us"] * (1 - work.light) + data["light_floor_us"] * work.light)
    power = data["overlap"]
    together = (floor**power + busy**power + moved**power) ** (1 / power)
    fixed = data["launch_us"] + slower * (
        data["row_us"] * work.rows + data["depth_us"] / 1e3 * work.depth
    )
    return work.steps * (fixed + together) + work.once_us / data["memory"]


def gpu_us(
    network: Network,
    kernel: Kernel,
    precision: str,
    format: str,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> float:
    """Returns microseconds; 0 for layers that TensorRT makes disappear.

    Args:
        network, kernel: What runs.
        precision: "int8", "fp16" or "fp32".
        format: The tensor format that it reads and writes.
        target, mode: The board and its clocks.
        data: The constants of the GPU's architecture.
    """
    works = gpu_works(network, kernel, precision, format, target, mode, data)
    return float(sum(gpu_time(work, precision, data) for _, work in works))


def gpu_works(
    network: Network,
    kernel: Kernel,
    precision: str,
    format: str,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> Iterator[tuple[Kernel, GpuWork]]:
    """Yields what the GPU runs for a kernel, one after the other, each with its work."""
    for part in operations(network, kernel, gpu_joins):
        layers = [network.layers[i] for i in part.layers]
        if not all(is_free(layer) for layer in layers):
            yield part, _work(network, part, layers, precision, format, target, mode, data)


def gpu_joins(before: Sequence[Layer], layer: Layer) -> bool:
    """What a convolution does not compute along with itself is one pointwise kernel."""
    if not before[0].macs:
        return True
    done = [function(one) for one in before[1:]]
    own = function(layer)
    return own in cost_data("kinds")["runs_as_one"]["gpu"] and not (own == "SUM" and "SUM" in done)


def product_us(
    network: Network,
    layer: Layer,
    precision: str,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> float:
    """Returns a product's microseconds inside a fused part, whose tensors stay on the chip."""
    one = Kernel((), (), ())
    work = _work(network, one, [layer], precision, "LINEAR", target, mode, data)
    return float(gpu_time(replace(work, **ON_CHIP), precision, data))


def _work(
    network: Network,
    kernel: Kernel,
    layers: Sequence[Layer],
    precision: str,
    format: str,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> GpuWork:
    gpu = target.gpu
    rate = gpu.int8_ops_per_clock_per_sm if precision == "int8" else gpu.fp16_ops_per_clock_per_sm
    peak = rate / 2 * mode.gpu_sms * mode.gpu_mhz  # multiply-accumulates a microsecond
    if precision == "fp32":
        peak *= data["fp32_of_fp16"]
    macs_us, tiles, depth, heavy = 0.0, 1.0, 0.0, None
    for layer in layers:
        if layer.macs:
            heavy = layer
            fill, tiles = _shape(network, layer, precision, mode.gpu_sms, data)
            macs_us += layer.macs * fill / peak
            depth += layer.macs / (network.tensors[layer.outputs[0]].elements or 1)
    slow = 1000 / mode.gpu_mhz
    rate_us = target.dram.bytes_per_second * mode.memory_share / 1e6
    if layers[0].params.get("steps"):
        return _recurrence(network, layers[0], precision, peak, rate_us, slow, target, data)
    most = max(rows(network, layer) for layer in layers)
    layout = (precision, format)
    names = (*kernel.inputs, *kernel.outputs)
    tensors = sum(padded_bytes(network.tensors[name].shape, layout) for name in names)
    weights = BYTES[precision] * sum(layer.weight_elements for layer in layers)
    deep = bool(heavy and is_depthwise(network, heavy))
    narrow = shallow = 0.0
    if heavy is not None and not deep and heavy.weight_elements:
        shallow = 1 / max(1.0, depth)
        narrow = groups(heavy) * depth / heavy.weight_elements
    return GpuWork(
        macs_us,
        tiles,
        float(deep),
        float(bool(heavy) and not deep and heavy is not None and groups(heavy) > 1),
        narrow,
        shallow,
        depth,
        float(most if most > 1 else 0),
        weights / rate_us,
        tensors / rate_us,
        float(tensors <= data["cache_bytes_per_sm"] * target.gpu.sms),
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
    data: Mapping[str, Any],
) -> GpuWork:
    """Returns a recurrence's work: its steps wait for one another, each a kernel of its own.

    A step reads the weights again: from the L2 cache where they fit it, else from DRAM.
    """
    steps = layer.params["steps"]
    weights = layer.weight_elements * BYTES[precision]
    names = (*layer.inputs, *layer.outputs)
    tensors = sum(padded_bytes(network.tensors[n].shape, (precision, "LINEAR")) for n in names)
    fits = weights <= data["cache_bytes_per_sm"] * target.gpu.sms
    return GpuWork(
        macs_us=layer.macs / steps / peak, tiles=1.0, depthwise=0.0, grouped=0.0, narrow=0.0,
        shallow=0.0, depth=layer.params["products"], rows=0.0, weight_us=0.0,
        tensor_us=weights / rate_us, cached=float(fits), slowdown=slow, light=0.0,
        steps=float(steps), once_us=(tensors + weights) / rate_us,
    )  # fmt: skip


def gpu_slowdown(mode: PowerMode, mhz: float, data: Mapping[str, Any]) -> float:
    """Returns what a fixed time at another clock is multiplied by."""
    return float((mhz / mode.gpu_mhz) ** data["clock_exponent"])


def _shape(
    network: Network, layer: Layer, precision: str, sms: int, data: Mapping[str, Any]
) -> tuple[float, float]:
    """Returns how much more a layer does to fill up channels, and the share of SMs it occupies."""
    if is_depthwise(network, layer):
        return 1.0, 1.0
    shape = network.tensors[layer.outputs[0]].shape
    if not layer.weight_elements or len(shape) < 2:
        return 1.0, 1.0
    many = groups(layer)
    maps = int(layer.params.get("out_maps", shape[1]) or shape[1])
    pixels = shape[0] * math.prod(shape[2:]) if len(shape) > 2 else math.prod(shape) // maps
    # tensor cores work on whole atoms of channels, SMs on whole tiles of pixels by channels
    atom = data["channel_atom"]["fp16" if many > 1 else precision]
    inside = max(1, channels(network, layer) // many)
    fill = 1.0
    if inside > data["image_channels"]:
        fill *= -(-inside // atom) * atom / inside
    each = -(-maps // many)
    fill *= -(-each // atom) * atom / each
    tile = data["tile"]
    tiles = many * -(-pixels // tile) * max(1, -(-each // tile))
    rounds = -(-tiles // sms)
    return float(fill), float(tiles / (rounds * sms))


def is_free(layer: Layer) -> bool:
    """Whether TensorRT needs no kernel for a layer on the GPU."""
    free = cost_data("kinds")["free_on_gpu"]
    if layer.kind in free["kinds"]:
        return True
    return layer.kind == "SHUFFLE" and layer.params.get("mode") in free["shuffle_modes"]
