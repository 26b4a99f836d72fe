"""Activation ranges and scales with their origin. Also the tensors that must share a scale, since
the hardware cannot rescale between them: the cost, and the layers whose given scales differ.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import log2
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from edgekit.disjoint_sets import DisjointSets
from edgekit.dla.rules import load_rules
from edgekit.dla.scales import ScaleTie, find_scale_tie, scale_ties
from edgekit.text import counted, yaml_list
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    document,
    long_text,
    mapping,
    member,
    nullable,
    number,
)

if TYPE_CHECKING:
    import onnx

    from edgekit.network.model import Layer, Network


#: The largest float32 / 128: with a larger scale, dequantised values may be infinite.
LARGEST_SCALE = float.fromhex("0x1.fffffep+120")
#: A tensor that loses more bits (of 8) is reported.
COSTLY_BITS = 2.0
_BITS = 8.0
_SHOWN = 5
_AMAX = number(0, sys.float_info.max)


@document(frozen=True, eq=False)
class Ranges:
    """Clipping magnitudes as measured, each tensor by itself.

    Attributes:
        amax: By method ("entropy", "minmax", "percentile", "mse"), then by tensor name, in the
            unit of the tensor; 0 for a tensor that was always zero. ONNX tensors that no layer
            has are included: reshaped tensors, if TensorRT merges the reshape with the next layer.
        data: Description of the measured inputs, for people.
        samples: Number of inputs measured.
        warnings: Warnings about the data (a tensor that never changes, ...).
        masked: Tensors with masked values far below all others, so that no scale suits both.
        few: Tensors with too few values for the histogram of the entropy method.
    """

    amax: Mapping[str, Mapping[str, float]] = member(mapping(mapping(_AMAX, long_text)))
    data: str = member(long_text)
    samples: int = member(fields.count)
    warnings: tuple[str, ...] = member(array(long_text), default=())
    masked: tuple[str, ...] = member(array(long_text), default=())
    few: tuple[str, ...] = member(array(long_text), default=())


@dataclass(frozen=True, slots=True)
class Change:
    """A scale that a constraint of the hardware changed.

    Attributes:
        tensor: Its name.
        old: Scale before, None if it had none.
        new: Scale after.
        rule: The rule that requires it, by its id in ``edgekit explain``.
        layers: The layers that tie it to others, in graph order.
        widest: The tensor whose range all tied tensors take.
    """

    tensor: str
    old: float | None
    new: float
    rule: str
    layers: tuple[str, ...]
    widest: str = ""

    @property
    def bits(self) -> float:
        """Lost resolution in bits: log2 of new over old, at most 8; 0 without an old scale."""
        return min(_BITS, log2(self.new / self.old)) if self.old else 0.0


@document(frozen=True, eq=False)
class Scales:
    """Symmetric per-tensor INT8 scales: ``scale = amax / 127``.

    Attributes:
        scales: By tensor name; graph inputs and every activation tensor of the layer graph,
            including tensors between layers that TensorRT's parser inserts. ONNX tensors that no
            layer has take the scale of the tensor whose values they hold.
        method: "entropy", "minmax", "percentile", "mse", "cache" or "qdq".
        data: Description of the measured inputs, for people ("16 synthetic inputs, seed 0").
        digest: SHA-256 (hex) of names and values.
        missing: Float tensors of the network without a scale (a calibration cache may lack
            some, or no scale suits the measured values); layers that need them run in FP16.
        changes: Scales changed by the hardware's constraints.
        warnings: Warnings for the user.
        quantised: Tensors with Q/DQ nodes, if the network is lowered to a strongly typed
            network; None if the builder decides which tensors it rounds to INT8.
    """

    scales: Mapping[str, float]
    method: str
    data: str
    digest: str
    missing: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    quantised: frozenset[str] | None = None


def is_scale(value: float) -> bool:
    """Returns True if a number can be an INT8 scale: above 0 in float32 too, and not too large.

    Measuring, calibration caches, Q/DQ nodes and the reference build all use this.
    """
    return 0 < value <= LARGEST_SCALE and to_float32(value) > 0


def scales_in(graph: onnx.GraphProto, scales: Mapping[str, float]) -> dict[str, float]:
    """Returns the scales of a graph's inputs and of its nodes' outputs."""
    names = {value.name for value in graph.input}
    names |= {name for node in graph.node for name in node.output}
    return {name: scale for name, scale in scales.items() if name in names}


def to_float32(value: float) -> float:
    """Returns the nearest single-precision value, as engines and caches hold it."""
    return float(struct.unpack(">f", struct.pack(">f", value))[0])


def hex_bits(scale: float) -> str:
    """Returns the big-endian float32 bits as TensorRT's caches write them, no zero padding."""
    return f"{int.from_bytes(struct.pack('>f', scale), 'big'):x}"


