"""What TensorRT groups into loadables when it places layers on the DLA by itself.

A candidate is a maximal run of layers that the DLA can run, of one batch size: parallel branches
are one candidate even where they share no tensor, as long as no path leaves the group and comes
back. TensorRT 10.3 keeps those with the most layers, ties in graph order, and sends the rest to
the GPU (seen in verbose builds of ResNet-50 and DETR).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from edgekit.dla._facts import batch_of
from edgekit.dla._rules import loadables_per_core
from edgekit.dla._types import LoadableCandidate

if TYPE_CHECKING:
    from edgekit.network import Layer, Network

__all__ = ["SLOTS", "candidates", "candidates_of_work", "loadable_batch"]

_BEFORE_ANY_DLA = -1
SLOTS = "memory.loadables"  # the rule that says how many loadables a core holds


def candidates(
    network: Network, ok: Mapping[str, bool], max_loadables: int | None = None
) -> tuple[LoadableCandidate, ...]:
    """Groups the layers that ``ok`` allows, in graph order; linear in the size of the network.

    A layer's level counts how often the longest way to it enters the DLA or changes the batch
    size. Layers of one level and batch size form a group: a path between two of them through
    another layer would have raised the level, so every group is convex, and with one batch size
    no two can be joined, because every level is as low as it can be. With several, groups that
    only the levels of another batch size held apart are joined afterwards.

    Args:
        network: The layer graph.
        ok: By layer name, whether the DLA can run it.
        max_loadables: How many candidates are kept; as many as a core holds when None.
    """
    producers = network.producers()
    level: dict[str, int] = {}
    batch: dict[str, int] = {}
    groups: dict[tuple[int, int], list[str]] = {}
    for layer in network.layers:
        on_dla = ok.get(layer.name, False)
        size = loadable_batch(layer, network) if on_dla else 0
        deepest = _BEFORE_ANY_DLA
        for name in layer.inputs:
            source = producers.get(name)
            if source is None:
                continue
            above = level[source.name]
            if on_dla and batch.get(source.name, 0) != size:
                # comes from the GPU, or from a loadable of another batch size
                above += 1
            deepest = max(deepest, above)
        level[layer.name] = max(deepest, 0) if on_dla else deepest
        if on_dla:
            batch[layer.name] = size
            groups.setdefault((level[layer.name], size), []).append(layer.name)
    place = {layer.name: index for index, layer in enumerate(network.layers)}
    found: Iterable[list[str]] = groups.values()
    if len({size for _, size in groups}) > 1:
        from edgekit.dla._join import join

        by_level = sorted(groups)
        found = join(network, [groups[key] for key in by_level], [size for _, size in by_level])
        found = [sorted(names, key=place.__getitem__) for names in found]
    ordered = sorted(found, key=lambda names: place[names[0]])
    largest = sorted(range(len(ordered)), key=lambda i: (-len(ordered[i]), i))
    slots = loadables_per_core() if max_loadables is None else max_loadables
    kept = set(largest[: max(slots, 0)])
    return tuple(
        LoadableCandidate(tuple(names), i in kept, "" if i in kept else SLOTS)
        for i, names in enumerate(ordered)
    )


def candidates_of_work(
    network: Network, ok: Mapping[str, bool], idle: Collection[str], max_loadables: int
) -> tuple[LoadableCandidate, ...]:
    """Returns the candidates without those of nothing but kinds in ``idle``.

    Q/DQ nodes whose neighbours are all on the GPU are parts of kernels there.
    """
    groups = candidates(network, ok, max_loadables)
    kinds = {layer.name: layer.kind for layer in network.layers}
    bare = {
        name
        for group in groups
        if all(kinds[name] in idle for name in group.layers)
        for name in group.layers
    }
    if not bare:
        return groups
    return candidates(network, {n: ok[n] and n not in bare for n in ok}, max_loadables)


def loadable_batch(layer: Layer, network: Network) -> int:
    """Returns the batch size that a layer gives its loadable, which has only one."""
    name = (layer.outputs or layer.inputs)[0]
    return batch_of(network.tensors[name].shape)
