"""Which of the objects that a detector finds are kept: in a bundle's samples, and where they are
found.
"""

from __future__ import annotations

from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import document, flag, member


@document(frozen=True)
class Options:
    """What is kept.

    Attributes:
        score: Least score.
        iou: Overlap above which the box of the lower score goes.
        most: Objects a frame at most.
        agnostic: Whether boxes of different classes suppress each other.
    """

    score: float = member(fields.share, default=0.25)
    iou: float = member(fields.share, default=0.45)
    most: int = member(fields.count, default=300)
    agnostic: bool = member(flag, default=False)
