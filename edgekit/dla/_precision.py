"""In which precision a layer runs: by its scales, or by the Q/DQ nodes around it.

Up to TensorRT 10.7 a layer of an INT8 build runs in INT8 where its tensors have scales. From
11.4.1 on the network is strongly typed: a layer between a DequantizeLinear and a QuantizeLinear
runs in INT8 and the others in FP16, whatever was asked for.

Where values of different range meet in one tensor, the smaller ones lose bits to its one scale: a
detector's boxes and scores. Behind the last layer with weights INT8 saves next to nothing, so that
such a tail stays in FP16 (:func:`float_tail`); elsewhere a concatenation does whose parts lose more
than INT8 can spare (:func:`uneven_joins`). Ranges that were measured, or that a cache gives, say
where that is; without them the network's structure says where it is likely.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, NamedTuple

from edgekit.dla._int8 import int8_operators

if TYPE_CHECKING:
    from edgekit.network import Layer, Network

__all__ = ["QUANTIZATION", "Join", "by_quantization", "by_scales", "float_tail", "uneven_joins"]

QUANTIZATION = frozenset({"QUANTIZE", "DEQUANTIZE"})

# a layer with weights that reads floats and has at most this share of the network's
# multiplications saves nothing in INT8: the sum over the bins of YOLOv8's box distributions
_SMALL = 0.01
# Bits that the narrowest tensor of a join may lose. Rounding to 8 bits leaves about 42 dB of values
# that fill their range, 6 dB less for each bit. At the network's end, where nothing is gained by
# INT8, what is left is to be better than the 20 to 30 dB that INT8 leaves of a network; elsewhere
# not much worse.
_TAIL_BITS = 2.0
_BITS = 3.0
# what hands on the values of a join as they are, part by part
_PASSES = frozenset({
    "CONCATENATION", "IDENTITY", "POOLING", "REDUCE", "RESIZE", "SHUFFLE", "SLICE",
})  # fmt: skip
_KEEPS_RANGE = frozenset({"RELU", "CLIP", "LEAKY_RELU"})

#: Largest magnitude by tensor, by one or several methods.
Amax = Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Join:
    """A concatenation of tensors whose ranges differ by more than INT8 can spare.

    Attributes:
        layer: Its name.
        narrow: The part that loses most.
        wide: The part with the largest range.
        ranges: Their largest magnitudes.
        bits: How many of its 8 bits the narrow one loses.
        layers: The layers that stay in FP16 for it, in graph order: the concatenation, and the
            kernels that read its values.
    """

    layer: str
    narrow: str
    wide: str
    ranges: tuple[float, float]
    bits: float
    layers: tuple[str, ...]


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


def uneven_joins(network: Network, ranges: Amax) -> tuple[Join, ...]:
    """Returns the concatenations whose parts must not share one INT8 scale, in graph order.

    On a DLA parts and result have one scale; on a GPU the result has one all the same, whatever
    those of its parts are. So the concatenation runs in FP16, and with it the kernels that read
    its values. Linear in the number of layers.

    Args:
        network: The layer graph.
        ranges: As measured, or as a cache gives them; none where nothing is known.
    """
    if not ranges:
        return ()
    consumers, producers = network.consumers(), network.producers()
    found: dict[str, _Apart] = {}
    kept: dict[str, list[str]] = {}
    # by tensor the join whose values it has; by layer that of the kernel which reads them
    values: dict[str, str] = {}
    reading: dict[str, str] = {}
    for layer in network.layers:
        apart = _apart(layer.inputs, ranges) if layer.kind == "CONCATENATION" else None
        if apart is not None and apart.bits > _BITS:
            found[layer.name] = apart
            origin = layer.name
        elif (origin := next((values[n] for n in layer.inputs if n in values), "")) == "":
            origin = _fused_with(layer, reading, producers, consumers)
            if origin:
                reading[layer.name] = origin
                kept[origin].append(layer.name)
            continue
        kept.setdefault(origin, []).append(layer.name)
        if layer.kind in _PASSES or layer.params.get("function") in _KEEPS_RANGE:
            values.update(dict.fromkeys(layer.outputs, origin))
        else:
            reading[layer.name] = origin
    return tuple(
        Join(name, apart.narrow, apart.wide, apart.ranges, apart.bits, tuple(kept[name]))
        for name, apart in found.items()
    )


def _fused_with(
    layer: Layer,
    reading: Mapping[str, str],
    producers: Mapping[str, Layer],
    consumers: Mapping[str, Sequence[Layer]],
) -> str:
    """Returns the join that the kernel reads which a layer is fused with; "" where none."""
    if layer.kind not in int8_operators().fused_kinds:
        return ""
    sources = [(n, s) for n in layer.inputs if (s := producers.get(n)) is not None]
    own = [(n, reading[s.name]) for n, s in sources if s.name in reading]
    # a gate (SiLU) reads nothing else; a sum is fused with the operand that nothing else reads
    if own and (len(own) == len(sources) or any(len(consumers[n]) == 1 for n, _ in own)):
        return own[0][1]
    return ""


class _Apart(NamedTuple):
    """Two tensors, how wide they are, and how many bits lie between them."""

    narrow: str
    wide: str
    ranges: tuple[float, float]
    bits: float


def _apart(names: Sequence[str], ranges: Amax) -> _Apart | None:
    """Returns the narrowest and the widest of tensors.

    By the method that has them nearest, so that a single outlier says nothing; None where fewer
    than two ranges are known.
    """
    found: list[_Apart] = []
    for amax in ranges:
        known = [name for name in dict.fromkeys(names) if amax.get(name, 0.0) > 0]
        if len(known) > 1:
            narrow, wide = (pick(known, key=amax.__getitem__) for pick in (min, max))
            low, high = amax[narrow], amax[wide]
            found.append(_Apart(narrow, wide, (low, high), log2(high / low)))
    return min(found, key=lambda one: one.bits, default=None)


def float_tail(network: Network, ranges: Amax = ()) -> frozenset[str]:
    """Returns the layers that an INT8 build keeps in FP16 at the network's end.

    They come after the last layers with weights (and the kernels of those), and lead to or from a
    concatenation or arithmetic with constants (the decoding of boxes), whose operands and results
    differ in range. Linear in the number of layers.

    Args:
        network: The layer graph.
        ranges: As measured, or as a cache gives them; where they are not known, the ranges are
            taken to differ.
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
    before = {layer.name for layer in tail if _joins(layer, ranges)}
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


def _joins(layer: Layer, ranges: Amax) -> bool:
    """Whether the values that a layer reads and writes differ in range, or are likely to."""
    with_constant = layer.kind == "ELEMENTWISE" and len(layer.inputs) == 1
    if not (layer.kind in {"CONCATENATION", "SCALE"} or with_constant):
        return False
    apart = _apart((*layer.inputs, *layer.outputs), ranges)
    if apart is None or (apart.bits == 0 and layer.kind == "CONCATENATION"):
        # a cache that was made for a DLA gives all parts one scale, which says nothing of them
        return True
    return apart.bits > _TAIL_BITS
