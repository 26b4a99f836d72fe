"""``edgekit.problem/1`` in, ``edgekit.solution/1`` out: the solver without a network's file.
Reads the JSON strictly, states it as a problem, solves it for any objective (makespan
included), and says which constraints conflict where nothing keeps them all.
"""

from __future__ import annotations

import difflib
import graphlib
import heapq
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from edgekit.errors import DataError, GateError
from edgekit.files import parse_json, read_file
from edgekit.solver.cpsat.makespan import schedule_once
from edgekit.solver.cpsat.running_order import solve_steps
from edgekit.solver.optimiser import minimise, smallest_conflict
from edgekit.solver.problem import (
    OPTIMAL_GAP,
    Border,
    Cost,
    Effort,
    Goal,
    MemoryPool,
    Mode,
    PlacementProblem,
    Placing,
    Transfer,
    metrics,
)

SOLUTION_SCHEMA = "edgekit.solution/1"
ROUNDING = 1e-9  # relative, by which a metric may exceed its bound
TIGHTER = 4e-6  # relative: the solver keeps bounds to half of it
_LARGEST = 64 << 20
PROBLEM_SCHEMA = "edgekit.problem/1"
KINDS = ("GPU", "DLA")
DIRECTIONS = ("GPU>DLA", "DLA>GPU", "DLA>DLA")
OBJECTIVES = ("latency", "makespan", "period", "energy")
BOUNDS = ("energy_uj", "latency_us")
MOST_DEVICES = 9
MOST_NETWORKS = 64
MOST_NODES = 10_000
MOST_EDGES = 100_000
LONGEST_NAME = 1000
LARGEST = 1e12  # microseconds: eleven days; sums of a thousand keep a millionth
LARGEST_BYTES = 2**50
TimesOfAll = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def solve_document(
    document: object,
    *,
    seconds: float = 60.0,
    progress: Callable[[float, float], None] | None = None,
) -> dict[str, Any]:
    """Solves an abstract placement problem.

    Args:
        document: An ``edgekit.problem/1`` as ``json.load`` returns it; see docs/problems.md.
        seconds: Of search, as :func:`edgekit.solver.optimiser.minimise` counts them, and by the
            clock, but for a makespan; the answer then carries its bound and gap.
        progress: Called with the best value so far and the proven bound.

    Returns:
        An ``edgekit.solution/1``. Its times are predictions of the document's model.

    Raises:
        DataError: The document is not as the contract says (code ``problem.invalid``).
        GateError: No placement keeps its constraints (code ``plan.infeasible``), or none was
            found in time (``plan.unsolved``).
    """
    read = parse_document(document)
    problem, places = to_problem(read)
    if read.objective == "makespan":
        found, bound, value, times, clocked = minimise_makespan(
            read, problem, places, seconds, progress
        )
        if found is None:
            raise _refused(read, bound == float("inf"), seconds)
        placing = found
    else:
        placing, bound, clocked = _minimised(read, problem, seconds, progress)
        value = placing.value
        times = in_sequence(read, problem, places, placing)
    gap = (value - bound) / value if value > bound else 0.0
    assignment: dict[str, dict[str, str]] = {net.name: {} for net in read.networks}
    place_of = {place: i for i, place in enumerate(places.nodes)}
    for number, net in enumerate(read.networks):
        for v, node in enumerate(net.nodes):
            device = problem.device(placing.modes[place_of[number, v]])
            assignment[net.name][node.name] = read.devices[device]
    items, transfers = times
    notes = (
        ["the time limit ended the search, so another run may find another result"]
        if clocked
        else []
    )
    return {
        "schema": SOLUTION_SCHEMA,
        "objective": read.objective,
        "clock": "predicted",
        "value": value,
        "bound": min(bound, value),
        "gap": gap,
        "optimal": gap <= OPTIMAL_GAP,
        "assignment": assignment,
        "loadable_of": loadable_numbers(read, problem, places, placing),
        "schedule": items,
        "transfers": transfers,
        **({"notes": notes} if notes else {}),
    }


