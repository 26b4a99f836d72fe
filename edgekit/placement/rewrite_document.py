"""The ``edgekit.rewrite/1`` of a rewriting: what was applied, and the check before and after."""

from __future__ import annotations

from edgekit.placement.check_document import BriefCheck
from edgekit.removed import FormerDict
from edgekit.rewriting.graph import Applied
from edgekit.rewriting.provenance.record import AppliedRewrites
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    long_text,
    member,
    nullable,
    number,
    record,
    records,
)

_ERROR = nullable(number(0, 1e308))


@document(frozen=True)
class Approximation:
    """What an approximate rewrite changes on the calibration data.

    Attributes:
        rewrite: Its name.
        max_error: Largest difference of any output, over the output's largest value; None where
            infinities and NaNs of the original are not those of the other.
        rms_error: Root of the mean square difference, likewise.
        inputs: Samples.
        data: What they are.
        note: All of that in words.
    """

    rewrite: str = member(long_text)
    max_error: float | None = member(_ERROR)
    rms_error: float | None = member(_ERROR)
    inputs: int = member(fields.count)
    data: str = member(long_text)
    note: str = member(long_text)


@document(frozen=True)
class Rewriting(FormerDict):
    """An ``edgekit.rewrite/1``.

    Attributes:
        model: What was rewritten.
        target: The board.
        precision: "int8", "fp16" or "fp32".
        rewrites: What was applied, in order.
        before: The check of the model as it came.
        after: The check of the rewritten model.
        approximations: What approximate rewrites change.
        notes: What a person should know.
        record: What was applied, with the proofs.
        file: Where the rewritten model was written, or None.
    """

    model: str = member(long_text)
    target: str = member(fields.target)
    precision: str = member(fields.precision)
    rewrites: tuple[Applied, ...] = member(records(Applied))
    before: BriefCheck = member(record(BriefCheck))
    after: BriefCheck = member(record(BriefCheck))
    approximations: tuple[Approximation, ...] = member(records(Approximation))
    notes: tuple[str, ...] = member(array(long_text))
    record: AppliedRewrites = member(record(AppliedRewrites))
    file: str | None = member(nullable(long_text))
    schema: str = member(choice("edgekit.rewrite/1"), default="edgekit.rewrite/1")
