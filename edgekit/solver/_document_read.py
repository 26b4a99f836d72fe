"""``edgekit.problem/1``: a placement problem as a JSON document, read strictly."""

from __future__ import annotations

import graphlib
import heapq
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.solver._document_check import array, fail, integer, known, name, number, record

__all__ = ["Document", "Group", "Net", "parse_document"]

SCHEMA = "edgekit.problem/1"
KINDS = ("GPU", "DLA")
DIRECTIONS = ("GPU>DLA", "DLA>GPU", "DLA>DLA")
OBJECTIVES = ("latency", "makespan", "period", "energy")
BOUNDS = ("energy_uj", "latency_us")
MOST_DEVICES = 9
MOST_NETWORKS = 64
MOST_NODES = 10_000
MOST_EDGES = 100_000


@dataclass(frozen=True, slots=True)
class Group:
    """A node: its times and energies by kind of device, what its tensor costs by direction."""

    name: str
    time_us: Mapping[str, float]
    energy_uj: Mapping[str, float]
    out_us: Mapping[str, float]
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Net:
    """A network: nodes as listed, edges by their indices, and ``order``, a topological one."""

    name: str
    nodes: tuple[Group, ...]
    edges: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    max_transitions: int | None
    contiguous: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document; None is no limit."""

    devices: tuple[str, ...]
    networks: tuple[Net, ...]
    transfer_on: str
    launch_us: float
    max_loadables: int | None
    weight_bytes: int | None
    objective: str
    bounds: Mapping[str, float]


def parse_document(value: object) -> Document:
    """Returns a document whose every value was checked.

    Raises:
        DataError: Something in it is not as the contract says (code ``problem.invalid``, where
            as in ``networks[0].nodes[3].time_us.DLA``).
    """
    keys = ("schema", "devices", "networks", "transfer_on", "loadable", "objective", "bounds")
    top = record(value, "", keys, ("schema", "devices", "networks"))
    if top["schema"] != SCHEMA:
        known(top["schema"], (SCHEMA,), "schema", "schema")
    devices = _devices(top["devices"])
    listed = array(top["networks"], "networks", MOST_NETWORKS, 1)
    networks = tuple(_network(net, f"networks[{i}]") for i, net in enumerate(listed))
    _different([net.name for net in networks], "networks[{}].name")
    if sum(len(net.nodes) for net in networks) > MOST_NODES:
        fail(f"more than {MOST_NODES} nodes", "networks")
    loadable = record(_given(top, "loadable", {}), "loadable", ("launch_us", "max", "weight_bytes"))
    most, weight = loadable.get("max"), loadable.get("weight_bytes")
    bounds = record(_given(top, "bounds", {}), "bounds", BOUNDS)
    return Document(
        devices,
        networks,
        known(_given(top, "transfer_on", "GPU"), ("GPU", "delay"), "transfer_on", "place"),
        number(_given(loadable, "launch_us", 0), "loadable.launch_us"),
        None if most is None else integer(most, "loadable.max"),
        None if weight is None else integer(weight, "loadable.weight_bytes"),
        known(_given(top, "objective", "latency"), OBJECTIVES, "objective", "objective"),
        {
            key: number(bounds[key], f"bounds.{key}")
            for key in BOUNDS
            if bounds.get(key) is not None
        },
    )


def _given(record: Mapping[str, Any], key: str, default: Any) -> Any:
    value = record.get(key)
    return default if value is None else value


def _devices(value: object) -> tuple[str, ...]:
    devices = [
        name(device, f"devices[{i}]")
        for i, device in enumerate(array(value, "devices", MOST_DEVICES, 1))
    ]
    for i, device in enumerate(devices):
        if not re.fullmatch(r"GPU|DLA[0-9]{0,3}", device, re.ASCII):
            fail(
                f'unknown device "{device[:60]}"', f"devices[{i}]", "known are GPU, DLA0, DLA1, ..."
            )
    _different(devices, "devices[{}]")
    return tuple(devices)


def _different(names: list[str], where: str) -> None:
    seen: dict[str, int] = {}
    for i, own in enumerate(names):
        if own in seen:
            fail(f'the name "{own}" is taken by {where.format(seen[own])}', where.format(i))
        seen[own] = i


def _network(value: object, where: str) -> Net:
    keys = ("name", "nodes", "edges", "max_transitions", "contiguous")
    net = record(value, where, keys, ("name", "nodes"))
    listed = array(net["nodes"], f"{where}.nodes", MOST_NODES, 1)
    nodes = tuple(_node(node, f"{where}.nodes[{i}]") for i, node in enumerate(listed))
    _different([node.name for node in nodes], where + ".nodes[{}].name")
    edges = [(i, i + 1) for i in range(len(nodes) - 1)]
    if net.get("edges") is not None:
        pairs = array(net["edges"], f"{where}.edges", MOST_EDGES)
        edges = [_edge(pair, f"{where}.edges[{i}]", len(nodes)) for i, pair in enumerate(pairs)]
    most = net.get("max_transitions")
    contiguous = _given(net, "contiguous", False)
    if not isinstance(contiguous, bool):
        fail("true or false was expected", f"{where}.contiguous")
    return Net(
        name(net["name"], f"{where}.name"),
        nodes,
        tuple(sorted(set(edges))),
        _order(nodes, edges, f"{where}.edges"),
        None if most is None else integer(most, f"{where}.max_transitions"),
        contiguous,
    )


def _edge(value: object, where: str, count: int) -> tuple[int, int]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        fail("an edge is a pair of node indices [from, to]", where)
    ends = [integer(end, f"{where}[{i}]") for i, end in enumerate(value)]
    for i, end in enumerate(ends):
        if end >= count:
            fail(f"there is no node {end}; the last one is {count - 1}", f"{where}[{i}]")
    return ends[0], ends[1]


def _order(nodes: tuple[Group, ...], edges: list[tuple[int, int]], where: str) -> tuple[int, ...]:
    """Returns the nodes in a topological order: as listed where the edges leave a choice."""
    sorter: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter(
        dict.fromkeys(range(len(nodes)), ())
    )
    for before, after in edges:
        sorter.add(after, before)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        names = [nodes[v].name[:40] for v in error.args[1][:6]]
        fail(f"the edges form a cycle: {' > '.join(names)}", where)
    ready = list(sorter.get_ready())
    heapq.heapify(ready)
    found = []
    while ready:
        node = heapq.heappop(ready)
        found.append(node)
        sorter.done(node)
        for other in sorter.get_ready():
            heapq.heappush(ready, other)
    return tuple(found)


def _node(value: object, where: str) -> Group:
    keys = ("name", "time_us", "energy_uj", "out_us", "weight_bytes")
    node = record(value, where, keys, ("name", "time_us"))
    return Group(
        name(node["name"], f"{where}.name"),
        _numbers(node["time_us"], f"{where}.time_us", KINDS),
        _numbers(_given(node, "energy_uj", {}), f"{where}.energy_uj", KINDS),
        _numbers(_given(node, "out_us", {}), f"{where}.out_us", DIRECTIONS),
        integer(_given(node, "weight_bytes", 0), f"{where}.weight_bytes"),
    )


def _numbers(value: object, where: str, keys: tuple[str, ...]) -> dict[str, float]:
    found = record(value, where, keys)
    return {key: number(found[key], f"{where}.{key}") for key in keys if key in found}
