"""The reference build and its accuracy: the error against FP32, the cost of INT8 layer by layer,
the accuracy gate, the layers that return to FP16 if INT8 misses it, and the change by each
approximate rewrite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import DataError, GateError
from edgekit.network.model import Model
from edgekit.pipeline.cache import StoredArtefacts, load_artefacts, store_artefacts
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.calibrate import (
    calibration_inputs,
    inputs_identity,
    inputs_text,
    measures_ranges,
)
from edgekit.pipeline.steps.load import (
    detection_options,
    load_head,
    needs_qdq_nodes,
    source,
    translate_qdq,
    user_model,
    user_plugins,
    verdict_inputs,
)
from edgekit.pipeline.steps.memory import announce_memory
from edgekit.pipeline.steps.method import (
    chooses_method,
    method,
    method_choice,
    plan_scales,
    scales,
    tied_scales,
)
from edgekit.pipeline.steps.plan import fp16_suffix, keep_in_fp16, plan, segments
from edgekit.pipeline.steps.rewrite import model, model_digest, network, used_rewrites
from edgekit.placement.plan import PredictedCost
from edgekit.placement.rewrite_document import Approximation
from edgekit.placement.segments import cut_segments
from edgekit.placement.translation import float_note
from edgekit.reference.accuracy import Accuracy, Float32Reference, accuracy_of_variants
from edgekit.reference.build import build_reference
from edgekit.reference.gate import GateChoice
from edgekit.reference.search_bounds import (
    Feeds,
    FirstInputs,
    SearchBounds,
    bound_note,
    bounds_of_run,
    part_text,
    trial_limit,
)
from edgekit.reference.trials import TrialInputs
from edgekit.reference.weights import WeightStore
from edgekit.rewriting.rules.order import APPROXIMATE
from edgekit.text import counted, listed
from edgekit_device.detection.matching import Detection
from edgekit_device.protocol.codec import (
    document,
    integer,
    mapping,
    member,
    nullable,
    record,
    records,
    write,
)
from edgekit_device.protocol.manifest import BOXES

if TYPE_CHECKING:
    from edgekit.reference.artefacts import Artefacts
    from edgekit.reference.sensitivity import Proposal, Sensitivity


@computed()
def build_key(context: Context) -> str:
    """Returns the identity of the build: model, placement and scales."""
    # without predicted times: they do not change the engines
    placed = [
        [share.share, [[p.name, p.device, p.precision, p.segment] for p in share.layers]]
        for share in plan(context).plans
    ]
    found = plan_scales(context)
    digest = found.digest if found else None
    return context.cache.key("build", model_digest(context), placed, digest)


def artefacts(context: Context) -> Artefacts:
    """Returns the engines of the reference build: the target's numerics, on this CPU."""
    return _build_engines(context)[0]


@computed()
def _build_engines(context: Context) -> tuple[Artefacts, bool]:
    """Returns the engines, and True if they were built just now."""
    key, cache = build_key(context), context.cache
    stored = None if context.force else cache.find(StoredArtefacts, "build", key)
    plugins = user_plugins(context)
    found = load_artefacts(cache, stored, plugins) if stored else None
    if found is not None:
        return found, False
    context.session.fresh.add("build")
    # trials of scales and layers hold FP32 sessions and engines at once
    holds = plan_scales(context) is not None
    announce_memory(context, model(context), holds=holds)
    text = f"engines{fp16_suffix(context)}, segment"
    cut = segments(context)
    found = build_reference(
        cut,
        plan_scales(context),
        progress=lambda done, total: context.update(done, total, f"{text} {done} of {total}"),
        store=WeightStore(cut.runnable.model, cache.store_array),
    )
    stored = store_artefacts(cache, found)
    cache.keep("build", key, stored)
    # read back: the weights are memory maps of the cache from now on
    return load_artefacts(cache, stored, plugins) or found, True


@computed()
def accuracy(context: Context) -> Accuracy:
    """Returns the error of the built network against FP32 over the calibration inputs."""
    # new engines are compared anew: an older comparison may be of damaged engines
    built, fresh = _build_engines(context)
    return context.stored(
        Accuracy,
        "accuracy",
        lambda: measured_accuracy(context, model(context), built),
        *_comparison_key(context),
        again=fresh,
    )