def _minimised(
    read: ProblemDocument,
    problem: PlacementProblem,
    seconds: float,
    progress: Callable[[float, float], None] | None,
) -> tuple[Placing, float, bool]:
    """Returns the best placement found, the proven bound, and whether the clock ended the search.

    All searches together take ``seconds``, counted or by the clock, whichever ends first.
    """
    goal = Goal.of(problem, read.objective, read.bounds)
    effort = Effort(seconds, seconds=seconds)
    found = minimise(problem, goal, effort=effort, progress=progress)
    placing, bound = found.placing, found.bound
    if placing is not None and not _keeps(problem, placing, goal):
        # Over by the solver's tolerance: the best one that keeps the bound to the letter.
        bounds = {name: limit * (1 - TIGHTER) for name, limit in goal.bounds.items()}
        placing = minimise(problem, replace(goal, bounds=bounds), effort=effort).placing
        if placing is None:  # what is just at the bound: the steps count in integers
            exact = solve_steps(problem, goal, lower=max(bound, 0.0), effort=effort)
            placing, bound = exact.placing, max(bound, exact.bound)
    if placing is None:
        raise _refused(read, bound == float("inf"), seconds)
    return placing, bound, effort.clocked


def _keeps(problem: PlacementProblem, placing: Placing, goal: Goal) -> bool:
    have = metrics(problem, placing.load_us, placing.energy_uj)
    return all(have[name] <= limit * (1 + ROUNDING) for name, limit in goal.bounds.items())


def _refused(read: ProblemDocument, proven: bool, seconds: float) -> GateError:
    if not proven:
        return GateError(
            f"no placement was found within {seconds:g} s, but one may exist",
            code="plan.unsolved",
            hint="give more time or fewer constraints",
        )
    names, message, hint = document_conflict(read, seconds)
    error = GateError(
        message,
        code="plan.infeasible",
        where=names[0].partition(" ")[0] if names else "",
        hint=hint,
    )
    error.extra = {"conflict": list(names)}
    return error


def read_document(path: Path) -> object:
    """Returns the JSON in a file.

    Raises:
        DataError: The file cannot be read (code ``problem.unreadable``) or is no JSON
            (``problem.invalid``).
    """
    try:
        raw = read_file(path, _LARGEST)
    except OSError as error:
        raise DataError(
            f"cannot read the problem: {error.strerror or error}",
            code="problem.unreadable",
            where=str(path),
            hint="give a JSON file with schema edgekit.problem/1",
        ) from error
    try:
        return parse_json(
            raw.decode("utf-8-sig"), object_pairs_hook=_unique_keys, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        fail(f"not JSON: {error.msg}", f"{path}:{error.lineno}:{error.colno}")
    except UnicodeDecodeError:
        fail("not JSON: the file is not UTF-8 text", str(path))
    except RecursionError:
        fail("arrays or objects are nested too deeply", str(path))
    except ValueError as error:  # a number of thousands of digits, and what _once and _constant say
        fail(f"not JSON: {error}", str(path))


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!a} is used twice in one object")
    return found


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def fail(message: str, where: str, hint: str = "") -> NoReturn:
    """Raises the error of a wrong document (DataError, code ``problem.invalid``)."""
    raise DataError(message, code="problem.invalid", where=where or "the document", hint=hint)


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    words = {bool: "true or false", str: "a string", list: "an array", dict: "an object"}
    return words.get(type(value), "a number" if isinstance(value, int | float) else "something")


