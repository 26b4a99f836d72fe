"""Nodes that can share a loadable, and running orders of loadables and other nodes.

A set of loadables is allowed if the graph over all loadables and other single nodes has no cycle.
Equivalently, a running order exists in which every loadable is one unbroken run. A search over the
sets of finished nodes finds the orders that are not dominated in the loadables of every core and in
the transitions. Without limits on a loadable, a run takes every ready node of its device (taking
more never hurts), so the search is over the order of devices alone. If pools or a least size limit
loadables, :class:`LoadablePacker` finds the possible sets, and the search may be cut short: then
its answer is allowed, but maybe not the best.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from edgekit.solver.problem import ExecutionStep, PlacementProblem

LABELS = 4_000  # in a search, before it is cut short
SLACK = 1e-9  # relative, on a pool's limit
SETS = 4_000  # candidates tried for one loadable before the search is cut short
EFFORT = 40_000  # candidates tried for all loadables; after that a hundred each


def count_transitions(steps: Sequence[ExecutionStep]) -> int:
    """Returns the device changes along a running order."""
    return sum(step.device != following.device for step, following in pairwise(steps))


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Number of loadables by device (0 without loadables), and the steps in running order."""

    counts: tuple[int, ...]
    transitions: int
    steps: tuple[ExecutionStep, ...]


