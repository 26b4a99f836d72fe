"""The builder's fusions of shuffles, which precede the placement of layers.

A TensorRT shuffle transposes, reshapes and transposes again. The builder merges two consecutive
shuffles if a single shuffle can do both, and erases a shuffle without effect. TensorRT 10.3 logs
for Flatten before a Gemm: "ShuffleShuffleFusion: Fusing /Flatten with reshape_before_/fc/Gemm",
then "ShuffleErasure"; and for attention: "Fusing reshape_after_Gemm_1 with Reshape + Transpose".
Squeeze and Unsqueeze of newer releases are treated as the reshapes of older releases: no log with
them is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.network.graph import Attributes
from edgekit.network.model import SHUFFLES, Absorbed, Layer, Tensor
from edgekit.network.protos import free_name

_FUSED = frozenset({"RESHAPE", "TRANSPOSE"})


def without_identities(layers: Sequence[Layer], outputs: Collection[str]) -> tuple[Layer, ...]:
    """Erases the identities, as the builder does, unless they write a network output.

    Their ONNX nodes are added to every layer that reads their results.
    """
    read = {name for layer in layers for name in layer.inputs}
    erased: dict[str, Layer] = {}
    found = []
    for layer in layers:
        current = layer
        for name in dict.fromkeys(layer.inputs):
            if name in erased:
                current = _join_shuffles(erased[name], current, current.name)
        written = current.outputs[0] if current.outputs else ""
        if current.kind == "IDENTITY" and written in read and written not in outputs:
            erased[written] = current
        else:
            found.append(current)
    return tuple(found)


def fuse_shuffles(
    layers: Sequence[Layer], tensors: Mapping[str, Tensor], outputs: Collection[str]
) -> tuple[Layer, ...]:
    """Merges consecutive shuffles and erases shuffles without effect.

    The ONNX nodes of an erased shuffle are added to the layer that reads its result, and this layer
    reads the shuffle's input instead. A merged shuffle has the parameters of both as its ``parts``.
    """
    current: list[Layer | None] = list(layers)
    taken = {layer.name for layer in layers}
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        for name in layer.inputs:
            readers.setdefault(name, []).append(index)
    moves: dict[int, _Move] = {}
    for index, shuffle in enumerate(current):
        if shuffle is None or not _is_fused(shuffle):
            continue
        output = shuffle.outputs[0]
        users = readers.get(output, [])
        # the caller or several layers read the tensor
        if output in outputs or len(users) != 1:
            continue
        user = current[users[0]]
        if user is None:
            continue
        own = moves.get(index) or _read_move(shuffle)
        same = tensors[shuffle.inputs[0]].shape == tensors[output].shape
        nothing = same and own.turns_nothing
        both = own.then(_read_move(user)) if _is_fused(user) else None
        if not nothing and both is None:
            continue
        # the result has the reader's position, so that the loop can merge it again there
        current[index] = None
        if nothing:
            name = user.name
        else:
            assert both is not None
            name = free_name(f"{shuffle.name} + {user.name}", taken)
            params: dict[str, object] = {"mode": "RESHAPE"}
            if not both.turns_nothing:
                params = {"mode": "TRANSPOSE", "perm": both.last or both.first}
            params |= {"shape": user.params["shape"], "parts": (*_parts(shuffle), *_parts(user))}
            user = replace(user, params=params)
            moves[users[0]] = both
        taken.add(name)
        current[users[0]] = _join_shuffles(shuffle, user, name)
    return tuple(layer for layer in current if layer is not None)


def _is_fused(layer: Layer) -> bool:
    return layer.kind in SHUFFLES and layer.params.get("mode") in _FUSED


@dataclass(frozen=True)
class _Move:
    """A shuffle: the transposition ``first``, an optional reshape, the transposition ``last``.

    A transposition without effect is empty; without a reshape ``last`` is empty.
    """

    first: tuple[int, ...]
    reshapes: bool
    last: tuple[int, ...]

    @property
    def turns_nothing(self) -> bool:
        return not self.first and not self.last

    def then(self, other: _Move) -> _Move | None:
        """Returns both as a single move; None if a transposition between two reshapes remains."""
        if not other.reshapes:
            if not self.reshapes:
                return _Move(_compose(self.first, other.first), False, ())
            return _Move(self.first, True, _compose(self.last, other.first))
        if not self.reshapes:
            return _Move(_compose(self.first, other.first), True, other.last)
        if _compose(self.last, other.first):
            return None
        return _Move(self.first, True, other.last)


def _read_move(layer: Layer) -> _Move:
    if layer.params["mode"] == "RESHAPE":
        return _Move((), True, ())
    return _Move(_without_identity(tuple(layer.params["perm"])), False, ())


def _compose(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    if not first or not second:
        return first or second
    return _without_identity(tuple(first[axis] for axis in second))


def _without_identity(perm: tuple[int, ...]) -> tuple[int, ...]:
    return () if perm == tuple(range(len(perm))) else perm


def _parts(layer: Layer) -> tuple[Attributes, ...]:
    return tuple(layer.params.get("parts", (layer.params,)))


def _join_shuffles(shuffle: Layer, user: Layer, name: str) -> Layer:
    source, middle = shuffle.inputs[0], shuffle.outputs[0]
    both = tuple(dict.fromkeys((*shuffle.origin, *user.origin)))
    absorbed = (*_importer_part(shuffle), *shuffle.absorbed)
    # with the reader's own name the shuffle was erased, otherwise both became one
    absorbed += user.absorbed if name == user.name else (*_importer_part(user), *user.absorbed)
    return replace(
        user,
        name=name,
        kind=user.kind if name == user.name else "SHUFFLE",
        nodes=tuple(dict.fromkeys((*shuffle.nodes, *user.nodes))),
        origin=both,
        inputs=tuple(source if read == middle else read for read in user.inputs),
        absorbed=absorbed,
    )


def _importer_part(layer: Layer) -> tuple[Absorbed, ...]:
    """Returns an importer's shuffle as a part; empty for shuffles of the builder and for merged
    shuffles."""
    as_written = layer.kind == "SHUFFLE" and layer.nodes and not layer.absorbed
    return (Absorbed("SHUFFLE", layer.name),) if as_written else ()
