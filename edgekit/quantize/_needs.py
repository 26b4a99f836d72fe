"""Which tensors need an INT8 scale: one answer for check, plan and build."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.dla import int8_operators
from edgekit.quantize._follow import FLOATS

if TYPE_CHECKING:
    from edgekit.network import Layer, Network

__all__ = ["Lack", "Needs", "needs"]


@dataclass(frozen=True, slots=True)
class Lack:
    """A tensor without a scale that INT8 layers need.

    Attributes:
        tensor: Its name.
        layers: The layers that cannot run in INT8 for want of it, in graph order.
    """

    tensor: str
    layers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Needs:
    """What is lacking, and what is not.

    Attributes:
        lacks: Tensors that need a scale and have none, in graph order.
        free: Tensors without a scale that need none: of layers that have no INT8, inside a fused
            kernel, floats for the caller, and all that are no floats.
        inside: Tensors that never leave a fused kernel, with a scale or without.
    """

    lacks: tuple[Lack, ...]
    free: frozenset[str]
    inside: frozenset[str]


def needs(
    network: Network,
    scales: Collection[str],
    *,
    on_dla: Collection[str] | None = None,
    without: Collection[str] = (),
) -> Needs:
    """Says which tensors lack a scale, as TensorRT's builder would.

    It warns "Missing scale and zero-point for tensor X, expect fall back to non-int8
    implementation for any layer consuming or producing given tensor". What a convolution hands to
    the activation that is fused with it never leaves the kernel and needs none; neither does the
    result of a kernel on the GPU that no INT8 layer reads, which is written as floats.

    Args:
        network: The layer graph.
        scales: Tensors that have one.
        on_dla: Layers that can run on the target's DLA; None where all may.
        without: Tensors that no scale suits, those of a mask for one: what reads or writes them
            runs in FP16, wherever it runs and whatever it could be fused with.
    """
    return _Needs(network, frozenset(scales), on_dla, frozenset(without)).answer()


class _Needs:
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
        self.able = self._able()

    def _able(self) -> set[str]:
        """The layers with an INT8 kernel, less those that only move what is FP16 at both ends."""
        ops = int8_operators()
        able = {
            layer.name
            for layer in self.network.layers
            if layer.op in ops.every
            and not layer.opaque
            # a product of two activations has no INT8
            and (layer.weights or layer.op not in ops.weighted or layer.kind == "SHUFFLE")
        }
        for layer in self.network.layers:
            moves = layer.op in ops.moving or layer.kind == "SHUFFLE"
            if layer.name not in able or not moves:
                continue
            sources = [self.producers.get(n) for n in layer.inputs if self._is_float(n)]
            readers = [r for n in layer.outputs for r in self.consumers.get(n, ())]
            floats = [s for s in sources if s is not None and s.name not in able]
            moved = bool(floats) and len(floats) == len(sources)
            if moved and all(reader.name not in able for reader in readers):
                able.discard(layer.name)
        return able

    def _is_float(self, name: str) -> bool:
        tensor = self.network.tensors.get(name)
        return tensor is not None and tensor.dtype in FLOATS

    def answer(self) -> Needs:
        running = set(self.able)
        inside = {layer.name: self._inner(layer, running) for layer in self.network.layers}
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
            # a kernel that loses a part loses what lay between; nothing else changes
            lost = []
            for layer in self._touching(fallen):
                old, new = inside[layer.name], self._inner(layer, running)
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
        return Needs(
            tuple(
                Lack(name, tuple(sorted(blame.layers[name], key=self.place.__getitem__)))
                for name in self.network.tensors
                if name in blame.layers
            ),
            frozenset(whole - touched),
            frozenset(inner),
        )

    def _lacking(self, layer: Layer, inner: set[str], running: set[str]) -> list[str]:
        """What a layer reads and writes in INT8 and that has no scale."""
        return [
            name
            for name in dict.fromkeys((*layer.inputs, *layer.outputs))
            if name in self.bare
            and name not in inner
            and (name in self.without or not self._is_float_result(name, running))
        ]

    def _is_float_result(self, name: str, running: set[str]) -> bool:
        """Tells whether a kernel on the GPU writes floats, since no INT8 layer reads it."""
        source = self.producers.get(name)
        if source is None or self.on_dla is None or source.name in self.on_dla:
            return False
        computes = source.op in int8_operators().computing and source.kind != "SHUFFLE"
        return (
            computes
            and source.name in running
            and not any(reader.name in running for reader in self.consumers.get(name, ()))
        )

    def _touching(self, names: Collection[str]) -> Iterator[Layer]:
        """Yields the layers of these names and those that read what they write."""
        for name in names:
            layer = self.network.layers[self.place[name]]
            yield layer
            for result in layer.outputs:
                yield from self.consumers.get(result, ())

    def _inner(self, layer: Layer, running: set[str]) -> str | None:
        """The tensor that a layer reads and that does not leave the kernel fused with it."""
        if layer.name not in running or layer.op not in int8_operators().pointwise:
            return None
        eligible = []
        for name in layer.inputs:
            source = self.producers.get(name)
            if (
                source is not None
                and source.name in running
                and source.op in int8_operators().computing
                and source.kind != "SHUFFLE"
                and name not in self.outputs
                and name not in self.without
                and len(self.consumers[name]) == 1
                and self._together(source, layer)
            ):
                eligible.append(name)
        # a sum of two chains: the later one goes on, the earlier is read back as INT8
        return max(eligible, key=lambda n: self.place[self.producers[n].name], default=None)

    def _together(self, source: Layer, layer: Layer) -> bool:
        return self.on_dla is None or (source.name in self.on_dla) == (layer.name in self.on_dla)


class _Blame:
    """For want of which tensors which layers fall.

    Attributes:
        layers: The layers that fall, by tensor.
    """

    def __init__(self) -> None:
        self.layers: dict[str, set[str]] = {}
        self._why: dict[str, set[str]] = {}
        self._lost: dict[str, set[str]] = {}

    def add(self, layer: str, lacking: list[str]) -> None:
        """Tells that a layer falls; what lay inside a kernel is the fault of the kernel's end."""
        roots = {root for name in lacking for root in self._lost.get(name, {name})}
        self._why[layer] = roots
        for root in roots:
            self.layers.setdefault(root, set()).add(layer)

    def lose(self, tensor: str, *ends: str) -> None:
        """Tells that a tensor is inside no kernel any more, for one of its ends fell."""
        causes = set().union(*(self._why.get(end, ()) for end in ends))
        if causes:
            self._lost.setdefault(tensor, causes)
