"""The document of measured INT8 scales, and of the calibration cache that they are written to.

A scale is the step of INT8; ``amax`` is the largest value that it reaches.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.quantize.scales import ChangedScale
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
    """What a calibration cache got: tensors, those without a scale (written as 0), and those of
    the network before its rewriting.
    """

    tensors: int = member(fields.count)
    without: int = member(fields.count)
    original: int = member(fields.count)


@document(frozen=True, kw_only=True)
class MeasuredScales(FormerDict):
    """An ``edgekit.scales/1``.

    Attributes:
        model: What was calibrated.
        method: How: "entropy", "minmax", "percentile" or "mse".
        choice: Why that method was taken; None where it was given.
        data: The data.
        digest: Of the data and how they are read.
        scales: By tensor.
        without: Tensors that have none.
        changes: Scales that the hardware makes wider.
        notes: What a person should know.
        file: The calibration cache, or None.
        written: What it got, or None.
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
