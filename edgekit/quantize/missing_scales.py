"""Finds the tensors that need an INT8 scale, and scales that follow from others. Check, plan and
build all use it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.dla.plugin_formats import takes_int8
from edgekit.dla.precision import int8_operators
from edgekit.dla.scales import LEVELS
from edgekit.network.model import SHUFFLES

if TYPE_CHECKING:
    from edgekit.network.model import Layer, Network


# Scales that follow from others, exactly or as a bound that can be proved.
#
# The forward and backward propagation of NVIDIA's qdq-translator (MaxPool, Flatten, Relu, Pad,
# Transpose, Reshape, Squeeze; Concat; github.com/NVIDIA/Deep-Learning-Accelerator-SW,
# tools/qdq-translator) is exact: rounding and clipping to a symmetric grid is monotone, so it
# commutes with operators that only move, select or clip values. Bounds go further: an average of
# values within [-a, a] is within [-a, a], a sigmoid within [0, 1].


#: Tensor types that INT8 can represent.
FLOATS = frozenset({"float32", "float16"})
_ONE = 1 / LEVELS
_MOVING = SHUFFLES | {"IDENTITY"}
# largest magnitude of a result for any input; these functions do not decrease below zero
_WITHIN_ONE = frozenset({"SIGMOID", "TANH", "HARD_SIGMOID", "SOFTSIGN"})
_SLOPES = frozenset({"LEAKY_RELU", "THRESHOLDED_RELU"})


def propagate_scales(
    network: Network,
    scales: Mapping[str, float],
    *,
    bounds: Collection[str] | None = None,
    without: Collection[str] = (),
) -> dict[str, float]:
    """Returns scales of float tensors that are not in ``scales`` but follow from them.

    Linear in the number of layers: a tensor gets a scale once.

    Args:
        network: The layer graph.
        scales: Scale by tensor.
        bounds: None: only scales that follow exactly. Otherwise any tensor may also take a bound
            that holds for all inputs (a sigmoid's, a clip's), and the tensors of ``bounds`` also
            a bound proved from the layer's inputs.
        without: Tensors that must not get a scale.
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
        # a tensor's readers decide its need together, so their other tensors matter, too
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
            # the caller reads an output as floats: its range must not shrink to its readers' ranges
            if name not in known and name not in outputs:
                needed = [_backward(reader, known) for reader in consumers[name]]
                given = [scale for scale in needed if scale is not None]
                # a reader whose scale is unknown may need a wider range
                if len(given) == len(needed):
                    take(name, max(given))
    return found


def with_same_values(
    network: Network, without: Collection[str], known: Collection[str]
) -> frozenset[str]:
    """Returns ``without`` and the tensors that hold the same values and are not ``known``.

    Tensors that TensorRT's parser inserts between layers are in no calibration cache.
    """
    found = {name for name in without if name in network.tensors and name not in known}
    moves = [layer for layer in network.layers if layer.kind in _MOVING and len(layer.inputs) == 1]
    # graph order passes a mark on to results, the reverse to sources: two passes follow any chain
    for layers in (moves, moves[::-1]):
        for layer in layers:
            both = {layer.inputs[0], *layer.outputs}
            if found & both:
                found |= both.difference(known)
    return frozenset(found)


def _forward(
    layer: Layer, result: str, known: Mapping[str, float], bounds: Collection[str] | None
) -> float | None:
    """Returns the scale of a layer's result from the scales of its inputs."""
    params = layer.params
    read = [known.get(name) for name in layer.inputs]
    if _selects(layer):
        return read[0] if read else None
    scales = [scale for scale in read if scale is not None]
    if layer.kind == "CONCATENATION":
        # a constant operand has its own range
        whole = len(scales) == len(read) == params.get("inputs", len(read))
        return max(scales) if whole else None
    if bounds is None:
        return None
    fixed = _fixed_bound(layer)
    if fixed is not None:
        # a clip does not widen the range of its input
        return min([fixed, *scales]) if params.get("function") == "CLIP" else fixed
    if result not in bounds or not scales or len(scales) < len(read):
        return None
    # the constant's range is unknown here
    if "constant_operand" in params:
        return None
    return _bound(layer, scales)


def _fixed_bound(layer: Layer) -> float | None:
    """Returns the scale of a result that is bounded for all inputs."""
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
    """Returns the scale of a result that is bounded by the layer's inputs."""
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
    """Returns the scale that a layer's input needs; None if no scale follows."""
    if not layer.outputs or layer.outputs[0] not in known:
        return None
    # the parts of a slice are separate layers, so a layer has a single result here
    if _selects(layer, back=True) or layer.kind == "CONCATENATION":
        return known[layer.outputs[0]]
    return None


