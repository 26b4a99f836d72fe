"""The calibration method, given or chosen, and its INT8 scales; and Q/DQ nodes instead of a cache
on strongly typed releases. `calibration.method: auto` takes the method whose INT8 is nearest to
FP32 for the plan, on inputs held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgekit.errors import EdgekitError
from edgekit.network.model import Model
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.calibrate import (
    calibration_inputs,
    check_finite_weights,
    compute_scales,
    constrained_scales,
    inputs_identity,
    later_inputs,
    measures_ranges,
    ranges,
    report_inference,
    with_measured_ranges,
    with_nodes,
)
from edgekit.pipeline.steps.load import (
    fp16_choice,
    fp16_layers,
    needs_qdq_nodes,
    source,
    translate_qdq,
    user_model,
)
from edgekit.pipeline.steps.plan import plan
from edgekit.pipeline.steps.rewrite import (
    judgement,
    known_scales,
    model,
    model_digest,
    network,
    rewritten_model,
)
from edgekit.placement.translation import describe_translation
from edgekit.quantize.given_scales import ScaleBinding, tie_qdq, warn_unequal
from edgekit.quantize.scales import Ranges, Scales, tie_cache_scales

if TYPE_CHECKING:
    from edgekit.placement.plan import Plan
    from edgekit.reference.method import Feed, MethodChoice


def choose_method(context: Context, placed: Plan) -> MethodChoice:
    """Builds a plan with the scales of each method and compares them with FP32.

    The inputs are not those of the measured ranges: the next inputs of the data, or further
    synthetic inputs; if there are too few, the measured inputs are added. If the data have no
    others, each half is compared with scales from the ranges of the other half; a single input is
    used for both.
    """
    from edgekit.placement.segments import cut_segments
    from edgekit.quantize.calibration.measure import measure
    from edgekit.reference.method import (
        COMPARED,
        HeldOutInput,
        MethodErrors,
        compare_methods,
        inputs_to_compare,
        most_inputs,
    )

    def measure_half(feeds: Sequence[Feed], which: str) -> Ranges:
        progress = report_inference(context, f"ranges on the {which} half of the inputs")
        return measure(model(context), feeds, network=network(context), progress=progress)

    bound = placed.scale_binding
    errors = MethodErrors(
        cut_segments(model(context), network(context), placed),
        lambda own, name: compute_scales(context, own, name, bound),
        context.file.accuracy.scores,
        most_inputs(int(sum(layer.macs for layer in network(context).layers))),
        context.update,
    )
    return compare_methods(
        errors,
        inputs_to_compare(
            ranges(context),
            lambda: later_inputs(context, COMPARED[-1]),
            calibration_inputs(context),
            measure_half,
        ),
        lambda: (
            HeldOutInput(feed, ranges(context), False) for feed in calibration_inputs(context)
        ),
    )


def trial_plan(context: Context) -> Plan:
    """Returns the plan, of a single variant; if there is none, the plan of the GPU alone."""
    from edgekit.placement.placing import PlacementQuery
    from edgekit.placement.plan import Options

    try:
        placed = plan(context)
    except EdgekitError:
        # `edgekit calibrate` has no plan step: constraints that no plan meets do not stop it
        placed = PlacementQuery(
            network(context),
            judgement(context),
            context.target,
            "int8",
            context.file.power_mode,
            Options(dla_cores=()),
        ).plan()
    # the methods differ in scales alone: one variant of a plan that shares frames shows it
    return replace(placed, plans=placed.plans[:1])


def chooses_method(context: Context) -> bool:
    """Returns True if scales are measured and the method is chosen by its accuracy."""
    return measures_ranges(context) and context.file.calibration.method == "auto"


def method_choice(context: Context) -> MethodChoice | None:
    """Returns the measured accuracy of the calibration methods; None if the method is given.

    It stays if the accuracy gate later decides otherwise: then ``gate`` has the reason.
    """
    if not chooses_method(context):
        return None
    by_gate = context.method_by_gate
    # the gate's decisions are no inputs of the choice: without them the earlier result is found
    if by_gate or context.fp16_by_gate:
        context = replace(context, method_by_gate=None, fp16_by_gate=())
    found = _try_methods(with_measured_ranges(context))
    return replace(found, gate=by_gate) if by_gate else found


@computed(rewritten_model)
def _try_methods(context: Context) -> MethodChoice:
    from edgekit.reference.method import MethodChoice, choice_note

    placed = trial_plan(context)
    places = [[p.name, p.device, p.precision, p.segment] for p in placed.layers]
    found = context.stored(
        MethodChoice,
        "method",
        lambda: choose_method(context, placed),
        model_digest(context),
        inputs_identity(context),
        places,
        fp16_choice(context, gate=False),
        context.tensorrt,
    )
    context.note(choice_note(found))
    return found


def method(context: Context) -> str:
    """Returns the configuration's calibration method, or the chosen method, at last the gate's."""
    if context.method_by_gate:
        return context.method_by_gate.method
    chosen = method_choice(context)
    return chosen.method if chosen else context.file.calibration.method


@dataclass(frozen=True)
class _NoScales:
    """The calibration result for another precision than INT8."""


@computed()
def scales(context: Context) -> Scales | None:
    """Returns INT8 scales for every placement; None for other precisions.

    Tensors tied by a layer that the DLA can run have equal scales, wherever a plan has the layer.

    Raises:
        ModelError: "model.nonfinite": a weight has NaN or infinite values.
    """
    if context.file.precision != "int8":
        # stored, so that the next run shows the step as "reused"
        context.stored(
            _NoScales, "calibrate", _NoScales, model_digest(context), context.file.precision
        )
        return None
    context = with_measured_ranges(context)
    # given scales do not check the weights
    check_finite_weights(context)
    return _tie_scales(context, constrained_scales(context))


@computed()
def plan_scales(context: Context) -> Scales | None:
    """Returns the scales of the build: only layers that the plan has on a DLA share scales."""
    return tied_scales(context, plan(with_measured_ranges(context)))


def tied_scales(context: Context, placed: Plan) -> Scales | None:
    """Returns the INT8 scales for a plan, made equal if its layers need it."""
    if scales(context) is None:
        return None
    return _tie_scales(with_measured_ranges(context), placed.scale_binding)


def _tie_scales(context: Context, bound: ScaleBinding) -> Scales:
    """Returns the scales, equal for tensors that layers tie.

    On strongly typed releases they name the tensors that have Q/DQ nodes.
    """
    known, found, net = known_scales(context), translate_qdq(context), network(context)
    if known is None:
        return compute_scales(context, ranges(context), method(context), bound)
    scales = known.reading.scales
    if found is None or context.file.calibration.cache is not None:
        return with_nodes(context, tie_cache_scales(scales, net, **bound))
    scales = replace(scales, method="qdq", data=describe_translation(found, user_model(context)))
    # typed: the nodes define the build
    made = warn_unequal if needs_qdq_nodes(context) else tie_qdq
    return with_nodes(context, made(scales, net, bound))


def typed_model(context: Context, other: Model | None = None) -> Model:
    """Returns the model with types: the user's own Q/DQ model if it has no rewrites and no layers
    kept in FP16, or else a lowered model.

    INT8 on strongly typed releases (from TensorRT 11.4.1 on): Q/DQ nodes instead of a cache.

    Planning, costs and the reference build use the plain network, its scales and the precision of
    each layer between Q/DQ nodes. The nodes are not layers of the plan: they take no time, since
    each is a part of the kernel that writes or reads its tensor (assumed; NVIDIA's DLA operator
    matrix notes for both "can be collapsed to INT8 scaling factor"). Between INT8 and FP16 the plan
    pays for the reformat as in any other build.

    Args:
        context: The configuration.
        other: Other weights in the same network; None for the configuration's own.
    """
    from edgekit.quantize.qdq.to_explicit import to_qdq

    scales, net = plan_scales(context), network(context)
    own = scales is not None and translate_qdq(context) is not None and other is None
    if own and model(context) is source(context) and not _differs_from_qdq(context):
        return user_model(context)
    known = {} if scales is None else scales.scales
    return to_qdq(other or model(context), net, known, fp16_layers=fp16_layers(context, net))


def typed_identity(context: Context) -> list[Any]:
    """Returns the inputs of ``typed_model``."""
    scales = plan_scales(context)
    fp16 = sorted(fp16_layers(context, network(context)))
    return [
        user_model(context).digest,
        model_digest(context),
        _differs_from_qdq(context),
        fp16,
        scales and dict(scales.scales),
    ]


def _differs_from_qdq(context: Context) -> bool:
    """Returns True if FP16 layers are in INT8 in the user's Q/DQ model, or scales differ."""
    section = context.file.calibration
    return bool(section.fp16_layers or context.fp16_by_gate or section.cache)
