"""The parts of ``edgekit.solution/1`` that tell when and in which loadable a node runs."""

from __future__ import annotations

from typing import Any

from edgekit.solver._document_problem import Places
from edgekit.solver._document_read import Document
from edgekit.solver._problem import Placing, Problem

__all__ = ["Times", "in_sequence", "loadables", "named"]

Times = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def loadables(
    read: Document, problem: Problem, places: Places, placing: Placing
) -> dict[str, dict[str, int]]:
    """Returns by network and node on a core the loadable's number, counted in running order."""
    found: dict[str, dict[str, int]] = {net.name: {} for net in read.networks}
    number = [0] * len(read.networks)
    for step in placing.steps:
        if step.device not in problem.cores:
            continue
        net = read.networks[step.network]
        for v in step.nodes:
            found[net.name][net.nodes[places.nodes[v][1]].name] = number[step.network]
        number[step.network] += 1
    return found


def in_sequence(read: Document, problem: Problem, places: Places, placing: Placing) -> Times:
    """Returns when nodes and transfers run, everything one after the other.

    A tensor is handed over right before the first step that needs it elsewhere.
    """
    clock = 0.0
    items: list[dict[str, Any]] = []
    transfers: list[dict[str, Any]] = []
    waiting: dict[int, list[tuple[int, int, int]]] = {}  # by node, what has to come before it
    for b, t, way in placing.ways:
        border = problem.borders[b]
        pairs = border.transfers[t].pairs
        source = placing.modes[border.producer]
        for user in border.consumers:
            if (source, placing.modes[user]) in pairs:
                waiting.setdefault(user, []).append((b, t, way))
    done: set[tuple[int, int, int]] = set()
    for step in sorted(placing.steps, key=lambda step: step.network):
        due = {paid for v in step.nodes for paid in waiting.get(v, ())} - done
        for b, t, way in sorted(due):
            border = problem.borders[b]
            begin, clock = clock, clock + sum(border.transfers[t].ways[way].load_us)
            from_kind, to_kind = places.directions[b][t]
            transfers.append(
                named(read, places, border.producer)
                | {"from": from_kind, "to": to_kind, "start_us": begin, "end_us": clock}
            )
        done |= due
        launch = problem.launch[step.device]
        clock += sum(launch.load_us) if launch else 0.0
        for v in step.nodes:
            cost = problem.costs[v][placing.modes[v]]
            assert cost is not None
            begin, clock = clock, clock + sum(cost.load_us)
            items.append(
                named(read, places, v)
                | {"device": read.devices[step.device], "start_us": begin, "end_us": clock}
            )
    return items, transfers


def named(read: Document, places: Places, v: int) -> dict[str, Any]:
    """Returns a node's network and name."""
    number, node = places.nodes[v]
    net = read.networks[number]
    return {"network": net.name, "node": net.nodes[node].name}