def check_name(value: object, where: str) -> str:
    """Returns a string that can be printed and is not empty."""
    if not isinstance(value, str):
        fail(f"expected a string, got {_json_type(value)}", where)
    if not value or len(value) > LONGEST_NAME:
        fail(f"a name must have 1 to {LONGEST_NAME} characters", where)
    if not value.isprintable():
        fail("the name contains unprintable characters", where)
    return value


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node: its times and energies by kind of device, what its tensor costs by direction."""

    name: str
    time_us: Mapping[str, float]
    energy_uj: Mapping[str, float]
    out_us: Mapping[str, float]
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class NetworkEntry:
    """A network: nodes as listed, edges by their indices, and ``order``, a topological one."""

    name: str
    nodes: tuple[NodeEntry, ...]
    edges: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    max_transitions: int | None
    contiguous: bool


@dataclass(frozen=True, slots=True)
class ProblemDocument:
    """A whole document; None is no limit."""

    devices: tuple[str, ...]
    networks: tuple[NetworkEntry, ...]
    transfer_on: str
    launch_us: float
    max_loadables: int | None
    weight_bytes: int | None
    objective: str
    bounds: Mapping[str, float]


def parse_document(value: object) -> ProblemDocument:
    """Returns a document whose every value was checked.

    Raises:
        DataError: Something in it is not as the contract says (code ``problem.invalid``, where
            as in ``networks[0].nodes[3].time_us.DLA``).
    """
    keys = ("schema", "devices", "networks", "transfer_on", "loadable", "objective", "bounds")
    top = check_object(value, "", keys, ("schema", "devices", "networks"))
    if top["schema"] != PROBLEM_SCHEMA:
        check_choice(top["schema"], (PROBLEM_SCHEMA,), "schema", "schema")
    devices = _devices(top["devices"])
    listed = check_array(top["networks"], "networks", MOST_NETWORKS, 1)
    networks = tuple(_network(net, f"networks[{i}]") for i, net in enumerate(listed))
    _different([net.name for net in networks], "networks[{}].name")
    if sum(len(net.nodes) for net in networks) > MOST_NODES:
        fail(f"too many nodes (limit {MOST_NODES})", "networks")
    loadable = check_object(
        _given(top, "loadable", {}), "loadable", ("launch_us", "max", "weight_bytes")
    )
    most, weight = loadable.get("max"), loadable.get("weight_bytes")
    bounds = check_object(_given(top, "bounds", {}), "bounds", BOUNDS)
    return ProblemDocument(
        devices,
        networks,
        check_choice(_given(top, "transfer_on", "GPU"), ("GPU", "delay"), "transfer_on", "place"),
        check_number(_given(loadable, "launch_us", 0), "loadable.launch_us"),
        None if most is None else check_integer(most, "loadable.max"),
        None if weight is None else check_integer(weight, "loadable.weight_bytes"),
        check_choice(_given(top, "objective", "latency"), OBJECTIVES, "objective", "objective"),
        {
            key: check_number(bounds[key], f"bounds.{key}")
            for key in BOUNDS
            if bounds.get(key) is not None
        },
    )


def _given(record: Mapping[str, Any], key: str, default: Any) -> Any:
    value = record.get(key)
    return default if value is None else value


def _devices(value: object) -> tuple[str, ...]:
    devices = [
        check_name(device, f"devices[{i}]")
        for i, device in enumerate(check_array(value, "devices", MOST_DEVICES, 1))
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
            fail(f'the name "{own}" is already used by {where.format(seen[own])}', where.format(i))
        seen[own] = i


def _network(value: object, where: str) -> NetworkEntry:
    keys = ("name", "nodes", "edges", "max_transitions", "contiguous")
    net = check_object(value, where, keys, ("name", "nodes"))
    listed = check_array(net["nodes"], f"{where}.nodes", MOST_NODES, 1)
    nodes = tuple(_node(node, f"{where}.nodes[{i}]") for i, node in enumerate(listed))
    _different([node.name for node in nodes], where + ".nodes[{}].name")
    edges = [(i, i + 1) for i in range(len(nodes) - 1)]
    if net.get("edges") is not None:
        pairs = check_array(net["edges"], f"{where}.edges", MOST_EDGES)
        edges = [_edge(pair, f"{where}.edges[{i}]", len(nodes)) for i, pair in enumerate(pairs)]
    most = net.get("max_transitions")
    contiguous = _given(net, "contiguous", False)
    if not isinstance(contiguous, bool):
        fail("expected true or false", f"{where}.contiguous")
    return NetworkEntry(
        check_name(net["name"], f"{where}.name"),
        nodes,
        tuple(sorted(set(edges))),
        _order(nodes, edges, f"{where}.edges"),
        None if most is None else check_integer(most, f"{where}.max_transitions"),
        contiguous,
    )


def _edge(value: object, where: str, count: int) -> tuple[int, int]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        fail("an edge must be a pair of node indices [from, to]", where)
    ends = [check_integer(end, f"{where}[{i}]") for i, end in enumerate(value)]
    for i, end in enumerate(ends):
        if end >= count:
            fail(f"node {end} does not exist (the last is {count - 1})", f"{where}[{i}]")
    return ends[0], ends[1]


def _order(
    nodes: tuple[NodeEntry, ...], edges: list[tuple[int, int]], where: str
) -> tuple[int, ...]:
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


def _node(value: object, where: str) -> NodeEntry:
    keys = ("name", "time_us", "energy_uj", "out_us", "weight_bytes")
    node = check_object(value, where, keys, ("name", "time_us"))
    return NodeEntry(
        check_name(node["name"], f"{where}.name"),
        _numbers(node["time_us"], f"{where}.time_us", KINDS),
        _numbers(_given(node, "energy_uj", {}), f"{where}.energy_uj", KINDS),
        _numbers(_given(node, "out_us", {}), f"{where}.out_us", DIRECTIONS),
        check_integer(_given(node, "weight_bytes", 0), f"{where}.weight_bytes"),
    )


def _numbers(value: object, where: str, keys: tuple[str, ...]) -> dict[str, float]:
    found = check_object(value, where, keys)
    return {key: check_number(found[key], f"{where}.{key}") for key in keys if key in found}


def check_object(
    value: object, where: str, keys: Collection[str], required: Collection[str] = ()
) -> Mapping[str, Any]:
    """Returns an object that has no keys but ``keys`` and all of ``required``."""
    if not isinstance(value, Mapping):
        fail(f"expected an object, got {_json_type(value)}", where)
    for key in value:
        check_choice(key, keys, f"{where}.{key}".lstrip("."), "key")
    for key in required:
        if key not in value:
            fail(f'the key "{key}" is missing', where)
    return value


def check_choice(value: object, names: Collection[str], where: str, what: str) -> str:
    """Returns a string that is one of ``names``."""
    if isinstance(value, str) and value in names:
        return value
    shown = f'"{_short(value)}"' if isinstance(value, str) else _json_type(value)
    near = difflib.get_close_matches(value[:60], names, n=1) if isinstance(value, str) else []
    fail(
        f"unknown {what} {shown}",
        where if len(where) < 200 else where[:200] + "...",
        f'did you mean "{near[0]}"?' if near else f"known are {', '.join(names) or 'none'}",
    )


def check_array(value: object, where: str, most: int, least: int = 0) -> list[Any]:
    """Returns an array of ``least`` to ``most`` values."""
    if not isinstance(value, list | tuple):
        fail(f"expected an array, got {_json_type(value)}", where)
    if not least <= len(value) <= most:
        fail(f"{len(value)} values (allowed {least} to {most})", where)
    return list(value)


def check_number(value: object, where: str, most: float = LARGEST) -> float:
    """Returns a number from 0 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fail(f"expected a number, got {_json_type(value)}", where)
    if isinstance(value, float) and not math.isfinite(value):
        fail(f"expected a finite number, got {value}", where)
    if value < 0:
        fail("the number is negative", where, "give 0 or more")
    if value > most:
        fail(f"the number is too large (limit {most:g})", where, "check the unit")
    return float(value)


