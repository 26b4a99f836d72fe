"""A DLA operation's time, and what a tensor's format at a loadable's border adds.

As on the GPU, what an operation's shape gives (:class:`DlaWork`) and what the constants make of it
(:func:`dla_time`) are apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.network import Layer, Network
from edgekit.placement._costs_data import cost_data
from edgekit.placement._costs_formats import BYTES, DLA_VECTOR, padded_bytes
from edgekit.placement._costs_shapes import batches, channels, function, groups, is_depthwise, rows
from edgekit.placement._kernels import Kernel, operations
from edgekit.targets import PowerMode, Target

__all__ = ["DlaWork", "dla_joins", "dla_time", "dla_us", "dla_works", "io_us"]


@dataclass(frozen=True, slots=True)
class DlaWork:
    """What one operation asks of a DLA core, whatever the fitted constants are.

    Attributes:
        macs_us: Its multiply-accumulates at the peak rate, with what fills up channels.
        deep_us: Those of a depthwise convolution at the peak rate, unpadded.
        few: Channels in over ``channel_half`` more, where they are few.
        moved_us: Reading and writing tensors, and weights for every item of a batch, at the
            DRAM's full rate.
        again: Bytes of weights, read again for every row of a Gemm.
        pooled: Bytes that a pooling reads, over the clock in MHz.
        slowdown: The highest clock over the clock.
        operations: Passes one after the other: more than one where a recurrence is written out.
    """

    macs_us: float
    deep_us: float
    few: float
    moved_us: float
    again: float
    pooled: float
    slowdown: float
    operations: float = 1.0


def dla_time(work: Any, precision: str, data: Mapping[str, Any]) -> Any:
    """Returns the microseconds of an operation; of many, where ``work`` has arrays.

    Args:
        work: A :class:`DlaWork`, or anything with its attributes.
        precision: "int8" or "fp16".
        data: The constants of the DLA's generation.
    """
    few = 1 + data["channel_half"] * work.few
    busy = (work.macs_us * few + work.deep_us * data["grouped_atom"][precision]) / data[
        "efficiency"
    ][precision]
    moved = work.moved_us / data["memory"]
    again = work.again / (data["row_gb_per_second"] * 1e3)
    pooled = work.pooled / data["pool_bytes_per_clock"]
    power = data["overlap"]
    together = (busy**power + moved**power + again**power + pooled**power) ** (1 / power)
    return data["operation_us"] * work.slowdown * work.operations + together


def dla_us(
    network: Network,
    kernel: Kernel,
    precision: str,
    core: int,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> float:
    """Returns microseconds of a kernel inside a loadable.

    Weights are read for every item of a batch, so a batch of n takes n times as long.

    Args:
        network, kernel: What runs.
        precision: "int8" or "fp16".
        core: The DLA core, 0 or 1.
        target, mode: The board and its clocks.
        data: The constants of the DLA's generation.
    """
    works = dla_works(network, kernel, precision, core, target, mode, data)
    return float(sum(dla_time(work, precision, data) for _, work in works))


def dla_works(
    network: Network,
    kernel: Kernel,
    precision: str,
    core: int,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> Iterator[tuple[Kernel, DlaWork]]:
    """Yields the operations of a kernel, one after the other, each with its work."""
    for part in operations(network, kernel, dla_joins):
        layers = [network.layers[i] for i in part.layers]
        yield part, _work(network, part, layers, precision, core, target, mode, data)


def dla_joins(before: Sequence[Layer], layer: Layer) -> bool:
    """What the pointwise engine does on the way out of an operation is no pass of its own."""
    allowed = cost_data("kinds")["runs_as_one"]["dla"]
    done = [function(one) for one in before[1:]]
    own = function(layer)
    if not before[0].macs:
        return own in allowed and own != "SUM" and not done
    return own in allowed and not (own == "SUM" and "SUM" in done)


def _work(
    network: Network,
    kernel: Kernel,
    layers: Sequence[Layer],
    precision: str,
    core: int,
    target: Target,
    mode: PowerMode,
    data: Mapping[str, Any],
) -> DlaWork:
    slow = precision != "int8"
    rate = data["fp16_macs_per_clock"] if slow else target.dla.int8_macs_per_clock
    mhz = mode.dla_mhz[core]
    peak = rate * mhz
    macs_us = deep_us = few = 0.0
    for layer in layers:
        if is_depthwise(network, layer):
            deep_us += layer.macs / peak
        else:
            macs_us += layer.macs * _padding(network, layer, precision, data) / peak
            inside = max(1, channels(network, layer) // groups(layer))
            if layer.weight_elements and inside > data["image_channels"] and not slow:
                few = 1 / inside
    steps = int(layers[0].params.get("steps", 0))
    # weights are read for every item of a batch, or in every step
    many = steps or max(batches(network, layer) for layer in layers)
    weights = BYTES[precision] * sum(layer.weight_elements for layer in layers)
    held = precision
    if any(function(layer) in _IN_FP16 for layer in layers):
        held = "fp16"
    layout = (held, DLA_VECTOR.get(held, "LINEAR"))
    names: Sequence[str] = (*kernel.inputs, *kernel.outputs)
    moved = many * weights + sum(_held(network.tensors[name].shape, layout) for name in names)
    rate_us = target.dram.bytes_per_second * mode.memory_share / 1e6
    most = 1 if steps else max((rows(network, layer) for layer in layers), default=1)
    pooled = 0.0
    if layers[0].kind == "POOLING":
        pooled = sum(_held(network.tensors[name].shape, layout) for name in kernel.inputs) / mhz
    return DlaWork(
        macs_us,
        deep_us,
        few,
        moved / rate_us,
        float(most * weights if most > 1 else 0),
        pooled,
        target.dla.max_mhz / mhz,
        float(steps * _written_out(layers[0])) if steps else 1.0,
    )


def _written_out(layer: Layer) -> int:
    """Returns the operations of a step where a recurrence is written out, as a DLA needs it."""
    known = cost_data("kinds")["written_out"]["operations"]
    return int(known.get(layer.op, max(known.values()))) * int(layer.params["directions"])


_IN_FP16 = frozenset({"SIGMOID", "TANH"})  # inside an INT8 loadable, too: dla/activation.yaml


def _held(shape: tuple[int, ...], layout: tuple[str, str]) -> float:
    """Returns a tensor's bytes inside a loadable; images keep their few channels."""
    if len(shape) == 4 and shape[1] > 4:
        return padded_bytes(shape, layout)
    return math.prod(shape) * BYTES[layout[0]]


def _padding(network: Network, layer: Layer, precision: str, data: Mapping[str, Any]) -> float:
    """Returns how much more the MAC array does than the layer asks for."""
    if not layer.macs or not layer.weight_elements:
        return 1.0
    many = groups(layer)
    inside = max(1, channels(network, layer) // many)
    atom = data["channel_atom"][precision]
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
