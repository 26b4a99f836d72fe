"""Tensors that must share one scale, because the hardware cannot rescale between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network import Network

__all__ = ["EQUAL_SCALE_KINDS", "groups", "share"]

# Pooling and concatenation: NvInfer.h (TensorRT 10.7) lines 1453 and 2462 and NVIDIA's
# qdq-translator (Concat: the maximum of the inputs, given to the inputs too). Shuffles and
# identities only move values, so TensorRT keeps their scale.
EQUAL_SCALE_KINDS = frozenset({"POOLING", "CONCATENATION", "SHUFFLE", "IDENTITY"})


def groups(network: Network) -> tuple[tuple[str, ...], ...]:
    """Returns the sets of tensors, of two or more, that share a scale, in graph order."""
    parent: dict[str, str] = {}

    def find(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for layer in network.layers:
        if layer.kind not in EQUAL_SCALE_KINDS:
            continue
        tensors = [
            name
            for name in (*layer.inputs, *layer.outputs)
            if name in network.tensors and network.tensors[name].dtype.startswith("float")
        ]
        for name in tensors[1:]:
            parent[find(name)] = find(tensors[0])
    members: dict[str, list[str]] = {}
    for name in parent:
        members.setdefault(find(name), []).append(name)
    return tuple(tuple(names) for names in members.values() if len(names) > 1)


def share(network: Network, amax: Mapping[str, float]) -> dict[str, float]:
    """Returns ``amax`` with the union of the ranges in every group.

    Tensors without a value that are in a group with one get it: layers that the builder inserts
    write tensors that no ONNX node knows.
    """
    shared = dict(amax)
    for names in groups(network):
        known = [amax[name] for name in names if name in amax]
        if known:
            shared.update(dict.fromkeys(names, max(known)))
    return shared