@dataclass(frozen=True, slots=True)
class Orders:
    """The arrangements that no other beats, and True if these are all."""

    found: tuple[Arrangement, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class _Label:
    """A partial running order: the finished nodes as a bit mask, and its steps."""

    done: int
    counts: tuple[int, ...]
    changes: int
    last: int
    steps: tuple[tuple[int, int], ...]  # device, mask of nodes

    def covers(self, other: _Label) -> bool:
        """Returns True if at least as much is done with at most as many loadables."""
        return other.done & ~self.done == 0 and all(
            a <= b for a, b in zip(self.counts, other.counts, strict=True)
        )


class NodeGraph:
    """The nodes with their devices; sets of nodes are bit masks."""

    def __init__(
        self, problem: PlacementProblem, devices: Sequence[int], wild: Collection[int] = ()
    ) -> None:
        """Takes devices by node; ``wild`` nodes may run at any time at no cost."""
        self.before = [sum(1 << u for u in before) for before in problem.predecessors]
        self.count = len(self.before)
        self.all = (1 << self.count) - 1
        free = sorted(set(wild))
        self.on: dict[int, list[int]] = {}
        for v, device in enumerate(devices):
            if v not in free:
                self.on.setdefault(device, []).append(v)
        if free:
            for device in self.on:
                self.on[device] = sorted({*self.on[device], *free})
        self.free = free

    def ready(self, done: int, device: int) -> int:
        """Returns a mask of all nodes that a run on a device can do now."""
        now = done
        # one pass is enough: nodes are in topological order
        for i in self.on.get(device, self.free):
            if self.before[i] & ~now == 0:
                now |= 1 << i
        return now & ~done

    def members(self, mask: int) -> tuple[int, ...]:
        """Returns the nodes of a mask, ascending."""
        return tuple(v for v in range(self.count) if mask >> v & 1)


def is_packed(problem: PlacementProblem) -> bool:
    """Returns True if loadables have limits other than the order."""
    return bool(problem.pools) or problem.fits is not None or problem.min_size > 1


def arrange(
    problem: PlacementProblem, devices: Sequence[int], wild: Collection[int] = ()
) -> Orders:
    """Returns the best arrangements of nodes on ``devices``."""
    graph = NodeGraph(problem, devices, wild)
    orders = _search(problem, graph, None)
    if not is_packed(problem):
        return orders
    # The search without limits on a loadable is much shorter, and its loadables often fit.
    packer = LoadablePacker(problem, graph.before, graph.free)
    loadables = [s for order in orders.found for s in order.steps if s.device in problem.cores]
    if orders.exact and all(packer.allows(step.nodes) for step in loadables):
        return orders
    orders = _search(problem, graph, packer)
    # an arrangement that meets the lower bounds is best, however the search ended
    least = [least_loadables(problem, d, devices, wild) for d in range(len(problem.devices))]
    if any(list(order.counts) == least for order in orders.found):
        return Orders(orders.found, True)
    return orders


def _search(problem: PlacementProblem, graph: NodeGraph, packer: LoadablePacker | None) -> Orders:
    ends, exact = _LabelSearch(problem, graph, packer).run()
    found = []
    for label in ends:
        steps = tuple(ExecutionStep(device, graph.members(mask)) for device, mask in label.steps)
        found.append(Arrangement(label.counts, max(0, label.changes), steps))
    return Orders(tuple(found), exact)


class _LabelSearch:
    """Labels by number of steps taken; a label that another label beats is dropped."""

    def __init__(
        self,
        problem: PlacementProblem,
        graph: NodeGraph,
        packer: LoadablePacker | None,
    ) -> None:
        self.problem, self.graph, self.packer = problem, graph, packer
        self.devices = sorted(graph.on)
        limit = problem.max_transitions
        self.limit = graph.count if limit is None else limit
        self.blind = packer is not None and limit is None  # ignores transitions
        self.exact = True
        self.undominated: dict[object, list[_Label]] = {}

    def run(self) -> tuple[list[_Label], bool]:
        """Returns the finished labels that no other beats, and True if these are all."""
        nothing = (0,) * len(self.problem.devices)
        # no device is -1, so only wild nodes run; -1 changes, since the first step is no change
        layer = [_Label(self.graph.ready(0, -1), nothing, -1, -1, ())]
        self.undominated[self._key(layer[0])] = list(layer)
        ends: list[_Label] = []
        made = 0
        while layer:
            following: list[_Label] = []
            for label in layer:
                if label.done == self.graph.all:
                    ends.append(label)
                    continue
                for after in self._next(label):
                    if self._add_if_useful(after, ends):
                        following.append(after)
                        made += 1
            if made > LABELS and len(following) > 50:
                self.exact = False
                # a beam of the labels with the most finished nodes
                following = sorted(following, key=lambda x: (-x.done.bit_count(), x.counts))[:50]
            # a label can be beaten by a later label of its layer
            layer = [label for label in following if label in self.undominated[self._key(label)]]
        return _drop_dominated(ends), self.exact

    def _key(self, label: _Label) -> object:
        # With a least size, more finished nodes are not always better: the rest may be too few for
        # a loadable. Only labels with the same finished nodes are compared.
        return label.done if self.packer and self.packer.min_size > 1 else None

    def _add_if_useful(self, label: _Label, ends: Iterable[_Label]) -> bool:
        """Keeps a label unless a known label beats it or it breaks a limit."""
        slots = self.problem.max_loadables
        if label.changes > self.limit or (slots is not None and max(label.counts) > slots):
            return False
        labels = self.undominated.setdefault(self._key(label), [])
        if any(self._beats(other, label) for other in labels):
            return False
        if any(self._beats(end, label) for end in ends):
            return False
        labels[:] = [other for other in labels if not self._beats(label, other)]
        labels.append(label)
        return True

    def _beats(self, label: _Label, other: _Label) -> bool:
        """Returns True if every continuation of ``other`` is at least as good after ``label``."""
        if not label.covers(other):
            return False
        if self.blind:
            return True
        # A run without pools takes all ready nodes. With pools some may be left for its device, and
        # ``label`` may have to change back to the device that ``other`` is still on.
        again = self.packer is not None and label.last != other.last
        return label.changes + again <= other.changes

    def _next(self, label: _Label) -> Iterable[_Label]:
        for device in self._turns(label):
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

    def _turns(self, label: _Label) -> Sequence[int]:
        """Returns the devices to try next: a ready device without loadables first if it is free."""
        if self.blind:
            # transitions do not count here, so these nodes are free and may make others ready
            for device in self.devices:
                if device not in self.problem.cores and self.graph.ready(label.done, device):
                    return (device,)
        return self.devices


def _drop_dominated(labels: Sequence[_Label]) -> list[_Label]:
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


def least_loadables(
    problem: PlacementProblem,
    core: int,
    devices: Sequence[int],
    wild: Collection[int] = (),
) -> int:
    """Returns the least number of loadables on a core, from entries along a path and from pools."""
    if core not in problem.cores:
        return 0
    least = 0
    levels: dict[int, tuple[int, bool]] = {}
    free = frozenset(wild)
    nodes = range(len(problem.costs))
    for v in nodes:
        before = [levels[u] for u in problem.predecessors[v]]
        if v in free:  # it can be inside the loadable of a predecessor
            level = max((n for n, _ in before), default=0)
            levels[v] = level, any(on for n, on in before if n == level)
            continue
        # a node enters a loadable unless a predecessor with as many entries is in one
        inside = devices[v] == core
        level = max((n + (inside and not on) for n, on in before), default=int(inside))
        levels[v] = level, inside
        least = max(least, level)
    for pool in problem.pools:
        need = sum(pool.needs[v] for v in nodes if devices[v] == core and v not in free)
        if pool.limit > 0:
            least = max(least, ceil(need / pool.limit - 1e-9))
    return least


def fits(problem: PlacementProblem, nodes: Sequence[int]) -> bool:
    """Returns True if nodes can share a loadable, without regard to its least size."""
    for pool in problem.pools:
        if sum(pool.needs[v] for v in nodes) > pool.limit * (1 + SLACK):
            return False
    return problem.fits is None or problem.fits(frozenset(nodes))


class LoadablePacker:
    """Finds loadables among the nodes; sets are bit masks."""

    def __init__(
        self, problem: PlacementProblem, before: Sequence[int], wild: Collection[int]
    ) -> None:
        """Takes the predecessors of each node; the ``wild`` nodes have no needs."""
        self.problem, self.before = problem, before
        self.wild = frozenset(wild)
        # wild nodes may be in any loadable and enlarge it
        self.min_size = 0 if wild else problem.min_size
        self._effort = 0
        self._fits: dict[int, bool] = {}
        self._found: dict[tuple[int, int], tuple[tuple[int, ...], bool]] = {}

    def allows(self, nodes: Sequence[int]) -> bool:
        """Returns True if nodes of the problem can form a loadable."""
        mask = sum(1 << v for v in nodes)
        return self._fits_mask(mask) and self._is_large_enough(mask)

    def _members(self, mask: int) -> list[int]:
        return [v for v in range(len(self.before)) if mask >> v & 1 and v not in self.wild]

    def _fits_mask(self, mask: int) -> bool:
        known = self._fits.get(mask)
        if known is None:
            known = self._fits[mask] = fits(self.problem, self._members(mask))
        return known

    def _is_large_enough(self, mask: int) -> bool:
        sizes = self.problem.sizes
        return sum(sizes[v] if sizes else 1 for v in self._members(mask)) >= self.min_size

    def loadables(self, ready: int, done: int) -> tuple[tuple[int, ...], bool]:
        """Returns sets of ready nodes worth a loadable, largest first, and True if all were seen.

        ``ready`` is closed: predecessors of its nodes are in ``ready`` or in ``done``. Without a
        least size only sets that cannot take another node are returned.
        """
        small = self.min_size > 1
        if not small and self._fits_mask(ready):
            return (ready,), True
        # other finished nodes do not decide which sets are closed
        key = (ready, done if small else done & self._predecessors(ready))
        if key not in self._found:
            self._found[key] = self._enumerate_sets(ready, done, small)
        return self._found[key]

    def _predecessors(self, mask: int) -> int:
        needed = 0
        for i, before in enumerate(self.before):
            if mask >> i & 1:
                needed |= before
        return needed

    def _enumerate_sets(self, ready: int, done: int, small: bool) -> tuple[tuple[int, ...], bool]:
        """Enumerates the sets of ready nodes that are closed and fit, each once."""
        order = [i for i in range(len(self.before)) if ready >> i & 1]
        found: list[int] = []
        whole = True
        stack = [(0, 0, 0)]  # position, taken, left out
        # at least one set is reached: it takes a step for each node
        looked, most = 0, SETS if self._effort < EFFORT else 100 + len(order)
        while stack:
            position, taken, left = stack.pop()
            looked += 1
            if looked > most:
                whole = False
                break
            if position == len(order):
                if not taken:
                    continue
                if small:
                    if self._is_large_enough(taken):
                        found.append(taken)
                elif not self._can_grow(order, taken, done):
                    found.append(taken)
                continue
            i = order[position]
            bit = 1 << i
            # pushed first, so that it is tried last: large sets come first
            stack.append((position + 1, taken, left | bit))
            if self.before[i] & ~(done | taken) == 0 and self._fits_mask(taken | bit):
                stack.append((position + 1, taken | bit, left))
        self._effort += looked
        found.sort(key=lambda mask: (-mask.bit_count(), mask))
        return tuple(found), whole

    def _can_grow(self, order: Sequence[int], taken: int, done: int) -> bool:
        """Returns True if another node fits."""
        return any(
            not taken >> i & 1
            and self.before[i] & ~(done | taken) == 0
            and self._fits_mask(taken | 1 << i)
            for i in order
        )


class Reach:
    """Ancestors and descendants by node, as bit masks that include the node.

    Cuts for a least size of loadables: the nodes that a small loadable could be joined with.

    If connected nodes of a core have no neighbour on it, such a node can share a loadable only with
    nodes that no path through a neighbour joins with it (convexity). As long as the neighbours are
    on other devices, the nodes in reach must make up the least size.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        count = len(problem.costs)
        self.up = [1 << v for v in range(count)]
        self.down = [1 << v for v in range(count)]
        self.users: list[list[int]] = [[] for _ in range(count)]
        for v, before in enumerate(problem.predecessors):
            for u in before:
                self.up[v] |= self.up[u]
                self.users[u].append(v)
        for v in range(count - 1, -1, -1):
            for user in self.users[v]:
                self.down[v] |= self.down[user]


def too_small(
    problem: PlacementProblem, reach: Reach, devices: Sequence[int]
) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yields nodes whose loadable cannot be large enough, with neighbours and nodes in reach."""
    sizes = problem.sizes or (1,) * len(devices)
    seen: set[int] = set()
    for first, device in enumerate(devices):
        if device not in problem.cores or first in seen:
            continue
        group, border = _connected_on_device(problem, reach, devices, first)
        seen |= group
        for v in sorted(group):
            between = [b for b in sorted(border) if (reach.up[b] | reach.down[b]) >> v & 1]
            near = _shareable_nodes(problem, reach, v, between)
            if sum(sizes[w] for w in near if devices[w] == device) < problem.min_size:
                yield v, between, near


def _connected_on_device(
    problem: PlacementProblem, reach: Reach, devices: Sequence[int], first: int
) -> tuple[set[int], set[int]]:
    group, border, stack = {first}, set[int](), [first]
    while stack:
        v = stack.pop()
        for w in (*problem.predecessors[v], *reach.users[v]):
            if devices[w] != devices[first]:
                border.add(w)
            elif w not in group:
                group.add(w)
                stack.append(w)
    return group, border


def _shareable_nodes(
    problem: PlacementProblem, reach: Reach, v: int, between: Sequence[int]
) -> list[int]:
    """Returns the nodes that no path through a node of ``between`` joins with ``v``."""
    away = 0
    for b in between:
        away |= reach.down[b] if reach.up[b] >> v & 1 else reach.up[b]
    return [w for w in range(len(problem.costs)) if not away >> w & 1]