def make_scales(
    scales: Mapping[str, float], *, method: str, data: str, missing: Iterable[str] = ()
) -> Scales:
    """Returns ``Scales`` with float32 values and their digest."""
    rounded = {name: to_float32(value) for name, value in scales.items()}
    digest = hashlib.sha256()
    # equal scales have equal digests, in whatever order they were found
    for name in sorted(rounded):
        digest.update(f"{name}\0{hex_bits(rounded[name])}\n".encode())
    return Scales(rounded, method, data, digest.hexdigest(), tuple(missing))


def tie(
    network: Network,
    scales: Mapping[str, float],
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
    inferred: Mapping[str, float] = MappingProxyType({}),
) -> tuple[dict[str, float], tuple[Change, ...]]:
    """Returns scales that keep the constraints of the hardware, and the changes.

    Every group takes the union of its ranges: the largest scale. No value is clipped, but the
    other tensors lose ``Change.bits`` of resolution. Linear in the number of layers.

    A tensor without a value gets one if layers that only move values lead to it: the builder
    inserts reshapes whose tensors no ONNX node has. Other tensors do not, because an operand's
    range does not follow from the other operand's.

    Args:
        network: The layer graph.
        scales: Scale, or clipping magnitude, by tensor; 0 for a tensor that was always zero.
        dla_layers: Layers that can run on the target's DLA; None if all may.
        fp16_layers: Layers kept in FP16, which bind no scales.
        inferred: Values of tensors not in ``scales``, which follow from the values there.

    Returns:
        The values by tensor, in the unit of ``scales``; and the changes of given values, worst
        first.
    """
    bound = list(bindings(network, dla_layers=dla_layers, fp16_layers=fp16_layers))
    moved, tied = DisjointSets[str](), DisjointSets[str]()
    by_tensor: dict[str, list[BoundLayer]] = {}
    for layer in bound:
        if layer.tie.ties.moves:
            moved.join(*layer.tensors)
        tied.join(*layer.tensors)
        for name in layer.tensors:
            by_tensor.setdefault(name, []).append(layer)
    values = {**scales, **inferred}
    # moves give a value to tensors without; ties below only widen values that are there
    for names in moved.members():
        known = [values[name] for name in names if name in values]
        if known:
            values.update((name, max(known)) for name in names if name not in values)
    changes = []
    for names in tied.members():
        known_names = [name for name in names if name in values]
        if not known_names:
            continue
        # of several equally wide tensors, the given one
        widest = max(known_names, key=lambda name: (values[name], name in scales))
        for name in known_names:
            if values[name] != values[widest]:
                values[name] = values[widest]
                if name in scales:
                    changes.append(_change(name, scales[name], values, widest, by_tensor[name]))
    return values, tuple(sorted(changes, key=lambda change: (-change.bits, change.tensor)))


class BoundLayer(NamedTuple):
    """A layer, the rule that binds it, and the float tensors that share a scale, two or more."""

    layer: Layer
    tie: ScaleTie
    tensors: tuple[str, ...]