def check_integer(value: object, where: str, most: int = LARGEST_BYTES) -> int:
    """Returns a whole number from 0 to ``most``."""
    found = check_number(value, where, most)
    if found != int(found):
        fail("expected a whole number", where)
    return int(found)


def _short(text: str) -> str:
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= 60 else shown[:57] + "..."


@dataclass(frozen=True, slots=True)
class DocumentIndex:
    """Where the document's names went.

    Attributes:
        nodes: By node of the problem, its network and its index there.
        directions: By border and transfer, the kinds of device, such as ("GPU", "DLA").
    """

    nodes: tuple[tuple[int, int], ...]
    directions: tuple[tuple[tuple[str, str], ...], ...]


def device_kind(device: str) -> str:
    """Returns GPU or DLA."""
    return device.rstrip("0123456789")


def to_problem(document: ProblemDocument) -> tuple[PlacementProblem, DocumentIndex]:
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
    problem = PlacementProblem(
        devices=document.devices,
        modes=tuple(Mode(d) for d in range(len(document.devices))),
        costs=tuple(costs),
        borders=tuple(borders),
        launch=tuple(
            _single(document, d, document.launch_us) if device_kind(device) == "DLA" else None
            for d, device in enumerate(document.devices)
        ),
        max_loadables=document.max_loadables,
        pools=() if limit is None else (MemoryPool("weight_bytes", float(limit), weights),),
        network_of=tuple(number for number, _ in nodes),
        max_transitions=tuple(net.max_transitions for net in document.networks),
        contiguous=tuple(net.contiguous for net in document.networks),
    )
    return problem, DocumentIndex(tuple(nodes), tuple(directions))


