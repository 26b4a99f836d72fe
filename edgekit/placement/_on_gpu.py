"""Why layers are on the GPU that could run on a DLA, for all of them at once.

``explain_layer`` tests one layer by solving again; this compares what each kernel takes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Network
    from edgekit.placement._types import Plan
    from edgekit.targets import Target

__all__ = ["gpu_reasons"]

_FIX = "edgekit plan CONFIG --why LAYER tests one layer by planning without it on the GPU"
_SOURCE = "the plan and edgekit's cost model: predicted, each kernel alone"


def gpu_reasons(
    plan: Plan, network: Network, judgement: Judgement, target: Target
) -> list[dict[str, Any]]:
    """Returns the reasons by kind, the most frequent first, with the layers that each is of.

    Only layers of the first plan are meant that a DLA could run. Of each kind: "rule", "count",
    "sources", "fixes" and "layers" ({"name", "message", "found", "limit"}), as the report has the
    rules against the DLA.
    """
    able = {name for name, verdict in judgement.verdicts.items() if verdict.placeable}
    there = [x.name for x in plan.layers if x.device == "GPU" and x.name in able]
    if not there or not target.dla.cores:
        return []
    elsewhere: dict[str, set[str]] = {}
    for share in plan.plans[1:]:
        for layer in share.layers:
            if layer.device != "GPU":
                elsewhere.setdefault(layer.name, set()).add(layer.device)
    sides = _sides(plan, network, judgement, target)
    groups: dict[str, list[dict[str, str]]] = {}
    for name in there:
        rule, told = _reason(plan, name, sorted(elsewhere.get(name, ())), sides.get(name))
        groups.setdefault(rule, []).append({"name": name, **told})
    return [
        {"rule": rule, "count": len(layers), "sources": [_SOURCE], "fixes": [_FIX],
         "layers": layers}
        for rule, layers in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]  # fmt: skip


def _sides(
    plan: Plan, network: Network, judgement: Judgement, target: Target
) -> Mapping[str, tuple[float, float]]:
    from edgekit.placement._forecast import clock_of

    try:
        clock = clock_of(network, judgement, target, power_mode=plan.power_mode)
    except (KeyError, ValueError):  # a network whose tensors are not known
        clock = None
    return clock.sides() if clock else {}


def _reason(
    plan: Plan, name: str, others: Sequence[str], sides: tuple[float, float] | None
) -> tuple[str, dict[str, str]]:
    """Returns the kind of the reason; its sentence, what was found and what it is held against."""
    limits = plan.constraints
    pin = next(
        (
            one["layers"]
            for one in reversed(limits.get("pins") or ())
            if fnmatchcase(name, str(one["layers"]))
        ),
        None,
    )
    if pin is not None:
        return "pinned to the GPU", _told(f"the pin {pin} asks for the GPU", str(pin), "")
    if not limits.get("dla_cores", True):
        return "no DLA core may be used", _told("dla_cores names none", "none", "")
    if plan.precision == "fp32":
        return "FP32 stays on the GPU", _told("a DLA has no FP32", "FP32", "INT8 or FP16")
    if others:
        told = f"other frames have it on {' or '.join(others)}: the devices share the load"
        return "on a DLA in other frames", _told(told, ", ".join(others), "")
    if sides is None:
        return "the best plan has it there", _told(f"best for {plan.objective}", "", "")
    gpu, dla = sides
    times = f"{dla:.3g} µs on the DLA", f"{gpu:.3g} µs on the GPU"
    if not gpu and not dla:
        return (
            "it takes no time of its own",
            _told("it goes with the layers around it, which are on the GPU", *times),
        )
    if plan.objective == "gpu_time":
        return (
            "the GPU would reformat longer",
            _told("what the GPU would reformat for it takes the GPU longer than the layer", *times),
        )
    if plan.objective in ("throughput", "period"):
        return (
            "the devices share the load",
            _told("the work is divided so that no device waits for another", *times),
        )
    if dla > gpu:
        return (
            "slower on the DLA",
            _told("its kernel takes longer on the DLA than on the GPU", *times),
        )
    return (
        "the hand-over costs more",
        _told(
            "its kernel is no slower on the DLA, but starting a loadable and handing its tensors "
            f"over cost more for {plan.objective}", *times,
        ),
    )  # fmt: skip


def _told(message: str, found: str, limit: str) -> dict[str, str]:
    return {"message": message, "found": found, "limit": limit}
