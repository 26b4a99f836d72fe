"""The builder's shuffle fusions that happen before anything is placed.

TensorRT 10.3 logs, for Flatten before a Gemm: "ShuffleShuffleFusion: Fusing /Flatten with
reshape_before_/fc/Gemm", then "ShuffleErasure" when the pair changes nothing. Only reshapes fuse
here; a transposition keeps its shuffle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from edgekit.network._graph import free_name
from edgekit.network._types import Absorbed, Layer, Tensor

__all__ = ["fuse_shuffles"]


def fuse_shuffles(
    layers: Sequence[Layer], tensors: Mapping[str, Tensor], outputs: Collection[str]
) -> tuple[Layer, ...]:
    """Merges reshapes that follow each other and erases those that change nothing.

    The ONNX nodes of an erased shuffle go to the layer that reads its result, and it reads what
    the shuffle read.
    """
    current: list[Layer | None] = list(layers)
    taken = {layer.name for layer in layers}
    readers: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        for name in layer.inputs:
            readers.setdefault(name, []).append(index)
    for index, shuffle in enumerate(current):
        if shuffle is None or shuffle.kind != "SHUFFLE" or shuffle.params.get("mode") != "RESHAPE":
            continue
        output = shuffle.outputs[0]
        users = readers.get(output, [])
        if output in outputs or len(users) != 1:
            continue
        user = current[users[0]]
        if user is None:
            continue
        same = tensors[shuffle.inputs[0]].shape == tensors[output].shape
        is_reshape = user.kind == "SHUFFLE" and user.params.get("mode") == "RESHAPE"
        if not (same or is_reshape):
            continue
        current[index] = None
        joined = user.name if same else free_name(f"{shuffle.name} + {user.name}", taken)
        taken.add(joined)
        current[users[0]] = _joined(shuffle, user, joined)
    return tuple(layer for layer in current if layer is not None)


def _joined(shuffle: Layer, user: Layer, name: str) -> Layer:
    source, middle = shuffle.inputs[0], shuffle.outputs[0]
    both = tuple(dict.fromkeys((*shuffle.origin, *user.origin)))
    absorbed = (*_imported(shuffle), *shuffle.absorbed)
    absorbed += user.absorbed if name == user.name else (*_imported(user), *user.absorbed)
    return replace(
        user,
        name=name,
        nodes=tuple(dict.fromkeys((*shuffle.nodes, *user.nodes))),
        origin=both,
        inputs=tuple(source if read == middle else read for read in user.inputs),
        absorbed=absorbed,
    )


def _imported(layer: Layer) -> tuple[Absorbed, ...]:
    """A shuffle as the importer wrote it; not those of the builder, nor pairs joined before."""
    as_written = layer.kind == "SHUFFLE" and layer.nodes and not layer.absorbed
    return (Absorbed("SHUFFLE", layer.name),) if as_written else ()
