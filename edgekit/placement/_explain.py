"""Why a layer is where it is: its verdict, its costs, what binds it, and the other way."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from edgekit.errors import UsageError
from edgekit.network import Layer, Network
from edgekit.placement._ask import UNITS, Ask, plan_value
from edgekit.placement._booked import booked_layers
from edgekit.placement._explain_costs import Costing
from edgekit.placement._explain_trials import SAME, Tell, Trials
from edgekit.placement._options import usable_cores
from edgekit.placement._types import Plan

__all__ = ["explain_layer", "find_layer"]

SCHEMA = "edgekit.why/1"


def explain_layer(ask: Ask, plan: Plan, name: str, progress: Tell | None = None) -> dict[str, Any]:
    """Returns an ``edgekit.why/1``: the reasons for a layer's place.

    Args:
        ask: What was asked.
        plan: The plan that came of it.
        name: A layer, or an ONNX node that it stands for.
        progress: Called with (placements tried, placements in all).

    Raises:
        UsageError: "layer.unknown": there is neither; the nearest name is in the hint.
    """
    layer = find_layer(ask.network, name)
    placed = next(one for one in plan.layers if one.name == layer.name)
    verdict = ask.judgement.verdicts[layer.name]
    cores = usable_cores(ask.options, ask.target, ask.precision)
    costing = _costing(ask, plan)
    kernel = costing.kernel_of(layer.name)
    members = [ask.network.layers[i].name for i in kernel.layers]
    other = "GPU" if placed.device != "GPU" else f"DLA{cores[0]}" if cores else ""
    blocked = _blocked(ask, members, other, cores)
    trials = Trials(ask, plan, layer.name, members, progress)
    binds = trials.binding()
    document = {
        "schema": SCHEMA,
        "layer": layer.name,
        "nodes": list(layer.nodes),
        "kind": layer.kind,
        "target": plan.target,
        "power_mode": plan.power_mode,
        "precision": plan.precision,
        "objective": plan.objective,
        "value": plan_value(plan),
        "unit": UNITS[plan.objective],
        "clock": "predicted",
        "device": placed.device,
        "shares": _shares(plan, layer.name),
        "dla": verdict.to_json(),
        "kernel": members,
        "planned_us": sum(
            one.predicted_us
            for one in booked_layers(plan.plans[0], ask.network)
            if one.name in members
        ),
        "costs": costing.costs(kernel, "GPU")
        + [
            row
            for core in cores
            if verdict.placeable
            for row in costing.costs(kernel, f"DLA{core}")
        ],
        "launch_us": costing.model.launch_us() if cores else None,
        "borders": costing.borders(kernel, {x.name: x.device for x in plan.layers}, other)
        if other and verdict.placeable
        else [],
        "binds": binds,
        "alone": trials.alone(other, blocked),
        "otherwise": trials.otherwise(other, blocked),
    }
    document["because"] = _because(document, blocked)
    return document


def find_layer(network: Network, name: str) -> Layer:
    """Returns a layer by its name or an ONNX node's; UsageError "layer.unknown" without one."""
    layers = network.layers
    for fits in (lambda x: name == x.name, lambda x: name in x.nodes, lambda x: name in x.origin):
        found = next((layer for layer in layers if fits(layer)), None)
        if found is not None:
            return found
    known = list(dict.fromkeys(one for x in layers for one in (x.name, *x.origin)))
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    near = near or [one for one in known if name.lower() in one.lower()][:3]
    raise UsageError(
        f"there is no layer or ONNX node called {name!r}",
        code="layer.unknown",
        where=network.name,
        hint=f"did you mean {' or '.join(near)}?"
        if near
        else "`edgekit check --by-layer` lists the layers",
    )


def _costing(ask: Ask, plan: Plan) -> Costing:
    prepared = ask.prepared()
    request, own = prepared.request, plan.plans[0].predicted or plan.predicted
    others = (0.0,) * len(request.cores[1:])  # cores are alike
    load_us = (own.gpu_us, own.latency_us - own.gpu_us, *others)[: len(request.devices)]
    _, watts = request.model.energy(request.devices, load_us)
    by_device = dict(zip(request.devices, watts, strict=True))
    return Costing(ask.network, request.model, prepared.built, request.regions, by_device)


