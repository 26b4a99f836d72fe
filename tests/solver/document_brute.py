"""A checker and a brute force for problem documents, in the documents' own terms.

Both know JSON only, nothing of the solver: they are written from docs/problems.md.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

Json = dict[str, Any]
CLOSE = 1e-6


def kind(device: str) -> str:
    return "DLA" if device.startswith("DLA") else "GPU"


def edges_of(net: Json) -> list[tuple[int, int]]:
    edges = net.get("edges")
    if edges is None:
        return [(i, i + 1) for i in range(len(net["nodes"]) - 1)]
    return [(a, b) for a, b in edges]


def transfers(net: Json, devices: list[str]) -> list[tuple[int, str, float]]:
    """Returns node, direction and time of every transfer that an assignment pays."""
    found = []
    for v, node in enumerate(net["nodes"]):
        readers = [devices[b] for a, b in edges_of(net) if a == v]
        ways = {f"{kind(devices[v])}>{kind(d)}" for d in readers if d != devices[v]}
        found += [(v, way, node.get("out_us", {}).get(way, 0.0)) for way in sorted(ways)]
    return found


def costs(document: Json, chosen: list[list[str]], counts: dict[str, int]) -> dict[str, float]:
    """Returns latency, period and energy of an assignment by network with loadables by device."""
    load = dict.fromkeys(document["devices"], 0.0)
    delay = energy = 0.0
    for net, devices in zip(document["networks"], chosen, strict=True):
        for node, device in zip(net["nodes"], devices, strict=True):
            load[device] += node["time_us"][kind(device)]
            energy += node.get("energy_uj", {}).get(kind(device), 0.0)
        for _, _, us in transfers(net, devices):
            if document.get("transfer_on", "GPU") == "GPU" and "GPU" in load:
                load["GPU"] += us
            else:
                delay += us
    for device, count in counts.items():
        load[device] += count * document.get("loadable", {}).get("launch_us", 0.0)
    total = sum(load.values()) + delay
    return {"latency": total, "period": max(load.values()), "energy": energy}


def _orders(document: Json, net: Json, devices: list[str]) -> set[tuple[int, ...]]:
    """Returns the loadables by device of every allowed running order with its cuts."""
    names, limits = document["devices"], document.get("loadable", {})
    count, edges = len(devices), edges_of(net)
    before = [{a for a, b in edges if b == v} for v in range(count)]
    weights = [node.get("weight_bytes", 0) for node in net["nodes"]]
    most = net.get("max_transitions")
    heaviest = limits.get("weight_bytes")
    heaviest = math.inf if heaviest is None else heaviest

    @cache
    def rest(
        done: frozenset[int], last: str, held: int, changes: int, seen: frozenset[str]
    ) -> frozenset[tuple[int, ...]]:
        if len(done) == count:
            return frozenset({(0,) * len(names)})
        found = set()
        for v in range(count):
            if v in done or before[v] - done:
                continue
            device = devices[v]
            changed = changes + (last not in ("", device))
            if most is not None and changed > most:
                continue
            if net.get("contiguous") and device != last and device in seen:
                continue
            core = kind(device) == "DLA"
            if core and weights[v] > heaviest:
                continue
            follow = []
            if core and device == last and held + weights[v] <= heaviest:
                follow.append((held + weights[v], 0))
            follow.append((weights[v] if core else 0, int(core)))
            for now, opened in follow:
                for tail in rest(done | {v}, device, now, changed, seen | {device}):
                    found.add(
                        tuple(
                            c + opened * (name == device)
                            for c, name in zip(tail, names, strict=True)
                        )
                    )
        least = [a for a in found if not any(b != a and _below(b, a) for b in found)]
        return frozenset(least)

    return set(rest(frozenset(), "", 0, 0, frozenset()))


def _below(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


def best(document: Json) -> float | None:
    """Returns the least latency, period or energy, or None when nothing is allowed."""
    options = []
    for net in document["networks"]:
        able = [
            [d for d in document["devices"] if kind(d) in node["time_us"]] for node in net["nodes"]
        ]
        options.append(
            [
                (list(devices), counts)
                for devices in itertools.product(*able)
                for counts in _orders(document, net, list(devices))
            ]
        )
    found = None
    most = document.get("loadable", {}).get("max")
    bounds = document.get("bounds", {})
    for choice in itertools.product(*options):
        totals = [sum(column) for column in zip(*(counts for _, counts in choice), strict=True)]
        if most is not None and max(totals) > most:
            continue
        counts = dict(zip(document["devices"], totals, strict=True))
        cost = costs(document, [devices for devices, _ in choice], counts)
        if cost["latency"] > bounds.get("latency_us", math.inf) + CLOSE:
            continue
        if cost["energy"] > bounds.get("energy_uj", math.inf) + CLOSE:
            continue
        value = cost[document["objective"]]
        found = value if found is None else min(found, value)
    return found


def check(document: Json, answer: Json) -> None:
    """Asserts that an answer keeps every constraint and is worth what it says."""
    limits = document.get("loadable", {})
    counts = dict.fromkeys(document["devices"], 0)
    chosen = []
    for net in document["networks"]:
        devices = [answer["assignment"][net["name"]][node["name"]] for node in net["nodes"]]
        chosen.append(devices)
        own = answer["loadable_of"][net["name"]]
        for node, device in zip(net["nodes"], devices, strict=True):
            assert kind(device) in node["time_us"]
            assert (node["name"] in own) == (kind(device) == "DLA")
        groups: dict[int, list[int]] = {}
        for v, node in enumerate(net["nodes"]):
            groups.setdefault(own.get(node["name"], -1 - v), []).append(v)
        loadables = sorted(number for number in groups if number >= 0)
        assert loadables == list(range(len(loadables)))
        for number in loadables:
            cores = {devices[v] for v in groups[number]}
            assert len(cores) == 1
            counts[cores.pop()] += 1
            weight = sum(net["nodes"][v].get("weight_bytes", 0) for v in groups[number])
            assert limits.get("weight_bytes") is None or weight <= limits["weight_bytes"]
        changes, broken = _fewest_changes(net, devices, groups)
        assert net.get("max_transitions") is None or changes <= net["max_transitions"]
        assert not (net.get("contiguous") and broken)
    assert limits.get("max") is None or max(counts.values()) <= limits["max"]
    cost = costs(document, chosen, counts)
    for name, limit in document.get("bounds", {}).items():
        assert cost[name.partition("_")[0]] <= limit * (1 + 1e-8) + 1e-9
    ends = [item["end_us"] for item in answer["schedule"]]
    if answer["objective"] == "makespan":
        assert math.isclose(answer["value"], max(ends), rel_tol=CLOSE)
    else:
        assert math.isclose(answer["value"], cost[answer["objective"]], rel_tol=CLOSE, abs_tol=1e-9)
        assert math.isclose(max(ends), cost["latency"], rel_tol=CLOSE, abs_tol=1e-9)
    assert answer["bound"] <= answer["value"]
    assert answer["optimal"] == (answer["gap"] <= 1e-4)
    _check_times(document, answer, chosen)


def _fewest_changes(
    net: Json, devices: list[str], groups: dict[int, list[int]]
) -> tuple[int, bool]:
    """Returns the fewest device changes of the groups' orders, and whether each breaks a run."""
    home = {v: number for number, nodes in groups.items() for v in nodes}
    before: dict[int, set[int]] = {number: set() for number in groups}
    for a, b in edges_of(net):
        if home[a] != home[b]:
            before[home[b]].add(home[a])
    device = {number: devices[nodes[0]] for number, nodes in groups.items()}

    @cache
    def rest(done: frozenset[int], last: str, seen: frozenset[str]) -> tuple[float, float]:
        if len(done) == len(groups):
            return 0, 0
        options = []
        for number in groups:
            if number not in done and not before[number] - done:
                to = device[number]
                changes, broken = rest(done | {number}, to, seen | {to})
                again = to != last and to in seen
                options.append((changes + (last not in ("", to)), max(broken, float(again))))
        return (
            (min(c for c, _ in options), min(b for _, b in options))
            if options
            else (math.inf, math.inf)
        )

    if len(groups) > 12:  # too many orders: the answer's own running order is checked instead
        return 0, False
    changes, broken = rest(frozenset(), "", frozenset())
    assert changes < math.inf  # the groups can be ordered
    return int(changes), broken > 0


