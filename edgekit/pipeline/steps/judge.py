"""The judged model, original or rewritten, with the known scales; and the check of the original
model, which other steps report and the cache keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgekit.dla.judge import judge
from edgekit.dla.verdicts import Judgement
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.load import (
    cut_note,
    cut_outputs,
    export_torch,
    fp16_choice,
    fp16_layers,
    given_scales,
    head_note,
    load_head,
    needs_qdq_nodes,
    parse,
    requested_shapes,
    source,
    translate_qdq,
    user_model,
    verdict_inputs,
)
from edgekit.pipeline.steps.plugin_sections import check_plugins
from edgekit.placement.check_document import Verdict, make_verdict
from edgekit.quantize.given_scales import KnownScales, judge_with

if TYPE_CHECKING:
    from edgekit.placement.check import CheckResult


@dataclass(frozen=True, eq=False)
class Lowered:
    """A model, its layers and, if known, its verdicts, which assume a scale for every tensor."""

    model: Model
    network: Network
    judgement: Judgement | None = None


@dataclass(frozen=True, eq=False)
class JudgedModel:
    """The verdicts on a model's layers, and the user's scales for it; None without any."""

    judgement: Judgement
    known: KnownScales | None


@computed(translate_qdq)
def lower_original(context: Context) -> Lowered:
    """Returns the original model, and its layers."""
    return Lowered(source(context), layers(source(context), context.tensorrt))


def judge_model(context: Context, lowered: Lowered, most: int | None = None) -> JudgedModel:
    """Returns the verdicts on a model.

    Args:
        context: The configuration.
        lowered: ``lower_original`` or ``rewritten_model``.
        most: Loadables that a DLA core may hold, if that is fewer than it can.
    """
    unscaled = context.measured.unscaled if context.measured is not None else frozenset[str]()
    return _judge(context, lowered, fp16_layers(context, lowered.network), unscaled, most)


@computed(given_scales)
def _judge(
    context: Context,
    lowered: Lowered,
    floats: frozenset[str],
    unscaled: frozenset[str],
    most: int | None,
) -> JudgedModel:
    network = lowered.network

    def judging(scales: Mapping[str, float] | None) -> Judgement:
        return judge(
            network,
            context.target,
            precision=context.file.precision,
            tensorrt=context.tensorrt,
            scales=scales,
            max_loadables=most,
            fp16_layers=floats,
            lowers=needs_qdq_nodes(context),
        )

    # every tensor is assumed to have a scale unless the user's or the measured scales
    # show otherwise
    given = given_scales(context)
    if given is None:
        # rewriting has judged these layers under the same assumption
        if lowered.judgement is not None and not (unscaled or floats or most is not None):
            return JudgedModel(lowered.judgement, None)
        # the values of scales do not matter to a verdict, only which tensors have one
        names = {*network.whole.tensors, *network.whole.fixed} - unscaled
        return JudgedModel(judging(dict.fromkeys(names, 1.0) if unscaled else None), None)

    model = lowered.model
    known = judge_with(
        given,
        model,
        network,
        judging,
        # a cache names tensors of the original, of which rewrites have moved or renamed some
        original=None if model is source(context) else source(context),
        name=context.file.calibration.cache or "",
        typed=needs_qdq_nodes(context),
    )
    return JudgedModel(known.judgement, known)


def check_original(
    context: Context, on_note: Callable[[str], object] = str, *, asks: bool = True
) -> CheckResult:
    """Checks the original model, whatever is in the cache, and reports its progress.

    With ``asks`` NVIDIA's parser is run if the configuration requests it, and cuts are proposed: a
    run's check has neither.
    """
    from edgekit.placement.check import check_model

    lacks = check_plugins(context)
    cache, found = context.file.calibration.cache, translate_qdq(context)
    typed = needs_qdq_nodes(context) and found is not None
    judged = check_model(
        # a strongly typed release takes a Q/DQ model unchanged
        user_model(context) if typed else source(context),
        file=user_model(context),
        target=context.target,
        precision=context.file.precision,
        tensorrt=context.tensorrt,
        power_mode=context.file.power_mode,
        scales=context.config.resolve(cache) if cache is not None else None,
        translated=None if typed else found,
        lowers=needs_qdq_nodes(context),
        fp16_layers=lambda network: fp16_layers(context, network, gate=False),
        plugins=[plugin.name for plugin in context.file.model.plugins],
        parser=asks and context.file.parser,
        proposes=asks,
        warnings=[
            *requested_shapes(context).notes,
            *_cut_notes(context),
            *lacks,
        ],
        on_note=on_note,
    )
    made = export_torch(context)
    if made is None:
        return judged
    warnings = (made.words(), *made.notes, *judged.document.warnings)
    return replace(judged, document=replace(judged.document, warnings=warnings))


def _cut_notes(context: Context) -> list[str]:
    """Returns notes on the place of edgekit's cut, and on the head that decodes the outputs."""
    head, section = load_head(context), context.file.model
    notes = [] if head is None else [head_note(head)]
    return [*notes, cut_note(cut_outputs(context))] if section.cut or notes else []


def check(context: Context) -> Verdict:
    """Returns the check of the original model as a run reports it."""
    return context.stored(
        Verdict,
        "check",
        lambda: make_verdict(check_original(context, asks=False).document),
        *_check_key(context),
    )


def verdict(context: Context) -> Verdict:
    """Returns the check of the original model that a rewriting reports, without suggestions.

    Suggestions need a search for rewrites, which is the next step anyhow.
    """
    # a check judges the user's model, without the layers that the accuracy gate keeps in FP16
    choice = fp16_choice(context)
    alike = translate_qdq(context) is None and choice == fp16_choice(context, gate=False)
    known = context.look_up(Verdict, "check", *_check_key(context)) if alike else None
    if known is not None:
        return known
    return context.stored(
        Verdict,
        "verdict",
        lambda: brief_check(context, lower_original(context)),
        *_check_key(context),
        choice,
    )


def _check_key(context: Context) -> tuple[Any, ...]:
    """Returns the inputs of a check; Q/DQ models of the same plain network differ in verdicts."""
    return (
        user_model(context).digest,
        source(context).digest,
        context.file.power_mode,
        fp16_choice(context, gate=False),
        *verdict_inputs(context),
    )


def brief_check(context: Context, lowered: Lowered) -> Verdict:
    """Returns the check of the original or rewritten model."""
    from edgekit.placement.check import brief_verdict

    return brief_verdict(
        lowered.network,
        judge_model(context, lowered).judgement,
        context.target,
        power_mode=context.file.power_mode,
        parses=parse(context).ok,
    )