def _comparison_key(context: Context) -> tuple[Any, ...]:
    """Returns the inputs of a comparison of the build."""
    return build_key(context), inputs_identity(context), *_detector_key(context)


def _detector_key(context: Context) -> tuple[Any, ...]:
    """Returns the values that decide about losses of a detector."""
    detection = output_decoding(context)
    own = () if detection is None else (write(detection.head), write(detection.options))
    return context.file.accuracy.scores, *own


def output_decoding(context: Context) -> Detection | None:
    """Returns the decoding of the network's outputs into objects; None without a head."""
    head = load_head(context)
    return None if head is None else Detection(head, detection_options(context))


def refit_accuracy(context: Context, other: Model, built: Artefacts) -> Accuracy:
    """Returns the error of a build with another model's weights against that model in FP32."""
    return context.stored(
        Accuracy,
        "refit accuracy",
        lambda: measured_accuracy(context, other, built),
        other.digest,
        *_comparison_key(context),
    )


def measured_accuracy(
    context: Context,
    other: Model | Float32Reference,
    built: Artefacts,
    *,
    text: str = "",
    inputs: Feeds | None = None,
    part: int | None = None,
) -> Accuracy:
    """Compares a build with its FP32 model over the calibration inputs.

    Of several plan variants the worst counts; ``per_segment`` has them all.

    Args:
        context: The configuration.
        other: The FP32 model.
        built: The build.
        text: Name of the build in progress reports.
        inputs: The inputs; None to read them.
        part: Number of the calibration inputs that are compared; None for all.
    """
    text = text or f"accuracy{fp16_suffix(context)}"
    inputs = calibration_inputs(context) if inputs is None else inputs
    found = accuracy_of_variants(
        other,
        built,
        lambda number, count: _count_inputs(context, text, inputs, number, count),
        scores=context.file.accuracy.scores,
        detection=output_decoding(context),
    )
    # a part of the inputs does not show the number of all inputs
    if part is None:
        context.session.read = found.count
    gate = context.file.accuracy
    # without objects in FP32 the F1 score is 1 for any build that finds none
    if (
        gate.metric == BOXES
        and gate.min is not None
        and not (found.objects is not None and found.objects.expected)
    ):
        raise DataError(
            f"FP32 finds no object with a score above {context.file.detection.score:g}, so no "
            "boxes can be compared",
            code="accuracy.no-objects",
            where=part_text(part, inputs_text(context)),
            hint="give pictures with objects (calibration.data), or lower detection.score",
        )
    random = "random weights and " if context.file.model.builtin is not None else ""
    return replace(found, data=random + part_text(part, inputs_text(context)))


def _count_inputs(
    context: Context, text: str, inputs: Feeds, plan: int, plans: int
) -> Iterator[Mapping[str, np.ndarray]]:
    """Yields the inputs; reports their number out of the total of all plans."""
    total = len(inputs) if isinstance(inputs, Sized) else 0
    text += f", plan {plan + 1} of {plans}" if plans > 1 else ""
    of = f" of {total}" if total else ""
    for done, sample in enumerate(inputs):
        context.update(plan * total + done, plans * total, f"{text}, input {done + 1}{of}")
        yield sample


def measured_sensitivity(context: Context, part: int | None = None) -> Sensitivity:
    """Returns the cost of INT8 for each kernel of the plan, on all inputs or the first few."""
    from edgekit.reference.sensitivity import Sensitivity, analyse

    def compute() -> Sensitivity:
        inputs = calibration_inputs(context)
        return analyse(
            segments(context),
            plan_scales(context),
            inputs if part is None else FirstInputs(inputs, part),
            progress=lambda done, total: context.update(
                done, total, f"INT8 sensitivity by kernel{fp16_suffix(context)}"
            ),
        )

    # all inputs keep the key of an analysis without a limit
    key = build_key(context), inputs_identity(context), *([] if part is None else [part])
    return context.stored(Sensitivity, "sensitivity", compute, *key)