def _cost(document: ProblemDocument, net: NetworkEntry, v: int, device: str) -> Cost | None:
    node = net.nodes[v]
    if device_kind(device) not in node.time_us:
        return None
    at = document.devices.index(device)
    return _single(
        document,
        at,
        node.time_us[device_kind(device)],
        node.energy_uj.get(device_kind(device), 0.0),
    )


def _single(document: ProblemDocument, resource: int, us: float, energy_uj: float = 0.0) -> Cost:
    load = [0.0] * (len(document.devices) + 1)
    load[resource] = us
    return Cost(tuple(load), energy_uj)


def _readers(net: NetworkEntry) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for before, after in net.edges:
        found.setdefault(before, []).append(after)
    return found


def _transfer(document: ProblemDocument, way: str, us: float) -> Transfer:
    source, goal = way[:3], way[4:]
    devices = list(enumerate(document.devices))
    pairs = frozenset(
        (a, b)
        for a, one in devices
        for b, other in devices
        if a != b and device_kind(one) == source and device_kind(other) == goal
    )
    on_gpu = document.transfer_on == "GPU" and "GPU" in document.devices
    resource = document.devices.index("GPU") if on_gpu else len(document.devices)
    return Transfer(pairs, (_single(document, resource, us),))


def loadable_numbers(
    read: ProblemDocument, problem: PlacementProblem, places: DocumentIndex, placing: Placing
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


def in_sequence(
    read: ProblemDocument, problem: PlacementProblem, places: DocumentIndex, placing: Placing
) -> TimesOfAll:
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
                node_name(read, places, border.producer)
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
                node_name(read, places, v)
                | {"device": read.devices[step.device], "start_us": begin, "end_us": clock}
            )
    return items, transfers


def node_name(read: ProblemDocument, places: DocumentIndex, v: int) -> dict[str, Any]:
    """Returns a node's network and name."""
    number, node = places.nodes[v]
    net = read.networks[number]
    return {"network": net.name, "node": net.nodes[node].name}


