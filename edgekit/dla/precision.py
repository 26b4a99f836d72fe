"""The precision of each layer, by scales or by the Q/DQ nodes around it, and the places of Q/DQ
nodes when a plain INT8 network is lowered to a strongly typed network.

Up to TensorRT 10.7 a layer of an INT8 build runs in INT8 if its tensors have scales. From
11.4.1 on the network is strongly typed: a layer between a DequantizeLinear and a QuantizeLinear
runs in INT8 and the others in FP16, whatever was requested.

If values of different range meet in one tensor with one scale (a detector's boxes and scores),
the smaller values lose bits. After the last layer with weights INT8 saves almost no time, so such
a tail stays in FP16 (:func:`float_tail`). Elsewhere a concatenation stays in FP16 if its parts
lose more than INT8 can spare (:func:`uneven_joins`). The places are found by measured ranges or a
cache's; without ranges, by the network's structure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import log2
from typing import TYPE_CHECKING, NamedTuple

from edgekit.disjoint_sets import DisjointSets
from edgekit.dla.plugin_formats import plugin_precision
from edgekit.knowledge import data_folder, read_facts
from edgekit.network.model import SHUFFLES
from edgekit_device.protocol.codec import document

if TYPE_CHECKING:
    from edgekit.network.model import Layer, Network


_SCHEMA = "edgekit.dla-int8/1"
QUANTIZATION = frozenset({"QUANTIZE", "DEQUANTIZE"})
# a layer with weights that reads floats and has at most this share of the network's
# multiplications saves no time in INT8: the sum over the bins of YOLOv8's box distributions
_NEGLIGIBLE_MACS = 0.01
# Bits that the narrowest tensor of a join may lose. Rounding to 8 bits leaves about 42 dB of values
# that fill their range, 6 dB less for each bit. INT8 leaves a network with 20 to 30 dB. At the
# network's end, which gains no time from INT8, the rest is to be better than that; elsewhere not
# much worse.
_TAIL_BITS = 2.0
_JOIN_BITS = 3.0
# layers that pass on the values of a join unchanged, part by part
_PASSES = SHUFFLES | {"CONCATENATION", "IDENTITY", "POOLING", "REDUCE", "RESIZE", "SLICE"}
_KEEPS_RANGE = frozenset({"RELU", "CLIP", "LEAKY_RELU"})
#: Largest magnitude by tensor, by one or several methods.
Amax = Sequence[Mapping[str, float]]
_FLOATS = frozenset({"float32", "float16"})


@document(frozen=True)
class Int8Operators:
    """ONNX operators with INT8 kernels on the GPU and on the DLA, by kind of work.

    Attributes:
        weighted: With quantised weights.
        pointwise: From values at the same place; fused with the layer before.
        moving: They move or interpolate values.
        selecting: Their outputs are some of their inputs' values, or 0.
        computing: Weighted and pointwise operators: their results first exist with the precision
            of sums.
        every: All these operators; any other operator runs in FP16.
        fused_kinds: TensorRT's layer kinds that are fused with the layer before.
    """

    weighted: frozenset[str]
    pointwise: frozenset[str]
    moving: frozenset[str]
    selecting: frozenset[str]
    computing: frozenset[str]
    every: frozenset[str]
    fused_kinds: frozenset[str]


@document(frozen=True)
class _FusedKinds:
    kinds: tuple[str, ...]


@document(frozen=True)
class _Int8File:
    """``dla/int8.yaml``."""

    operators: Mapping[str, tuple[str, ...]]
    selecting: tuple[str, ...]
    fused: _FusedKinds


@lru_cache(maxsize=1)
def int8_operators() -> Int8Operators:
    """Reads ``dla/int8.yaml``.

    Raises:
        DataError: A key or value of the file is wrong.
        ValueError: The file names an operator twice: edgekit's own file is wrong.
    """
    path = data_folder("dla") / "int8.yaml"
    file = read_facts(_Int8File, path, _SCHEMA)
    groups = file.operators
    named = [operator for operators in groups.values() for operator in operators]
    if len(set(named)) < len(named) or not set(file.selecting) <= set(named):
        raise ValueError(
            f"{path}: an operator is listed twice, or is under `selecting` without a group"
        )
    return Int8Operators(
        weighted=frozenset(groups["weighted"]),
        pointwise=frozenset(groups["pointwise"]),
        moving=frozenset(groups["moving"]),
        selecting=frozenset(file.selecting),
        computing=frozenset(groups["weighted"]) | frozenset(groups["pointwise"]),
        every=frozenset(named),
        fused_kinds=frozenset(file.fused.kinds),
    )


@dataclass(frozen=True, slots=True)
class Join:
    """A concatenation of tensors whose ranges differ by more than INT8 can spare.

    Attributes:
        layer: Its name.
        narrow: The part that loses most.
        wide: The part with the largest range.
        ranges: Their largest magnitudes.
        bits: Bits of 8 that the narrow part loses.
        layers: The layers that therefore stay in FP16, in graph order: the concatenation, and the
            kernels that read its values.
    """

    layer: str
    narrow: str
    wide: str
    ranges: tuple[float, float]
    bits: float
    layers: tuple[str, ...]


def build_precisions(used: Collection[str]) -> tuple[str, ...]:
    """Returns the precisions that a build must allow ("fp16", "int8") for layers in those ``used``.

    A DLA runs an INT8 network's other layers in FP16.
    """
    return ("fp16", "int8") if "int8" in used else ("fp16",) if "fp16" in used else ()


def precision_by_scales(
    layer: Layer,
    precision: str,
    scales: Mapping[str, float] | None,
    fp16_layers: Collection[str] = frozenset(),
) -> str:
    """Returns the precision of a layer in a build with a calibration cache.

    Args:
        layer: The layer.
        precision: The requested precision.
        scales: INT8 scales by tensor; None if all are taken to have a scale.
        fp16_layers: Names of layers that the user keeps out of INT8.
    """
    scaled = layer.name not in fp16_layers and (
        scales is None or all(name in scales for name in (*layer.inputs, *layer.outputs))
    )
    if layer.opaque:
        return plugin_precision(layer, precision, scaled=scaled)
    if precision != "int8":
        return precision
    return "int8" if scaled else "fp16"


def precisions_by_qdq(network: Network) -> dict[str, str]:
    """Returns the precision of each layer of a strongly typed network, by layer name.

    A layer runs in INT8 if every input, its weights included, comes from a DEQUANTIZE and every
    reader is a QUANTIZE: strong typing gives a convolution one type, so a convolution with float
    weights does not run in INT8 (dla/general.yaml, general.explicit_quantization).
    Layers that fuse (a convolution with the activation after it) count as a single layer, and
    shuffles are skipped, because they change no value. Linear in the number of layers.
    """
    producers, consumers = network.producers(), network.consumers()
    outputs = set(network.outputs)
    fed: dict[str, bool] = {}
    read: dict[str, bool] = {}

    def feeds(source: Layer | None, layer: Layer) -> bool:
        # an input of the network (None) is a float
        if source is None or source.kind == "DEQUANTIZE":
            return source is not None
        # a value that another layer reads too leaves the kernel, and is rounded
        alone = all(len(consumers.get(name, ())) == 1 for name in source.outputs)
        return alone and fed[source.name] and _is_unrounded(source, layer)

    def reads(reader: Layer, layer: Layer) -> bool:
        if reader.kind == "QUANTIZE":
            return True
        return fed[reader.name] and read[reader.name] and _is_unrounded(layer, reader)

    # inputs first, in graph order; then readers, in reverse order: each needs its neighbour's
    # result
    for layer in network.layers:
        sources = [producers.get(name) for name in layer.inputs]
        quantised = layer.weight_operators is None or "DequantizeLinear" in layer.weight_operators
        reads_int8 = bool(sources) and all(feeds(source, layer) for source in sources)
        fed[layer.name] = quantised and reads_int8
    for layer in reversed(network.layers):
        readers = [reader for name in layer.outputs for reader in consumers.get(name, ())]
        # an output of the network is a float, so no QUANTIZE ends the layer
        inner = bool(readers) and not outputs.intersection(layer.outputs)
        read[layer.name] = inner and all(reads(reader, layer) for reader in readers)
    return {
        layer.name: "int8"
        if layer.kind in QUANTIZATION
        # between Q/DQ nodes a plugin reads and writes floats (guide, "Q/DQ Interaction with
        # Plugins": a plugin that takes INT8 has no such nodes beside it)
        or (fed[layer.name] and read[layer.name] and not layer.opaque)
        else "fp16"
        for layer in network.layers
    }


def _is_unrounded(before: Layer, after: Layer) -> bool:
    """Returns True if values are not rounded between a layer and its reader."""
    if before.kind in QUANTIZATION:
        return False
    shuffles = before.kind in SHUFFLES or after.kind in SHUFFLES
    return shuffles or after.kind in int8_operators().fused_kinds


def uneven_joins(network: Network, ranges: Amax) -> tuple[Join, ...]:
    """Returns the concatenations whose parts must not share one INT8 scale, in graph order.

    On a DLA parts and result share one scale; on a GPU the result has a single scale, even if its
    parts have others. So the concatenation runs in FP16, and so do the kernels that read its
    values. Linear in the number of layers.

    Args:
        network: The layer graph.
        ranges: As measured, or as a cache gives them; empty if unknown.
    """
    if not ranges:
        return ()
    consumers, producers = network.consumers(), network.producers()
    found: dict[str, _RangeGap] = {}
    layers_of: dict[str, list[str]] = {}
    # by tensor the join whose values it holds; by layer the join that its kernel reads
    values: dict[str, str] = {}
    reading: dict[str, str] = {}
    for layer in network.layers:
        apart = _find_range_gap(layer.inputs, ranges) if layer.kind == "CONCATENATION" else None
        if apart is not None and apart.bits > _JOIN_BITS:
            found[layer.name] = apart
            origin = layer.name
        elif (origin := next((values[n] for n in layer.inputs if n in values), "")) == "":
            origin = _fused_with(layer, reading, producers, consumers)
            if origin:
                reading[layer.name] = origin
                layers_of[origin].append(layer.name)
            continue
        layers_of.setdefault(origin, []).append(layer.name)
        if layer.kind in _PASSES or layer.params.get("function") in _KEEPS_RANGE:
            values.update(dict.fromkeys(layer.outputs, origin))
        else:
            reading[layer.name] = origin
    return tuple(
        Join(
            name,
            apart.narrow,
            apart.wide,
            apart.ranges,
            min(8.0, apart.bits),
            tuple(layers_of[name]),
        )
        for name, apart in found.items()
    )


def _fused_with(
    layer: Layer,
    reading: Mapping[str, str],
    producers: Mapping[str, Layer],
    consumers: Mapping[str, Sequence[Layer]],
) -> str:
    """Returns the join read by the kernel that a layer is fused with; "" if none."""
    if layer.kind not in int8_operators().fused_kinds:
        return ""
    sources = [(n, s) for n in layer.inputs if (s := producers.get(n)) is not None]
    own = [(n, reading[s.name]) for n, s in sources if s.name in reading]
    # a gate (SiLU) has no other input; a sum is fused with the operand that has no other reader
    if own and (len(own) == len(sources) or any(len(consumers[n]) == 1 for n, _ in own)):
        return own[0][1]
    return ""


class _RangeGap(NamedTuple):
    """Two tensors, their ranges, and the difference of these in bits."""

    narrow: str
    wide: str
    ranges: tuple[float, float]
    bits: float


def _find_range_gap(names: Sequence[str], ranges: Amax) -> _RangeGap | None:
    """Returns the narrowest and the widest of the tensors.

    Uses the method for which they are nearest, so that a single outlier does not count; None if
    fewer than two ranges are known.
    """
    found: list[_RangeGap] = []
    for amax in ranges:
        # a range of 0 is that of a constant zero, which any scale represents
        known = [name for name in dict.fromkeys(names) if amax.get(name, 0.0) > 0]
        if len(known) > 1:
            narrow, wide = (pick(known, key=amax.__getitem__) for pick in (min, max))
            low, high = amax[narrow], amax[wide]
            found.append(_RangeGap(narrow, wide, (low, high), log2(high / low)))
    return min(found, key=lambda gap: gap.bits, default=None)


def float_tail(network: Network, ranges: Amax = ()) -> frozenset[str]:
    """Returns the layers that an INT8 build keeps in FP16 at the network's end.

    They come after the last layers with weights (and their kernels), and lead to or from a
    concatenation or arithmetic with constants (the decoding of boxes), whose operands and results
    differ in range. Linear in the number of layers.

    Args:
        network: The layer graph.
        ranges: As measured, or as a cache gives them; unknown ranges are taken to differ.
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
    before = {layer.name for layer in tail if _mixes_ranges(layer, ranges)}
    after = set(before)
    # the tail is in reverse order: readers come before the layers that they read
    for layer in tail:
        if any(r.name in before for name in layer.outputs for r in consumers.get(name, ())):
            before.add(layer.name)
    # in graph order again, from the layers that mix ranges to the outputs
    for layer in reversed(tail):
        if any((s := producers.get(name)) is not None and s.name in after for name in layer.inputs):
            after.add(layer.name)
    return frozenset(before | after)


