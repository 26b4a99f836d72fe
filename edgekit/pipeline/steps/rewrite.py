"""The rewritten model: the applied rewrites, the decision to use them, its layers and verdicts, and
the rewritten network with the weights of another file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.dla.verdicts import Judgement
from edgekit.network.loading.load import load, open_inputs
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network
from edgekit.pipeline.cache import StoredModel, load_model, store_model
from edgekit.pipeline.context import Context, computed
from edgekit.pipeline.steps.judge import Lowered, judge_model, lower_original
from edgekit.pipeline.steps.load import (
    cut_outputs,
    fp16_choice,
    needs_qdq_nodes,
    requested_shapes,
    source,
    translate_qdq,
    user_plugins,
    verdict_inputs,
)
from edgekit.pipeline.steps.placement import query_for
from edgekit.placement.forecast import forecast
from edgekit.placement.translation import translate_likewise, translation_notes
from edgekit.quantize.given_scales import KnownScales
from edgekit.rewriting.graph import Applied
from edgekit.rewriting.provenance.record import AppliedRewrites, read_record, record_document
from edgekit.text import counted
from edgekit_device.protocol import codec

if TYPE_CHECKING:
    from edgekit.rewriting.rewrite import Rewritten


@dataclass(frozen=True, eq=False)
class FoundRewrites:
    """The result of the rewrites, used or not.

    Attributes:
        model: The cache's record of the rewritten model; None without rewrites.
        applied: The rewrites that were applied.
        record: The ``edgekit.rewrites/1``: the applied rewrites with their proofs.
        notes: Notes for the user.
        rewritten: The result of rewriting, if it was not read from the cache.
    """

    model: StoredModel | None
    applied: tuple[Applied, ...]
    record: AppliedRewrites
    notes: tuple[str, ...]
    rewritten: Rewritten | None = None


@dataclass(frozen=True)
class _StoredRewrites:
    """The cache's record of ``FoundRewrites``."""

    model: StoredModel | None = codec.member(codec.nullable(codec.record(StoredModel)))
    record: AppliedRewrites = codec.member(codec.record(AppliedRewrites))
    notes: tuple[str, ...] = codec.member(codec.array(codec.long_text))


@dataclass(frozen=True)
class _Reason:
    """The reason why the original network is kept; empty if it is not."""

    text: str = codec.member(codec.long_text)


@computed(verdict_inputs, "rewrite")
def found_rewrites(context: Context) -> FoundRewrites:
    """Returns the result of the rewrites; it does not depend on the user's constraints."""
    section, model = context.file.rewrite, source(context)
    fresh: list[Rewritten] = []

    def compute() -> _StoredRewrites:
        from edgekit.rewriting.rewrite import rewrite

        found = rewrite(
            model,
            context.target,
            precision=context.file.precision,
            tensorrt=context.tensorrt,
            enable=section.enable,
            disable=section.disable,
            allow_approx=section.allow_approx,
            lowers=needs_qdq_nodes(context),
            # the board's usual power mode: the rewrites are the same for all modes
            cost=lambda network, judgement: forecast(network, judgement, context.target),
            progress=lambda done: context.update(0, 0, f"{counted(done, 'rewrite')} tried"),
        )
        fresh.append(found)
        applied = found.applied
        return _StoredRewrites(
            store_model(context.cache, found.model, model) if applied else None,
            record_document(model, found.model, applied),
            found.notes,
        )

    # `always` decides about the use of rewrites, not about what is found
    key = model.digest, section.model_dump(exclude={"always"}), *verdict_inputs(context)
    stored = context.stored(_StoredRewrites, "rewrite", compute, *key)
    made = fresh[0] if fresh else None
    return FoundRewrites(stored.model, stored.record.rewrites, stored.record, stored.notes, made)


@computed(found_rewrites)
def _lower_rewritten(context: Context) -> Lowered:
    """Returns the rewritten model, used or not, and its layers."""
    found, came = found_rewrites(context), source(context)
    fresh, model = found.rewritten, came
    if found.model and fresh is not None:
        model = fresh.model
    elif found.model:
        read = load_model(context.cache, found.model, came)
        if read is None:  # the cache's blobs were deleted
            return _lower_rewritten(replace(context, force=True))
        model = read
    # the search has just computed layers and verdicts: computing them again would take as long
    if fresh is not None and fresh.network is not None and fresh.judgement is not None:
        return Lowered(model, fresh.network, fresh.judgement)
    return (
        lower_original(context)
        # the very same object: `plan` compares the networks by identity
        if model is came
        else Lowered(model, layers(model, context.tensorrt))
    )


