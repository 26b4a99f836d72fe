"""The translation of a Q/DQ model before its placement: a plain model and scales if the release
takes implicit INT8; and the notes on strongly typed releases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.dla.judge import reads_qdq
from edgekit.dla.precision import precisions_by_qdq
from edgekit.dla.verdicts import Judgement
from edgekit.errors import DataError, ModelError
from edgekit.network.lowering.layers import layers
from edgekit.network.model import QDQ, Model, Network
from edgekit.targets.releases import supports_dla
from edgekit.text import counted, listed

if TYPE_CHECKING:
    from edgekit.quantize.given_scales import KnownScales
    from edgekit.quantize.qdq.to_implicit import Translated
    from edgekit.targets.board import Target

_LISTED = 5


def translate(
    model: Model, target: Target, tensorrt: str, precision: str
) -> tuple[Translated | None, str]:
    """Translates a Q/DQ model for a release that supports a DLA and reads no Q/DQ nodes there.

    Returns:
        The translation, None if the model is unchanged; and a note.
    """
    # most models have no Q/DQ nodes and need neither of these modules
    if precision != "int8" or all(node.op_type not in QDQ for node in model.proto.graph.node):
        return None, ""
    from edgekit.quantize.qdq.to_implicit import from_qdq

    # without a DLA the GPU reads Q/DQ nodes itself
    if not supports_dla(target, tensorrt) or reads_qdq(target, tensorrt):
        return None, ""
    try:
        found = from_qdq(model)
    except ModelError as error:
        where = f" at {error.where!r}" if error.where else ""
        return None, (
            f"the Q/DQ nodes cannot be converted to implicit INT8{where}: {error.message} "
            f"({error.hint})"
        )
    return found, translation_note(found, tensorrt)


def translation_note(found: Translated, tensorrt: str) -> str:
    """Returns the note that a model was translated, and why."""
    if not found.scales:
        return (
            f"TensorRT {tensorrt} does not support Q/DQ nodes on the DLA: the model is converted "
            "to one without them; only its weights are quantised, so its layers run in FP16 "
            "(edgekit calibrate from-qdq writes the result)"
        )
    follow = f" and {len(found.propagated)} derived ones" if found.propagated else ""
    return (
        f"TensorRT {tensorrt} does not support Q/DQ nodes on the DLA: the model is "
        "converted to implicit INT8 with its "
        f"{counted(found.quantizers, 'scale')}{follow} (edgekit calibrate from-qdq "
        "writes the result)"
    )


def float_note(model: Model) -> str:
    """Returns the note on the reference of a Q/DQ model's build."""
    return (
        f"FP32 means {Path(model.source).name} without its Q/DQ nodes, not the Q/DQ "
        "model or the network it was made from"
    )


def find_model_by_digest(model: Model, digest: str) -> Model:
    """Returns the model with that digest: a Q/DQ model itself, or its translation."""
    from edgekit.quantize.qdq.to_implicit import from_qdq, has_qdq

    # translating takes time, and most models have no Q/DQ nodes
    if model.digest == digest or not has_qdq(model):
        return model
    try:
        plain = from_qdq(model).model
    except ModelError:
        return model
    return plain if plain.digest == digest else model


def describe_translation(translated: Translated, model: Model) -> str:
    """Returns a text on the origin of the scales."""
    return f"Q/DQ nodes of {Path(model.source).name}, {counted(translated.quantizers, 'scale')}"


def judge_translation(
    translated: Translated,
    model: Model,
    network: Network,
    judging: Callable[[Mapping[str, float] | None], Judgement],
) -> KnownScales:
    """Judges a translated model with its scales; ``judging`` as in ``judge_with``."""
    from edgekit.quantize.caches import make_cache
    from edgekit.quantize.given_scales import judge_with

    # the cache is not written, so its release does not matter
    return judge_with(make_cache(translated.scales, "8.6"), model, network, judging)


def translation_notes(translated: Translated, known: KnownScales) -> list[str]:
    """Returns notes on a translation, and on tensors without a scale after rewrites.

    If the model has no scales at all, rewrites are not mentioned.
    """
    notes = list(translated.notes)
    if not translated.scales:
        return notes
    made = [lack.tensor for lack in known.reading.lacks if lack.tensor not in translated.missing]
    if made:
        notes.append(
            f"{len(made)} tensors created by rewrites have no scale in the Q/DQ model, such "
            f"as {made[0]!r}: their layers run in FP16; to keep the model's own nodes: "
            "rewrite: {enable: none}"
        )
    return notes


def translate_likewise(mine: Translated, other: Model, path: Path) -> Model:
    """Returns another file of a translated Q/DQ model, translated likewise, for its weights.

    Raises:
        DataError: "refit.mismatch": its activation scales differ from those in the engines.
    """
    from edgekit.quantize.qdq.to_implicit import from_qdq, has_qdq

    if not has_qdq(other):
        return other
    found = from_qdq(other)
    names = dict.fromkeys([*mine.scales, *found.scales])
    # a refit replaces weights alone: scales of activations are compiled into the engines
    apart = [name for name in names if mine.scales.get(name) != found.scales.get(name)]
    if apart:
        raise DataError(
            f"{len(apart)} activations have different scales in this Q/DQ file: "
            f"{listed(map(repr, apart), _LISTED)}",
            code="refit.mismatch",
            where=str(path),
            hint="scales are part of the engines: build again, or keep the quantisers frozen "
            "during training",
        )
    return found.model


def is_typed(target: Target, tensorrt: str, precision: str) -> bool:
    """Returns True if INT8 on a board's DLA needs Q/DQ nodes with a TensorRT release."""
    return precision == "int8" and supports_dla(target, tensorrt) and reads_qdq(target, tensorrt)


def typed_note(tensorrt: str) -> str:
    """Returns the note that a plain network will be lowered."""
    return (
        f"TensorRT {tensorrt} is strongly typed and accepts no calibration cache: Q/DQ "
        "nodes with the cache's scales are added to the network (edgekit calibrate "
        "to-qdq writes the model)"
    )


def lowering_note(model: Model, tensorrt: str) -> list[str]:
    """Returns the note that a model will be lowered; empty for a Q/DQ model, which is unchanged."""
    from edgekit.quantize.qdq.to_implicit import has_qdq

    return [] if has_qdq(model) else [typed_note(tensorrt)]


def translate_typed(model: Model, tensorrt: str) -> tuple[Translated | None, str]:
    """Removes the Q/DQ nodes of a model for planning; the build uses the original model.

    Layers that are not between Q/DQ nodes stay in FP16, as in the model.

    Returns:
        The plain network and its scales, None if there is no such form or no Q/DQ node; and a note.
    """
    from edgekit.quantize.qdq.to_implicit import from_qdq, has_qdq

    if not has_qdq(model):
        return None, ""
    try:
        found = from_qdq(model)
    except ModelError as error:
        return None, (
            "the Q/DQ nodes are planned as layers, because the model cannot be converted "
            f"to a plain one ({error.message})"
        )
    network = layers(model, tensorrt)
    precisions = precisions_by_qdq(network)
    halves = dict.fromkeys(
        name
        for layer in network.layers
        if precisions[layer.name] == "fp16"
        for name in (layer.nodes or layer.origin)
    )
    return replace(found, fp16_nodes=tuple({**dict.fromkeys(found.fp16_nodes), **halves})), ""
