"""In which precision a layer runs: by its scales, or by the Q/DQ nodes around it.

Up to TensorRT 10.7 a layer of an INT8 build runs in INT8 where its tensors have scales. From
11.4.1 on the network is strongly typed: a layer between a DequantizeLinear and a QuantizeLinear
runs in INT8 and the others in FP16, whatever was asked for.

Behind the last layer with weights INT8 saves next to nothing, and it loses much where values of
different range meet: a detector's boxes and scores in one tensor with one scale. Such a tail stays
in FP16 (:func:`float_tail`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from edgekit.dla._int8 import int8_operators

if TYPE_CHECKING:
    from edgekit.network import Layer, Network

__all__ = ["QUANTIZATION", "by_quantization", "by_scales", "float_tail"]

QUANTIZATION = frozenset({"QUANTIZE", "DEQUANTIZE"})

# a layer with weights that reads floats and has at most this share of the network's
# multiplications saves nothing in INT8: the sum over the bins of YOLOv8's box distributions
_SMALL = 0.01


def by_scales(
    layer: Layer,
    precision: str,
    scales: Mapping[str, float] | None,
    fp16_layers: Collection[str] = frozenset(),
) -> str:
    """Returns the precision of a layer in a build with a calibration cache.

    Args:
        layer: The layer.
        precision: What was asked for.
        scales: INT8 scales by tensor; None where every tensor is taken to have one.
        fp16_layers: Names of layers that the user keeps out of INT8.
    """
    if precision != "int8":
        return precision
    if layer.name in fp16_layers or layer.opaque:
        return "fp16"
    if scales is None:
        return precision
    return "int8" if all(name in scales for name in (*layer.inputs, *layer.outputs)) else "fp16"


def by_quantization(network: Network) -> dict[str, str]:
    """Returns the precision of each layer of a strongly typed network, by layer name.

    A layer runs in INT8 when every input comes from a DEQUANTIZE and every reader is a QUANTIZE,
    its weights' too: strong typing gives a convolution one type, and a float kernel is none of
    INT8 (dla/general.yaml, general.explicit_quantization).
    Layers that fuse (a convolution with the activation behind it) are one in this respect, and
    shuffles are seen through, for they change no value. Linear in the number of layers.
    """
    producers, consumers = network.producers(), network.consumers()
    outputs = set(network.outputs)
    fed: dict[str, bool] = {}
    read: dict[str, bool] = {}

    def feeds(source: Layer | None, layer: Layer) -> bool:
        if source is None or source.kind == "DEQUANTIZE":
            return source is not None
        alone = all(len(consumers.get(name, ())) == 1 for name in source.outputs)
        return alone and fed[source.name] and _one(source, layer)

    def reads(reader: Layer, layer: Layer) -> bool:
        if reader.kind == "QUANTIZE":
            return True
        return fed[reader.name] and read[reader.name] and _one(layer, reader)

    for layer in network.layers:
        sources = [producers.get(name) for name in layer.inputs]
        quantised = layer.weight_operators is None or "DequantizeLinear" in layer.weight_operators
        fed[layer.name] = (
            quantised and bool(sources) and all(feeds(source, layer) for source in sources)
        )
    for layer in reversed(network.layers):
        readers = [reader for name in layer.outputs for reader in consumers.get(name, ())]
        inner = bool(readers) and not outputs.intersection(layer.outputs)
        read[layer.name] = inner and all(reads(reader, layer) for reader in readers)
    return {
        layer.name: "int8"
        if layer.kind in QUANTIZATION or (fed[layer.name] and read[layer.name])
        else "fp16"
        for layer in network.layers
    }


def _one(before: Layer, after: Layer) -> bool:
    """Whether no rounding lies between a layer and its reader."""
    if before.kind in QUANTIZATION:
        return False
    return after.kind in int8_operators().fused_kinds or "SHUFFLE" in {before.kind, after.kind}


def float_tail(network: Network) -> frozenset[str]:
    """Returns the layers that an INT8 build keeps in FP16 at the network's end.

    They come after the last layers with weights (and the kernels of those), and lead to or from a
    concatenation or arithmetic with constants (the decoding of boxes), whose operands and results
    differ in range. Linear in the number of layers.
    """
    weighted, fused = _last_kernels(network)
    if not weighted:
        return frozenset()
    producers, consumers = network.producers(), network.consumers()
    leads: set[str] = set()
    tail: list[Layer] = []
    for layer in reversed(network.layers):
        readers = [reader for name in layer.outputs for reader in consumers.get(name, ())]
        if layer.name in weighted or any(reader.name in leads for reader in readers):
            leads.add(layer.name)
        elif layer.name not in fused:
            tail.append(layer)
    before = {layer.name for layer in tail if _joins(layer)}
    after = set(before)
    for layer in tail:
        if any(r.name in before for name in layer.outputs for r in consumers.get(name, ())):
            before.add(layer.name)
    for layer in reversed(tail):
        if any((s := producers.get(name)) is not None and s.name in after for name in layer.inputs):
            after.add(layer.name)
    return frozenset(before | after)


def _last_kernels(network: Network) -> tuple[set[str], set[str]]:
    """Returns the layers whose weights are worth INT8, and those fused with what they write."""
    ops = int8_operators()
    producers = network.producers()
    small = _SMALL * sum(layer.macs for layer in network.layers)
    # what has no INT8 kernel, and what only moves its results
    floats: set[str] = set()
    weighted: set[str] = set()
    fused: set[str] = set()
    for layer in network.layers:
        sources = [source for name in layer.inputs if (source := producers.get(name)) is not None]
        reads_floats = bool(sources) and all(source.name in floats for source in sources)
        computes = layer.op in ops.weighted and layer.kind != "SHUFFLE"
        if computes and layer.weight_operators is not None:
            if not (reads_floats and layer.macs <= small):
                weighted.add(layer.name)
        elif (
            reads_floats
            if layer.op in ops.moving or layer.kind == "SHUFFLE"
            else computes or layer.op not in ops.every
        ):
            floats.add(layer.name)
        if layer.kind in ops.fused_kinds and any(
            source.name in weighted or source.name in fused for source in sources
        ):
            fused.add(layer.name)
    return weighted, fused


def _joins(layer: Layer) -> bool:
    """Whether the values that a layer reads and writes are likely to differ in range."""
    with_constant = layer.kind == "ELEMENTWISE" and len(layer.inputs) == 1
    return layer.kind in {"CONCATENATION", "SCALE"} or with_constant
