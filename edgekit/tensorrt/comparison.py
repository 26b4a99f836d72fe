"""The plan compared with what TensorRT made of it (`edgekit.built/1`): layers that the builder
placed elsewhere, and verdicts that its answers contradict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.buildlog.comparison import compare
from edgekit.buildlog.parser import parse_log
from edgekit.dla.verdicts import Judgement

if TYPE_CHECKING:
    from edgekit.network.model import Network
    from edgekit.placement.plan import PlacedLayer, Plan
    from edgekit.tensorrt.requests import RequestedLane
    from edgekit_device.build.request import BuildResult


SCHEMA = "edgekit.built/1"
_SHOWN = 5


def compare_build(
    network: Network,
    judgement: Judgement,
    plan: Plan,
    lanes: Sequence[RequestedLane],
    result: BuildResult,
    logs: Mapping[str, str],
) -> dict[str, Any]:
    """Returns an ``edgekit.built/1``: where the build differs from the plan.

    Three things are compared: what ``can_run_on_DLA`` answered with our verdict, layer by layer;
    where the builder's log says that layers went with the plan's devices; and the loadables, by
    the log and by the engine's own inspector, which lists each as one layer. At a border between
    segments whose format both sides have, a reformat that the inspector still shows counts as a
    difference.

    Args:
        network: The layer graph.
        judgement: Our verdicts.
        plan: What was requested.
        lanes: The engines of the request.
        result: The board's answer.
        logs: The builder's log by engine key; may lack some.
    """
    built = {one.key: one for one in result.engines}
    engines = []
    for number, lane in enumerate(lanes):
        placed = plan.plans[number].layers
        for engine in lane.engines:
            one = built[engine.key]
            capable = _capability(judgement, one.can_run_on_dla)
            own = {
                "key": engine.key,
                "device": engine.device,
                "capability": capable,
                "placement": None,
                "inspector": None,
                "reformats": list(one.reformats),
                "unmapped": list(one.unmapped),
            }
            whole = len(lane.engines) == 1 and engine.kind == "plan" and engine.device != "GPU"
            if whole:
                own["inspector"] = _inspected(plan, number, one.layers)
            if whole and engine.key in logs:
                own["placement"] = _placement(
                    network, judgement, plan, number, placed, logs[engine.key]
                )
            engines.append(own)
    differences = [text for one in engines for text in _describe_difference(one)]
    return {
        "schema": SCHEMA,
        "engines": engines,
        "differences": differences,
        "same": not differences,
    }


def _capability(judgement: Judgement, answers: Mapping[str, bool]) -> dict[str, Any]:
    wrong = []
    for name, answer in answers.items():
        verdict = judgement.verdicts.get(name)
        if verdict is not None and verdict.ok != answer:
            wrong.append(
                {
                    "layer": name,
                    "ours": verdict.ok,
                    "builder": answer,
                    "certainty": verdict.certainty,
                    "rules": [reason.rule for reason in verdict.reasons],
                }
            )
    return {"asked": len(answers), "disagree": wrong}


def _inspected(
    plan: Plan, number: int, layers: Sequence[Mapping[str, Any]]
) -> dict[str, int] | None:
    """Counts the loadables that the inspector lists; None where it says no layer's type."""
    if not any(layer["device"] for layer in layers):
        return None
    planned = sum(loadable.plan == number for loadable in plan.loadables)
    return {"plan": planned, "engine": sum(layer["device"] == "DLA" for layer in layers)}


def _placement(
    network: Network,
    judgement: Judgement,
    plan: Plan,
    number: int,
    placed: Sequence[PlacedLayer],
    log: str,
) -> dict[str, Any]:
    """Holds the plan's devices against the builder's lists of layers."""
    devices = {x.name: "GPU" if x.device == "GPU" else "DLA" for x in placed}
    ours = [loadable.layers for loadable in plan.loadables if loadable.plan == number]
    requested = replace(judgement, placed={**judgement.placed, **devices})
    found = compare(network, requested, parse_log(log.splitlines()))
    wrong = [
        {"layer": x.layer, "plan": devices[x.layer], "builder": x.builder, "words": list(x.words)}
        for x in found.layers
        # a layer that the DLA could run and the plan has on the GPU is no difference
        if x.layer in devices and x.builder in ("DLA", "GPU", "slots")
        and (x.builder == "DLA") != (devices[x.layer] == "DLA")
    ]  # fmt: skip
    theirs = [frozenset(x.built) for x in found.loadables if x.built]
    wanted = [frozenset(layers) for layers in ours]
    return {
        "evidence": found.evidence,
        "layers": len(devices),
        "differ": wrong,
        "loadables": {
            "plan": len(ours),
            "builder": len(theirs),
            "same": sum(group in theirs for group in wanted),
        },
        "warnings": list(found.warnings),
    }


def _describe_difference(one: Mapping[str, Any]) -> list[str]:
    """Returns an engine's differences as sentences."""
    texts = []
    for wrong in one["capability"]["disagree"]:
        word = "can" if wrong["builder"] else "cannot"
        own = "cannot" if wrong["builder"] else "can"
        why = f" ({', '.join(wrong['rules'])})" if wrong["rules"] else ""
        texts.append(
            f"{wrong['layer']}: {word} run on a DLA according to TensorRT, {own} according to "
            f"edgekit{why}"
        )
    place = one["placement"]
    if place is not None:
        for wrong in place["differ"]:
            why = f": {wrong['words'][0]}" if wrong["words"] else ""
            on = "GPU" if wrong["builder"] == "slots" else wrong["builder"]
            texts.append(
                f"{wrong['layer']}: planned on the {wrong['plan']}, built on the {on}{why}"
            )
        count = place["loadables"]
        if place["evidence"] == "placement" and count["plan"] != count["builder"]:
            texts.append(
                f"{one['key']}: {count['plan']} loadables planned, {count['builder']} built"
            )
    inside = one["inspector"]
    # the log says more, and distinguishes loadables of Q/DQ nodes alone from those with our layers
    silent = place is None or place["evidence"] != "placement"
    if silent and inside is not None and inside["plan"] != inside["engine"]:
        texts.append(
            f"{one['key']}: {inside['plan']} loadables planned, {inside['engine']} in the engine "
            "(engine inspector)"
        )
    if one["reformats"]:
        names, more = one["reformats"][:_SHOWN], len(one["reformats"]) - _SHOWN
        rest = f" and {more} more" if more > 0 else ""
        texts.append(
            f"{one['key']}: the engine still reformats inputs or outputs: {', '.join(names)}{rest}"
        )
    return texts