def _selects(layer: Layer, *, back: bool = False) -> bool:
    """Returns True if each output value is an input value (or 0), clipped at most."""
    kind, params = layer.kind, layer.params
    function = params.get("function")
    if kind in _MOVING:
        return True
    if kind == "SLICE":
        # padding with 0 is exact on every symmetric grid
        return params.get("mode") != "FILL" or params.get("value", 0.0) == 0.0
    if kind == "POOLING":
        return params.get("mode") == "MAX"
    if kind == "RESIZE":
        return params.get("mode") == "NEAREST"
    if kind == "ACTIVATION":
        # rounding a clipped result equals clipping the rounded input
        return function == "RELU" or (back and function == "CLIP")
    return kind == "GATHER" and not back


@dataclass(frozen=True, slots=True)
class MissingScale:
    """A tensor without a scale that INT8 layers need.

    Attributes:
        tensor: Its name.
        layers: The layers that cannot run in INT8 without it, in graph order.
    """

    tensor: str
    layers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ScaleNeeds:
    """Tensors whose scale is missing, and tensors that need none.

    Attributes:
        lacks: Tensors that need a scale and have none, in graph order.
        free: Tensors that have no scale and need none: those of layers without INT8, inside a
            fused kernel, floats for the caller, and all non-float tensors.
        inside: Tensors that never leave a fused kernel, with a scale or without.
    """

    lacks: tuple[MissingScale, ...]
    free: frozenset[str]
    inside: frozenset[str]


def find_missing_scales(
    network: Network,
    scales: Collection[str],
    *,
    on_dla: Collection[str] | None = None,
    without: Collection[str] = (),
) -> ScaleNeeds:
    """Returns the tensors that lack a scale, as TensorRT's builder would.

    The builder warns "Missing scale and zero-point for tensor X, expect fall back to non-int8
    implementation for any layer consuming or producing given tensor". The tensor between a
    convolution and its fused activation never leaves the kernel and needs no scale. The result of
    a GPU kernel that no INT8 layer reads is written as floats and needs no scale either.

    Args:
        network: The layer graph.
        scales: Tensors with a scale.
        on_dla: Layers that can run on the target's DLA; None if all may.
        without: Tensors that no scale suits, such as masks: layers that read or write them run in
            FP16, on any device and with any fusion.
    """
    return _NeedsAnalysis(network, frozenset(scales), on_dla, frozenset(without)).answer()


