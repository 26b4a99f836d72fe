"""Running orders: into which loadables a placement's nodes can go, and in what order all run.

A set of loadables is allowed when the graph over all loadables and other single nodes has no
cycle, which is the same as: there is a running order in which every loadable is one unbroken run.
A search over what has been done so far finds the orders that are not worse than another one in
the loadables of every core and in the transitions. Where nothing limits a loadable, a run takes
every node of its device that is ready (taking more never hurts), so that the search is over the
order of devices alone. Where pools or a least size limit loadables, ``_pack`` says which sets one
can be, and the search may be cut short: then its answer is allowed, but maybe not the best.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import ceil

from edgekit.solver._pack import Packer
from edgekit.solver._problem import Problem, Step

__all__ = [
    "Arrangement",
    "Graph",
    "Orders",
    "arrange",
    "is_packed",
    "least_loadables",
    "transitions",
]

LABELS = 4_000  # of a search, before it is cut short


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Loadables by device (0 for devices without), and the steps in their running order."""

    counts: tuple[int, ...]
    transitions: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Orders:
    """The arrangements of one network that no other one beats; whether these are all."""

    found: tuple[Arrangement, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class _Label:
    """What has been done, as a bit mask, and how."""

    done: int
    counts: tuple[int, ...]
    changes: int
    last: int
    steps: tuple[tuple[int, int], ...]  # device, mask of nodes

    def covers(self, other: _Label) -> bool:
        """Returns whether at least as much is done with at most as many loadables."""
        return other.done & ~self.done == 0 and all(
            a <= b for a, b in zip(self.counts, other.counts, strict=True)
        )


class Graph:
    """The nodes of one network with their devices; sets of nodes are bit masks."""

    def __init__(
        self,
        problem: Problem,
        nodes: Sequence[int],
        devices: Sequence[int],
        wild: Collection[int] = (),
    ) -> None:
        """Takes devices by node of the problem; ``wild`` nodes may run at any time for nothing."""
        self.nodes = nodes
        index = {v: i for i, v in enumerate(nodes)}
        self.before = [sum(1 << index[u] for u in problem.predecessors[v]) for v in nodes]
        self.all = (1 << len(nodes)) - 1
        free = [index[v] for v in nodes if v in set(wild)]
        self.on: dict[int, list[int]] = {}
        for i, v in enumerate(nodes):
            if i not in free:
                self.on.setdefault(devices[v], []).append(i)
        if free:
            for device in self.on:
                self.on[device] = sorted({*self.on[device], *free})
        self.free = free

    def ready(self, done: int, device: int) -> int:
        """Returns all that one run on a device can do now, in one mask."""
        now = done
        for i in self.on.get(device, self.free):
            if self.before[i] & ~now == 0:
                now |= 1 << i
        return now & ~done

    def members(self, mask: int) -> tuple[int, ...]:
        """Returns the nodes of a mask, ascending."""
        return tuple(v for i, v in enumerate(self.nodes) if mask >> i & 1)


def is_packed(problem: Problem) -> bool:
    """Returns whether a loadable is limited by anything but the order."""
    return bool(problem.pools) or problem.fits is not None or problem.min_size > 1


def arrange(
    problem: Problem, network: int, devices: Sequence[int], wild: Collection[int] = ()
) -> Orders:
    """Returns the best arrangements of a network; ``devices`` by node of the whole problem."""
    graph = Graph(problem, problem.networks[network], devices, wild)
    orders = _search(problem, network, graph, None)
    if not is_packed(problem):
        return orders
    packer = Packer(problem, graph.nodes, graph.before, graph.free)
    loadables = [s for order in orders.found for s in order.steps if s.device in problem.cores]
    if orders.exact and all(packer.allows(step.nodes) for step in loadables):
        return orders
    orders = _search(problem, network, graph, packer)
    least = [
        least_loadables(problem, network, d, devices, wild) for d in range(len(problem.devices))
    ]
    if any(list(order.counts) == least for order in orders.found):
        return Orders(orders.found, True)
    return orders


def _search(problem: Problem, network: int, graph: Graph, packer: Packer | None) -> Orders:
    used = sorted(graph.on)
    limit = problem.max_transitions[network]
    if problem.contiguous[network]:
        found: list[_Label] = []
        exact = True
        for order in permutations(used):
            labels, whole = _Search(problem, graph, order, packer, limit, contiguous=True).run()
            found += labels
            exact = exact and whole
        ends = _undominated(found)
    else:
        ends, exact = _Search(problem, graph, used, packer, limit).run()
    return Orders(tuple(_finished(network, graph, label) for label in ends), exact)


class _Search:
    """Labels by number of steps taken; a label that another one beats is dropped."""

    def __init__(
        self,
        problem: Problem,
        graph: Graph,
        devices: Sequence[int],
        packer: Packer | None,
        limit: int | None,
        contiguous: bool = False,
    ) -> None:
        self.problem, self.graph, self.devices = problem, graph, devices
        self.packer, self.contiguous = packer, contiguous
        self.limit = len(graph.nodes) if limit is None else limit
        self.blind = packer is not None and limit is None and not contiguous  # to transitions
        self.exact = True
        self.kept: dict[object, list[_Label]] = {}

    def run(self) -> tuple[list[_Label], bool]:
        """Returns the finished labels that no other one beats, and whether these are all."""
        nothing = (0,) * len(self.problem.devices)
        layer = [_Label(self.graph.ready(0, -1), nothing, -1, -1, ())]
        self.kept[self._key(layer[0])] = list(layer)
        ends: list[_Label] = []
        made = 0
        while layer:
            following: list[_Label] = []
            for label in layer:
                if label.done == self.graph.all:
                    ends.append(label)
                    continue
                for after in self._next(label):
                    if self._worth(after, ends):
                        following.append(after)
                        made += 1
            if made > LABELS and len(following) > 50:
                self.exact = False
                following = sorted(following, key=lambda x: (-x.done.bit_count(), x.counts))[:50]
            layer = [label for label in following if label in self.kept[self._key(label)]]
        return _undominated(ends), self.exact

    def _key(self, label: _Label) -> object:
        if self.contiguous or (self.packer and self.packer.min_size > 1):
            return (label.last if self.contiguous else -1, label.done)
        return None

    def _worth(self, label: _Label, ends: Iterable[_Label]) -> bool:
        """Keeps a label unless a known one beats it or it breaks a limit."""
        slots = self.problem.max_loadables
        if label.changes > self.limit or (slots is not None and max(label.counts) > slots):
            return False
        kept = self.kept.setdefault(self._key(label), [])
        if any(self._beats(other, label) for other in kept):
            return False
        if any(self._beats(end, label) for end in ends):
            return False
        kept[:] = [other for other in kept if not self._beats(label, other)]
        kept.append(label)
        return True

    def _beats(self, one: _Label, other: _Label) -> bool:
        """Returns whether everything that the other can still do is as good from the one."""
        if not one.covers(other):
            return False
        if self.blind:
            return True
        # a run without pools takes all that is ready, so that its device has nothing left to do
        again = self.packer is not None and one.last != other.last
        return one.changes + again <= other.changes

    def _next(self, label: _Label) -> Iterable[_Label]:
        position = self.devices.index(label.last) if self.contiguous and label.last >= 0 else 0
        for device in self._turns(label, position):
            core = device in self.problem.cores
            again = device == label.last
            if again and not (core and self.packer):
                continue
            ready = self.graph.ready(label.done, device)
            if not ready:
                continue
            sets: Iterable[int] = (ready,)
            if core and self.packer:
                sets, whole = self.packer.loadables(ready, label.done)
                self.exact = self.exact and whole
            counts = label.counts
            if core:
                counts = tuple(n + (d == device) for d, n in enumerate(counts))
            changes = label.changes + (not again)
            for mask in sets:
                yield _Label(
                    label.done | mask, counts, changes, device, (*label.steps, (device, mask))
                )

    def _turns(self, label: _Label, position: int) -> Sequence[int]:
        """Returns the devices to try next: one without loadables at once where that is free."""
        if self.blind:
            for device in self.devices:
                if device not in self.problem.cores and self.graph.ready(label.done, device):
                    return (device,)
        return self.devices[position:]


def _undominated(labels: Sequence[_Label]) -> list[_Label]:
    best: dict[tuple[tuple[int, ...], int], _Label] = {}
    for label in labels:
        best.setdefault((label.counts, label.changes), label)
    return [
        label
        for key, label in sorted(best.items(), key=lambda item: item[0])
        if not any(
            k != key and k[1] <= key[1] and all(a <= b for a, b in zip(k[0], key[0], strict=True))
            for k in best
        )
    ]


def _finished(network: int, graph: Graph, label: _Label) -> Arrangement:
    steps = tuple(Step(network, device, graph.members(mask)) for device, mask in label.steps)
    return Arrangement(label.counts, max(0, label.changes), steps)


def least_loadables(
    problem: Problem,
    network: int,
    core: int,
    devices: Sequence[int],
    wild: Collection[int] = (),
) -> int:
    """Returns loadables that a core needs at least: entries along a path, and what pools hold."""
    if core not in problem.cores:
        return 0
    least = 0
    levels: dict[int, tuple[int, bool]] = {}
    free = frozenset(wild)
    nodes = problem.networks[network]
    for v in nodes:
        before = [levels[u] for u in problem.predecessors[v]]
        if v in free:  # it can be inside the loadable of a predecessor
            level = max((n for n, _ in before), default=0)
            levels[v] = level, any(on for n, on in before if n == level)
            continue
        inside = devices[v] == core
        level = max((n + (inside and not on) for n, on in before), default=int(inside))
        levels[v] = level, inside
        least = max(least, level)
    for pool in problem.pools:
        need = sum(pool.needs[v] for v in nodes if devices[v] == core and v not in free)
        if pool.limit > 0:
            least = max(least, ceil(need / pool.limit - 1e-9))
    return least


def transitions(steps: Sequence[Step]) -> int:
    """Returns the device changes along the running order of every network."""
    last: dict[int, int] = {}
    changes = 0
    for step in steps:
        changes += step.network in last and last[step.network] != step.device
        last[step.network] = step.device
    return changes
