"""Options that select a detector's objects: in a bundle's samples and in detection."""

from __future__ import annotations

from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import document, flag, member


@document(frozen=True)
class Options:
    """Options that select the objects to keep.

    Attributes:
        score: Least score.
        iou: Overlap (intersection over union) above which the box of the lower score is removed.
        most: Largest number of objects per frame.
        agnostic: True if boxes of different classes suppress each other.
    """

    score: float = member(fields.share, default=0.25)
    iou: float = member(fields.share, default=0.45)
    most: int = member(fields.count, default=300)
    agnostic: bool = member(flag, default=False)
