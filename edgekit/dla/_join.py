"""Joins groups of one batch size that only layers of other batch sizes kept apart."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network import Network

__all__ = ["join"]

#: Batch sizes whose groups are joined, those with the most groups; it bounds the work on
#: networks that no one has: time is linear in layers for a given number of sizes.
MOST_SIZES = 12

Vector = list[int]  # by batch size, how many of its joined groups come before


def join(
    network: Network, groups: Sequence[Sequence[str]], batches: Sequence[int]
) -> list[list[str]]:
    """Returns the groups, joined until no two of one batch size could be one.

    Two may be one while all groups can still run one after the other: no way out of the pair may
    lead back into it, through other layers or other groups. Each group in turn goes into the
    first that takes it. Beyond ``MOST_SIZES`` batch sizes the groups of the rarest stay as they
    are.

    Args:
        network: The layer graph.
        groups: Layer names, convex and in an order in which they can run.
        batches: Batch size by group.
    """
    common = [size for size, _ in Counter(batches).most_common(MOST_SIZES)]
    number = {size: at for at, size in enumerate(common)}
    chains = _Chains(len(common))
    sources, waiting = _sources(network, groups)
    members: list[list[str]] = []
    index_of: dict[tuple[int, int], int] = {}
    # by group where it went, by other layer what comes before it
    home: dict[int, tuple[int, int]] = {}
    before: dict[int | str, Vector] = {}

    def outside(unit: int | str) -> Vector:
        """What comes before a unit that is never joined: all its sources."""
        found = [0] * len(common)
        for source in sources[unit]:
            if source in before:
                found = list(map(max, found, before[source]))
            elif isinstance(source, int):
                size, at = home[source]
                found[size] = max(found[size], at + 1)
        return found

    for name in waiting[-1]:
        before[name] = outside(name)
    for index, names in enumerate(groups):
        size = number.get(batches[index], -1)
        if size < 0:
            before[index] = outside(index)
            members.append(list(names))
        else:
            at = chains.add(size, chains.blocked(size, sources[index], before, home))
            home[index] = (size, at)
            target = index_of.setdefault((size, at), len(members))
            if target == len(members):
                members.append([])
            members[target] += names
        for name in waiting[index]:
            before[name] = outside(name)
    return members


class _Chains:
    """The joined groups by batch size, and which of them need which.

    A new one starts only when all earlier ones of its size must come before it. So those of a
    size stand in one line, and what one needs is a number by batch size: the first so many.
    """

    def __init__(self, sizes: int) -> None:
        # [size][other size][place]: how many of the other size come before; it never falls along
        # a line, because each needs the one before it
        self._needs: list[list[list[int]]] = [[[] for _ in range(sizes)] for _ in range(sizes)]

    def blocked(
        self,
        size: int,
        sources: Sequence[int | str],
        before: Mapping[int | str, Vector],
        home: Mapping[int, tuple[int, int]],
    ) -> Vector:
        """Returns those from which a way through something else leads to a group of ``size``."""
        found = [0] * len(self._needs)
        for source in sources:
            if source in before:
                found = list(map(max, found, before[source]))
            elif isinstance(source, int):
                kind, at = home[source]
                if kind == size:
                    # read directly, so it may take the group in; what it needs may not
                    needs = self._needs[size]
                    found = [max(n, line[at]) for n, line in zip(found, needs, strict=True)]
                else:
                    found[kind] = max(found[kind], at + 1)
        return self._closed(found)

    def _closed(self, found: Vector) -> Vector:
        """Adds what those that come before need themselves."""
        todo = {size for size, count in enumerate(found) if count}
        while todo:
            size = todo.pop()
            last = found[size] - 1
            for other, line in enumerate(self._needs[size]):
                if line[last] > found[other]:
                    found[other] = line[last]
                    todo.add(other)
        return found

    def add(self, size: int, needed: Vector) -> int:
        """Puts a group into the first joined one that is not blocked; returns its place."""
        place = needed[size]
        for line, count in zip(self._needs[size], needed, strict=True):
            if place == len(line):
                line.append(count)
            else:
                end = bisect_left(line, count, place)
                line[place:end] = [count] * (end - place)
        return place


def _sources(
    network: Network, groups: Sequence[Sequence[str]]
) -> tuple[dict[int | str, list[int | str]], dict[int, list[str]]]:
    """What each unit reads from, and the layers of no group by the last group before them.

    A unit is a group, by its index, or a layer of no group, by its name.
    """
    group_of = {name: index for index, names in enumerate(groups) for name in names}
    producers = network.producers()
    sources: dict[int | str, list[int | str]] = {index: [] for index in range(len(groups))}
    waiting: dict[int, list[str]] = defaultdict(list)
    last: dict[str, int] = {}
    for layer in network.layers:
        unit = group_of.get(layer.name, layer.name)
        read = [producers[name].name for name in layer.inputs if name in producers]
        known = dict.fromkeys(group_of.get(name, name) for name in read)
        sources.setdefault(unit, []).extend(one for one in known if one != unit)
        if isinstance(unit, str):
            after = [one if isinstance(one, int) else last[one] for one in known]
            last[unit] = max(after, default=-1)
            waiting[last[unit]].append(unit)
    return sources, waiting
