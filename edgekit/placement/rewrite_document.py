"""The ``edgekit.rewrite/1`` of a rewriting: the rewrites, and the check before and after."""

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
    """The error of an approximate rewrite on the calibration data.

    Attributes:
        rewrite: Its name.
        max_error: Largest difference of any output, over the output's largest value; None if
            infinities and NaNs differ from the original's.
        rms_error: Root of the mean square difference, likewise.
        inputs: Number of samples.
        data: The origin of the samples.
        note: The same in words.
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
        model: The original model.
        target: The board.
        precision: "int8", "fp16" or "fp32".
        rewrites: The applied rewrites, in order.
        before: The check of the original model.
        after: The check of the rewritten model.
        approximations: The errors of approximate rewrites.
        notes: Notes for the user.
        record: The applied rewrites, with the proofs.
        file: Path of the rewritten model, or None.
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
