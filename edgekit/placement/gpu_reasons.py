"""The reasons for all layers on the GPU: broken rules of the DLA, and the costs of layers that
could run on a DLA.

``explain_layer`` tests one layer by solving again; this module compares each kernel's time alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.dla.verdicts import Judgement
from edgekit.documents import Count, Document
from edgekit.error_document import VerdictReason
from edgekit.network.layer_names import layers_matching
from edgekit.network.model import Network
from edgekit.placement.forecast import make_timer
from edgekit.placement.plan import Plan
from edgekit.targets.board import Target

_FIX = "explain one layer with: edgekit plan CONFIG --why LAYER"
_SOURCE = "predicted by edgekit's cost model, each kernel alone"


class WhyLayer(Document):
    """A layer against a rule."""

    name: str
    message: str
    found: str
    limit: str


class Why(Document):
    """A rule with the layers that it keeps off the DLA.

    Attributes:
        count: Number of layers that the rule keeps off the DLA.
    """

    rule: str
    count: Count
    sources: list[str]
    fixes: list[str]
    layers: list[WhyLayer]


def gpu_reasons(plan: Plan, network: Network, judgement: Judgement, target: Target) -> list[Why]:
    """Returns the reasons by kind, the most frequent first, with their layers.

    It covers only layers of the first plan that a DLA could run.
    """
    able = {name for name, verdict in judgement.verdicts.items() if verdict.placeable}
    there = [x.name for x in plan.layers if x.device == "GPU" and x.name in able]
    if not there or not target.dla.cores:
        return []
    # a mix can have the layer on a DLA in other frames
    elsewhere: dict[str, set[str]] = {}
    for share in plan.plans[1:]:
        for layer in share.layers:
            if layer.device != "GPU":
                elsewhere.setdefault(layer.name, set()).add(layer.device)
    sides = _times_by_device(plan, network, judgement, target)
    pins: dict[str, str] = {}
    for pin in plan.constraints.pins:  # a later pin wins
        pins.update(dict.fromkeys(layers_matching(network, pin.layers), pin.layers))
    groups: dict[str, list[WhyLayer]] = {}
    for name in there:
        others = sorted(elsewhere.get(name, ()))
        rule, message, found, limit = _reason(plan, pins.get(name), others, sides.get(name))
        why = WhyLayer(name=name, message=message, found=found, limit=limit)
        groups.setdefault(rule, []).append(why)
    return [
        Why(rule=rule, count=len(layers), sources=[_SOURCE], fixes=[_FIX], layers=layers)
        for rule, layers in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def why_not(judgement: Judgement) -> list[Why]:
    """Returns the reasons against the DLA by rule, the most frequent rule first.

    A fix or source that differs between layers of one rule is listed with the layer.
    """
    groups: dict[str, list[tuple[str, VerdictReason]]] = {}
    for name, verdict in judgement.verdicts.items():
        if not verdict.placeable:
            for reason in verdict.reasons:
                groups.setdefault(reason.rule, []).append((name, reason))
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [
        Why(
            rule=rule,
            count=len({layer for layer, _ in found}),
            sources=list(dict.fromkeys(reason.source for _, reason in found)),
            fixes=list(dict.fromkeys(reason.fix for _, reason in found if reason.fix)),
            layers=[
                WhyLayer(name=layer, message=reason.message, found=reason.found, limit=reason.limit)
                for layer, reason in found
            ],
        )
        for rule, found in ordered
    ]


def _times_by_device(
    plan: Plan, network: Network, judgement: Judgement, target: Target
) -> Mapping[str, tuple[float, float]]:
    try:
        clock = make_timer(network, judgement, target, power_mode=plan.power_mode)
    except (KeyError, ValueError):  # a network with unknown tensors
        clock = None
    return clock.times_by_device() if clock else {}


def _reason(
    plan: Plan, pin: str | None, others: Sequence[str], sides: tuple[float, float] | None
) -> tuple[str, str, str, str]:
    """Returns the reason's kind and sentence, the found value and its reference value."""
    limits = plan.constraints
    # the first that applies decides: constraints, then costs
    if pin is not None:
        return "pinned to the GPU", f"pin {pin} puts it on the GPU", pin, ""
    if not limits.dla_cores:
        return "no DLA core is allowed", "dla_cores is empty", "none", ""
    if plan.precision == "fp32":
        return "FP32 runs only on the GPU", "a DLA has no FP32", "FP32", "INT8 or FP16"
    if others:
        text = f"in other frames it runs on {' or '.join(others)}: the devices share the load"
        return "on a DLA in other frames", text, ", ".join(others), ""
    if sides is None:
        return "the best plan puts it there", f"best for {plan.objective}", "", ""
    gpu, dla = sides
    times = f"{dla:.3g} µs on the DLA", f"{gpu:.3g} µs on the GPU"
    if not gpu and not dla:
        return (
            "it takes no time of its own",
            "it belongs to the layers around it, which are on the GPU",
            *times,
        )
    if plan.objective == "gpu_time":
        return (
            "reformats would take longer",
            "the GPU would need longer for the reformats than for the layer",
            *times,
        )
    if plan.objective in ("throughput", "period"):
        return (
            "the devices share the load",
            "the work is shared so that no device waits for another",
            *times,
        )
    if dla > gpu:
        return (
            "slower on the DLA",
            "it takes longer on the DLA than on the GPU",
            *times,
        )
    return (
        "the transition costs more",
        "it is not slower on the DLA, but starting a loadable and transferring its "
        f"tensors would cost more {plan.objective}",
        *times,
    )
