"""Tensors that must share one INT8 scale, for the hardware cannot rescale between them.

Which layers ask for it is knowledge of the rules under ``dla/`` (their ``ties``). A tensor has one
scale whatever reads it, so that what several layers tie is one group; its scale is the largest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from edgekit._sets import Sets
from edgekit.dla import scale_tie
from edgekit.quantize._types import Change

if TYPE_CHECKING:
    from edgekit.dla import ScaleTie
    from edgekit.network import Layer, Network

__all__ = ["Bound", "bindings", "groups", "tie"]


class Bound(NamedTuple):
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
) -> Iterator[Bound]:
    """Yields the layers that tie the scales of tensors, in graph order.

    Args:
        network: The layer graph.
        dla_layers: Layers that can run on the target's DLA; None where all may.
        fp16_layers: Layers kept in FP16, which bind nothing.
        apart: Yield those whose scales stay apart, since the sources do not settle it, instead.
    """
    on_dla = None if dla_layers is None else frozenset(dla_layers)
    for layer in network.layers:
        rule = scale_tie(layer)
        if rule is None or rule.apart != apart or layer.name in fp16_layers:
            continue
        if not (rule.everywhere or on_dla is None or layer.name in on_dla):
            continue
        tensors = tuple(
            name
            for name in rule.tensors(layer)
            if name in network.tensors and network.tensors[name].dtype.startswith("float")
        )
        if len(tensors) > 1:
            yield Bound(layer, rule, tensors)


def groups(
    network: Network,
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> tuple[tuple[str, ...], ...]:
    """Returns the sets of tensors, of two or more, that share a scale.

    Args:
        network: The layer graph.
        dla_layers: Layers that can run on the target's DLA; None where all may.
        fp16_layers: Layers kept in FP16, which bind nothing.
    """
    sets = Sets[str]()
    for bound in bindings(network, dla_layers=dla_layers, fp16_layers=fp16_layers):
        sets.join(*bound.tensors)
    return sets.members()


def tie(
    network: Network,
    scales: Mapping[str, float],
    *,
    dla_layers: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
    inferred: Mapping[str, float] = MappingProxyType({}),
) -> tuple[dict[str, float], tuple[Change, ...]]:
    """Returns scales that keep the constraints of the hardware, and what changed.

    Every group takes the union of its ranges: the largest scale. Nothing is clipped by it, but
    the others lose resolution, ``Change.bits`` of it. Linear in the number of layers.

    A tensor without a value gets one where layers that only move values lead to it: the builder
    inserts reshapes whose tensors no ONNX node knows. No other one does, for the range of one
    operand says nothing of the other's.

    Args:
        network: The layer graph.
        scales: Scale, or clipping magnitude, by tensor; 0 for one that was always zero.
        dla_layers: Layers that can run on the target's DLA; None where all may.
        fp16_layers: Layers kept in FP16, which bind nothing.
        inferred: Values of tensors without one in ``scales``, which follow from those there.

    Returns:
        The values by tensor, in the unit of ``scales``; and the changes of those given, worst
        first.
    """
    bound = list(bindings(network, dla_layers=dla_layers, fp16_layers=fp16_layers))
    moved, tied = Sets[str](), Sets[str]()
    by_tensor: dict[str, list[Bound]] = {}
    for one in bound:
        if one.tie.moves:
            moved.join(*one.tensors)
        tied.join(*one.tensors)
        for name in one.tensors:
            by_tensor.setdefault(name, []).append(one)
    values = {**scales, **inferred}
    for names in moved.members():
        known = [values[name] for name in names if name in values]
        if known:
            values.update((name, max(known)) for name in names if name not in values)
    changes = []
    for names in tied.members():
        known_names = [name for name in names if name in values]
        if not known_names:
            continue
        # of several that are as wide, the one that was given
        widest = max(known_names, key=lambda name: (values[name], name in scales))
        for name in known_names:
            if values[name] != values[widest]:
                values[name] = values[widest]
                if name in scales:
                    changes.append(_change(name, scales[name], values, widest, by_tensor[name]))
    return values, tuple(sorted(changes, key=lambda change: (-change.bits, change.tensor)))


def _change(
    name: str, old: float, values: Mapping[str, float], widest: str, bound: list[Bound]
) -> Change:
    # what moves values hands a scale on; what asks for it says more
    reason = next((one for one in bound if not one.tie.moves), bound[0])
    return Change(
        tensor=name,
        old=old,
        new=values[widest],
        rule=reason.tie.rule.id,
        layers=tuple(one.layer.name for one in bound),
        widest=widest,
    )