@computed(found_rewrites, "weighs", "power_mode", "build.mode", "placement")
def used_rewrites(context: Context) -> FoundRewrites:
    """Returns the rewrites in use: all or, if the plan is better without, none."""
    found, came = found_rewrites(context), source(context)
    why = ""
    if found.model and context.weighs and not context.file.rewrite.always:
        # the layers that the accuracy gate keeps in FP16 are found after the rewrites are decided
        file, fp16 = context.file, fp16_choice(context, gate=False)
        constraints = [file.power_mode, file.build.mode, file.placement.model_dump(), fp16]
        why = context.stored(
            _Reason,
            "without rewrites",
            lambda: _Reason(_reason_against_rewrites(context.undecided)),
            came.digest,
            found.model.digest,
            constraints,
            *verdict_inputs(context),
        ).text
    if why:
        left = f"Rewrites not used: {why}; rewrite.always: true forces them"
        record = record_document(came, came, ())
        found = FoundRewrites(None, (), record, (*found.notes, left))
    context.note(*found.notes)
    return found


def _reason_against_rewrites(context: Context) -> str:
    """Returns why the original network should be kept; empty if it should not."""
    if context.file.placement.profile is not None:
        return ""  # measured times belong to only one of the two networks
    context.update(0, 0, "planning with and without the rewrites")
    from edgekit.placement.without_rewrites import better_without

    before, after = (
        query_for(context, lowered.network, judge_model(context, lowered).judgement)
        for lowered in (lower_original(context), _lower_rewritten(context))
    )
    return better_without(before, after)


def unrewritten_network(context: Context) -> tuple[Network, Judgement] | None:
    """Returns the network without its rewrites, and its verdicts, if a plan may be better so.

    None if there are no rewrites, the GPU alone is no slower, or the user wants the rewrites.
    """
    if found_rewrites(context).model is None or context.file.rewrite.always:
        return None
    from edgekit.placement.without_rewrites import slower_on_gpu

    before, after = (
        (lowered.network, judge_model(context, lowered).judgement)
        for lowered in (lower_original(context), _lower_rewritten(context))
    )
    slower = slower_on_gpu(before, after, context.target, context.file.power_mode)
    return before if slower else None


@computed(used_rewrites)
def rewritten_model(context: Context) -> Lowered:
    """Returns the model after the rewrites, and its layers."""
    left_out = used_rewrites(context).model is None and found_rewrites(context).model is not None
    return lower_original(context) if left_out else _lower_rewritten(context)


def model_digest(context: Context) -> str:
    """Returns the digest of the model after the rewrites, without loading it."""
    record = used_rewrites(context).model
    return record.digest if record else source(context).digest


def model(context: Context) -> Model:
    """Returns the model after the rewrites."""
    return rewritten_model(context).model


def network(context: Context) -> Network:
    """Returns the layers of the rewritten model."""
    return rewritten_model(context).network


def judgement(context: Context) -> Judgement:
    """Returns the verdicts on the rewritten model.

    Raises:
        DataError: "cache.missing": the user's scales are incomplete.
    """
    known_scales(context)  # raises the error
    return judge_model(context, rewritten_model(context)).judgement


@computed(rewritten_model)
def known_scales(context: Context) -> KnownScales | None:
    """Returns the user's scales for the rewritten network; None without any.

    Raises:
        DataError: "cache.missing": scales are missing, and the user did not allow it.
    """
    known, found = (
        judge_model(context.undecided, rewritten_model(context)).known,
        translate_qdq(context),
    )
    if known is None:
        return None
    section = context.file.calibration
    if found is not None and section.cache is None:
        # tensors that the Q/DQ model does not quantise are meant to run in floats
        context.note(*translation_notes(found, known))
        return known
    if known.unlisted and section.missing == "error":
        raise known.refusal
    context.note(*known.notes)
    return known


def other_weights(context: Context, path: Path) -> Model:
    """Returns the rewritten model with the weights of another file of the original's names.

    The file may be the original with other values even if the configuration's model is the output
    of ``edgekit rewrite``; and it may be a file that was rewritten likewise.

    Raises:
        DataError: "refit.mismatch": its weights differ in name, shape or type, or the files differ
            in more than weights.
    """
    from edgekit.rewriting.provenance.other_weights import check_file, check_network, reweigh

    mine, found = model(context), translate_qdq(context)
    if found is None:
        check_file(path, mine)
    # cut points of a rewritten file may not be tensors of the original
    cut = cut_outputs(context) or None if read_record(source(context)) is None else None
    # the sizes for the file's inputs: the configuration's, or else the model's
    own = {value.name: value.type.tensor_type.shape.dim for value in mine.proto.graph.input}
    left_open = [name for name in open_inputs(path) if name in own]
    sizes = {name: [dim.dim_value for dim in own[name]] for name in left_open}
    shapes = {**sizes, **requested_shapes(context).optimum} or None
    other = load(path, shapes=shapes, outputs=cut, plugins=user_plugins(context))
    if found is not None:
        other = translate_likewise(found, other, path)
    if read_record(mine) is not None:
        return reweigh(mine, other)
    check_network(mine, other)
    return other
