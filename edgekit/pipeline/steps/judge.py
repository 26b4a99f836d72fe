"""The model judged, as it came or rewritten, with the scales that are known; and the check of the
model as it came, which other steps report and the cache keeps.
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
    exported,
    fp16_choice,
    fp16_layers,
    given_scales,
    head_note,
    head_of,
    lowers,
    named,
    outputs_of,
    parse,
    requested,
    rules,
    source,
    translated,
)
from edgekit.pipeline.steps.plugin_sections import check_plugins
from edgekit.placement.check_document import Verdict, verdict_of
from edgekit.quantize.given_scales import KnownScales, judge_with

if TYPE_CHECKING:
    from edgekit.placement.check import CheckResult


@dataclass(frozen=True, eq=False)
class Lowered:
    """A model and its layers; its verdicts, every tensor with a scale, where these are known."""

    model: Model
    network: Network
    judgement: Judgement | None = None


@dataclass(frozen=True, eq=False)
class JudgedModel:
    """The verdicts on a model's layers, and what the user's scales give; None without any."""

    judgement: Judgement
    known: KnownScales | None


@computed(translated)
def original(context: Context) -> Lowered:
    """Returns the model as it came, and its layers."""
    return Lowered(source(context), layers(source(context), context.tensorrt))


def judged(context: Context, lowered: Lowered, most: int | None = None) -> JudgedModel:
    """Returns the verdicts on a model.

    Args:
        context: The configuration.
        lowered: ``original`` or ``rewritten``.
        most: Loadables that a DLA core may hold, where that is fewer than it can.
    """
    unscaled = context.measured.unscaled if context.measured is not None else frozenset[str]()
    return _judged(context, lowered, fp16_layers(context, lowered.network), unscaled, most)


@computed(given_scales)
def _judged(
    context: Context,
    lowered: Lowered,
    floats: frozenset[str],
    unscaled: frozenset[str],
    most: int | None,
) -> JudgedModel:
    network = lowered.network

    def judging(scales: Mapping[str, float] | None) -> Judgement:
        return judge(
            network, context.target, precision=context.file.precision, tensorrt=context.tensorrt,
            scales=scales, max_loadables=most, fp16_layers=floats, lowers=lowers(context),
        )  # fmt: skip

    # every tensor is taken to have a scale unless the user, or what was measured, says
    # which ones do
    given = given_scales(context)
    if given is None:
        if lowered.judgement is not None and not (unscaled or floats or most is not None):
            return JudgedModel(lowered.judgement, None)
        names = {*network.whole.tensors, *network.whole.fixed} - unscaled
        return JudgedModel(judging(dict.fromkeys(names, 1.0) if unscaled else None), None)

    model = lowered.model
    known = judge_with(
        given, model, network, judging,
        original=None if model is source(context) else source(context),
        name=context.file.calibration.cache or "",
        typed=lowers(context),
    )  # fmt: skip
    return JudgedModel(known.judgement, known)


def checked(
    context: Context, on_note: Callable[[str], object] = str, *, asks: bool = True
) -> CheckResult:
    """Checks the model as it came, whatever is in the cache, and reports its progress.

    ``asks``: whether NVIDIA's parser is asked where the configuration wants its word, and cuts are
    proposed: a run says neither of its check.
    """
    from edgekit.placement.check import check_model

    lacks = check_plugins(context)
    cache, found = context.file.calibration.cache, translated(context)
    typed = lowers(context) and found is not None
    judged = check_model(
        # a strongly typed release takes a Q/DQ model as it is
        named(context) if typed else source(context),
        file=named(context),
        target=context.target,
        precision=context.file.precision,
        tensorrt=context.tensorrt,
        power_mode=context.file.power_mode,
        scales=context.config.resolve(cache) if cache is not None else None,
        translated=None if typed else found,
        lowers=lowers(context),
        fp16_layers=lambda network: fp16_layers(context, network, gate=False),
        plugins=[plugin.name for plugin in context.file.model.plugins],
        parser=asks and context.file.parser,
        proposes=asks,
        warnings=[
            *requested(context).notes,
            *_cut_notes(context),
            *lacks,
        ],
        on_note=on_note,
    )
    made = exported(context)
    if made is None:
        return judged
    warnings = (made.words(), *made.notes, *judged.document.warnings)
    return replace(judged, document=replace(judged.document, warnings=warnings))


def _cut_notes(context: Context) -> list[str]:
    """Says where edgekit cut the network, and what decodes its outputs."""
    head, section = head_of(context), context.file.model
    notes = [] if head is None else [head_note(head)]
    return [*notes, cut_note(outputs_of(context))] if section.cut or notes else []


def check(context: Context) -> Verdict:
    """Returns what a run says of the check of the model as it came."""
    return context.stored(
        Verdict, "check", lambda: verdict_of(checked(context, asks=False).document),
        *_checking(context),
    )  # fmt: skip


def verdict(context: Context) -> Verdict:
    """Returns the check of the model as it came that a rewriting reports, without suggestions.

    What would help is found by looking for rewrites, which comes next anyhow.
    """
    # a check judges what the user named, without what the accuracy gate keeps in FP16
    choice = fp16_choice(context)
    alike = translated(context) is None and choice == fp16_choice(context, gate=False)
    known = context.look_up(Verdict, "check", *_checking(context)) if alike else None
    if known is not None:
        return known
    return context.stored(
        Verdict, "verdict", lambda: brief_check(context, original(context)), *_checking(context),
        choice,
    )  # fmt: skip


def _checking(context: Context) -> tuple[Any, ...]:
    """What a check depends on; Q/DQ models of one plain network differ in what is judged."""
    return (
        named(context).digest, source(context).digest, context.file.power_mode,
        fp16_choice(context, gate=False), *rules(context),
    )  # fmt: skip


def brief_check(context: Context, lowered: Lowered) -> Verdict:
    """Returns the check of the model as it came or rewritten."""
    from edgekit.placement.check import brief_verdict

    return brief_verdict(
        lowered.network, judged(context, lowered).judgement, context.target,
        power_mode=context.file.power_mode, parses=parse(context).ok,
    )  # fmt: skip
