"""A GPU kernel's time: launch plus the largest of a floor, arithmetic and memory traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.network import Layer, Network
from edgekit.placement._costs_data import cost_data
from edgekit.placement._costs_formats import BYTES, padded_bytes
from edgekit.placement._costs_shapes import channels, groups, is_depthwise, rows
from edgekit.placement._kernels import Kernel
from edgekit.targets import PowerMode, Target

__all__ = ["gpu_slowdown", "gpu_us", "is_free", "product_us"]


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
    layers = [network.layers[i] for i in kernel.layers]
    if all(is_free(layer) for layer in layers):
        return 0.0
    if layers[0].params.get("steps"):
        return _recurrent_us(network, layers[0], precision, target, mode, data)
    work = _work_us(network, layers, precision, target, mode, data)
    moved = _bytes(network, kernel, precision, format, target.gpu.sms, data)
    bandwidth = target.dram.bytes_per_second * mode.memory_share * data["memory"] / 1e6
    slower = gpu_slowdown(target, mode, data)
    floor = data["floor_us"] if work else data["light_floor_us"]
    deep = data["depth_us"] * slower / 1e3
    if deep:
        deep *= sum(_depth(network, layer) for layer in layers)
    most = max(rows(network, layer) for layer in layers)
    each = data["row_us"] * slower * most if most > 1 else 0.0
    return float(data["launch_us"] + each + deep + max(floor * slower, work, moved / bandwidth))


def _recurrent_us(
    network: Network,
    layer: Layer,
    precision: str,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> float:
    """Returns a recurrence's microseconds: its steps wait for one another.

    A step is a kernel of its own. It reads the weights again: from the L2 cache where they fit
    it, else from DRAM.
    """
    gpu = target.gpu
    rate = gpu.int8_ops_per_clock_per_sm if precision == "int8" else gpu.fp16_ops_per_clock_per_sm
    peak = rate / 2 * mode.gpu_sms * mode.gpu_mhz * data["efficiency"][precision]
    if precision == "fp32":
        peak *= data["fp32_of_fp16"]
    bandwidth = target.dram.bytes_per_second * mode.memory_share * data["memory"] / 1e6
    weights = layer.weight_elements * BYTES[precision]
    fits = weights <= data["cache_bytes_per_sm"] * gpu.sms
    again = weights / bandwidth / (data["cache_speedup"] if fits else 1.0)
    slower = gpu_slowdown(target, mode, data)
    steps = layer.params["steps"]
    deep = data["depth_us"] * slower / 1e3 * layer.params["products"]
    step = data["launch_us"] + deep + max(
        data["floor_us"] * slower, layer.macs / steps / peak, again
    )  # fmt: skip
    names = (*layer.inputs, *layer.outputs)
    tensors = sum(padded_bytes(network.tensors[n].shape, (precision, "LINEAR")) for n in names)
    return float(steps * step + (tensors + weights) / bandwidth)


def product_us(
    network: Network,
    layer: Layer,
    precision: str,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> float:
    """Returns a product's microseconds inside a fused part, whose tensors stay on the chip."""
    work = _work_us(network, [layer], precision, target, mode, data)
    floor = data["floor_us"] * gpu_slowdown(target, mode, data)
    return float(data["launch_us"] + max(floor, work))


def _work_us(
    network: Network,
    layers: Sequence[Layer],
    precision: str,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> float:
    """Returns the microseconds of the multiply-accumulates alone."""
    gpu = target.gpu
    rate = gpu.int8_ops_per_clock_per_sm if precision == "int8" else gpu.fp16_ops_per_clock_per_sm
    peak = rate / 2 * mode.gpu_sms * mode.gpu_mhz  # multiply-accumulates a microsecond
    if precision == "fp32":
        peak *= data["fp32_of_fp16"]
    work = 0.0
    for layer in layers:
        if layer.macs:
            work += layer.macs / (peak * _share(network, layer, precision, mode.gpu_sms, data))
    return work


def _depth(network: Network, layer: Layer) -> float:
    """Returns the products behind one output, which a tile adds up one after the other."""
    return layer.macs / (network.tensors[layer.outputs[0]].elements or 1) if layer.macs else 0.0


def gpu_slowdown(target: Target, mode: PowerMode, data: Mapping[str, Any]) -> float:
    """Returns the factor by which fixed times grow when the clock falls."""
    return float((target.gpu.max_mhz / mode.gpu_mhz) ** data["clock_exponent"])


def _share(
    network: Network, layer: Layer, precision: str, sms: int, data: Mapping[str, Any]
) -> float:
    """Returns the share of the peak that a layer's shape allows."""
    if is_depthwise(network, layer):
        return float(data["grouped"])
    share = float(data["efficiency"][precision])
    shape = network.tensors[layer.outputs[0]].shape
    if not layer.weight_elements or len(shape) < 2:
        return share
    many = groups(layer)
    maps = int(layer.params.get("out_maps", shape[1]) or shape[1])
    pixels = shape[0] * math.prod(shape[2:]) if len(shape) > 2 else math.prod(shape) // maps
    # tensor cores work on whole atoms of channels, SMs on whole tiles of pixels by channels
    atom = data["channel_atom"]
    inside = max(1, channels(network, layer) // many)
    if inside > data["image_channels"]:
        share *= inside / (-(-inside // atom) * atom)
    each = -(-maps // many)
    share *= each / (-(-each // atom) * atom)
    tile = data["tile"]
    tiles = many * -(-pixels // tile) * max(1, -(-each // tile))
    rounds = -(-tiles // sms)
    return float(share * (tiles / (rounds * sms)) ** data["tile_exponent"])


def _bytes(
    network: Network,
    kernel: Kernel,
    precision: str,
    format: str,
    sms: int,
    data: Mapping[str, Any],
) -> float:
    """Returns the bytes moved, as if all came from DRAM: what fits the L2 cache moves faster."""
    layout = (precision, format)
    names = (*kernel.inputs, *kernel.outputs)
    tensors = float(sum(padded_bytes(network.tensors[name].shape, layout) for name in names))
    if tensors <= data["cache_bytes_per_sm"] * sms:
        tensors /= data["cache_speedup"]
    weights = sum(network.layers[i].weight_elements for i in kernel.layers)
    return BYTES[precision] * weights + tensors


def is_free(layer: Layer) -> bool:
    """Whether TensorRT needs no kernel for a layer on the GPU."""
    free = cost_data("kinds")["free_on_gpu"]
    if layer.kind in free["kinds"]:
        return True
    return layer.kind == "SHUFFLE" and layer.params.get("mode") in free["shuffle_modes"]
