"""A makespan in integers, as the CP-SAT worker takes it (see ``_schedule_task``)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from edgekit.solver._problem import OUTSIDE, Cost, Goal, Problem
from edgekit.solver._steps import fits
from edgekit.solver._steps_request import Row, Scale, positions, steps_request

__all__ = ["request_of", "row_of", "runs_of"]


def row_of(problem: Problem, network: int, levels: int | None) -> Row:
    """Returns the positions of a network's nodes; none where every node is by itself."""
    if levels is None:
        return Row([], 1, limited=False, tail=False, short=False)
    most = len(problem.networks[network])
    return positions(problem, network, most=most, levels=levels, tail=False, joined=False)


def request_of(
    problem: Problem, goal: Goal, rows: list[Row], runs: dict[str, Any] | None, strict: bool
) -> tuple[dict[str, Any], Scale]:
    """Returns the request and its scale; ``runs`` as of ``runs_of``, {} or None: by levels."""
    simple = runs == {}
    request, _ = steps_request(problem, goal, rows, start=None, lower=0.0, strict=strict)
    # One unit of time for everything; the objective's measures are loads in that unit, too.
    modes = [{m: c for m, c in enumerate(cost) if c is not None} for cost in problem.costs]
    ways = [t.ways for b in problem.borders for t in b.transfers]
    launch = [c for core in problem.cores if (c := problem.launch[core]) is not None]
    every = [*(c for cost in modes for c in cost.values()), *(w for t in ways for w in t), *launch]
    least = [min(sum(c.load_us) for c in cost.values()) for cost in modes]
    total = max(max(least, default=0.0), sum(least) / len(problem.devices), 1e-6)
    terms = 2 * len(modes) + len(ways) + (0 if simple else len(modes))
    scale = Scale((us for c in every for us in c.load_us), terms, total)
    for d in range(len(problem.devices)):
        measure = request["measures"][d]
        measure["modes"] = [{m: scale(c.load_us[d]) for m, c in cost.items()} for cost in modes]
        measure["ways"] = [[scale(w.load_us[d]) for w in t] for t in ways]
        measure["launch"] = [scale(c.load_us[d]) for c in launch]
    request["times"] = [
        {
            str(m): [problem.device(m), *_single(scale, c, problem.device(m))]
            for m, c in cost.items()
        }
        for cost in modes
    ]
    request["way_times"] = [[_sending(scale, way) for way in t] for t in ways]
    request["launch_times"] = [
        _single(scale, c, core)[0] for core, c in zip(problem.cores, launch, strict=True)
    ]
    longest = sum(max(sum(map(scale, c.load_us)) for c in cost.values()) for cost in modes)
    longest += sum(max(sum(map(scale, w.load_us)) for w in t) for t in ways)
    longest += sum(len(modes) * scale(sum(c.load_us)) for c in launch)
    request |= {"kind": "levels" if runs is None else "runs", "upper": longest + 1}
    if runs is not None:
        request |= {name: runs.get(name, []) for name in ("previous", "windows", "needed")}
        ordered = runs.get("paths") or [_path(problem, nodes) for nodes in problem.networks]
        for network, path in zip(request["networks"], ordered, strict=True):
            network["path"] = path
    return request, scale


def _single(scale: Scale, cost: Cost, device: int) -> list[int]:
    """Returns a cost as time on its device and delay."""
    if any(us and d != device for d, us in enumerate(cost.load_us[:-1])):
        raise ValueError("a makespan takes costs that load one device each")
    return [scale(cost.load_us[device]), scale(cost.load_us[-1])]


def _sending(scale: Scale, way: Cost) -> list[int]:
    device = next((d for d, us in enumerate(way.load_us[:-1]) if us), -1)
    if device < 0:
        return [-1, 0, scale(way.load_us[-1])]
    return [device, *_single(scale, way, device)]


def runs_of(problem: Problem) -> tuple[dict[str, Any], bool] | None:
    """Returns what the worker needs for loadables that are runs of the nodes' order.

    Also returns whether there are no others: where every node feeds the next one, a convex set
    has no gaps. None: such runs cannot say when delays on cores or device changes count.
    """
    paths, exact = [], True
    previous = [-1] * len(problem.costs)
    windows: list[list[int]] = []
    needed: list[list[int] | None] = [[] for _ in problem.costs]
    for network, nodes in enumerate(problem.networks):
        ordered = all(u in problem.predecessors[v] for u, v in pairwise(nodes))
        exact &= ordered
        ruled = problem.contiguous[network] or problem.max_transitions[network] is not None
        if ruled and not ordered:
            return None
        paths.append(_path(problem, nodes))
        for u, v in pairwise(nodes):
            previous[v] = u
        _limits(problem, nodes, windows, needed)
    for row in problem.costs:
        for m, cost in enumerate(row):
            if cost is not None and cost.load_us[-1] and problem.device(m) in problem.cores:
                return None
    return {"previous": previous, "windows": windows, "needed": needed, "paths": paths}, exact


def _path(problem: Problem, nodes: tuple[int, ...]) -> bool:
    """Whether the nodes are ordered, and only a run's first and last node meet anything else."""
    before = [problem.predecessors[v] for v in nodes]
    if before != [(), *((u,) for u in nodes[:-1])]:
        return False
    inside = set(nodes)
    for border in problem.borders:
        if border.producer == OUTSIDE and border.transfers:
            if any(v in inside and v != nodes[0] for v in border.consumers):
                return False
        elif (
            border.producer in inside
            and border.producer != nodes[-1]
            and border.output
            and border.transfers
        ):
            return False
    return True


def _limits(
    problem: Problem,
    nodes: tuple[int, ...],
    windows: list[list[int]],
    needed: list[list[int] | None],
) -> None:
    """Adds the shortest runs that do not fit, and what a loadable's first node needs with it."""
    sizes = problem.sizes or (1,) * len(problem.costs)
    end = 0
    for i, v in enumerate(nodes):
        end = max(end, i)
        while end < len(nodes) and fits(problem, frozenset(nodes[i : end + 1])):
            end += 1
        if end == i:
            needed[v] = None
            continue
        if end < len(nodes):
            windows.append(list(nodes[i : end + 1]))
        size, last = sizes[v], i
        while size < problem.min_size and last + 1 < len(nodes):
            last += 1
            size += sizes[nodes[last]]
        needed[v] = list(nodes[i + 1 : last + 1]) if size >= problem.min_size else None
