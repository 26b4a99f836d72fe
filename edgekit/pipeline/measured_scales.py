"""The document of a configuration's INT8 scales (`edgekit calibrate`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgekit.errors import UsageError
from edgekit.pipeline.context import Context
from edgekit.pipeline.steps.load import source
from edgekit.pipeline.steps.method import method_choice, scales
from edgekit.pipeline.steps.rewrite import known_scales, model
from edgekit.quantize.caches import write_cache
from edgekit.quantize.data.images import options_without_effect
from edgekit.quantize.given_scales import cache_for_both, named_scales
from edgekit.quantize.scales import ChangedScale, change_rows
from edgekit.reference.method import MethodChoice
from edgekit.removed import FormerDict
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    long_text,
    mapping,
    member,
    nullable,
    record,
    records,
)


@document(frozen=True)
class WrittenScales:
    """The number of tensors in a calibration cache, of those without a scale (written as 0), and
    of those of the network before its rewriting.

    Attributes:
        tensors: Number of tensors with an entry.
        without: Number of tensors without a scale.
        original: Number of tensors of the network before its rewriting.
    """

    tensors: int = member(fields.count)
    without: int = member(fields.count)
    original: int = member(fields.count)


@document(frozen=True, kw_only=True)
class MeasuredScales(FormerDict):
    """An ``edgekit.scales/1``.

    Attributes:
        model: The calibrated model.
        method: The method: "entropy", "minmax", "percentile" or "mse".
        choice: Why that method was chosen; None if it was given.
        data: The calibration data.
        digest: Digest of the data and of how they are read.
        scales: The scales by tensor.
        without: Tensors without a scale.
        changes: Scales that the hardware makes wider.
        notes: Notes for the user.
        file: The calibration cache, or None.
        written: The contents of the calibration cache, or None.
    """

    schema: str = member(choice("edgekit.scales/1"), default="edgekit.scales/1")
    model: str = member(long_text)
    method: str = member(long_text)
    choice: MethodChoice | None = member(nullable(record(MethodChoice)))
    data: str = member(long_text)
    digest: str = member(long_text)
    scales: Mapping[str, float] = member(mapping(fields.figure, long_text))
    without: tuple[str, ...] = member(array(long_text))
    changes: tuple[ChangedScale, ...] = member(records(ChangedScale))
    notes: tuple[str, ...] = member(array(long_text))
    file: str | None = member(nullable(long_text))
    written: WrittenScales | None = member(nullable(record(WrittenScales)))


def measured_scales(context: Context, save: Path | None) -> MeasuredScales:
    """Returns the scales of a configuration, and writes a calibration cache to ``save``.

    Raises:
        UsageError: "calibration.precision": the precision needs none.
    """
    found, came, made = scales(context), source(context), model(context)
    if found is None:
        raise UsageError(
            f"{context.file.precision} needs no scales",
            code="calibration.precision",
            hint="calibrate with precision int8",
        )
    named = named_scales(found, made)
    written = None
    if save is not None:
        # for the file before and after the rewrites: the user may build either
        cache = cache_for_both(found, made, came, context.tensorrt)
        write_cache(cache, save)
        none = sum(not scale for scale in cache.scales.values())
        other = len(cache.scales.keys() - {*named.scales, *named.missing})
        written = WrittenScales(len(cache.scales), none, other)
    return MeasuredScales(
        model=came.source,
        method=found.method,
        choice=method_choice(context),
        data=found.data,
        digest=found.digest,
        scales=named.scales,
        without=tuple(named.missing),
        changes=change_rows(found.changes),
        notes=(*context.session.notes, *found.warnings, *_unused_option_notes(context)),
        file=str(save) if save else None,
        written=written,
    )


def _unused_option_notes(context: Context) -> list[str]:
    """Returns notes about given options on which the scales do not depend."""
    section = context.file.calibration
    if section.data is None:
        return options_without_effect(context.config.document.given_keys("calibration"))
    if known_scales(context) is None:
        return []
    given = "the calibration cache" if section.cache else "the model's Q/DQ nodes"
    return [f"the scales come from {given}; {section.data} is only used to compare accuracy"]
