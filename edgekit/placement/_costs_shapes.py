"""What the cost model asks about a layer's shape."""

from __future__ import annotations

import math

from edgekit.network import Layer, Network

__all__ = ["batches", "channels", "function", "groups", "is_depthwise", "rows"]


def groups(layer: Layer) -> int:
    """Returns the groups of a convolution."""
    return int(layer.params.get("groups", 1) or 1)


def channels(network: Network, layer: Layer) -> int:
    """Returns the channels that a layer reads."""
    shape = network.tensors[layer.inputs[0]].shape if layer.inputs else ()
    return shape[1] if len(shape) > 1 else 1


def is_depthwise(network: Network, layer: Layer) -> bool:
    """Whether every channel is a group of its own."""
    many = groups(layer)
    return many > 1 and channels(network, layer) == many


def batches(network: Network, layer: Layer) -> int:
    """Weights are read once for every item of a batch: batching does not help a DLA."""
    shape = network.tensors[layer.outputs[0]].shape
    return shape[0] if len(shape) > 1 else 1


def rows(network: Network, layer: Layer) -> int:
    """Returns the rows of a matrix product, which a DLA runs as a batch; 1 for anything else.

    Shuffles and sums that the importer makes of a Gemm bear its operator, and are no products.
    """
    if layer.op not in ("Gemm", "MatMul") or not layer.macs:
        return 1
    shape = network.tensors[layer.outputs[0]].shape
    out = int(layer.params.get("out_maps", shape[-1] if shape else 1) or 1)
    return max(1, math.prod(shape) // out)


def function(layer: Layer) -> str:
    """Returns what a pointwise layer computes ("RELU", "SUM"); what does not say is the usual."""
    usual = {"ACTIVATION": "RELU", "ELEMENTWISE": "SUM", "SCALE": "SCALE"}
    if layer.kind == "SCALE":
        return "SCALE"
    return str(layer.params.get("function") or usual.get(layer.kind, layer.kind))
