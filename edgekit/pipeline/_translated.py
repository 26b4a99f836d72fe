"""Q/DQ models where TensorRT reads none on the DLA: they are translated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._listed import counted, listed
from edgekit.errors import DataError, ModelError
from edgekit.network import QDQ

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.pipeline._known_scales import KnownScales
    from edgekit.quantize import Translated
    from edgekit.targets import Target

__all__ = [
    "float_note",
    "judged_translation",
    "meant",
    "told",
    "translated_alike",
    "translation",
    "translation_note",
    "translation_notes",
]

_LISTED = 5


def translation(
    model: Model, target: Target, tensorrt: str, precision: str
) -> tuple[Translated | None, str]:
    """Translates a Q/DQ model for a release that drives a DLA and reads no Q/DQ nodes there.

    Returns:
        What it became, None where it stays as it is; and what a person should know.
    """
    # most models have none, and need neither of these floors for that
    if precision != "int8" or all(node.op_type not in QDQ for node in model.proto.graph.node):
        return None, ""
    from edgekit.dla import drives_dla, reads_qdq
    from edgekit.quantize import from_qdq

    if not drives_dla(target, tensorrt) or reads_qdq(target, tensorrt):
        return None, ""
    try:
        found = from_qdq(model)
    except ModelError as error:
        where = f" at {error.where!r}" if error.where else ""
        return None, (
            f"the Q/DQ nodes cannot be translated to implicit INT8{where}: {error.message} "
            f"({error.hint})"
        )
    return found, translation_note(found, tensorrt)


def translation_note(found: Translated, tensorrt: str) -> str:
    """Says that a model was translated, and why."""
    follow = f" and {len(found.propagated)} that follow" if found.propagated else ""
    return (
        f"TensorRT {tensorrt} reads no Q/DQ nodes on the DLA: the model is translated to implicit "
        f"INT8 with {counted(found.quantizers, 'scale')} of its own{follow} "
        "(edgekit calibrate from-qdq writes the translation)"
    )


def float_note(model: Model) -> str:
    """Says what the build of a Q/DQ model is compared with."""
    return (
        f"FP32 here is the float network that {Path(model.source).name} was translated to, without "
        "its Q/DQ nodes: neither the Q/DQ model itself nor the network that it was made from"
    )


def meant(model: Model, digest: str) -> Model:
    """Returns the model with that digest: a Q/DQ model itself, or its translation."""
    from edgekit.quantize import from_qdq, has_qdq

    if model.digest == digest or not has_qdq(model):
        return model
    try:
        plain = from_qdq(model).model
    except ModelError:
        return model
    return plain if plain.digest == digest else model


def told(translated: Translated, model: Model) -> str:
    """Says for people what the scales are of."""
    return f"Q/DQ nodes of {Path(model.source).name}, {counted(translated.quantizers, 'scale')}"


def judged_translation(
    translated: Translated,
    model: Model,
    network: Network,
    judging: Callable[[Mapping[str, float] | None], Judgement],
) -> KnownScales:
    """Judges a translated model with its scales; ``judging`` is as for ``judge_with``."""
    from edgekit.pipeline._known_scales import judge_with
    from edgekit.quantize import cache_of

    # the release of a cache that is not written does not matter
    return judge_with(cache_of(translated.scales, "8.6"), model, network, judging)


def translation_notes(translated: Translated, known: KnownScales) -> list[str]:
    """Says what a person should know of a translation, and what rewrites left without a scale."""
    notes = list(translated.notes)
    made = [lack.tensor for lack in known.reading.lacks if lack.tensor not in translated.missing]
    if made:
        notes.append(
            f"{len(made)} tensors that rewrites made have no scale in the Q/DQ model, such as "
            f"{made[0]!r}: their layers run in FP16"
        )
    return notes


def translated_alike(mine: Translated, other: Model, path: Path) -> Model:
    """Returns another file of a translated Q/DQ model, for its weights: translated likewise.

    Raises:
        DataError: "refit.mismatch": it has other activation scales, and engines hold these.
    """
    from edgekit.quantize import from_qdq, has_qdq

    if not has_qdq(other):
        return other
    found = from_qdq(other)
    names = dict.fromkeys([*mine.scales, *found.scales])
    apart = [name for name in names if mine.scales.get(name) != found.scales.get(name)]
    if apart:
        raise DataError(
            f"{len(apart)} activations have other scales in this Q/DQ file: "
            f"{listed(map(repr, apart), _LISTED)}",
            code="refit.mismatch",
            where=str(path),
            hint="scales are a part of the engines: build again, or keep the quantisers frozen "
            "while the weights are trained",
        )
    return found.model
