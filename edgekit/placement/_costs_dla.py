"""A DLA operation's time, and what a tensor's format at a loadable's border adds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.network import Layer, Network
from edgekit.placement._costs_formats import BYTES, DLA_VECTOR, padded_bytes
from edgekit.placement._costs_shapes import batches, channels, groups, is_depthwise, rows
from edgekit.placement._kernels import Kernel
from edgekit.targets import PowerMode, Target

__all__ = ["dla_us", "io_us"]


def dla_us(
    network: Network,
    kernel: Kernel,
    precision: str,
    core: int,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> float:
    """Returns microseconds of one operation inside a loadable.

    ``operation + max(arithmetic, traffic, weights again for every row)``. Weights are read for
    every item of a batch, so a batch of n takes n times as long.

    Args:
        network, kernel: What runs.
        precision: "int8" or "fp16".
        core: The DLA core, 0 or 1.
        target, mode: The board and its clocks.
        data: The constants of the DLA's generation.
    """
    layers = [network.layers[i] for i in kernel.layers]
    slow = precision != "int8"
    rate = data["fp16_macs_per_clock"] if slow else target.dla.int8_macs_per_clock
    mhz = mode.dla_mhz[core]
    peak = rate * mhz * data["efficiency"][precision]
    work = sum(layer.macs * _padding(network, layer, data) for layer in layers) / peak
    many = max(batches(network, layer) for layer in layers)
    weights = BYTES[precision] * sum(layer.weight_elements for layer in layers)
    layout = (precision, DLA_VECTOR.get(precision, "LINEAR"))
    names: Sequence[str] = (*kernel.inputs, *kernel.outputs)
    moved = many * weights + sum(_held(network.tensors[name].shape, layout) for name in names)
    bandwidth = target.dram.bytes_per_second * mode.memory_share * data["memory"] / 1e6
    most = max((rows(network, layer) for layer in layers), default=1)
    again = most * weights / (data["row_gb_per_second"] * 1e3) if most > 1 else 0.0
    operation = data["operation_us"] * target.dla.max_mhz / mhz
    return float(operation + max(work, moved / bandwidth, again))


def _held(shape: tuple[int, ...], layout: tuple[str, str]) -> float:
    """Returns a tensor's bytes inside a loadable; images keep their few channels."""
    if len(shape) == 4 and shape[1] > 4:
        return padded_bytes(shape, layout)
    return math.prod(shape) * BYTES[layout[0]]


def _padding(network: Network, layer: Layer, data: Mapping[str, Any]) -> float:
    """Returns how much more the MAC array does than the layer asks for."""
    if not layer.macs or not layer.weight_elements:
        return 1.0
    many = groups(layer)
    inside = max(1, channels(network, layer) // many)
    atom = data["channel_atom"]
    if is_depthwise(network, layer):
        return float(data["grouped_atom"])
    if many > 1:  # one group at a time: few channels in and few out, both padded
        maps = int(layer.params.get("out_maps", 0) or channels(network, layer)) // many
        return _filled(inside, atom) * _filled(max(1, maps), atom)
    if inside <= data["image_channels"]:
        atom = data["image_channels"]
    return _filled(inside, atom)


def _filled(count: int, atom: int) -> float:
    return float(math.ceil(count / atom) * atom / count)


def io_us(
    shape: tuple[int, ...],
    format: str,
    precision: str,
    direction: str,
    generation: str,
    data: Mapping[str, Any],
) -> float:
    """Returns what a format at a loadable's border costs over the best one, at the highest clock.

    An image of 1, 3 or 4 channels that is not in DLA_HWC4 is worked on as vectors of channels,
    most of them padding; linear tensors are rearranged. Both by the padded bytes, from two
    backbones in three formats each (``targets/costs/devices.yaml``).
    """
    if format == "DLA_HWC4" or len(shape) < 2:
        return 0.0
    found = 0.0
    vector = (precision, DLA_VECTOR.get(precision, "CHW32"))
    if direction == "read" and len(shape) == 4 and shape[1] in (1, 3, 4):
        held = padded_bytes(shape, (precision, "DLA_HWC4"), generation)
        wide = padded_bytes(shape, vector, generation)
        found += (wide - held) * data["image_us_per_megabyte"] / 1e6
    if format == "DLA_LINEAR":
        lines = padded_bytes(shape, (precision, "DLA_LINEAR"), generation)
        found += lines * data["linear_us_per_megabyte"][direction] / 1e6
    return found