def _check_times(document: Json, answer: Json, chosen: list[list[str]]) -> None:
    """Asserts that nothing overlaps, transfers are there, and everything waits for its input."""
    spans = {(i["network"], i["node"]): (i["start_us"], i["end_us"]) for i in answer["schedule"]}
    assert len(spans) == len(answer["schedule"])
    assert len(spans) == sum(map(len, chosen))
    busy: dict[str, list[tuple[float, float]]] = {device: [] for device in document["devices"]}
    for net, devices in zip(document["networks"], chosen, strict=True):
        own = [spans[net["name"], node["name"]] for node in net["nodes"]]
        for node, device, (begin, end) in zip(net["nodes"], devices, own, strict=True):
            assert math.isclose(end - begin, node["time_us"][kind(device)], abs_tol=1e-5)
            if kind(device) == "GPU":
                busy[device].append((begin, end))
        for a, b in edges_of(net):
            assert own[b][0] >= own[a][1] - 1e-5
        _check_transfers(net, devices, own, answer)
        loadable = answer["loadable_of"][net["name"]]
        for number in set(loadable.values()):
            inside = [v for v, n in enumerate(net["nodes"]) if loadable.get(n["name"]) == number]
            begin, end = min(own[v][0] for v in inside), max(own[v][1] for v in inside)
            work = sum(own[v][1] - own[v][0] for v in inside)
            assert math.isclose(end - begin, work, abs_tol=1e-4)  # unbroken
            begin -= document.get("loadable", {}).get("launch_us", 0.0)
            assert begin >= -1e-5
            busy[devices[inside[0]]].append((begin, end))
            for a, b in edges_of(net):
                if b in inside and a not in inside:
                    assert begin >= own[a][1] - 1e-5
    delayed = [(m["start_us"], m["end_us"]) for m in answer["transfers"]]
    if document.get("transfer_on", "GPU") == "GPU" and "GPU" in busy:
        busy["GPU"] += delayed
        delayed = []
    lanes = list(busy.values())
    if answer["objective"] != "makespan":
        lanes = [[*delayed, *(span for lane in lanes for span in lane)]]  # one after the other
    for lane in lanes:
        for (_, before), (after, _) in itertools.pairwise(sorted(lane)):
            assert after >= before - 1e-5


def _check_transfers(
    net: Json, devices: list[str], own: list[tuple[float, float]], answer: Json
) -> None:
    names = [node["name"] for node in net["nodes"]]
    made = [m for m in answer["transfers"] if m["network"] == net["name"]]
    due = [(v, way, us) for v, way, us in transfers(net, devices) if us]
    assert len(made) == len(due)
    for v, way, us in due:
        found = [m for m in made if m["node"] == names[v] and f"{m['from']}>{m['to']}" == way]
        assert len(found) == 1
        assert math.isclose(found[0]["end_us"] - found[0]["start_us"], us, abs_tol=1e-5)
        assert found[0]["start_us"] >= own[v][1] - 1e-5
        for a, b in edges_of(net):
            if a == v and devices[b] != devices[v] and kind(devices[b]) == way[4:]:
                assert own[b][0] >= found[0]["end_us"] - 1e-5