def minimise_makespan(
    read: ProblemDocument,
    problem: PlacementProblem,
    places: DocumentIndex,
    seconds: float,
    progress: Callable[[float, float], None] | None = None,
) -> tuple[Placing | None, float, float, TimesOfAll, bool]:
    """Returns the placement, the proven bound, the makespan, and when everything runs.

    Also whether the wall clock ended the search.
    """
    found = schedule_once(problem, bounds=read.bounds, seconds=seconds, progress=progress)
    items = [
        node_name(read, places, item.node)
        | {
            "device": read.devices[item.device],
            "start_us": item.start_us,
            "end_us": item.end_us,
        }
        for item in found.items
    ]
    transfers = []
    for sent in found.transfers:
        source, goal = places.directions[sent.border][sent.transfer]
        transfers.append(
            node_name(read, places, problem.borders[sent.border].producer)
            | {"from": source, "to": goal, "start_us": sent.start_us, "end_us": sent.end_us}
        )
    return found.placing, found.bound, found.value, (items, transfers), found.clocked


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A constraint: where it stands, as it is written, and the metric that it bounds."""

    where: str
    text: str
    metric: str = ""


def document_conflict(read: ProblemDocument, seconds: float) -> tuple[tuple[str, ...], str, str]:
    """Returns the constraints that conflict (smallest set), a sentence, and a hint.

    Args:
        read: A document without any placement.
        seconds: Of search, as ``minimise`` counts them, for all of them together.
    """
    for i, net in enumerate(read.networks):
        for j, node in enumerate(net.nodes):
            if not any(device_kind(device) in node.time_us for device in read.devices):
                where = f"networks[{i}].nodes[{j}].time_us"
                known = ", ".join(node.time_us) or "none"
                return (
                    (where,),
                    (
                        f'node "{node.name}" cannot run on any device: it has times for {known}, '
                        f"but the devices are {', '.join(read.devices)}"
                    ),
                    f"add a time on one of the devices to {where}",
                )
    constraints = _constraints(read)
    effort = Effort(seconds)
    found, _ = smallest_conflict(constraints, lambda some: _impossible(read, some, effort))
    names = tuple(constraint.text for constraint in found)
    if not names:
        return (), "no placement meets all constraints", "relax the constraints"
    best = ""
    if len(found) == 1 and found[0].metric:
        best = _best(read, found[0], effort)
    together = "cannot be met" if len(names) == 1 else "cannot be met together"
    return names, f"{' and '.join(names)} {together}{best}", "relax one of them"


def _constraints(read: ProblemDocument) -> list[_Constraint]:
    found = [
        _Constraint(f"bounds.{name}", f"bounds.{name} = {limit:g}", name)
        for name, limit in read.bounds.items()
    ]
    if read.max_loadables is not None:
        found.append(_Constraint("loadable.max", f"loadable.max = {read.max_loadables}"))
    if read.weight_bytes is not None:
        found.append(
            _Constraint("loadable.weight_bytes", f"loadable.weight_bytes = {read.weight_bytes}")
        )
    for i, net in enumerate(read.networks):
        where = f"networks[{i}]"
        if net.max_transitions is not None:
            text = f"{where}.max_transitions = {net.max_transitions}"
            found.append(_Constraint(f"{where}.max_transitions", text))
        if net.contiguous:
            found.append(_Constraint(f"{where}.contiguous", f"{where}.contiguous = true"))
    return found


def _with_only(read: ProblemDocument, constraints: Sequence[_Constraint]) -> ProblemDocument:
    """Returns the document with these constraints and no others."""
    places = {constraint.where for constraint in constraints}
    networks = tuple(
        replace(
            net,
            max_transitions=net.max_transitions
            if f"networks[{i}].max_transitions" in places
            else None,
            contiguous=f"networks[{i}].contiguous" in places,
        )
        for i, net in enumerate(read.networks)
    )
    return replace(
        read,
        networks=networks,
        bounds={name: us for name, us in read.bounds.items() if f"bounds.{name}" in places},
        max_loadables=read.max_loadables if "loadable.max" in places else None,
        weight_bytes=read.weight_bytes if "loadable.weight_bytes" in places else None,
    )


def _impossible(read: ProblemDocument, constraints: Sequence[_Constraint], effort: Effort) -> bool:
    problem, _ = to_problem(_with_only(read, constraints))
    bounds = {
        constraint.metric: read.bounds[constraint.metric]
        for constraint in constraints
        if constraint.metric
    }
    found = minimise(
        problem, Goal.of(problem, "latency", bounds), effort=effort.part(effort.left / 4)
    )
    return found.placing is None and found.bound == inf


def _best(read: ProblemDocument, bound: _Constraint, effort: Effort) -> str:
    problem, _ = to_problem(_with_only(read, ()))
    objective = {"latency_us": "latency", "energy_uj": "energy"}[bound.metric]
    placing = minimise(problem, Goal.of(problem, objective), effort=effort).placing
    return f"; the lowest possible value is {placing.value:g}" if placing else ""