def proposed_layers(
    context: Context,
    metric: str,
    minimum: float | None,
    bounds: SearchBounds,
    ranking: Context | None = None,
) -> Proposal:
    """Returns the fewest layers to keep in FP16 for an accuracy, each trial built and measured.

    Trials leave every layer at its place; the caller plans with the result. Each trial is stored:
    an interrupted search continues where it stopped, and a search for another accuracy begins
    with the known trials.

    Args:
        context: The configuration.
        metric: A metric of ``gate.METRICS``.
        minimum: The lowest value that passes; None if the only condition is that no output
            collapses.
        bounds: The limits of the search.
        ranking: The configuration whose plan's kernels are ranked; None for ``context``.
    """
    from edgekit.reference.proposal import propose, reaches
    from edgekit.reference.sensitivity import Proposal

    ranking = ranking or context
    ranked = trial_limit(calibration_inputs(context), bounds.ranked)
    int8 = _int8_layers(context)

    def compute() -> Proposal:
        found = measured_sensitivity(ranking, ranked).impacts
        impacts = [impact for impact in found if not int8.isdisjoint(impact.layers)]
        builds = TrialBuilds.that_miss(context, bounds.tried, metric, minimum)
        trials = 0
        best: int | None = None

        def measure(layers: frozenset[str]) -> Accuracy:
            nonlocal trials, best
            trials += 1
            so_far = "none yet" if best is None else f"{counted(best, 'layer')} in FP16"
            text = f"trial {trials}{fp16_suffix(context)}, best so far {so_far}"
            context.update(0, 0, text)
            found = builds.accuracy(context, layers, text)
            if reaches(found, metric, minimum):
                best = len(layers) if best is None else min(best, len(layers))
            return found

        proposal = propose(impacts, measure, metric=metric, minimum=minimum, most=bounds.builds)
        return replace(proposal, ranked=ranked, tried=builds.part)

    key = (
        build_key(context),
        build_key(ranking),
        inputs_identity(context),
        metric,
        minimum,
        *_detector_key(context),
        asdict(bounds),
    )
    return context.stored(Proposal, "proposal", compute, *key)


def _int8_layers(context: Context) -> frozenset[str]:
    """Returns the layers that the plan has in INT8."""
    return frozenset(layer.name for layer in plan(context).layers if layer.precision == "int8")


class TrialBuilds:
    """Builds that are compared with FP32 on the same inputs; their engines are not kept.

    Args:
        context: The configuration.
        most: Inputs to compare on; None for all.

    Attributes:
        part: Number of inputs that they are compared on; None for all.
    """

    def __init__(self, context: Context, most: int | None) -> None:
        self._context = context
        self._trials = TrialInputs(model(context), calibration_inputs(context), most)
        self.part = self._trials.part

    @classmethod
    def that_miss(
        cls, context: Context, most: int | None, metric: str, minimum: float | None
    ) -> TrialBuilds:
        """Returns builds on enough inputs that the context's own build misses the accuracy on them.

        The build misses it on all inputs; if it passes on the first ``most``, these are doubled.
        """
        from edgekit.reference.proposal import reaches

        # this ends: `part` is None as soon as all inputs are used
        while True:
            builds = cls(context, most)
            if builds.part is None:
                return builds
            text = f"accuracy of the first {builds.part} inputs{fp16_suffix(context)}"
            if not reaches(builds.accuracy(context, frozenset(), text), metric, minimum):
                return builds
            most = 2 * builds.part

    def accuracy(self, context: Context, layers: frozenset[str], text: str) -> Accuracy:
        """Returns the accuracy of the plan's build with these layers in FP16."""
        from edgekit.reference.proposal import with_fp16

        # the build itself on all inputs, which the gate has measured
        if not layers and self.part is None and context is self._context:
            return accuracy(context)
        context.update(0, 0, text)

        def compute() -> Accuracy:
            placed = with_fp16(plan(context), layers)
            cut = cut_segments(model(context), network(context), placed)
            built = build_reference(cut, tied_scales(context, placed))
            return measured_accuracy(
                context,
                self._trials.float32,
                built,
                text=text,
                inputs=self._trials.inputs,
                part=self.part,
            )

        return context.stored(
            Accuracy,
            "trial",
            compute,
            build_key(context),
            inputs_identity(context),
            sorted(layers),
            *_detector_key(context),
            *([] if self.part is None else [self.part]),
        )


