"""Joins groups of one batch size that only layers of other batch sizes kept apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network import Network

__all__ = ["join"]


def join(
    network: Network, groups: Sequence[Sequence[str]], batches: Sequence[int]
) -> list[list[str]]:
    """Returns the groups, joined until no two of one batch size could be one.

    Two may be one while all groups can still run one after the other: no way out of the pair may
    lead back into it, through other layers or other groups. Each group in turn goes into the
    first that takes it.

    Args:
        network: The layer graph.
        groups: Layer names, convex and in an order in which they can run.
        batches: Batch size by group.
    """
    direct, around = _sources(network, groups)
    home: list[int] = []
    members: list[list[str]] = []
    size: list[int] = []
    # by joined group, as bits: all joined groups that it needs
    needs: list[int] = []
    for index, names in enumerate(groups):
        near = {home[source] for source in direct[index]}
        through = _bits({home[source] for source in _positions(around[index])})
        blocked = through
        for source in (*near, *_positions(through)):
            blocked |= needs[source]
        fits = (
            other
            for other in range(len(members))
            if size[other] == batches[index] and not blocked >> other & 1
        )
        target = next(fits, len(members))
        home.append(target)
        if target == len(members):
            members.append([])
            size.append(batches[index])
            needs.append(0)
        members[target] += names
        own = 1 << target
        more = (blocked | _bits(near)) & ~own
        if more & ~needs[target]:
            needs[target] |= more
            for other, known in enumerate(needs):
                if known & own:
                    needs[other] |= needs[target]
    return members


def _sources(network: Network, groups: Sequence[Sequence[str]]) -> tuple[list[set[int]], list[int]]:
    """By group: the groups that it reads from, and as bits those whose layers reach it by others.

    The others are layers of no group.
    """
    group_of: Mapping[str, int] = {
        name: index for index, names in enumerate(groups) for name in names
    }
    producers = network.producers()
    direct: list[set[int]] = [set() for _ in groups]
    around = [0] * len(groups)
    passed: dict[str, int] = {}
    for layer in network.layers:
        index = group_of.get(layer.name)
        behind = 0
        for name in layer.inputs:
            source = producers.get(name)
            if source is None:
                continue
            other = group_of.get(source.name)
            if other is None:
                behind |= passed[source.name]
            elif index is None:
                behind |= 1 << other
            elif other != index:
                direct[index].add(other)
        if index is None:
            passed[layer.name] = behind
        else:
            around[index] |= behind
    return direct, around


def _bits(positions: set[int]) -> int:
    found = 0
    for position in positions:
        found |= 1 << position
    return found


def _positions(bits: int) -> list[int]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
