"""The plan: the placement of every layer with the configuration's options; and contexts with
further layers in FP16, or with a plan that the caller chose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError, GateError
from edgekit.pipeline.cache import path_identity
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.progress import bound_text
from edgekit.pipeline.steps.calibrate import check_finite_weights
from edgekit.pipeline.steps.judge import judge_model, lower_original
from edgekit.pipeline.steps.load import (
    float_layers,
    fp16_choice,
    fp16_layers,
    require_parse,
    source,
    verdict_inputs,
)
from edgekit.pipeline.steps.placement import placement_options, query_for
from edgekit.pipeline.steps.rewrite import (
    judgement,
    known_scales,
    model,
    model_digest,
    network,
    rewritten_model,
)
from edgekit.placement.cuts import Cut, cut_yaml, cuts, largest_part
from edgekit.placement.forecast import make_timer
from edgekit.text import counted, percent

if TYPE_CHECKING:
    from edgekit.placement.placing import PlacementQuery
    from edgekit.placement.plan import Plan
    from edgekit.placement.segments import SegmentedPlan


_PROFILE_NOTE = (
    "GPU alone and TensorRT's automatic DLA are placements of the rewritten network here: the "
    "profile has no times of the network as given"
)


@computed()
def query(context: Context) -> PlacementQuery:
    """Returns all inputs of the placement, to solve it once or with changes.

    Raises:
        GateError: "model.parse": the board's parser refuses the model.
    """
    require_parse(context)
    return query_for(context, network(context), judgement(context))


@computed()
def plan(context: Context) -> Plan:
    """Returns the placement.

    Raises:
        GateError: "model.parse": the board's parser refuses the model; or no placement meets the
            constraints.
    """
    from edgekit.placement.plan import Plan

    # chosen by the caller, as `edgekit tune` does for its trials
    if context.placed is not None:
        return context.placed
    require_parse(context)
    # raises if a glob matches no layer
    fp16_layers(context, network(context), strict=True)

    def looking(what: str) -> Callable[[int, int], None]:
        return lambda done, total: context.update(done, total, f"finding {what}")

    def compute() -> Plan:
        from edgekit.placement.explanation import explain_gpu_only
        from edgekit.placement.inputs import PlanImpossible
        from edgekit.placement.placing import explain_conflict

        if context.file.precision == "int8":
            check_finite_weights(context)
        text = f"placing{fp16_suffix(context)}"
        request = query(context)
        try:
            placed = request.plan(
                progress=lambda done, total: context.update(done, total, text),
                on_bound=lambda value, bound: context.update(
                    0, 0, f"{text}: {bound_text(value, bound, _value_formatter(context))}"
                ),
            )
        except GateError as error:
            if context.explains:
                explain_conflict(request, error, looking("the constraints that conflict"))
            if isinstance(error, PlanImpossible):
                _name_cut(context, error)
            raise
        if context.explains:
            placed = explain_gpu_only(
                request, placed, looking("the reason why the DLA is not used")
            )
        # the rewritten network's baselines would not show what the user's own file takes
        if network(context) is not lower_original(context).network:
            placed = _with_given_baselines(context, placed)
        return placed

    placed = context.stored(Plan, "plan", compute, *plan_identity(context))
    # their notes are added also when the plan comes from the cache
    placement_options(context)
    known_scales(context)
    gate, net = context.file.accuracy, network(context)
    by_gate = bool(context.fp16_by_gate and gate.min)
    why = f"{gate.metric} of at least {gate.min:g}" if by_gate else ""
    devices = {layer.name: layer.device for layer in placed.layers}
    fp16_notes = float_layers(context, net, strict=True).notes(net, devices, why)
    more = (*fp16_notes, *_count_notes(context, placed))
    return replace(placed, notes=(*placed.notes, *more))


def _name_cut(context: Context, error: GateError) -> None:
    """Names in the error of a standalone plan the cut that makes one possible, if there is any.

    Layers that a DLA runs only after a rewrite count if the cut is at tensors of the file.
    """
    file = lower_original(context)
    for lowered in (rewritten_model(context), file):
        verdicts = judge_model(context, lowered).judgement
        part = largest_part(lowered.network, verdicts, context.target, file.model)
        if part is not None:
            error.hint = (
                f"cut the network, and the DLA runs all of the part: {cut_yaml(part.outputs)} "
                f"({counted(part.layers, 'layer')}, {percent(part.macs_fraction)} of the MACs, in "
                f"{counted(part.loadables, 'loadable')}; the rest in a GPU engine, ONNX Runtime or "
                f"your code); or {error.hint}"
            )
            return


def _count_notes(context: Context, placed: Plan) -> list[str]:
    """Returns why a plan has another number of layers than a check, and may have another placement
    than a run.
    """
    networks = lower_original(context).network, network(context)
    checked, lowered = (len(graph.whole.layers) for graph in networks)
    reasons = []
    if lowered != checked:
        reasons.append(f"the rewrites make {lowered} of them")
    if placed.left:
        reasons.append(f"{counted(len(placed.left), 'layer')} left out")
    if constants := lowered - len(placed.layers) - len(placed.left):
        reasons.append(
            f"{counted(constants, 'constant')} {'runs' if constants == 1 else 'run'} on no device"
        )
    notes = []
    # a user who sees both numbers asks why they differ
    if len(placed.layers) != checked:
        notes.append(
            f"{counted(len(placed.layers), 'layer')} placed; check counts {checked}: "
            f"{' and '.join(reasons)}"
        )
    floats = context.file.precision != "int8" or context.target.dla.cores == 0
    if not floats and context.measured is None and known_scales(context) is None:
        notes.append(
            "Planned without calibration: run measures the ranges first, and layers that stay in "
            "FP16 by them can be placed otherwise"
        )
    return notes


def _with_given_baselines(context: Context, placed: Plan) -> Plan:
    """Returns a plan of rewritten layers with the baselines of the network as given."""
    given = lower_original(context)
    try:
        return query_for(context, given.network, judge_model(context, given).judgement).compared(
            placed
        )
    except DataError as error:
        if error.code != "profile.model":
            raise
    # times measured only of the rewritten layers: beside them a prediction would mislead
    return replace(placed, notes=(*placed.notes, _PROFILE_NOTE))


def plan_identity(context: Context) -> tuple[Any, ...]:
    """Returns the inputs of a plan: model, board, constraints and the profile's content."""
    file, section = context.file, context.file.placement
    files = [
        path_identity(context.config.resolve(path)) if path else None
        for path in (section.profile, section.layer_info)
    ]
    unscaled = context.measured.unscaled if context.measured is not None else ()
    return (
        source(context).digest,
        model_digest(context),
        file.target,
        file.power_mode,
        file.build.mode,
        section.model_dump(),
        files,
        fp16_choice(context),
        sorted(unscaled),
        sorted(fp16_layers(context, network(context))),
        *verdict_inputs(context),
    )