def _bounds(context: Context) -> SearchBounds:
    """Returns the limits of a run's search."""
    gate = context.file.accuracy
    if gate.thorough:
        return SearchBounds()
    count = context.file.calibration.count
    return bounds_of_run(network(context), plan(context), count, gate.min)


@document(frozen=True)
class _TriedMethods:
    """The accuracy of a build with each calibration method.

    Attributes:
        part: Number of inputs, the first; None for all.
        methods: The accuracy by method.
    """

    part: int | None = member(nullable(integer(1, 1 << 31)))
    methods: Mapping[str, Accuracy] = member(mapping(record(Accuracy)))


def with_nearest_method(context: Context) -> Context:
    """Returns a context with the calibration method that is best by the gate's metric.

    The scales of every method come from the same measured ranges; each is built with the plan and
    compared with FP32 on the same inputs, which may be the first few.
    """
    from edgekit.quantize.calibration.histograms import METHODS
    from edgekit.reference.method import choice_by_gate, choice_note, gate_note

    gate, first = context.file.accuracy, method(context)
    bounds = _bounds(context)

    def compute() -> _TriedMethods:
        builds = TrialBuilds.that_miss(context, bounds.tried, gate.metric, gate.min)
        found = {}
        # the method in use comes first: its build is in the cache
        for name in (first, *(name for name in METHODS if name != first)):
            other = context
            if name != first:
                other = replace(context, method_by_gate=GateChoice(name))
            text = f"accuracy gate, calibration method {name}"
            found[name] = builds.accuracy(other, frozenset(), text)
        return _TriedMethods(builds.part, found)

    key = (
        build_key(context),
        inputs_identity(context),
        gate.metric,
        *_detector_key(context),
        bounds.tried,
    )
    tried = context.stored(_TriedMethods, "methods", compute, *key)
    by_gate = choice_by_gate(tried.methods, first, gate.metric, gate.min)
    chosen = method_choice(context)
    if chosen is not None and by_gate.method != first:
        # the gate overrules the choice that this note reports
        context.session.withdraw(choice_note(chosen))
    compared = counted(chosen.inputs, "input") if chosen else ""
    context.note(
        gate_note(
            by_gate,
            tried.methods,
            gate.min,
            f"{first}, the choice by SNR on {compared},",
            part_text(tried.part, inputs_text(context)),
        )
    )
    return replace(context, method_by_gate=by_gate)


def fall_back_to_fp16(context: Context) -> Context:
    """Returns a context with the fewest layers in FP16 with which the build passes the gate.

    Raises:
        GateError: No layers suffice, not even all.
    """
    from edgekit.reference.proposal import Fp16Search, reaches, shortfall

    gate = context.file.accuracy
    if measures_ranges(context) and not chooses_method(context):
        context.note(
            f"Only calibration method {method(context)} is tried, because the configuration names "
            "it; to try the others before layers go to FP16: calibration: {method: auto}"
        )

    def propose(context: Context, bounds: SearchBounds, ranking: Context) -> Proposal:
        found = proposed_layers(context, gate.metric, gate.min, bounds, ranking)
        if found.layers is None:
            raise gate_failure(context, shortfall(found), found.accuracy, fp16=False)
        return found

    def keep(context: Context, found: Proposal) -> Context:
        if note := bound_note(None if found.minimal else found.builds, found.ranked, found.tried):
            context.note(note)
        return keep_in_fp16(context, found.layers or ())

    return Fp16Search(
        propose=propose,
        keep=keep,
        kept=lambda context: frozenset(context.fp16_by_gate),
        int8=_int8_layers,
        passes=lambda context: reaches(accuracy(context), gate.metric, gate.min),
        thorough=gate.thorough,
    ).run(context, _bounds(context))


def gate_failure(context: Context, text: str, error: Accuracy, *, fp16: bool = True) -> GateError:
    """Returns the error of a build below the gate; ``fp16`` is True if FP16 may pass."""
    from edgekit.reference.proposal import below_gate

    return below_gate(
        text,
        error,
        data=error.data or inputs_text(context),
        int8=context.file.precision == "int8" and fp16,
        fallback=context.file.accuracy.fallback == "fp16",
    )


