"""A problem document in the solver's terms."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.solver._document_read import Document, Net
from edgekit.solver._problem import Border, Cost, Mode, Pool, Problem, Transfer

__all__ = ["Places", "kind", "to_problem"]


@dataclass(frozen=True, slots=True)
class Places:
    """Where the document's names went.

    Attributes:
        nodes: By node of the problem, its network and its index there.
        directions: By border and transfer, the kinds of device, such as ("GPU", "DLA").
    """

    nodes: tuple[tuple[int, int], ...]
    directions: tuple[tuple[tuple[str, str], ...], ...]


def kind(device: str) -> str:
    """Returns GPU or DLA."""
    return device.rstrip("0123456789")


def to_problem(document: Document) -> tuple[Problem, Places]:
    """Returns the problem with one mode a device, and where its parts come from."""
    costs: list[tuple[Cost | None, ...]] = []
    borders: list[Border] = []
    nodes: list[tuple[int, int]] = []
    directions: list[tuple[tuple[str, str], ...]] = []
    for number, net in enumerate(document.networks):
        index = {v: len(nodes) + i for i, v in enumerate(net.order)}
        for v in net.order:
            nodes.append((number, v))
            costs.append(tuple(_cost(document, net, v, device) for device in document.devices))
        for v, readers in _readers(net).items():
            paid = [
                (way, transfer)
                for way, us in net.nodes[v].out_us.items()
                if us and (transfer := _transfer(document, way, us)).pairs
            ]
            users = tuple(sorted(index[w] for w in readers))
            borders.append(Border(index[v], users, tuple(transfer for _, transfer in paid)))
            directions.append(tuple((way[:3], way[4:]) for way, _ in paid))
    weights = tuple(float(document.networks[n].nodes[v].weight_bytes) for n, v in nodes)
    limit = document.weight_bytes
    problem = Problem(
        devices=document.devices,
        modes=tuple(Mode(d) for d in range(len(document.devices))),
        costs=tuple(costs),
        borders=tuple(borders),
        launch=tuple(
            _single(document, d, document.launch_us) if kind(device) == "DLA" else None
            for d, device in enumerate(document.devices)
        ),
        max_loadables=document.max_loadables,
        pools=() if limit is None else (Pool("weight_bytes", float(limit), weights),),
        network_of=tuple(number for number, _ in nodes),
        max_transitions=tuple(net.max_transitions for net in document.networks),
        contiguous=tuple(net.contiguous for net in document.networks),
    )
    return problem, Places(tuple(nodes), tuple(directions))


def _cost(document: Document, net: Net, v: int, device: str) -> Cost | None:
    node = net.nodes[v]
    if kind(device) not in node.time_us:
        return None
    at = document.devices.index(device)
    return _single(document, at, node.time_us[kind(device)], node.energy_uj.get(kind(device), 0.0))


def _single(document: Document, resource: int, us: float, energy_uj: float = 0.0) -> Cost:
    load = [0.0] * (len(document.devices) + 1)
    load[resource] = us
    return Cost(tuple(load), energy_uj)


def _readers(net: Net) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for before, after in net.edges:
        found.setdefault(before, []).append(after)
    return found


def _transfer(document: Document, way: str, us: float) -> Transfer:
    source, goal = way[:3], way[4:]
    devices = list(enumerate(document.devices))
    pairs = frozenset(
        (a, b)
        for a, one in devices
        for b, other in devices
        if a != b and kind(one) == source and kind(other) == goal
    )
    on_gpu = document.transfer_on == "GPU" and "GPU" in document.devices
    resource = document.devices.index("GPU") if on_gpu else len(document.devices)
    return Transfer(pairs, (_single(document, resource, us),))