def _shares(plan: Plan, layer: str) -> dict[str, float]:
    """Returns the share of frames by device: a mix of plans may have a layer on several."""
    found: Counter[str] = Counter()
    for part in plan.plans:
        found[next(x.device for x in part.layers if x.name == layer)] += part.share  # type: ignore[assignment]
    return {device: round(float(share), 9) for device, share in sorted(found.items())}


def _blocked(ask: Ask, members: list[str], other: str, cores: tuple[int, ...]) -> str:
    """Returns why the other device is out of the question, or nothing."""
    if not other:
        if not ask.target.dla.cores:
            return f"{ask.target.name} has no DLA"
        if ask.precision == "fp32":
            return "FP32 does not run on a DLA"
        return "no DLA core may be used (dla_cores none)" if not cores else ""
    if other == "GPU":
        return "" if ask.options.gpu else "the plan is standalone, without the GPU"
    for name in members:
        verdict = ask.judgement.verdicts[name]
        if not verdict.placeable:
            return verdict.reasons[0].message if verdict.reasons else "a DLA cannot run it"
    return ""


def _because(document: Mapping[str, Any], blocked: str) -> list[str]:
    """Returns the reasons in sentences, the deciding one first."""
    told = []
    here, other = document["device"], document["otherwise"]
    if blocked:
        told.append(f"it cannot be elsewhere: {blocked}")
    told += [
        f"{bind['text']} holds it: without it, it would be on {_the(bind['device'])}"
        for bind in document["binds"]
        if bind["moves"] and bind["kind"] not in ("verdict", "together")
    ]
    if other["possible"]:
        worse = (
            other["difference"] if document["objective"] != "throughput" else -(other["difference"])
        )
        figure = "" if other["percent"] is None else f" by {_digits(abs(other['percent']))} %"
        if abs(worse) <= SAME * abs(document["value"]):
            told.append(f"on the {other['device']} the objective would be the same; ties go to "
                        "fewer transitions")  # fmt: skip
        else:
            word = "worse" if worse > 0 else "better"
            told.append(f"on {_the(other['device'])} {document['objective']} would be "
                        f"{word}{figure} (predicted)")  # fmt: skip
    elif other["reason"] and not blocked:
        told.append(f"it cannot be on {_the(other['device'])}: {other['reason']}")
    best = {row["device"]: row for row in reversed(document["costs"])}
    times = {device: row["us"] for device, row in best.items()}
    if len(times) > 1 and here in times:
        rival = min((d for d in times if d[:3] != here[:3]), default="", key=lambda d: times[d])
        if rival:
            told.append(f"its kernel takes {times[here]:.4g} µs on {_the(here)} "
                        f"({best[here]['clock']}) and {times[rival]:.4g} µs on {_the(rival)} "
                        f"({best[rival]['clock']})")  # fmt: skip
    alone = document["alone"]
    if alone:
        counts = [(alone[key], key) for key in ("transitions", "loadables", "reformats")]
        more = ", ".join(f"{count:+d} {name}" for count, name in counts if count)
        told.append(f"moved alone to {_the(other['device'])}, with all else in its place: "
                    f"{document['objective']} {_digits(alone['percent'] or 0, '+')} % (predicted)"
                    + (f"; {more}" if more else ""))  # fmt: skip
    paid = sum(row["us"] for row in document["borders"])
    would = sum(row["otherwise_us"] for row in document["borders"])
    if paid or would:
        told.append(f"reformats at its border take {paid:.4g} µs here and would take "
                    f"{would:.4g} µs on {_the(other['device'])} with its neighbours where "
                    "they are (predicted)")  # fmt: skip
    return told


def _digits(value: float, sign: str = "") -> str:
    """Returns three digits, or all before the point where there are more."""
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3g}"


def _the(device: str) -> str:
    return "the GPU" if device == "GPU" else device