def _last_kernels(network: Network) -> tuple[set[str], set[str]]:
    """Returns the layers that gain from INT8 weights, and the layers fused after them."""
    ops = int8_operators()
    producers = network.producers()
    small = _NEGLIGIBLE_MACS * sum(layer.macs for layer in network.layers)
    # layers without INT8 kernel, and those that only move their results
    floats: set[str] = set()
    weighted: set[str] = set()
    fused: set[str] = set()
    for layer in network.layers:
        sources = [source for name in layer.inputs if (source := producers.get(name)) is not None]
        reads_floats = bool(sources) and all(source.name in floats for source in sources)
        computes = layer.op in ops.weighted and layer.kind not in SHUFFLES
        if computes and layer.weight_operators is not None:
            if not (reads_floats and layer.macs <= small):
                weighted.add(layer.name)
        elif (
            reads_floats
            if layer.op in ops.moving or layer.kind in SHUFFLES
            else computes or layer.op not in ops.every
        ):
            floats.add(layer.name)
        if layer.kind in ops.fused_kinds and any(
            source.name in weighted or source.name in fused for source in sources
        ):
            fused.add(layer.name)
    return weighted, fused


def _mixes_ranges(layer: Layer, ranges: Amax) -> bool:
    """Returns True if the values that a layer reads and writes differ in range, or may do so."""
    with_constant = layer.kind == "ELEMENTWISE" and len(layer.inputs) == 1
    if not (layer.kind in {"CONCATENATION", "SCALE"} or with_constant):
        return False
    apart = _find_range_gap((*layer.inputs, *layer.outputs), ranges)
    if apart is None or (apart.bits == 0 and layer.kind == "CONCATENATION"):
        # a cache made for a DLA gives all parts the same scale, so it does not show their ranges
        return True
    return apart.bits > _TAIL_BITS