@computed()
def proposed_cuts(context: Context) -> tuple[Cut, ...]:
    """Returns the cuts of the original network that ``model.cut`` chooses, as in a check."""
    given = lower_original(context)
    verdicts = judge_model(context, given).judgement
    clock = make_timer(given.network, verdicts, context.target, power_mode=context.file.power_mode)
    return cuts(given.network, verdicts, clock, given.model, objective=context.cut_for)


@computed()
def segments(context: Context) -> SegmentedPlan:
    """Returns the plan with the segments to cut the model into, for both backends."""
    from edgekit.placement.segments import cut_segments

    return cut_segments(model(context), network(context), plan(context))


def keep_in_fp16(context: Context, layers: Iterable[str]) -> Context:
    """Returns a context that keeps further layers in FP16 and plans anew."""
    return replace(
        context, fp16_by_gate=tuple(dict.fromkeys((*context.fp16_by_gate, *layers))), placed=None
    )


def with_plan(context: Context, placed: Plan, fp16_by_gate: Iterable[str] = ()) -> Context:
    """Returns a context with a placement that the caller chose, and its layers in FP16."""
    return replace(keep_in_fp16(context, fp16_by_gate), placed=placed)


def fp16_suffix(context: Context) -> str:
    """Returns the accuracy gate's decision for the progress text; empty if there is none."""
    kept, by_gate = context.fp16_by_gate, context.method_by_gate
    method = f" by {by_gate.method}" if by_gate else ""
    return method + (f" with {counted(len(kept), 'layer')} in FP16" if kept else "")


def _value_formatter(context: Context) -> Callable[[float], str]:
    """Returns the function that formats a value of the objective for people."""
    from edgekit.placement.plan import OBJECTIVE_UNITS
    from edgekit.reports.text import energy, microseconds, significant

    unit = OBJECTIVE_UNITS[context.file.placement.objective]
    if unit == "qps":
        return lambda value: f"{significant(value)} per second"
    return energy if unit == "uj" else microseconds
