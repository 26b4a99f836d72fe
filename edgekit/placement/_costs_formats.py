"""Tensor formats: which ones a kernel can read and write, and the bytes that a tensor takes.

A format is named as TensorRT's documentation does ("LINEAR", "HWC8", "CHW16", "CHW32",
"DLA_LINEAR", "DLA_HWC4"); a tensor's layout is its type and its format, ("int8", "CHW32").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from edgekit.dla import nbytes
from edgekit.network import Layer, Network
from edgekit.placement._costs_data import cost_data
from edgekit.placement._kernels import Kernel

__all__ = ["BYTES", "Layout", "dla_formats", "gpu_formats", "padded_bytes", "takes_image"]

BYTES = {"int8": 1, "fp16": 2, "fp32": 4}

#: A tensor's type ("int8", "fp16", "fp32") and its format.
Layout = tuple[str, str]

DLA_VECTOR = {"int8": "CHW32", "fp16": "CHW16"}
NUMPY = {"int8": "int8", "fp16": "float16", "fp32": "float32"}
HWC8 = 8  # channels that TensorRT's channel-last FP16 format pads to


@cache
def padded_bytes(shape: tuple[int, ...], layout: Layout, generation: str = "2.0") -> int:
    """Returns a tensor's bytes in a layout, padded channels and lines included."""
    dtype, form = layout
    if form == "LINEAR" or len(shape) < 2:
        return math.prod(shape) * BYTES[dtype]
    if form == "HWC8":
        channels = -(-shape[1] // HWC8) * HWC8
        return shape[0] * channels * math.prod(shape[2:]) * BYTES[dtype]
    held = (*shape, 1, 1)[:4] if len(shape) < 4 else shape
    return nbytes(held, NUMPY[dtype], form, generation)


def gpu_formats(layers: Sequence[Layer], network: Network, precision: str) -> tuple[str, ...]:
    """Returns the formats that a GPU kernel can have at its borders, its best one first."""
    rules = cost_data("kinds")["gpu_formats"]
    vector = rules["vector"].get(precision)
    linear = rules["linear_kinds"]
    if vector is None or any(layer.opaque or layer.kind in linear for layer in layers):
        return ("LINEAR",)
    if any(len(network.tensors[n].shape) < 4 for layer in layers for n in layer.outputs):
        return ("LINEAR",)
    if all(layer.kind in rules["any_kinds"] for layer in layers):
        writers = network.producers()
        read = {writers[n].kind for n in layers[0].inputs if n in writers}
        # what comes in lines stays in lines, such as the heads of an attention: no vectors to fill
        return ("LINEAR", vector) if read and read <= set(linear) else (vector, "LINEAR")
    return (vector,)


def dla_formats(kernel: Kernel, network: Network, precision: str) -> tuple[str, ...]:
    """Returns the formats in which a loadable can read or write at this kernel, its best first.

    DLA_HWC4 is for reading only.
    """
    vector = DLA_VECTOR.get(precision, "DLA_LINEAR")
    if takes_image(kernel, network):
        return ("DLA_HWC4", vector, "DLA_LINEAR")
    return (vector, "DLA_LINEAR")


def takes_image(kernel: Kernel, network: Network) -> bool:
    """Whether a kernel starts with a convolution that reads an image of 1, 3 or 4 channels."""
    first = network.layers[kernel.layers[0]]
    if first.kind != "CONVOLUTION" or len(first.inputs) != 1:
        return False
    shape = network.tensors[first.inputs[0]].shape
    return len(shape) == 4 and shape[1] in (1, 3, 4)
