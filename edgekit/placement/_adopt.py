"""Among equally good groupings of a plan's layers into loadables, the one TensorRT would make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgekit.placement._builder import groups_of
from edgekit.placement._running import Running, transitions_of
from edgekit.solver import Problem, Step

__all__ = ["as_the_builder_groups"]


def as_the_builder_groups(running: Running, slots: int, min_layers: int) -> Running:
    """Returns the plan with the builder's loadables where they cost no more than its own.

    Device types are then all that the builder must be told.
    """
    built, placing = running.built, running.placing
    layers = running.layers()
    kernel_of = {
        running.network.layers[i].name: v for v, k in enumerate(built.kernels) for i in k.layers
    }
    pieces: list[tuple[int, tuple[int, ...]]] = []
    for core in built.problem.cores:
        ours = {s.nodes for s in placing.steps if s.device == core}
        if not ours:
            continue
        groups, _ = groups_of(running.network, layers, built.problem.devices[core], slots)
        nodes = [tuple(sorted({kernel_of[name] for name in group})) for group in groups]
        inside = sorted(v for group in nodes for v in group)
        if inside != sorted(v for own in ours for v in own) or len(nodes) != len(ours):
            return running  # a kernel is cut, a loadable is left out, or there are more or fewer
        for group, names in zip(nodes, groups, strict=True):
            if group not in ours and (len(names) < min_layers or not running.room.holds(names)):
                return running
            pieces.append((core, group))
    if {piece for _, piece in pieces} == {s.nodes for s in placing.steps if s.device}:
        return running
    pieces += [(0, (v,)) for v, m in enumerate(placing.modes) if not built.problem.device(m)]
    orders = [_steps(built.problem, pieces, first) for first in range(len(built.problem.devices))]
    found = [steps for steps in orders if steps]
    if not found:
        return running
    steps = min(found, key=lambda order: (transitions_of(order), len(order)))
    if transitions_of(steps) > transitions_of(placing.steps):
        return running
    return replace(running, placing=replace(placing, steps=steps))


def _steps(
    problem: Problem, pieces: Sequence[tuple[int, tuple[int, ...]]], first: int
) -> tuple[Step, ...]:
    """Runs all that is ready on one device before it turns to another; () where they wait in a
    circle."""
    piece_of = {v: p for p, (_, nodes) in enumerate(pieces) for v in nodes}
    waits: dict[int, set[int]] = {p: set() for p in range(len(pieces))}
    for v, before in enumerate(problem.predecessors):
        waits[piece_of[v]] |= {piece_of[u] for u in before} - {piece_of[v]}
    steps: list[Step] = []
    device, done = first, set[int]()
    while len(done) < len(pieces):
        ready = _ready(pieces, waits, done)
        if not ready:
            return ()
        if device not in ready:
            device = max(ready, key=lambda d: (len(ready[d]), -d))
        for p in ready[device]:
            done.add(p)
            if device:
                steps.append(Step(0, device, pieces[p][1]))
            elif steps and not steps[-1].device:
                nodes = tuple(sorted((*steps[-1].nodes, *pieces[p][1])))
                steps[-1] = replace(steps[-1], nodes=nodes)
            else:
                steps.append(Step(0, 0, pieces[p][1]))
    return tuple(steps)


def _ready(
    pieces: Sequence[tuple[int, tuple[int, ...]]], waits: Mapping[int, set[int]], done: set[int]
) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for p in sorted(range(len(pieces)), key=lambda p: pieces[p][1][0]):
        if p not in done and waits[p] <= done:
            found.setdefault(pieces[p][0], []).append(p)
    return found
