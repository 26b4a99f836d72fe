"""Scales that follow from others, exactly or as a bound that can be proved.

What NVIDIA's qdq-translator propagates forward and backward (MaxPool, Flatten, Relu, Pad,
Transpose, Reshape, Squeeze; Concat; github.com/NVIDIA/Deep-Learning-Accelerator-SW,
tools/qdq-translator) is exact: rounding and clipping to a symmetric grid is monotone, so it
commutes with whatever only moves, selects or cuts off values. Bounds go further: an average of
values within [-a, a] is within [-a, a], a sigmoid within [0, 1].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.dla import LEVELS

if TYPE_CHECKING:
    from edgekit.network import Layer, Network

__all__ = ["FLOATS", "follow", "without_too"]

#: Types of tensors that INT8 can stand for.
FLOATS = frozenset({"float32", "float16"})
_ONE = 1 / LEVELS
_MOVING = frozenset({"SHUFFLE", "IDENTITY"})
# the largest magnitude of a result, whatever is read; they never fall on the negative side
_WITHIN_ONE = frozenset({"SIGMOID", "TANH", "HARD_SIGMOID", "SOFTSIGN"})
_SLOPES = frozenset({"LEAKY_RELU", "THRESHOLDED_RELU"})


def follow(
    network: Network,
    scales: Mapping[str, float],
    *,
    bounds: Collection[str] | None = None,
    without: Collection[str] = (),
) -> dict[str, float]:
    """Returns scales of float tensors that have none and whose scale follows from ``scales``.

    Linear in the number of layers: a tensor gets a scale once.

    Args:
        network: The layer graph.
        scales: Scale by tensor.
        bounds: None for what follows exactly alone. Otherwise a bound that holds whatever is read
            (a sigmoid's, a clip's) will do for any tensor, and one that is proved from what is
            read for these.
        without: Tensors that are to get none.
    """
    floats = {n for n, t in network.tensors.items() if t.dtype in FLOATS}.difference(without)
    known = {name: scale for name, scale in scales.items() if scale > 0}
    found: dict[str, float] = {}
    producers, consumers = network.producers(), network.consumers()
    outputs = set(network.outputs)
    waiting = deque(network.layers)
    queued = {layer.name for layer in network.layers}

    def take(name: str, scale: float | None) -> None:
        if scale is None or scale <= 0 or name in known or name not in floats:
            return
        known[name] = found[name] = scale
        near = (*((producers[name],) if name in producers else ()), *consumers.get(name, ()))
        # a tensor's readers decide together what it needs, so their other tensors matter, too
        for layer in near:
            if layer.name not in queued:
                queued.add(layer.name)
                waiting.append(layer)

    while waiting:
        layer = waiting.popleft()
        queued.discard(layer.name)
        for name in layer.outputs:
            if name not in known:
                take(name, _forward(layer, name, known, bounds))
        for name in layer.inputs:
            if name not in known and name not in outputs:
                needs = [_backward(reader, known) for reader in consumers[name]]
                given = [need for need in needs if need is not None]
                if len(given) == len(needs):
                    take(name, max(given))
    return found


def without_too(
    network: Network, without: Collection[str], known: Collection[str]
) -> frozenset[str]:
    """Returns ``without`` and the tensors that hold the same values and are not ``known``.

    Those that TensorRT's parser puts between layers are in no calibration cache.
    """
    found = {name for name in without if name in network.tensors and name not in known}
    moves = [layer for layer in network.layers if layer.kind in _MOVING and len(layer.inputs) == 1]
    for layers in (moves, moves[::-1]):
        for layer in layers:
            both = {layer.inputs[0], *layer.outputs}
            if found & both:
                found |= both.difference(known)
    return frozenset(found)


def _forward(
    layer: Layer, result: str, known: Mapping[str, float], bounds: Collection[str] | None
) -> float | None:
    """Returns the scale of a layer's result from those of what it reads."""
    params = layer.params
    read = [known.get(name) for name in layer.inputs]
    if _selects(layer):
        return read[0] if read else None
    scales = [scale for scale in read if scale is not None]
    if layer.kind == "CONCATENATION":
        # an operand that is constant has a range of its own
        whole = len(scales) == len(read) == params.get("inputs", len(read))
        return max(scales) if whole else None
    if bounds is None:
        return None
    fixed = _fixed_bound(layer)
    if fixed is not None:
        return min([fixed, *scales]) if params.get("function") == "CLIP" else fixed
    if result not in bounds or not scales or len(scales) < len(read):
        return None
    if "constant_operand" in params:
        return None
    return _bound(layer, scales)


def _fixed_bound(layer: Layer) -> float | None:
    """Returns the scale of a result that is bounded whatever is read."""
    if layer.kind == "SOFTMAX":
        return _ONE
    if layer.kind != "ACTIVATION":
        return None
    function = layer.params.get("function")
    if function in _WITHIN_ONE:
        return _ONE
    if function == "CLIP":
        low, high = float(layer.params["alpha"]), float(layer.params["beta"])
        return max(abs(low), abs(high)) / LEVELS
    return None


def _bound(layer: Layer, scales: list[float]) -> float | None:
    """Returns the scale of a result that is bounded by what is read."""
    function = layer.params.get("function")
    kind = layer.kind
    if kind == "POOLING":
        return scales[0] if layer.params["mode"] == "AVERAGE" else None
    if kind == "RESIZE":
        return scales[0] if layer.params["mode"] == "LINEAR" else None
    if kind == "REDUCE":
        return scales[0] if function in ("AVG", "MAX", "MIN") else None
    if kind == "UNARY":
        return scales[0] if function in ("ABS", "NEG") else None
    if kind == "ACTIVATION":
        slope = abs(layer.params.get("alpha", 1.0))
        return scales[0] if function in _SLOPES and slope <= 1 else None
    if kind != "ELEMENTWISE" or len(scales) < 2:
        return None
    if function in ("MAX", "MIN"):
        return max(scales)
    if function in ("SUM", "SUB"):
        return sum(scales)
    if function == "PROD" and min(scales) <= _ONE:
        # a gate, whose factor is at most 1; other products would be bounded much too widely
        return max(scales)
    return None


def _backward(layer: Layer, known: Mapping[str, float]) -> float | None:
    """Returns the scale that a layer needs of what it reads; None where nothing follows."""
    if not layer.outputs or layer.outputs[0] not in known:
        return None
    # a slice's parts are layers of their own, so that one result counts here
    if _selects(layer, back=True) or layer.kind == "CONCATENATION":
        return known[layer.outputs[0]]
    return None


def _selects(layer: Layer, *, back: bool = False) -> bool:
    """Tells whether each value written is one of those read (or 0), cut off at most."""
    params: Mapping[str, Any] = layer.params
    kind, function = layer.kind, params.get("function")
    if kind in _MOVING:
        return True
    if kind == "SLICE":
        return params.get("mode") != "FILL" or params.get("value", 0.0) == 0.0
    if kind == "POOLING":
        return params.get("mode") == "MAX"
    if kind == "RESIZE":
        return params.get("mode") == "NEAREST"
    if kind == "ACTIVATION":
        # what a clipped result keeps is what a clip of its rounded input keeps
        return function == "RELU" or (back and function == "CLIP")
    return kind == "GATHER" and not back