def bindings(
    network: Network,
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
    apart: bool = False,
) -> Iterator[BoundLayer]:
    """Yields the layers that tie the scales of tensors, in graph order.

    The rules under ``dla/`` (their ``ties``) define which layers require one scale, because the
    hardware cannot rescale between the tensors. A tensor has the same scale for all readers, so the
    tensors that several layers tie form one group. The group takes its largest scale.

    Args:
        network: The layer graph.
        dla_layers: Layers that can run on the target's DLA; None if all may.
        fp16_layers: Layers kept in FP16, which bind no scales.
        apart: Yield instead the layers whose scales stay apart, since the sources do not settle it.
    """
    on_dla = None if dla_layers is None else frozenset(dla_layers)
    for layer in network.layers:
        rule = find_scale_tie(layer)
        if rule is None or rule.ties.apart != apart or layer.name in fp16_layers:
            continue
        if not (rule.ties.everywhere or on_dla is None or layer.name in on_dla):
            continue
        tensors = tuple(
            name
            for name in rule.tensors(layer)
            if name in network.tensors and network.tensors[name].dtype.startswith("float")
        )
        if len(tensors) > 1:
            yield BoundLayer(layer, rule, tensors)


def _change(
    name: str, old: float, values: Mapping[str, float], widest: str, bound: list[BoundLayer]
) -> Change:
    # layers that move values pass a scale on; a rule that requires it gives the reason
    reason = next((layer for layer in bound if not layer.tie.ties.moves), bound[0])
    return Change(
        tensor=name,
        old=old,
        new=values[widest],
        rule=reason.tie.rule.id,
        layers=tuple(layer.layer.name for layer in bound),
        widest=widest,
    )


@dataclass(frozen=True, slots=True)
class Violation:
    """A layer whose tensors should share one scale and do not.

    Attributes:
        layer: Its name.
        rule: The rule that requires it.
        scales: The scales, by tensor.
        disputed: True if the sources do not settle the rule.
    """

    layer: str
    rule: str
    scales: Mapping[str, float]
    disputed: bool = False

    @property
    def bits(self) -> float:
        """Bits lost by a shared scale: log2 of the largest over the smallest scale, at most 8."""
        least = min(self.scales.values())
        return min(_BITS, log2(max(self.scales.values()) / least)) if least > 0 else _BITS

    @property
    def message(self) -> str:
        """The violation in one line."""
        values = ", ".join(f"{name!r} {scale:.6g}" for name, scale in self.scales.items())
        return f"{self.layer}: unequal scales, {values} ({self.rule})"


