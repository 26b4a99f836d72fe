"""A plan's placement as the tasks that its devices do one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from edgekit.solver import OUTSIDE, Border, Placing, Problem, Route, Task, Transfer

__all__ = ["route_of_plan"]

_PIECES = 5  # that a frame's time is cut into where the GPU runs on: others may come between


def route_of_plan(
    problem: Problem, placing: Placing, devices: Sequence[str]
) -> tuple[Route, tuple[tuple[int, ...], ...]]:
    """Returns a route over ``devices``, and the nodes of each of its tasks.

    A reformat is work of the GPU's task beside it, or a task of its own between two loadables; it
    runs after its tensor's producer and before the first consumer that needs it. The tasks add up
    to the placement's latency.
    """
    index = [devices.index(name) for name in problem.devices]
    work = _Work(problem, placing)
    most = sum(placing.load_us) / _PIECES
    tasks: list[Task] = []
    nodes: list[tuple[int, ...]] = []

    def add(device: int, own: Sequence[int], us: float, extra: float) -> None:
        first = sum(map(len, nodes))
        tasks.append(Task(index[device], first, first + len(own) - 1, us, extra))
        nodes.append(tuple(own))

    for s, step in enumerate(placing.steps):
        if work.between[s]:
            add(0, (), work.between[s], work.between[s])
        if step.device in problem.cores:
            us = sum(work.node_us(v) for v in step.nodes)
            add(step.device, step.nodes, us + work.extra[s], work.extra[s])
            continue
        pieces = _pieces(step.nodes, [work.node_us(v) for v in step.nodes], most)
        for number, piece in enumerate(pieces):
            # reformats that end a run read what any of it writes
            extra = work.before[s] if not number else 0.0
            extra += work.extra[s] if number == len(pieces) - 1 else 0.0
            add(0, piece, sum(work.node_us(v) for v in piece) + extra, extra)
    if work.between[-1]:
        add(0, (), work.between[-1], work.between[-1])
    count = [0] * len(devices)
    for step in placing.steps:
        count[index[step.device]] += step.device in problem.cores
    return Route(tuple(tasks), placing.energy_uj, tuple(count)), tuple(nodes)


def _pieces(nodes: Sequence[int], us: Sequence[float], most: float) -> list[list[int]]:
    """Returns neighbours together up to about ``most`` microseconds."""
    found: list[list[int]] = [[]]
    filled = 0.0
    for v, own in zip(nodes, us, strict=True):
        if found[-1] and filled + own > most:
            found.append([])
            filled = 0.0
        found[-1].append(v)
        filled += own
    return found


class _Work:
    """What every step takes beside its nodes, and the GPU between two of them."""

    def __init__(self, problem: Problem, placing: Placing) -> None:
        self.problem, self.placing = problem, placing
        steps = placing.steps
        self.step_of = {v: s for s, step in enumerate(steps) for v in step.nodes}
        self.extra = [0.0] * len(steps)
        self.before = [0.0] * len(steps)  # of a GPU's run, ahead of its first node
        self.between = [0.0] * (len(steps) + 1)  # on the GPU, ahead of a step
        for s, step in enumerate(steps):
            launch = problem.launch[step.device]
            self.extra[s] += sum(launch.load_us) if launch else 0.0
        for b, t, w in placing.ways:
            border = problem.borders[b]
            self._pay(border, border.transfers[t], border.transfers[t].ways[w].load_us)

    def node_us(self, v: int) -> float:
        """Returns what a node takes where it is."""
        cost = self.problem.costs[v][self.placing.modes[v]]
        assert cost is not None
        return sum(cost.load_us)

    def _pay(self, border: Border, transfer: Transfer, load_us: Sequence[float]) -> None:
        steps, modes = self.placing.steps, self.placing.modes
        outside = self.problem.outside
        source = outside if border.producer == OUTSIDE else modes[border.producer]
        users = [v for v in border.consumers if (source, modes[v]) in transfer.pairs]
        first = min((self.step_of[v] for v in users), default=len(steps))
        writer = -1 if border.producer == OUTSIDE else self.step_of[border.producer]
        ends = [s for s in (first, writer) if 0 <= s < len(steps)]
        for device, us in enumerate(load_us):
            if not us:
                continue
            own = [s for s in ends if steps[s].device == device]
            if device in self.problem.cores and own:
                self.extra[own[0]] += us
            elif writer >= 0 and steps[writer].device == 0:
                self.extra[writer] += us
            elif first and steps[first - 1].device == 0:
                self.extra[first - 1] += us
            elif first < len(steps) and steps[first].device == 0:
                self.before[first] += us
            else:
                self.between[first] += us
