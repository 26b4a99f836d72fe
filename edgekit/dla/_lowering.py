"""How a plain INT8 network is lowered to a strongly typed one: where Q/DQ nodes will stand.

From TensorRT 11.4.1 on a layer runs in INT8 between a DequantizeLinear and a QuantizeLinear, so
every tensor that an INT8 layer reads or writes gets a pair of them, as NVIDIA's
``modelopt.onnx.quantization --target_dla`` does it. Two kinds get none: what a convolution, a sum
or a scale hands to the one activation or scale behind it, which never leaves the fused kernel,
and what lies between the layers of one ONNX node.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from edgekit._sets import Sets
from edgekit.dla._int8 import int8_operators

if TYPE_CHECKING:
    from edgekit.network import Layer, Network

__all__ = ["Lowering", "lowering"]

_FLOATS = frozenset({"float32", "float16"})


@dataclass(frozen=True, eq=False)
class Lowering:
    """What becomes of a network.

    Attributes:
        precisions: "int8" or "fp16" by layer name.
        tensors: Those of the ONNX model that get Q/DQ nodes, in graph order.
        missing: Tensors whose lack of a scale keeps layers out of INT8, in graph order.
    """

    precisions: dict[str, str]
    tensors: tuple[str, ...]
    missing: tuple[str, ...]


def lowering(
    network: Network,
    scales: Collection[str] | None = None,
    fp16_layers: Collection[str] = frozenset(),
) -> Lowering:
    """Decides which layers run in INT8, and which tensors get Q/DQ nodes for it.

    Args:
        network: A plain network.
        scales: Tensors that have a scale; None where every one is taken to have one.
        fp16_layers: Names of layers kept out of INT8.
    """
    return _Lowering(network, scales, fp16_layers).answer()


@dataclass(frozen=True, eq=False)
class _Unit:
    """Layers that stand for the same ONNX nodes: no Q/DQ node can stand between them."""

    layers: tuple[Layer, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @cached_property
    def ops(self) -> frozenset[str]:
        return frozenset(layer.op for layer in self.layers)

    @property
    def computes(self) -> bool:
        """Whether its result first exists with the precision of its sums."""
        return self.ops <= int8_operators().computing and self.layers[-1].kind != "SHUFFLE"

    @property
    def moves(self) -> bool:
        return self.ops <= int8_operators().moving

    @property
    def is_tail(self) -> bool:
        """Whether it is a part of the kernel that writes the one activation that it reads."""
        return len(self.reads) == 1 and all(
            layer.kind in int8_operators().fused_kinds for layer in self.layers
        )


class _Lowering:
    def __init__(
        self, network: Network, scales: Collection[str] | None, fp16_layers: Collection[str]
    ) -> None:
        self._network = network
        self._scales = scales
        self._outputs = frozenset(network.outputs)
        self._units = self._group()
        self._writer = {name: unit for unit in self._units for name in unit.writes}
        self._readers: dict[str, list[_Unit]] = {}
        for unit in self._units:
            for name in unit.reads:
                self._readers.setdefault(name, []).append(unit)
        kept = frozenset(fp16_layers)
        self._int8 = {unit for unit in self._units if _able(unit, kept)}
        self._drop_movers()

    def _group(self) -> list[_Unit]:
        network = self._network
        names = {la.name: la.nodes or la.origin or (la.name,) for la in network.layers}
        sets = Sets[str]()
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
                _Unit(
                    tuple(layers),
                    tuple(n for n in read if n not in written and self._is_float(n)),
                    tuple(n for n in leaving if self._is_float(n)),
                )
            )
        return units

    def _is_float(self, name: str) -> bool:
        tensor = self._network.tensors.get(name)
        return tensor is not None and tensor.dtype in _FLOATS

    def _drop_movers(self) -> None:
        """Lets what only moves floats for nobody who reads INT8 move them as they are."""
        wanted: set[_Unit] = set()
        for unit in reversed(self._units):
            readers = [reader for name in unit.writes for reader in self._readers.get(name, ())]
            if any(r in self._int8 and (not r.moves or r in wanted) for r in readers):
                wanted.add(unit)
        for unit in self._units:
            if unit.moves and unit in self._int8 and unit not in wanted and unit.reads:
                sources = [self._writer.get(name) for name in unit.reads]
                if all(source is not None and source not in self._int8 for source in sources):
                    self._int8.discard(unit)

    def answer(self) -> Lowering:
        missing: dict[str, None] = {}
        while True:
            tensors = self._tensors()
            lacking = {name for name in tensors if not self._has_scale(name)}
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

    def _has_scale(self, name: str) -> bool:
        return self._scales is None or name in self._scales

    def _tensors(self) -> dict[str, None]:
        """The tensors that INT8 layers read and write, without those inside a kernel."""
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


def _able(unit: _Unit, kept: Collection[str]) -> bool:
    """Whether all layers have an INT8 kernel; a product of two activations has none."""
    return bool(unit.reads or unit.writes) and all(
        layer.op in int8_operators().every
        and layer.name not in kept
        and (layer.op not in int8_operators().weighted or layer.weights or layer.kind == "SHUFFLE")
        for layer in unit.layers
    )
