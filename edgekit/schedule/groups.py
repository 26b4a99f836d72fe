"""A network's kernels as a chain of groups, each with its exact cost on every device. A group ends
at a border crossed by a single tensor, so that a frame costs the sum over groups and borders.

About ``limit`` of the possible borders are kept: first the borders at which the best placement of
the network alone changes the device (for several weights of GPU time), then borders that make the
groups even, and borders without which no device could run a group. If no device can run a group
even then, there are no groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgekit.solver.loadables import fits
from edgekit.solver.problem import OUTSIDE, Border, PlacementProblem

# weight of a GPU microsecond relative to a DLA core's
_WEIGHTS = (0.1, 0.3, 0.6, 1.0, 1.6, 3.0, 6.0, 15.0, 50.0)


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """Kernels that run one after the other on the same device.

    Attributes:
        nodes: Nodes of the problem, ascending.
        times_us: Microseconds by device; None if they cannot run there.
        energy_uj: Microjoules by device; 0 if they cannot run there.
    """

    nodes: tuple[int, ...]
    times_us: tuple[float | None, ...]
    energy_uj: tuple[float, ...]


@dataclass(frozen=True)
class GroupChain:
    """A chain of groups, and the GPU time of hand-overs at each border.

    Attributes:
        groups: In running order.
        hands_us: Microseconds by border (0: the inputs; last: the outputs), from and to device; the
            caller has the index after the last device.
        too_large: First and last group of the shortest runs that exceed a loadable.
    """

    groups: tuple[KernelGroup, ...]
    hands_us: tuple[tuple[tuple[float, ...], ...], ...]
    too_large: tuple[tuple[int, int], ...]


def build_groups(problem: PlacementProblem, limit: int) -> GroupChain:
    """Returns the chain of a problem whose nodes have a single mode on each device."""
    return _ChainBuilder(problem).groups(limit)


class _ChainBuilder:
    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.devices = range(len(problem.devices))
        self.mode = [
            {problem.device(m): m for m, cost in enumerate(row) if cost is not None}
            for row in problem.costs
        ]
        self.cuts, self.crossing = self._cuts()
        self.written: list[list[Border]] = [[] for _ in problem.costs]
        for border in problem.borders:
            if border.producer != OUTSIDE and border.consumers and border.transfers:
                self.written[border.producer].append(border)

    def _cuts(self) -> tuple[list[int], list[Border | None]]:
        """Returns the possible borders (number of nodes before each) and the tensor that
        crosses each.
        """
        problem, count = self.problem, len(self.problem.costs)
        opened: list[list[Border]] = [[] for _ in range(count + 1)]
        closed = [0] * (count + 1)
        # the caller's hand-overs are priced at the ends of the chain alone
        first_possible = 0  # after the last reader of the inputs
        last_possible = count  # before the first writer of the outputs
        for border in problem.borders:
            if border.producer == OUTSIDE:
                first_possible = max(first_possible, *(v + 1 for v in border.consumers), 0)
                continue
            if border.output:
                last_possible = min(last_possible, border.producer)
            if border.consumers:
                opened[border.producer + 1].append(border)
                closed[max(border.consumers) + 1] += 1
        cuts = [0]
        crossing: list[Border | None] = [None]
        alive: list[Border] = []
        for place in range(1, count):
            alive += opened[place]
            alive = [b for b in alive if max(b.consumers) >= place]
            if not first_possible <= place <= last_possible or len(alive) != 1:
                continue
            if alive[0] is not crossing[-1]:
                cuts.append(place)
                crossing.append(alive[0])
        return [*cuts, count], [*crossing, None]

    def _time(self, low: int, high: int, device: int) -> float | None:
        total = 0.0
        for v in range(low, high):
            mode = self.mode[v].get(device)
            if mode is None:
                return None
            cost = self.problem.costs[v][mode]
            assert cost is not None
            total += sum(cost.load_us)
        # transfers within a device: changes of type, and reformats beside a plugin
        return total + self._inside(low, high, device)[0]

    def _inside(self, low: int, high: int, device: int) -> tuple[float, float]:
        """Returns time and energy of transfers between nodes on the same device."""
        time = energy = 0.0
        for v in range(low, high):
            for border in self.written[v]:
                # later readers get the tensor at the group's border
                users = [u for u in border.consumers if u < high]
                pairs = {(self.mode[v][device], self.mode[u][device]) for u in users}
                found = _transfers(border, pairs)
                time, energy = time + found[0], energy + found[1]
        return time, energy

    def _energy(self, low: int, high: int, device: int) -> float:
        total = self._inside(low, high, device)[1]
        for v in range(low, high):
            cost = self.problem.costs[v][self.mode[v][device]]
            assert cost is not None
            total += cost.energy_uj
        return total

    def _hands(self, cut: int) -> tuple[tuple[float, ...], ...]:
        """Returns hand-over times at the border with index ``cut`` of ``cuts``."""
        caller = len(self.devices)
        places = range(caller + 1)
        place = self.cuts[cut]
        rows = [[0.0] * (caller + 1) for _ in places]
        # at the first cut all inputs enter, at the last all outputs leave
        if cut == 0 or cut == len(self.cuts) - 1:
            for border in self.problem.borders:
                enters, leaves = border.producer == OUTSIDE, border.output
                if not (enters if cut == 0 else leaves):
                    continue
                for device in self.devices:
                    if cut == 0:
                        modes = {self.mode[u].get(device) for u in border.consumers}
                        pairs = {(self.problem.outside, m) for m in modes if m is not None}
                        rows[caller][device] += _transfers(border, pairs)[0]
                    else:
                        mode = self.mode[border.producer].get(device)
                        if mode is not None:
                            pairs = {(mode, self.problem.outside)}
                            rows[device][caller] += _transfers(border, pairs)[0]
            return tuple(map(tuple, rows))
        crossing = self.crossing[cut]
        assert crossing is not None
        for a in self.devices:
            source = self.mode[crossing.producer].get(a)
            for b in self.devices:
                if source is None:
                    continue
                # readers before this border have the tensor already
                goals = {self.mode[u].get(b) for u in crossing.consumers if u >= place}
                pairs = {(source, m) for m in goals if m is not None}
                rows[a][b] = _transfers(crossing, pairs)[0]
        return tuple(map(tuple, rows))

    def groups(self, limit: int) -> GroupChain:
        blocks = list(pairwise(self.cuts))
        if not all(self._able(low, high) for low, high in blocks):
            return GroupChain((), (), ())
        times = [[self._time(low, high, d) for d in self.devices] for low, high in blocks]
        hands = [self._hands(i) for i in range(len(self.cuts))]
        chosen = self._possible(self._choose_borders(times, hands, limit))
        groups = []
        for i, j in pairwise(chosen):
            low, high = self.cuts[i], self.cuts[j]
            nodes = tuple(range(low, high))
            own = self._times(low, high)
            energy = tuple(
                0.0 if us is None else self._energy(low, high, d) for d, us in enumerate(own)
            )
            groups.append(KernelGroup(nodes, tuple(own), energy))
        borders = tuple(hands[i] for i in chosen)
        return GroupChain(tuple(groups), borders, tuple(self._too_large(groups)))

    def _times(self, low: int, high: int) -> list[float | None]:
        """Returns the time of adjacent nodes by device, None on a core that cannot hold them."""
        own = [self._time(low, high, d) for d in self.devices]
        if any(own[d] is not None for d in self.problem.cores):
            whole = fits(self.problem, range(low, high))
            own = [us if whole or d not in self.problem.cores else None for d, us in enumerate(own)]
        return own

    def _able(self, low: int, high: int) -> bool:
        return any(us is not None for us in self._times(low, high))

    def _possible(self, chosen: Sequence[int]) -> list[int]:
        """Returns the chosen cuts, plus cuts between nodes that no device can run together."""
        found = [0]
        for i, j in pairwise(chosen):
            first = i
            for k in range(i + 1, j):
                if not self._able(self.cuts[first], self.cuts[k + 1]):
                    found.append(k)
                    first = k
            found.append(j)
        return found

    def _too_large(self, groups: Sequence[KernelGroup]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        if not self.problem.pools and self.problem.fits is None:
            return found
        for i in range(len(groups)):
            # only the shortest run from each group: longer runs contain it
            nodes: list[int] = []
            for j in range(i, len(groups)):
                if all(groups[j].times_us[c] is None for c in self.problem.cores):
                    break
                nodes += groups[j].nodes
                if not fits(self.problem, nodes):
                    while found and found[-1][1] >= j:
                        found.pop()  # the new run is shorter
                    found.append((i, j))
                    break
        return found

    def _choose_borders(
        self,
        times: Sequence[Sequence[float | None]],
        hands: Sequence[Sequence[Sequence[float]]],
        limit: int,
    ) -> list[int]:
        """Returns the indices of the kept cuts."""
        count = len(times)
        chosen = {0, count}
        for weight in _WEIGHTS if self.problem.cores else ():
            chosen |= self._changes(times, hands, weight)
        while len(chosen) - 1 < min(limit, count):
            order = sorted(chosen)
            sizes = [
                (sum(min(us for us in times[i] if us is not None) for i in range(a, b)), a, b)
                for a, b in pairwise(order)
                if b - a > 1
            ]
            # halve the longest group, near the middle of its time
            total, a, b = max(sizes)
            before, best = 0.0, (float("inf"), a + 1)
            for i in range(a, b - 1):
                before += min(us for us in times[i] if us is not None)
                best = min(best, (abs(total / 2 - before), i + 1))
            chosen.add(best[1])
        return sorted(chosen)

    def _changes(
        self,
        times: Sequence[Sequence[float | None]],
        hands: Sequence[Sequence[Sequence[float]]],
        weight: float,
    ) -> set[int]:
        """Returns the borders at which the best path changes the device, for a weight of GPU
        time.
        """
        problem, caller = self.problem, len(self.devices)
        # the first core represents all: only borders are chosen here
        devices = [0, problem.cores[0]]
        launch = problem.launch[problem.cores[0]]
        start = sum(launch.load_us) if launch else 0.0
        best: dict[int, tuple[float, frozenset[int]]] = {}
        for block, row in enumerate(times):
            step: dict[int, tuple[float, frozenset[int]]] = {}
            for d in devices:
                own = row[d]
                if own is None:
                    continue
                ways = []
                for before, (value, changes) in best.items() if block else ():
                    new = changes if before == d else changes | {block}
                    first = start if d and before != d else 0.0
                    hand = hands[block][before][d] * weight
                    ways.append((value + hand + first, len(new), sorted(new), new))
                if not block:
                    first = start if d else 0.0
                    ways.append((hands[0][caller][d] * weight + first, 0, [], frozenset()))
                if ways:
                    value, _, _, changes = min(ways, key=lambda way: way[:3])
                    step[d] = (value + own * (1.0 if d else weight), changes)
            best = step
        ends = [
            (value + hands[-1][d][caller] * weight, sorted(changes))
            for d, (value, changes) in best.items()
        ]
        return set(min(ends)[1]) if ends else set()


def _transfers(border: Border, pairs: set[tuple[int, int]]) -> tuple[float, float]:
    time = energy = 0.0
    for transfer in border.transfers:
        if transfer.pairs & pairs:
            way = min(transfer.ways, key=lambda cost: sum(cost.load_us))
            time += sum(way.load_us)
            energy += way.energy_uj
    return time, energy
