"""The borders of a network's kernels, and the transfers that each pair of modes there costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgekit.network import Network
from edgekit.placement._costs import Layout
from edgekit.placement._handover import CALLER, Handover, Way
from edgekit.placement._kernels import Kernel
from edgekit.placement._modes import Modes
from edgekit.solver import OUTSIDE, Border, Cost, Transfer

__all__ = ["Borders", "Found"]


class Found(NamedTuple):
    """Borders, their tensors, the ways by (border, transfer), and what costs nothing: a loadable's
    format by (border, producer's mode, reader's mode)."""

    borders: list[Border]
    tensors: list[str]
    ways: dict[tuple[int, int], tuple[Way, ...]]
    free: dict[tuple[int, int, int], str]


@dataclass(frozen=True)
class Borders:
    """Makes the borders of kernels whose modes are known.

    Attributes:
        network: The layer graph.
        handover: Its ways.
        modes: All modes.
        allowed: By kernel, the modes that it can have.
        watts: Power by device.
        plain: Only the loadables' best formats, as the builder's own placement is predicted.
    """

    network: Network
    handover: Handover
    modes: Modes
    allowed: Sequence[Sequence[int]]
    watts: Sequence[float]
    plain: bool = False

    def find(self, kernels: Sequence[Kernel]) -> Found:
        """Returns the borders of kernels."""
        readers: dict[str, list[int]] = {}
        for v, kernel in enumerate(kernels):
            for name in kernel.inputs:
                readers.setdefault(name, []).append(v)
        leaves = frozenset(self.network.outputs)
        ends = [(name, OUTSIDE) for name in self.network.inputs if name in readers]
        ends += [(name, v) for v, kernel in enumerate(kernels) for name in kernel.outputs]
        borders: list[Border] = []
        meaning: dict[tuple[int, int], tuple[Way, ...]] = {}
        free: dict[tuple[int, int, int], str] = {}
        for name, v in ends:
            users = tuple(readers.get(name, ()))
            transfers: list[Transfer] = []
            for pairs, ways in self._transfers(name, v, users, name in leaves, kernels):
                kept = _undominated([(way, self._cost(way, pairs)) for way in ways])
                if any(us > 0 for us in kept[0][1].load_us):
                    meaning[len(borders), len(transfers)] = tuple(way for way, _ in kept)
                    costs = tuple(cost for _, cost in kept)
                    transfers.append(Transfer(frozenset(pairs), costs))
                else:
                    free.update(((len(borders), *pair), kept[0][0].dla_format) for pair in pairs)
            borders.append(Border(v, users, tuple(transfers), name in leaves))
        return Found(borders, [name for name, _ in ends], meaning, free)

    def _transfers(
        self, name: str, v: int, users: Sequence[int], leaves: bool, kernels: Sequence[Kernel]
    ) -> Iterable[tuple[list[tuple[int, int]], Sequence[Way]]]:
        sources = (0,) if v == OUTSIDE else self.allowed[v]
        goals = dict.fromkeys(m for u in users for m in self.allowed[u])
        if leaves:
            goals[0] = None
        for source in sources:
            layout = self.modes.layouts[source]
            if layout is None:
                several = len(users) + leaves > 1
                yield from self._from_core(name, source, goals, kernels[v], several)
                continue
            on_gpu: dict[Layout, list[tuple[int, int]]] = {}
            converted: dict[tuple[Layout, Layout], list[tuple[int, int]]] = {}
            fused = v != OUTSIDE and users and all(
                self.handover.is_fused(kernels[v], kernels[u]) for u in users
            )  # fmt: skip
            for goal in goals:
                other = self.modes.layouts[goal]
                if other is None:
                    able = [kernels[u] for u in users if goal in self.allowed[u]]
                    yield [(source, goal)], self._some(self.handover.into(name, layout, able))
                elif not fused and self._converts(source, goal):
                    for u in users:
                        if goal in self.allowed[u]:
                            best = self.handover.gpu(kernels[u])[0]
                            converted.setdefault((best, other), []).append((source, goal))
                elif self._differs(source, goal):
                    on_gpu.setdefault(other, []).append((source, goal))
            for other, pairs in on_gpu.items():
                yield pairs, [self._on_gpu(name, layout, other)]
            for (best, other), pairs in converted.items():
                # a kernel leaves its best layout for a DLA's format: that makes no conversion
                # between two kernels of the GPU cheaper, and the GPU alone has one time
                us = self._on_gpu(name, self.handover.gpu(kernels[v])[0], best).reformat_us
                yield pairs, [Way(layout, other, "", us, 0.0)]

    def _from_core(
        self, name: str, source: int, goals: Iterable[int], writer: Kernel, several: bool
    ) -> Iterable[tuple[list[tuple[int, int]], Sequence[Way]]]:
        """One reformat for each layout that somebody on the GPU, or the caller, reads.

        A loadable writes a tensor in one format: what several read it writes in its best one.
        """
        by_layout: dict[Layout, list[tuple[int, int]]] = {}
        for goal in goals:
            layout = self.modes.layouts[goal]
            if layout is not None:
                by_layout.setdefault(layout, []).append((source, goal))
        for layout, pairs in by_layout.items():
            ways = self.handover.out_of(name, layout, writer)
            yield pairs, ways[:1] if several else self._some(ways)

    def _converts(self, source: int, goal: int) -> bool:
        """Whether a tensor changes its type between two modes of the GPU."""
        a, b = self.modes.layouts[source] or CALLER, self.modes.layouts[goal] or CALLER
        return 0 not in (source, goal) and self.handover.changes_type(a, b)

    def _differs(self, source: int, goal: int) -> bool:
        """Whether a tensor is reformatted between two modes of the GPU, or of the caller."""
        a, b = self.modes.layouts[source] or CALLER, self.modes.layouts[goal] or CALLER
        best = self.modes.best[source] and self.modes.best[goal]
        return not best and a[1] != b[1]

    def _on_gpu(self, name: str, source: Layout, goal: Layout) -> Way:
        tensor = self.network.tensors[name]
        us = self.handover.reformat_us(tensor, source, goal)
        return Way(source, goal, "", us, 0.0)

    def _some(self, ways: tuple[Way, ...]) -> tuple[Way, ...]:
        return ways[:1] if self.plain else ways

    def _cost(self, way: Way, pairs: Sequence[tuple[int, int]]) -> Cost:
        load = [0.0] * (len(self.watts) + 1)  # the delay comes last
        load[0] = way.reformat_us
        ends = {self.modes.modes[m].device for pair in pairs for m in pair} - {0}
        for core in ends:
            load[core] += way.io_us
        energy = sum(us * watts for us, watts in zip(load, self.watts, strict=False))
        return Cost(tuple(load), energy)


def _undominated(ways: Sequence[tuple[Way, Cost]]) -> list[tuple[Way, Cost]]:
    """Returns the ways that no other one is as good as; of equal ones the first."""
    kept: list[tuple[Way, Cost]] = []
    for way, cost in ways:
        if not any(_at_most(other, cost) for _, other in kept):
            kept = [one for one in kept if not _at_most(cost, one[1])]
            kept.append((way, cost))
    return kept


def _at_most(a: Cost, b: Cost) -> bool:
    return a.energy_uj <= b.energy_uj and all(
        x <= y for x, y in zip(a.load_us, b.load_us, strict=True)
    )