def violations(
    network: Network,
    scales: Mapping[str, float],
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> tuple[Violation, ...]:
    """Returns the layers that given scales (Q/DQ nodes', a cache's) do not suit, in graph order.

    Scales are compared as float32; tensors without a scale are ignored. After ``tie`` the result
    is empty.

    Args:
        network: The layer graph.
        scales: Scale by tensor.
        dla_layers: Layers that can run on the target's DLA; None if all may.
        fp16_layers: Layers kept in FP16, which bind no scales.
    """
    found = []
    for bound in bindings(network, dla_layers=dla_layers, fp16_layers=fp16_layers):
        known = {name: to_float32(scales[name]) for name in bound.tensors if name in scales}
        if len(set(known.values())) > 1:
            rule = bound.tie.rule
            disputed = rule.certainty == "disputed"
            found.append(Violation(bound.layer.name, rule.id, known, disputed))
    return tuple(found)


def constraint_warnings(
    network: Network,
    scales: Mapping[str, float],
    changes: Iterable[Change],
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> tuple[str, ...]:
    """Returns warnings about shared scales that cost much or that the sources do not settle.

    Args:
        network: The layer graph.
        scales: Scale by tensor, after ``tie``.
        changes: The changes made by ``tie``.
        dla_layers: Layers that can run on the target's DLA; None if all may.
        fp16_layers: Layers kept in FP16.
    """
    costly = [change for change in changes if change.bits > COSTLY_BITS]
    messages = [_costly_warning(change) for change in costly[:_SHOWN]]
    if len(costly) > _SHOWN:
        messages.append(
            f"a shared scale costs more than {COSTLY_BITS:g} of the 8 bits of INT8 for "
            f"{counted(len(costly) - _SHOWN, 'more tensor')}; edgekit calibrate MODEL --json has "
            "all under changes, with the layers for calibration: {fp16_layers: [...]}"
        )
    return (*messages, *_unsettled_warnings(network, scales, dla_layers, fp16_layers))


@document(frozen=True)
class ChangedScale:
    """A scale that the hardware makes wider.

    Attributes:
        tensor: Its tensor.
        old: The scale before; None if it had none.
        new: The scale.
        bits: The resolution lost.
        rule: The rule that ties it to others.
        layers: The layers that tie it.
        widest: The tensor whose scale it takes; empty if no other tensor has it.
    """

    tensor: str = member(long_text)
    old: float | None = member(nullable(fields.figure))
    new: float = member(fields.figure)
    bits: float = member(number(-1e3, 1e3))
    rule: str = member(long_text)
    layers: tuple[str, ...] = member(array(long_text))
    widest: str = member(long_text)


def change_rows(changes: Iterable[Change]) -> tuple[ChangedScale, ...]:
    """Returns changes in the form of documents."""
    return tuple(
        ChangedScale(
            tensor=change.tensor,
            old=change.old,
            new=change.new,
            bits=round(change.bits, 4),
            rule=change.rule,
            layers=tuple(change.layers),
            widest=change.widest,
        )
        for change in changes
    )


def _costly_warning(change: Change) -> str:
    layers = ", ".join(change.layers[:_SHOWN])
    everywhere = {tie.rule.id for tie in scale_ties() if tie.ties.everywhere}
    pins = ", ".join(f"{{layers: {yaml_list([n])[1:-1]}, device: GPU}}" for n in change.layers)
    place = "" if change.rule in everywhere else f", or on the GPU: placement: {{pin: [{pins}]}}"
    subject = "that layer" if len(change.layers) == 1 else "these layers"
    return (
        f"tensor {change.tensor!r} loses {change.bits:.1f} of the 8 bits of INT8, because "
        f"{layers} gives it the scale of {change.widest!r} ({change.rule}); change the model so "
        f"that the ranges are similar, or keep {subject} in FP16: calibration: "
        f"{{fp16_layers: {yaml_list(change.layers)}}}{place}"
    )


def _unsettled_warnings(
    network: Network,
    scales: Mapping[str, float],
    dla_layers: Collection[str] | None,
    fp16_layers: Collection[str],
) -> list[str]:
    """Returns a warning for each rule that the sources do not settle and the scales break."""
    apart: dict[str, list[Violation]] = {}
    found = bindings(network, dla_layers=dla_layers, fp16_layers=fp16_layers, apart=True)
    for bound in found:
        known = {name: to_float32(scales[name]) for name in bound.tensors if name in scales}
        if len(set(known.values())) > 1:
            rule = bound.tie.rule.id
            apart.setdefault(rule, []).append(Violation(bound.layer.name, rule, known))
    return [_unsettled_warning(rule, members) for rule, members in apart.items()]


def _unsettled_warning(rule: str, members: list[Violation]) -> str:
    worst = max(members, key=lambda violation: violation.bits)
    narrow = min(worst.scales, key=lambda name: worst.scales[name])
    many = f"{len(members)} products keep" if len(members) > 1 else f"product {worst.layer} keeps"
    return (
        f"{many} a scale for each factor; a DLA that takes the larger for both would take "
        f"{worst.bits:.1f} of the 8 bits of {narrow!r} ({rule}, disputed): "
        f"{load_rules().rules[rule].fix}; to be sure: calibration: "
        f"{{fp16_layers: {yaml_list([violation.layer for violation in members])}}}"
    )


def tie_cache_scales(
    scales: Scales,
    network: Network,
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> Scales:
    """Returns the scales of a calibration cache as TensorRT's builder takes them.

    A calibrator takes the largest of scales that must be equal (NvInfer.h on element-wise layers;
    tensorflow/tensorflow#25771 on concatenation and pooling). ``scales_from`` already ties
    measured ranges.

    Args:
        scales: The cache's scales.
        network: The layer graph.
        dla_layers: Layers that can run on the target's DLA; None if all may.
        fp16_layers: Layers kept in FP16, which bind no scales.

    Returns:
        The tied scales with ``changes``, and warnings about costly or unsettled ties.
    """
    values, changes = tie(network, scales.scales, dla_layers=dla_layers, fp16_layers=fp16_layers)
    costs = constraint_warnings(
        network, values, changes, dla_layers=dla_layers, fp16_layers=fp16_layers
    )
    if changes:
        made = make_scales(values, method=scales.method, data=scales.data, missing=scales.missing)
        scales = replace(scales, scales=made.scales, digest=made.digest, changes=changes)
    return replace(scales, warnings=(*scales.warnings, *costs))
