"""The plan: where every layer runs, with the configuration's options; and contexts with further
layers in FP16, or with a plan that somebody else chose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.errors import GateError
from edgekit.pipeline.cache import identity_of_path
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.progress import describe_bound
from edgekit.pipeline.steps.calibrate import check_finite_weights
from edgekit.pipeline.steps.load import fp16_choice, fp16_layers, fp16_notes, rules
from edgekit.pipeline.steps.placement import options_of, query_for
from edgekit.pipeline.steps.rewrite import (
    judgement,
    known_scales,
    model,
    model_digest,
    network,
    used_rewrites,
)
from edgekit.pipeline.steps.scales import ScaleBinding
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.placement.placing import PlacementQuery
    from edgekit.placement.plan import Plan
    from edgekit.placement.segments import SegmentedPlan


@computed()
def query(context: Context) -> PlacementQuery:
    """Returns all that the placement needs, to solve it once or with changes."""
    return query_for(context, network(context), judgement(context))


@computed()
def plan(context: Context) -> Plan:
    """Returns the placement."""
    from edgekit.placement.plan import plan_from_json

    if context.placed is not None:
        return context.placed
    found: list[Plan] = []
    fp16_layers(context, network(context), strict=True)

    def looking(what: str) -> Callable[[int, int], None]:
        return lambda done, total: context.update(done, total, f"finding {what}")

    def compute() -> dict[str, Any]:
        from edgekit.placement.explanation import explain_gpu_only
        from edgekit.placement.placing import explain_conflict

        if context.file.precision == "int8":
            check_finite_weights(context)
        text = f"placing{fp16_suffix(context)}"
        request = query(context)
        try:
            placed = request.plan(
                progress=lambda done, total: context.update(done, total, text),
                on_bound=lambda value, bound: context.update(
                    0, 0, f"{text}: {describe_bound(value, bound, _units(context))}"
                ),
            )
        except GateError as error:
            if context.explains:
                explain_conflict(request, error, looking("the constraints that conflict"))
            raise
        if context.explains:
            placed = explain_gpu_only(
                request, placed, looking("the reason why the DLA is not used")
            )
        found.append(placed)
        return placed.to_json()

    document = context.stored("plan", compute, *plan_identity(context))
    placed = found[0] if found else plan_from_json(document)
    # they are noted whatever was known before the plan was computed
    options_of(context)
    known_scales(context)
    more = (*fp16_notes(context, network(context), placed), *used_rewrites(context).layers)
    return replace(placed, notes=(*placed.notes, *more))


def plan_identity(context: Context) -> tuple[Any, ...]:
    """Returns what a plan depends on: model, board, constraints and the profile's content."""
    file, section = context.file, context.file.placement
    files = [identity_of_path(context.config.resolve(path)) if path else None
             for path in (section.profile, section.layer_info)]  # fmt: skip
    unscaled = context.measured.unscaled if context.measured is not None else ()
    return (
        model_digest(context), file.target, file.power_mode, file.build.mode,
        section.model_dump(), files, fp16_choice(context), sorted(unscaled),
        sorted(fp16_layers(context, network(context))), *rules(context),
    )  # fmt: skip


@computed()
def segments(context: Context) -> SegmentedPlan:
    """Returns the plan with the segments to cut the model into, for both backends."""
    from edgekit.placement.segments import segmented

    return segmented(model(context), network(context), plan(context))


def binding_of(placed: Plan) -> ScaleBinding:
    """Returns what binds scales in a plan: the layers that it has in INT8 on a DLA."""
    layers = [layer for share in placed.plans for layer in share.layers]
    int8 = [layer for layer in layers if layer.precision == "int8"]
    on_dla = {layer.name for layer in int8 if layer.device != "GPU"}
    floats = {layer.name for layer in layers} - {layer.name for layer in int8}
    return {"dla_layers": on_dla, "fp16_layers": floats}


def keep(context: Context, layers: Iterable[str]) -> Context:
    """Returns a context that keeps further layers in FP16 and plans anew."""
    return replace(
        context, fp16_by_gate=tuple(dict.fromkeys((*context.fp16_by_gate, *layers))), placed=None
    )


def take(context: Context, placed: Plan, fp16_by_gate: Iterable[str] = ()) -> Context:
    """Returns a context with a placement that somebody else chose, and its layers in FP16."""
    return replace(keep(context, fp16_by_gate), placed=placed)


def fp16_suffix(context: Context) -> str:
    """Names what the accuracy gate decided in the progress text; empty where it did not."""
    kept, by_gate = context.fp16_by_gate, context.method_by_gate
    method = f" by {by_gate.method}" if by_gate else ""
    return method + (f" with {counted(len(kept), 'layer')} in FP16" if kept else "")


def _units(context: Context) -> Callable[[float], str]:
    """Returns what writes a value of the objective for people."""
    from edgekit.placement.plan import OBJECTIVE_UNITS
    from edgekit.reports.text import energy, microseconds, significant

    unit = OBJECTIVE_UNITS[context.file.placement.objective]
    if unit == "qps":
        return lambda value: f"{significant(value)} per second"
    return energy if unit == "uj" else microseconds
