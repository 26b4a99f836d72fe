"""The times of a schedule, computed anew from the order in which its parts start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgekit.solver._problem import OUTSIDE, Placing, Problem

__all__ = ["Item", "Sending", "timed"]


@dataclass(frozen=True, slots=True)
class Item:
    """When a node runs; its delay, if it has one, comes after."""

    network: int
    node: int
    device: int
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class Sending:
    """When a transfer runs: index of its border, of the transfer in it, of its way.

    ``device`` is None for a mere delay; ``end_us`` is when the tensor is there.
    """

    network: int
    border: int
    transfer: int
    way: int
    device: int | None
    start_us: float
    end_us: float


@dataclass(slots=True)
class _Unit:
    """A node off the cores, a loadable or a transfer."""

    key: tuple[int, int, int, int, float]
    nodes: tuple[int, ...] = ()
    sending: tuple[int, int, int] | None = None


def timed(
    problem: Problem,
    placing: Placing,
    starts: Sequence[int],
    sent: Sequence[Sequence[int]],
    scale: Callable[[float], int],
) -> tuple[tuple[Item, ...], tuple[Sending, ...], float]:
    """Returns items, transfers and the makespan, all as early as the order of starts allows.

    Args:
        starts: By node (those of a loadable start together), in integers.
        sent: By transfer, counted over all borders, and way.
        scale: Gives the integers that the starts were found with.
    """
    units: list[_Unit] = []
    position: dict[int, int] = {}
    for place, step in enumerate(placing.steps):
        core = step.device in problem.cores
        launch = problem.launch[step.device]
        for nodes in [step.nodes] if core else [(v,) for v in step.nodes]:
            costs = [problem.costs[v][placing.modes[v]] for v in nodes]
            length = sum(scale(c.load_us[step.device]) for c in (launch, *costs) if c is not None)
            units.append(_Unit((starts[nodes[0]], length, step.network, place, nodes[0]), nodes))
        position |= dict.fromkeys(step.nodes, place)
    keys = [
        (b, t) for b, border in enumerate(problem.borders) for t in range(len(border.transfers))
    ]
    number = {key: i for i, key in enumerate(keys)}
    for b, t, w in placing.ways:
        border = problem.borders[b]
        outside = border.producer == OUTSIDE
        network = _network(problem, border.consumers[0] if outside else border.producer)
        place = -1 if outside else position[border.producer]
        length = sum(map(scale, border.transfers[t].ways[w].load_us[:-1]))
        key = (sent[number[b, t]][w], length, network, place, border.producer + 0.5)
        units.append(_Unit(key, sending=(b, t, w)))
    # What takes no time comes first of those that start together, then the running order decides.
    return _Clock(problem, placing).run(sorted(units, key=lambda unit: unit.key))


def _network(problem: Problem, v: int) -> int:
    return problem.network_of[v] if problem.network_of else 0


class _Clock:
    def __init__(self, problem: Problem, placing: Placing) -> None:
        self.problem, self.placing = problem, placing
        self.free = [0.0] * len(problem.devices)
        self.ready = [0.0] * len(problem.costs)
        self.there = [0.0] * len(problem.costs)  # when the last transfer that a node needs ended
        self.items: list[Item] = []
        self.sendings: list[Sending] = []
        self.end = 0.0

    def run(self, units: Sequence[_Unit]) -> tuple[tuple[Item, ...], tuple[Sending, ...], float]:
        for unit in units:
            if unit.sending is not None:
                self._send(*unit.sending)
            else:
                self._work(unit.nodes)
        self.items.sort(key=lambda item: (item.start_us, item.end_us, item.device, item.node))
        self.sendings.sort(key=lambda s: (s.start_us, s.end_us, s.border, s.transfer))
        return tuple(self.items), tuple(self.sendings), self.end

    def _work(self, nodes: Sequence[int]) -> None:
        problem, modes = self.problem, self.placing.modes
        device = problem.device(modes[nodes[0]])
        inside = set(nodes)
        at = max(
            self.free[device],
            *(self.there[v] for v in nodes),
            *(self.ready[u] for v in nodes for u in problem.predecessors[v] if u not in inside),
        )
        delay = 0.0
        launch = problem.launch[device]
        if launch is not None:
            at += launch.load_us[device]
        for v in nodes:
            cost = problem.costs[v][modes[v]]
            assert cost is not None
            end = at + cost.load_us[device]
            self.items.append(Item(_network(problem, v), v, device, at, end))
            delay += cost.load_us[-1]
            at = end
        self.free[device] = at
        for v in nodes:
            self.ready[v] = at + delay
        self.end = max(self.end, at + delay)

    def _send(self, b: int, t: int, w: int) -> None:
        problem, modes = self.problem, self.placing.modes
        border = problem.borders[b]
        pairs, way = border.transfers[t].pairs, border.transfers[t].ways[w]
        outside = border.producer == OUTSIDE
        start = 0.0 if outside else self.ready[border.producer]
        device = next((d for d, us in enumerate(way.load_us[:-1]) if us), None)
        if device is not None:
            start = max(start, self.free[device])
            self.free[device] = start + way.load_us[device]
        end = start + sum(way.load_us)
        writes = problem.outside if outside else modes[border.producer]
        for v in border.consumers:
            if (writes, modes[v]) in pairs:
                self.there[v] = max(self.there[v], end)
        reader = border.producer if not outside else border.consumers[0]
        self.sendings.append(Sending(_network(problem, reader), b, t, w, device, start, end))
        self.end = max(self.end, end)