def accuracy_notes(context: Context) -> list[str]:
    """Returns notes on the meaning of the accuracy's numbers."""
    notes = [
        f"accuracy is measured against the FP32 network on {inputs_text(context)}, "
        "emulated on this machine; it is not task accuracy"
    ]
    if context.file.model.builtin is not None:
        notes.append("the network's weights are random")
    if translate_qdq(context) is not None:
        notes.append(float_note(user_model(context)))
    if context.fp16_by_gate:
        notes.append(f"kept in FP16: {listed(context.fp16_by_gate)}")
    return notes


def _cost_of_fp16(int8: PredictedCost, mixed: PredictedCost) -> str:
    """Returns the cost of the layers that the gate keeps in FP16, in words."""
    from edgekit.reports.text import energy, microseconds

    figures = (
        ("latency", microseconds, int8.latency_us, mixed.latency_us),
        ("GPU time", microseconds, int8.gpu_us, mixed.gpu_us),
        ("energy", energy, int8.energy_uj, mixed.energy_uj),
    )
    words = [
        f"{name} {text(after)} instead of {text(before)}"
        for name, text, before, after in figures
        # figures that round to the same text are no difference to a reader
        if before is not None and after is not None and text(before) != text(after)
    ]
    return f"Cost of the layers in FP16 (predicted): {', '.join(words) or 'none'}"


def pass_accuracy_gate(context: Context) -> Context:
    """Returns a context whose build passes the configuration's gate, itself if it does.

    Without a gate no output may collapse, and a detector must keep its scores.

    If INT8 misses the gate, a calibration method that was chosen is replaced by the best of the
    others. If INT8 still misses it, the fewest layers with which it passes are kept in FP16, in
    the plan and in the engines too. With the configuration's fallback "none" neither is done.

    Raises:
        GateError: No build passes.
    """
    from edgekit.reference.proposal import reaches

    gate = context.file.accuracy

    def misses(context: Context) -> bool:
        return not reaches(accuracy(context), gate.metric, gate.min)

    if misses(context) and scales(context) is not None and gate.fallback == "fp16":
        # first another method: it costs no time on the board, layers in FP16 do
        if chooses_method(context):
            context = with_nearest_method(context)
        if misses(context):
            int8, context = context, fall_back_to_fp16(context)
            context.note(_cost_of_fp16(plan(int8).predicted, plan(context).predicted))
    check_accuracy(context, accuracy(context))
    return context


def check_accuracy(context: Context, error: Accuracy) -> None:
    """Raises GateError when ``error`` is below the configuration's gate."""
    from edgekit.reference.proposal import describe_miss

    if text := describe_miss(error, context.file.accuracy.metric, context.file.accuracy.min):
        raise gate_failure(context, text, error)


@document(frozen=True)
class _Approximations:
    """The cache's record of approximate rewrites."""

    found: tuple[Approximation, ...] = member(records(Approximation))


def approximations(context: Context) -> tuple[Approximation, ...]:
    """Returns the change by each applied approximate rewrite on the calibration data.

    Each is applied to the original network alone.
    """
    from edgekit.reference.approximation import approximation, approximation_note
    from edgekit.rewriting.rewrite import rewrite

    names = dict.fromkeys(
        item.rewrite for item in used_rewrites(context).applied if item.rewrite in APPROXIMATE
    )
    if not names:
        return ()

    def compute() -> _Approximations:
        found = []
        for number, name in enumerate(names):
            context.update(number, len(names), f"error of {name}")
            alone = rewrite(
                source(context),
                context.target,
                precision=context.file.precision,
                tensorrt=context.tensorrt,
                enable="none",
                allow_approx=[name],
                lowers=needs_qdq_nodes(context),
            ).model
            # if it applies only after other rewrites, the change by all is the nearest answer
            after = model(context) if alone is source(context) else alone
            found.append(approximation(name, source(context), after, calibration_inputs(context)))
        return _Approximations(tuple(found))

    stored = context.stored(
        _Approximations,
        "approximate",
        compute,
        source(context).digest,
        model_digest(context),
        list(names),
        inputs_identity(context),
        *verdict_inputs(context),
    ).found
    context.session.read = stored[0].inputs
    data = inputs_text(context)
    return tuple(replace(row, data=data, note=approximation_note(row, data)) for row in stored)