class _NeedsAnalysis:
    def __init__(
        self,
        network: Network,
        scales: frozenset[str],
        on_dla: Collection[str] | None,
        without: frozenset[str],
    ) -> None:
        self.network, self.without = network, without
        self.outputs = frozenset(network.outputs)
        self.producers, self.consumers = network.producers(), network.consumers()
        self.bare = {
            name
            for name, tensor in network.tensors.items()
            if tensor.dtype in FLOATS and name not in scales
        }
        self.on_dla = None if on_dla is None else frozenset(on_dla)
        self.place = {layer.name: number for number, layer in enumerate(network.layers)}
        self.able = self._int8_layers()

    def _int8_layers(self) -> set[str]:
        """Returns layers with an INT8 kernel, except moves between FP16 tensors."""
        ops = int8_operators()
        able = {
            layer.name
            for layer in self.network.layers
            if takes_int8(layer)
            or (
                layer.op in ops.every
                and not layer.opaque
                # a product of two activations has no INT8
                and (layer.weights or layer.op not in ops.weighted or layer.kind in SHUFFLES)
            )
        }
        tensors = self.network.tensors
        for layer in self.network.layers:
            moves = layer.op in ops.moving or layer.kind in SHUFFLES
            if layer.name not in able or not moves:
                continue
            read = [n for n in layer.inputs if n in tensors and tensors[n].dtype in FLOATS]
            sources = [self.producers.get(name) for name in read]
            readers = [r for n in layer.outputs for r in self.consumers.get(n, ())]
            floats = [s for s in sources if s is not None and s.name not in able]
            moved = bool(floats) and len(floats) == len(sources)
            if moved and all(reader.name not in able for reader in readers):
                able.discard(layer.name)
        return able

    def answer(self) -> ScaleNeeds:
        # Layers leave INT8 in rounds: a layer that falls may end a kernel, whose tensors then need
        # scales. Only the two ends of such a kernel are looked at again, so the work stays linear
        running = set(self.able)
        inside = {layer.name: self._fused_input(layer, running) for layer in self.network.layers}
        inner = {name for name in inside.values() if name is not None}
        blame = _Blame()
        waiting: Iterable[Layer] = self.network.layers
        while True:
            fallen = {
                layer.name: lacking
                for layer in waiting
                if layer.name in running and (lacking := self._lacking(layer, inner, running))
            }
            if not fallen:
                break
            for name, lacking in fallen.items():
                blame.add(name, lacking)
            running -= fallen.keys()
            # a kernel that loses a part loses the tensors between; all else stays the same
            lost = []
            for layer in self._layers_and_readers(fallen):
                old, new = inside[layer.name], self._fused_input(layer, running)
                inside[layer.name] = new
                if old is not None and old != new:
                    inner.discard(old)
                    lost.append(old)
                if new is not None:
                    inner.add(new)
            ends = {}
            for name in lost:
                pair = self.consumers[name][0], self.producers[name]
                blame.lose(name, *(layer.name for layer in pair))
                ends.update({layer.name: layer for layer in pair})
            waiting = sorted(ends.values(), key=lambda layer: self.place[layer.name])
        touched = {
            name
            for layer in self.network.layers
            if layer.name in self.able
            for name in self._lacking(layer, inner, running)
        }
        whole = {*self.network.tensors, *self.network.fixed}
        return ScaleNeeds(
            tuple(
                MissingScale(name, tuple(sorted(blame.layers[name], key=self.place.__getitem__)))
                for name in self.network.tensors
                if name in blame.layers
            ),
            frozenset(whole - touched),
            frozenset(inner),
        )

    def _lacking(self, layer: Layer, inner: set[str], running: set[str]) -> list[str]:
        """Returns the tensors without a scale that a layer reads or writes in INT8."""
        return [
            name
            for name in dict.fromkeys((*layer.inputs, *layer.outputs))
            if name in self.bare
            and name not in inner
            and (name in self.without or not self._is_float_result(name, running))
        ]

    def _is_float_result(self, name: str, running: set[str]) -> bool:
        """Returns True if a GPU kernel writes floats because no INT8 layer reads the tensor."""
        source = self.producers.get(name)
        if source is None or self.on_dla is None or source.name in self.on_dla:
            return False
        computes = source.op in int8_operators().computing and source.kind not in SHUFFLES
        return (
            computes
            and source.name in running
            and not any(reader.name in running for reader in self.consumers.get(name, ()))
        )

    def _layers_and_readers(self, names: Collection[str]) -> Iterator[Layer]:
        """Yields the layers of these names and the readers of their outputs."""
        for name in names:
            layer = self.network.layers[self.place[name]]
            yield layer
            for result in layer.outputs:
                yield from self.consumers.get(result, ())

    def _fused_input(self, layer: Layer, running: set[str]) -> str | None:
        """Returns the layer's input that does not leave its fused kernel, or None."""
        if layer.name not in running or layer.op not in int8_operators().pointwise:
            return None
        eligible = []
        for name in layer.inputs:
            source = self.producers.get(name)
            if source is None:
                continue
            dla = self.on_dla
            same_device = dla is None or (source.name in dla) == (layer.name in dla)
            if (
                same_device
                and source.name in running
                and source.op in int8_operators().computing
                and source.kind not in SHUFFLES
                and name not in self.outputs
                and name not in self.without
                and len(self.consumers[name]) == 1
            ):
                eligible.append(name)
        # a sum of two chains: the later chain is fused, the earlier is read back as INT8
        return max(eligible, key=lambda n: self.place[self.producers[n].name], default=None)


class _Blame:
    """The layers that leave INT8, by the tensor without a scale.

    Attributes:
        layers: The layers that leave INT8, by tensor.
    """

    def __init__(self) -> None:
        self.layers: dict[str, set[str]] = {}
        self._why: dict[str, set[str]] = {}
        self._lost: dict[str, set[str]] = {}

    def add(self, layer: str, lacking: list[str]) -> None:
        """Records that a layer leaves INT8; inside a kernel the kernel's end is the reason."""
        roots = {root for name in lacking for root in self._lost.get(name, {name})}
        self._why[layer] = roots
        for root in roots:
            self.layers.setdefault(root, set()).add(layer)

    def lose(self, tensor: str, *ends: str) -> None:
        """Records that a tensor is no longer inside a kernel, since an end left INT8."""
        # the user must set the scales whose lack made an end leave INT8, not this tensor's
        causes = set().union(*(self._why.get(end, ()) for end in ends))
        if causes:
            self._lost.setdefault(tensor, causes)