@document(frozen=True, eq=False)
class Lowering:
    """The precisions of a lowered network's layers, and its quantised tensors.

    Attributes:
        precisions: "int8" or "fp16" by layer name.
        tensors: Tensors of the ONNX model that get Q/DQ nodes, in graph order.
        missing: Tensors whose lack of a scale keeps layers out of INT8, in graph order.
    """

    precisions: dict[str, str]
    tensors: tuple[str, ...]
    missing: tuple[str, ...]


def plan_lowering(
    network: Network,
    scales: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> Lowering:
    """Decides which layers run in INT8, and which tensors get Q/DQ nodes for it.

    From TensorRT 11.4.1 on a layer runs in INT8 between a DequantizeLinear and a QuantizeLinear, so
    every tensor that an INT8 layer reads or writes gets such a pair, as NVIDIA's
    ``modelopt.onnx.quantization --target_dla`` does it. Two kinds of tensors get none: the result
    of a convolution, sum or scale with a single reader that is an activation or scale (it never
    leaves the fused kernel), and tensors between the layers of one ONNX node.

    Args:
        network: A plain network.
        scales: Tensors that have a scale; None if all are taken to have a scale.
        fp16_layers: Names of layers kept out of INT8.
    """
    return _QdqPlacement(network, scales, fp16_layers).place()


@document(frozen=True, eq=False)
class _NodeLayers:
    """Layers of the same ONNX nodes: no Q/DQ node can be put between them."""

    layers: tuple[Layer, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @cached_property
    def ops(self) -> frozenset[str]:
        return frozenset(layer.op for layer in self.layers)

    @property
    def computes(self) -> bool:
        """True if its result first exists with the precision of its sums."""
        return self.ops <= int8_operators().computing and self.layers[-1].kind not in SHUFFLES

    @property
    def moves(self) -> bool:
        return self.ops <= int8_operators().moving

    @property
    def is_tail(self) -> bool:
        """True if it belongs to the kernel that writes its only input activation."""
        return len(self.reads) == 1 and all(
            layer.kind in int8_operators().fused_kinds for layer in self.layers
        )


class _QdqPlacement:
    def __init__(
        self, network: Network, scales: Collection[str] | None, fp16_layers: Collection[str]
    ) -> None:
        self._network = network
        self._scales = scales
        self._outputs = frozenset(network.outputs)
        self._units = self._group_layers()
        self._writer = {name: unit for unit in self._units for name in unit.writes}
        self._readers: dict[str, list[_NodeLayers]] = {}
        for unit in self._units:
            for name in unit.reads:
                self._readers.setdefault(name, []).append(unit)
        fp16 = frozenset(fp16_layers)
        self._int8 = {unit for unit in self._units if _has_int8_kernels(unit, fp16)}
        self._drop_movers()

    def _group_layers(self) -> list[_NodeLayers]:
        network = self._network
        names = {
            layer.name: layer.nodes or layer.origin or (layer.name,) for layer in network.layers
        }
        sets = DisjointSets[str]()
        for nodes in names.values():
            sets.join(*nodes)
        members: dict[str, list[Layer]] = {}
        for layer in network.layers:
            members.setdefault(sets.root(names[layer.name][0]), []).append(layer)
        home = {layer.name: key for key, layers in members.items() for layer in layers}
        consumers = network.consumers()
        units = []
        for key, layers in members.items():
            written = dict.fromkeys(name for layer in layers for name in layer.outputs)
            read = dict.fromkeys(name for layer in layers for name in layer.inputs)
            leaving = (
                name
                for name in written
                if name in self._outputs
                or any(home[reader.name] != key for reader in consumers.get(name, ()))
            )
            units.append(
                _NodeLayers(
                    tuple(layers),
                    # Q/DQ nodes take floats: integers and booleans stay as they are
                    tuple(n for n in read if n not in written and self._is_float(n)),
                    tuple(n for n in leaving if self._is_float(n)),
                )
            )
        return units

    def _is_float(self, name: str) -> bool:
        tensor = self._network.tensors.get(name)
        return tensor is not None and tensor.dtype in _FLOATS

    def _drop_movers(self) -> None:
        """Takes layers out of INT8 that only move floats which no INT8 layer computes with."""
        wanted: set[_NodeLayers] = set()
        # readers first: a move is wanted if a later move is
        for unit in reversed(self._units):
            readers = [reader for name in unit.writes for reader in self._readers.get(name, ())]
            if any(r in self._int8 and (not r.moves or r in wanted) for r in readers):
                wanted.add(unit)
        for unit in self._units:
            if unit.moves and unit in self._int8 and unit not in wanted and unit.reads:
                sources = [self._writer.get(name) for name in unit.reads]
                if all(source is not None and source not in self._int8 for source in sources):
                    self._int8.discard(unit)

    def place(self) -> Lowering:
        """Returns the lowering after layers with a tensor that lacks a scale left INT8."""
        missing: dict[str, None] = {}
        # layers that leave INT8 may take moves with them; the set only shrinks, so this ends
        while True:
            tensors = self._find_tensors()
            scales = tensors if self._scales is None else self._scales
            lacking = {name for name in tensors if name not in scales}
            fallen = {u for u in self._int8 if lacking.intersection((*u.reads, *u.writes))}
            if not fallen:
                break
            missing.update(dict.fromkeys(name for name in tensors if name in lacking))
            self._int8 -= fallen
            self._drop_movers()
        running = {layer.name for unit in self._int8 for layer in unit.layers}
        precisions = {
            layer.name: "int8" if layer.name in running else "fp16"
            for layer in self._network.whole.layers
        }
        return Lowering(precisions, tuple(tensors), tuple(missing))

    def _find_tensors(self) -> dict[str, None]:
        """Returns the tensors that INT8 layers read and write, without those inside a kernel."""
        found: dict[str, None] = {}
        for unit in self._units:
            if unit in self._int8:
                names = (*unit.reads, *unit.writes)
                found.update(dict.fromkeys(name for name in names if not self._is_inside(name)))
        return found

    def _is_inside(self, name: str) -> bool:
        writer, readers = self._writer.get(name), self._readers.get(name, [])
        return (
            writer in self._int8
            and writer is not None
            and writer.computes
            and name not in self._outputs
            and len(readers) == 1
            and readers[0] in self._int8
            and readers[0].is_tail
        )


def _has_int8_kernels(unit: _NodeLayers, fp16_layers: Collection[str]) -> bool:
    """Returns True if all layers have an INT8 kernel; a product of two activations has none."""
    return bool(unit.reads or unit.writes) and all(
        layer.op in int8_operators().every
        and layer.name not in fp16_layers
        and (layer.op not in int8_operators().weighted or layer.weights or layer.kind in SHUFFLES)
        for layer in unit.layers
    )
